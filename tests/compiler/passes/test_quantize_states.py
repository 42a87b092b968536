"""quantize_states: caches are carried as codes, rounded once, and whoever reads them hardly hears it."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import DataError, RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runners_of
from compiler.graph.runners.coded_states import codes_of
from compiler.graph.runners.session import session_of
from compiler.graph.runners.stream import poisoned
from compiler.graph.stages import Feed, Lowered, Outcome, State
from compiler.passes.append_states import AppendStates
from compiler.passes.pack_states import PackStates
from compiler.passes.quantize_states import QuantizeStates, _grids, grid_of
from runtime_lite.format.cache_axis import CacheAxis
from tests.compiler.passes.test_append_states import ROWS, calls, lowered_steps
from tests.compiler.passes.test_pack_states import FRAMES_FIRST
from tests.kit.calibration import with_streams
from tests.kit.graphs import copy_of, parse
from tests.kit.whole_sequences import LABELS, LONGEST, Drawing

DRAWING = Drawing(positions="rotary", layers=2)


def single(seed: int) -> list[Feed]:
    """Calls of one row."""
    tokens = np.random.default_rng(seed).integers(0, LABELS, (1, LONGEST))
    length = np.ones(1, np.int64)
    return [{"tokens": tokens[:, at : at + 1], "time_length": length} for at in range(LONGEST)]


def coded(lowered: Lowered, **options: float) -> Outcome:
    """Of a copy, with calibration."""
    return QuantizeStates(**options).apply(with_streams(copy_of(lowered), single(1), single(2)))


def steps(how: str) -> Lowered:
    """With caches that are given whole, packed, or appended to."""
    if how == "packed":
        return lowered_steps(DRAWING)
    lowered = lowered_steps(DRAWING, "pack_states")
    return AppendStates().apply(lowered).lowered if how == "appended" else lowered


def test_frames_that_lie_in_front_of_all_have_grids() -> None:
    states = (State("a", "na", 0, "cached"), State("b", "nb", 0, "cached"))
    caches = (CacheAxis("cached", 8, 4, "length", None),)
    lowered = Lowered("tiny", parse(FRAMES_FIRST), states=states, caches=caches)
    grids = _grids(lowered, states, [[{"x": np.ones((4, 1, 3), np.float32)}] * 2], 1.0)
    assert set(grids) == {"a", "b"}


@pytest.mark.parametrize("how", ["whole", "packed", "appended"])
def test_rows_of_any_age_get_nearly_the_same_answers(how: str) -> None:
    before = steps(how)
    outcome = coded(before)
    after = outcome.lowered
    assert (outcome.matched, outcome.rewritten) == (len(before.states), len(before.states))
    for state in after.states:
        for name, values in ((state.input, after.model.graph.inputs), (state.output, after.model.graph.outputs)):
            assert [each.dtype for each in values if each.name == name] == [ir.DataType.INT8]
    one, other = runners_of(before, ROWS)(), runners_of(after, ROWS)()
    errors, sizes = [], []
    for feed in calls():
        expected, got = one.step(feed)["scores"], other.step(feed)["scores"]
        for row, length in enumerate(feed["time_length"]):
            errors.append(np.mean((got[row, :length] - expected[row, :length]) ** 2))
            sizes.append(np.mean(expected[row, :length] ** 2))
    assert 0.0 < sum(errors) < 1e-3 * sum(sizes)


def test_a_frame_is_rounded_once_and_no_more() -> None:
    after = coded(steps("whole")).lowered
    runner = runners_of(after, 1)()
    frames: dict[str, np.ndarray] = {}
    for feed in single(3):
        runner.step(feed)
        for state in after.states:
            assert state.frames_axis is not None
            lies = np.moveaxis(runner.states[state.input], state.frames_axis, 0)
            before = frames.get(state.input)
            assert before is None or np.array_equal(lies[:-1], before[1:])
            frames[state.input] = lies
    assert all(np.any(each) for each in frames.values())


@pytest.mark.parametrize("how", ["whole", "packed"])
def test_codes_in_free_slots_and_rows_are_not_seen(how: str) -> None:
    after = coded(steps(how)).lowered
    runner = runners_of(after, ROWS)()
    active, seen = np.array([True, False, True]), 0
    for feed in calls():
        full = runner.full_feed(feed)
        spoiled = poisoned(after, full, active, [np.nan, -np.inf, 1e30])
        seen += sum(int((spoiled[name] != full[name]).sum()) for name in full if full[name].dtype == np.int8)
        clean = runner.step(feed)["scores"]
        (got,) = session_of(after.model).run(["scores"], spoiled)
        for row in np.flatnonzero(active):
            length = feed["time_length"][row]
            assert np.array_equal(got[row, :length], clean[row, :length])
    assert seen


def test_the_axis_of_the_scales_is_that_with_the_least_noise() -> None:
    by_channel = grid_of(np.array([[[1.0, 100.0], [1.0, 100.0]]], np.float32))
    assert (by_channel.axis, by_channel.scales.tolist()) == (2, [np.float32(1 / 127), np.float32(100 / 127)])
    by_head = grid_of(np.array([[[1.0, 1.0], [100.0, 100.0]]], np.float32), headroom=2.0)
    assert (by_head.axis, by_head.scales.tolist()) == (1, [np.float32(2 / 127), np.float32(200 / 127)])
    assert grid_of(np.array([[[1.0, 0.0]]], np.float32)).scales.min() > 0.0
    assert grid_of(np.array([[127.0]], np.float32)).scales.shape == ()


def test_states_of_fixed_meaning_stay() -> None:
    lowered = steps("whole")
    first, *rest = lowered.states
    fixed = dataclasses.replace(lowered, states=(dataclasses.replace(first, frames_axis=None, cache=None), *rest))
    outcome = coded(fixed, sqnr_db=-200.0)
    assert outcome.rewritten == len(rest)
    assert graphs.inputs_named(outcome.lowered.model)[first.input].dtype == ir.DataType.FLOAT


def test_nothing_is_coded_twice_and_codes_are_not_packed() -> None:
    once = coded(steps("whole")).lowered
    again = coded(once)
    assert (again.matched, again.rewritten) == (len(once.states), 0)
    assert "expected float32, got INT8" in str(again.refused[0])
    packed = PackStates().apply(copy_of(once)).lowered
    assert all(codes_of(packed, state.input) is not None for state in packed.states)


def test_refused_is_what_loses_too_much() -> None:
    with pytest.raises(Refused, match="expected scores at least 90 dB above the rounding of its caches"):
        coded(steps("whole"), sqnr_db=90.0)


def test_refused_are_data_without_a_number() -> None:
    lowered = steps("whole")
    with pytest.raises(Refused, match=r"expected data\.calibration"):
        QuantizeStates().apply(lowered)
    with pytest.raises(DataError, match="expected numbers in cache_00 to choose a grid by"):
        QuantizeStates().apply(with_streams(copy_of(lowered), []))
    with pytest.raises(RecipeError, match=r"headroom: expected 1 or more, got 0\.5"):
        QuantizeStates(headroom=0.5)
