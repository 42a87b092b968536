"""formed_graphs: what forms do to a graph, what is said of it, and what ends the build."""

from pathlib import Path

import numpy as np
import pytest

from compiler.errors import InternalError
from compiler.graph.stages import Lowered
from compiler.targets.formed_graphs import GraphWithVariants, VariantOutcome, apply_variants, outcomes_of
from tests.kit.contract import content_of
from tests.kit.formed import ToyStatic
from tests.kit.graphs import copy_of, parse

BUCKETS = {"batch": (1, 2)}

COUNTED = "s = Shape(x) n = Gather(s, zero) real = Cast<to = 1>(n) shared = Div(x, real) y = Sub(shared, z)"
"""Needs the number of rows."""


def sum_of() -> Lowered:
    model = parse("(float[batch,2] x, float[batch,2] z) => (float[batch,2] y) { y = Sub(x, z) }")
    return Lowered("net", model, batch_axis="batch", data_outputs=("y",))


def plan(*names: str) -> ToyStatic:
    return ToyStatic(forms=names)


def test_forms_run_one_after_the_other_and_say_what_they_did() -> None:
    lowered = sum_of()
    done = apply_variants(plan("swap_operands", "scale_operand").plan, lowered)
    assert [node.op_type for node in done.lowered.model.graph] == ["Mul", "Sub"]
    first, second = done.outcomes
    assert (first.variant, first.matched, first.rewritten) == ("swap_operands", 2, 1)
    assert second.detail == "scale_operand has been here"
    assert min(first.seconds, second.seconds) > 0.0


def test_a_form_that_refuses_leaves_the_graph_as_it_was_and_says_so() -> None:
    lowered = sum_of()
    before = content_of(lowered)
    done = apply_variants(plan("refuse_all").plan, lowered)
    assert content_of(done.lowered) == before
    (outcome,) = done.outcomes
    assert (outcome.variant, outcome.rewritten, outcome.refused) == ("refuse_all", 0, ("expected something else",))


@pytest.mark.parametrize(
    ("name", "message"), [("forget_shape", "expected a shape of numbers"), ("lose_output", "lost its output 'y'")]
)
def test_an_illegal_graph_ends_the_build_under_the_name_of_the_form(name: str, message: str) -> None:
    with pytest.raises(InternalError, match=message) as caught:
        apply_variants(plan("swap_operands", name).plan, sum_of())
    assert (caught.value.place.stage, caught.value.place.graph) == (name, "net")


def test_what_was_without_a_shape_before_is_not_the_fault_of_a_form() -> None:
    text = "(float[batch,2] x) => (float[batch,2] y) { r = Relu(x) y = Sub(r, x) }"
    lowered = Lowered("net", parse(text), batch_axis="batch", data_outputs=("y",))
    lowered.model.graph[0].outputs[0].shape = None
    assert apply_variants(plan("swap_operands").plan, lowered).outcomes[0].rewritten == 1


def test_one_line_tells_of_all_files() -> None:
    files = [GraphWithVariants(sum_of(), (VariantOutcome("f", 1.0, 3, n, ("a", f"b{n}"), "so"),)) for n in (0, 2)]
    assert outcomes_of(files) == (VariantOutcome("f", 2.0, 3, 2, ("a", "b0", "b2"), "so, in 1 of 2 files"),)
    assert outcomes_of(files[1:])[0].detail == "so"


@pytest.mark.parametrize("opens", [True, False])
def test_every_file_has_the_forms_and_the_graph_stays(opens: bool, tmp_path: Path) -> None:
    nodes = "y = Sub(x, z)" if opens else COUNTED
    model = parse(f"(float[batch,2] x, float[batch,2] z) => (float[batch,2] y) <int64 zero = {{0}}> {{ {nodes} }}")
    lowered = Lowered("net", model, batch_axis="batch", data_outputs=("y",))
    before = content_of(lowered)
    built = plan("swap_operands", "refuse_all").emit(copy_of(lowered), BUCKETS)
    assert content_of(lowered) == before
    for name, content in built.files.items():
        (tmp_path / Path(name).name).write_bytes(bytes(content))
    x, z = np.array([[1, 2]], np.float32), np.array([[5, 7]], np.float32)
    for emitted in built.artifacts:
        rows = emitted.sizes["batch"]
        session = ToyStatic().open(tmp_path / Path(emitted.file).name)
        feeds = {"x": np.repeat(x, rows, 0), "z": np.repeat(z, rows, 0)}
        expected = np.repeat(z - x / (1 if opens else rows), rows, 0)
        np.testing.assert_array_equal(session.run(None, feeds)[0], expected)
    assert [(each.variant, each.rewritten) for each in built.forms] == [("swap_operands", 1), ("refuse_all", 0)]
    assert len({emitted.file for emitted in built.artifacts}) == (1 if opens else 2)
    assert plan().emit(lowered, BUCKETS).forms == ()
