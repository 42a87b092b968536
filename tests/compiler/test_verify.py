"""The comparison itself: what it must see, and what it must not complain about."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import pytest

from compiler import ir as house
from compiler import verify
from compiler.errors import DataError, GateFailed
from compiler.evaluate import open_session
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from compiler.recipe import Limits
from compiler.stages import Array, Feed, Lowered, State, Window
from compiler.verify import Difference, max_abs_difference
from tests.kit.models.tiny_graph import step_by_hand, stream_model
from tests.kit.models.tiny_task import one_recording

CLOSE = Limits(max_abs=1e-5)

NAN, INF = float("nan"), float("inf")


def growing(model: ir.Model | None = None) -> Lowered:
    """The graph of one screen with a cache that grows, before any pass."""
    captured = model or stream_model()
    house.infer_shapes(captured)
    window = Window("cache", 8, 4, "real_length", None)
    return Lowered("net", captured, None, (State("keys", "next_keys", 1),), window, "batch")


def padded() -> Lowered:
    """The same after the passes that make it static."""
    return WindowStates().apply(PadAxes().apply(growing()).lowered).lowered


def steps_of(feeds: Sequence[Feed]) -> list[verify.Step]:
    runner = verify.runner_of(growing())

    def run(chunks: Sequence[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        for chunk in chunks:
            outputs = runner.step(chunk)
            yield outputs, dict(runner.states)

    return verify.chained_steps(run, feeds, len(feeds))  # type: ignore[arg-type]


def test_growing_graph_answers_as_by_hand_until_the_window_overflows() -> None:
    feeds = one_recording(1, 6)
    for step, expected in zip(steps_of(feeds), step_by_hand(feeds), strict=True):
        assert max_abs_difference(step.outputs["logits"], expected.astype(np.float32)) < 1e-5
        assert step.states["keys"].shape[1] <= 8


def test_static_graph_is_compared_on_outputs_and_states() -> None:
    lowered = padded()
    differences = verify.compare(lowered, verify.runner_of(lowered), steps_of(one_recording(2, 6)))
    assert {d.tensor for d in differences} == {"logits", "keys"}
    assert all(d.steps == 6 and d.holds(Limits(max_abs=1e-6)) for d in differences)


@pytest.mark.parametrize(
    ("got", "expected", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([NAN], [NAN], 0.0),
        ([INF], [INF], 0.0),
        ([INF], [-INF], INF),
        ([NAN], [1.0], INF),
        ([1.0], [NAN], INF),
        ([1.0], [1.0, 1.0], INF),
        ([], [], 0.0),
        (3.0, 1.0, 2.0),
    ],
)
def test_difference_of_arrays(got: object, expected: object, difference: float) -> None:
    assert max_abs_difference(np.array(got, np.float32), np.array(expected, np.float32)) == difference


def test_limit_grows_with_the_reference_and_nan_never_holds() -> None:
    small, large = Difference("a", 1, 2e-5, 0.1, 0, 0, 0), Difference("b", 1, 2e-5, 4.0, 0, 0, 0)
    assert not small.holds(CLOSE)
    assert large.holds(CLOSE)
    assert not Difference("c", 1, NAN, 1.0, 0, 0, 0).holds(Limits(max_abs=1e30))
    assert verify.worst_of([large, small], CLOSE) is small


def test_noise_is_held_to_its_limit_as_well() -> None:
    tally = verify.Tally("y")
    tally.add(np.array([1.1, -2.0], np.float32), np.array([1.0, -2.0], np.float32))
    tally.add(np.array([2.0, 0.0], np.float32), np.array([2.0, 0.0], np.float32))
    found = tally.difference()
    assert found.sqnr_db is not None and abs(found.sqnr_db - 10 * np.log10(9 / 0.01)) < 1e-5
    assert found.holds(Limits(max_abs=0.1, sqnr_db=29.5))
    assert not found.holds(Limits(max_abs=0.1, sqnr_db=29.6))
    assert "29.5 dB" in found.exceeded(Limits(max_abs=0.1, sqnr_db=40.0))
    assert "difference of 0.1 " in found.exceeded(Limits(max_abs=0.01, sqnr_db=40.0))


def test_mask_is_right_aligned() -> None:
    assert verify.mask_of(np.array([0, 2, 3]), 3, 1).tolist() == [[0, 0, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1]]


def test_padding_is_invisible_in_a_padded_graph() -> None:
    lowered = padded()
    assert lowered.batch_axis == "batch"
    session = open_session(house.serialized(lowered.model))
    invariance = verify.check_invariance(lowered, session, 2, one_recording(4, 4))
    assert (invariance.batch, invariance.calls, set(invariance.poisons)) == (2, 4 * 5, set(verify.POISONS))


def test_padding_that_is_seen_is_found() -> None:
    lowered = padded()
    model = lowered.model
    for node in list(model.graph):
        if node.op_type == "Where":  # nothing is cleaned or masked any more
            kept = node.inputs[1]
            assert kept is not None
            ir.convenience.replace_all_uses_with(node.outputs[0], kept)
    with pytest.raises(GateFailed, match="unchanged by NaN in padded places, got other values at call 0"):
        verify.check_invariance(lowered, open_session(house.serialized(model)), 1, one_recording(4, 4))


def test_rows_that_see_each_other_are_found() -> None:
    text = "(float[batch,2] x) => (float[batch,2] y) <int64[1] zero = {0}> { m = ReduceSum(x, zero)  y = Add(x, m) }"
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]>\nmixing {text}')
    lowered = Lowered("net", model, batch_axis="batch")
    feeds = [{"x": np.ones((1, 2), np.float32)}]
    with pytest.raises(GateFailed, match="mixes rows"):
        verify.check_invariance(lowered, open_session(house.serialized(model)), 2, feeds)
    assert verify.check_invariance(lowered, open_session(house.serialized(model)), 1, feeds).calls == len(
        verify.POISONS
    )


SEEN = "(float[batch,2] x) => (float[batch,2] y) <float[1,1] content = {1e30}, int64[1] last = {-1}> { %s }"
OF_THE_LAST_ROW = "row = Gather<axis=0>(x, last)  seen = %s  number = Cast<to=1>(seen)  y = Add(x, number)"


@pytest.mark.parametrize("batch", [2, 7, 16])
@pytest.mark.parametrize(
    ("label", "seen"),
    [
        ("NaN", "IsNaN(row)"),
        ("Inf", "IsInf<detect_negative=0>(row)"),
        ("-Inf", "IsInf<detect_positive=0>(row)"),
        ("1e30", "Equal(row, content)"),
    ],
)
def test_every_content_comes_into_every_row(label: str, seen: str, batch: int) -> None:
    text = SEEN % OF_THE_LAST_ROW % seen
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]>\nseeing {text}')
    lowered = Lowered("net", model, batch_axis="batch")
    feeds = [{"x": np.ones((1, 2), np.float32)}] * 6
    with pytest.raises(GateFailed, match=f"expected y unchanged by {label} in padded places"):
        verify.check_invariance(lowered, open_session(house.serialized(model)), batch, feeds)


def test_original_that_answers_nan_is_the_users_fault() -> None:
    def run(feeds: object) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        yield {"y": np.zeros(2, np.float32)}, {}
        yield {"y": np.full(2, np.nan, np.float32)}, {}

    with pytest.raises(DataError, match="NaN or infinity in y at chained step 1"):
        verify.chained_steps(run, [{}, {}], 2)


def test_data_must_be_long_enough_for_the_gate() -> None:
    verify.check_streams([[{}] * 3], 3, "net")
    for streams, words in (([], "got none"), ([[]], "stream 0"), ([[{}]], "at least 3 chunks")):
        with pytest.raises(DataError, match=words):
            verify.check_streams(streams, 3, "net")


def test_states_are_carried_through_the_maps_of_the_passes() -> None:
    lowered = padded()
    short = {"keys": np.ones((1, 3, 8), np.float32)}
    assert verify.expected_states(lowered, short)["keys"].shape == (1, 8, 8)
    assert verify.expected_states(dataclasses.replace(lowered, state_maps=()), short) == short


class Added:
    """A state map that counts how often it is asked."""

    def __init__(self, number: float) -> None:
        self.number, self.calls = number, 0

    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        self.calls += 1
        return {name: 2 * array + self.number for name, array in states.items()}


def test_states_of_a_step_are_mapped_once_as_passes_follow_each_other() -> None:
    first, second, other = Added(1), Added(2), Added(3)
    step = verify.Step({}, {}, {"s": np.zeros(1)})
    asked = [(), (first,), (first,), (first, second), (first, second), (other,), (first,), ()]
    for maps in asked:
        assert step.states_after(maps)["s"] == verify.mapped(maps, step.states)["s"]
    assert (first.calls, second.calls) == (2 + 5, 1 + 2), "twice for the step: it was asked for less in between"
