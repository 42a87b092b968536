"""teacher_forcing: every section runs on the values of the graph before, whatever went wrong in front of it."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.build.verify.differences import max_abs_difference
from compiler.graph import model as graphs
from compiler.graph.runners.forced_values import TeacherForcedRun, TeacherForcedRuns, common_values, read_by, section_of
from compiler.graph.runners.instrumented import forced
from compiler.graph.runners.stream import OriginalCall
from compiler.graph.stages import Lowered
from compiler.passes.overwrite_states import OverwriteStates
from compiler.passes.pack_states import PackStates
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from tests.kit.deep_stream import behind, change_weight, deep_stream, steps_of
from tests.kit.graphs import parse, random_weights
from tests.kit.offline import offline
from tests.kit.short_chunks import chunk, padded

OFFLINE = """(float[batch,time,4] x, float[4,4] w) => (float[batch,s,4] y) <int64[1] one = {1}>
 { h = MatMul(x, w) e = Exp(h) m = ReduceMean<keepdims = 1>(e, one) y = Sub(e, m) }"""


def wrong_values(forced_run: TeacherForcedRun, tolerance: float = 1e-5) -> list[str]:
    """Regions that make something else of right inputs."""
    return [
        name
        for name in forced_run.right
        if max_abs_difference(forced_run.got(name), forced_run.expected(name)) > tolerance
    ]


def layers(count: int) -> Lowered:
    return deep_stream(count)


def test_only_the_broken_region_is_wrong_in_every_call() -> None:
    before, after = layers(3), layers(3)
    change_weight(after.model, "wk_0", 1.5)
    forced_runs = list(TeacherForcedRuns(before, after, common_values(before, after)).run(steps_of(before, 4)))
    assert [wrong_values(forced_run) for forced_run in forced_runs] == [["key_0"]] * 4
    own = forced_runs[2].own["logits"] - forced_runs[2].right["logits"]
    assert np.max(np.abs(own)) > 1e-2, "the error reaches the output when nothing is forced"


def test_padding_of_caches_is_left_as_the_graph_has_it() -> None:
    before = layers(2)
    after = WindowStates().apply(PadAxes().apply(layers(2)).lowered).lowered
    steps = steps_of(before, 4)
    forced_runs = list(TeacherForcedRuns(before, after, common_values(before, after)).run(steps))
    assert forced_runs[0].right["key_0"].shape[1] == 4
    assert forced_runs[0].own["key_0"].shape[1] == 12
    assert not any(wrong_values(forced_run) for forced_run in forced_runs)
    change_weight(after.model, "wv_1", 1.5)
    forced_runs = list(TeacherForcedRuns(before, after, common_values(before, after)).run(steps))
    assert [wrong_values(forced_run) for forced_run in forced_runs] == [["value_1"]] * 4


def test_states_are_given_where_a_graph_has_them_that_gives_new_frames_alone() -> None:
    before, after = padded(), OverwriteStates().apply(padded()).lowered
    steps = [OriginalCall(chunk(length, number), {}, {}) for number, length in enumerate((1, 2, 3, 1, 2, 4))]
    forced_runs = TeacherForcedRuns(before, after, ["frames", "logits"])
    assert [wrong_values(forced_run) for forced_run in forced_runs.run(steps)] == [[]] * len(steps)


def test_states_are_given_as_the_pass_has_packed_them() -> None:
    def padded() -> Lowered:
        return WindowStates().apply(PadAxes().apply(layers(2)).lowered).lowered

    before, after = padded(), PackStates().apply(padded()).lowered
    assert len(after.states) == 1
    graphs.infer_shapes(after.model)
    forced_runs = list(TeacherForcedRuns(before, after, common_values(before, after)).run(steps_of(layers(2), 4)))
    assert after.states[0].output in forced_runs[0].right
    assert not any(wrong_values(forced_run) for forced_run in forced_runs)


def test_lengths_behind_an_axis_are_cut_to_what_is_valid() -> None:
    weights = random_weights({"w": (4, 4)})
    before = offline(OFFLINE, weights)
    graphs.infer_shapes(before.model)
    after = PadAxes().apply(offline(OFFLINE, weights)).lowered
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((1, length, 4)).astype(np.float32)} for length in (3, 7)]

    def wrong() -> list[list[str]]:
        forced_runs = TeacherForcedRuns(before, after, common_values(before, after))
        return [wrong_values(forced_runs._forced_run(number, feed, {})) for number, feed in enumerate(feeds)]

    assert common_values(before, after) == ["h", "e", "y"]
    assert wrong() == [[], []]
    behind(after.model, "h", "Mul", np.arange(4, dtype=np.float32), "shifted")
    graphs.infer_shapes(after.model)
    assert wrong() == [["e"], ["e"]]


def test_a_region_ends_at_values_that_both_graphs_have() -> None:
    after = layers(2)
    behind(after.model, "scores_1", "Mul", np.array(2, np.float32), "new")
    names = common_values(layers(2), after)
    assert "new" not in names
    section = section_of(after, "scaled_1", set(names) - {"scaled_1"})
    assert [node.op_type for node in section] == ["Mul", "Mul"]
    assert [value.name for value in read_by(section)] == ["scores_1"]
    inputs = [value.name for value in forced(after, ["scores_1"]).model.graph.inputs]
    assert inputs[-1] == "forced.scores_1"


def test_values_read_inside_branches_belong_to_the_region() -> None:
    model = parse(
        """(float[2] x, bool c) => (float[2] y) { a = Relu(x) y = If(c) <
        then_branch = t () => (float[2] u) { u = Neg(a) }, else_branch = e () => (float[2] v) { v = Abs(x) }> }"""
    )
    lowered = Lowered("net", model)
    assert [node.op_type for node in section_of(lowered, "y", ())] == ["Relu", "If"]
    assert {str(value.name) for value in read_by(section_of(lowered, "y", ["a"]))} == {"a", "x", "c"}


@pytest.mark.parametrize("op", ["Constant", "Shape"])
def test_constants_and_whole_numbers_are_not_compared(op: str) -> None:
    body = "k = Constant<value = float[2] {1.0, 2.0}>()" if op == "Constant" else "k = Shape(x)"
    model = parse(f"(float[2] x) => (float[2] y) {{ {body} y = Relu(x) }}")
    assert isinstance(model, ir.Model)
    assert common_values(Lowered("net", model), Lowered("net", model)) == ["y"]
