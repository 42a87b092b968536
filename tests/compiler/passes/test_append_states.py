"""append_states: a call gives its new frames alone, and reads its caches where they lie."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runners_of
from compiler.graph.runners.session import session_of
from compiler.graph.runners.stream import CallRunner, poisoned
from compiler.graph.stages import Feed, Lowered, Outcome
from compiler.passes import make_pass
from compiler.passes.append_states import AppendStates, LeftAligned
from compiler.passes.freeze_axes import FreezeAxes
from compiler.passes.pack_states import PackStates
from compiler.recipe.tree.standard_passes import STANDARD_PASSES
from compiler.targets.onnx_static import OnnxStatic
from tests.kit.derived import steps_of
from tests.kit.graphs import copy_of, ops_of
from tests.kit.short_chunks import padded
from tests.kit.whole_sequences import LABELS, LONGEST, Drawing, whole_graph

ROWS = 3


def lowered_steps(drawing: Drawing, *left_out: str) -> Lowered:
    """The steps of a decoder, lowered; a copy."""
    return copy_of(_lowered_steps(drawing, *left_out))


@functools.cache
def _lowered_steps(drawing: Drawing, *left_out: str) -> Lowered:
    whole = Lowered("decoder", whole_graph(drawing), batch_axis="batch", data_outputs=("scores",))
    lowered = steps_of(whole, LONGEST)
    for name in STANDARD_PASSES:
        if name not in left_out:
            lowered = make_pass(name, {}).apply(lowered).lowered
    return lowered


def appended(lowered: Lowered) -> Outcome:
    """Of a copy."""
    return AppendStates().apply(copy_of(lowered))


def calls(seed: int = 0, most: int = 4) -> Sequence[Feed]:
    """Calls of rows of different lengths, until a window is nearly full."""
    random, found, past = np.random.default_rng(seed), [], np.zeros(ROWS, np.int64)
    while past.max() + most <= LONGEST:
        lengths = random.integers(1, most + 1, ROWS)
        tokens = random.integers(0, LABELS, (ROWS, int(lengths.max())))
        found.append({"tokens": tokens, "time_length": lengths})
        past += lengths
    return found


DRAWINGS = {
    "rotary, grouped heads": Drawing(positions="rotary", layers=2, groups=1),
    "a bias of places, added masks": Drawing(positions="linear_bias", mask="triangle", writing="add", low=-1.0e9),
    "a band, weights selected late": Drawing(positions="table", mask="band", writing="late", keys_turned=True),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_rows_of_any_age_get_the_same_answers(name: str) -> None:
    before = lowered_steps(DRAWINGS[name], "pack_states")
    outcome = appended(before)
    after = outcome.lowered
    assert (outcome.matched, outcome.rewritten) == (len(before.states), len(before.states))
    (cache,) = after.caches
    assert (cache.side, cache.update) == ("left", "append")
    one, other = runners_of(before, ROWS)(), runners_of(after, ROWS)()
    for feed in calls():
        expected, got = one.step(feed)["scores"], other.step(feed)["scores"]
        for row, length in enumerate(feed["time_length"]):
            np.testing.assert_allclose(got[row, :length], expected[row, :length], rtol=0, atol=1e-5)
        for state in after.states:
            _same_frames(after, state.input, one, other)


def test_appended_states_are_packed_behind() -> None:
    apart = appended(lowered_steps(DRAWINGS["rotary, grouped heads"], "pack_states")).lowered
    packed = PackStates().apply(copy_of(apart)).lowered
    (state,) = packed.states
    assert [state.input] == list(packed.parts)
    given = graphs.outputs_named(packed.model)[state.output].shape
    each = graphs.outputs_named(apart.model)[apart.states[0].output].shape
    assert given is not None
    assert each is not None
    assert list(given) == [each[0], len(apart.states), *each[1:]]
    one, other = runners_of(apart, ROWS)(), runners_of(packed, ROWS)()
    for feed in calls():
        np.testing.assert_array_equal(other.step(feed)["scores"], one.step(feed)["scores"])


def _same_frames(after: Lowered, name: str, one: CallRunner, other: CallRunner) -> None:
    """The frames of every row of a state, last in one cache and first in the other, zeros in all other slots."""
    (state,) = (each for each in after.states if each.input == name)
    assert state.frames_axis is not None
    for row, length in enumerate(other.lengths["past"]):
        right, left = (np.moveaxis(each.states[name][row], state.frames_axis - 1, 0) for each in (one, other))
        np.testing.assert_allclose(left[:length], right[LONGEST - length :], rtol=0, atol=1e-5)
        assert not left[length:].any()


@pytest.mark.parametrize("positions", ["rotary", "linear_bias"])
def test_a_cache_is_read_by_products_alone(positions: str) -> None:
    model = appended(lowered_steps(Drawing(positions=positions, layers=2), "pack_states")).lowered.model
    for value in model.graph.inputs:
        if str(value.name).startswith("cache"):
            assert _readers(value) == {"MatMul"}


def _readers(value: object) -> set[str]:
    """What reads a value, or what it is turned to."""
    found = set()
    for node in graphs.consumers_of(value):  # type: ignore[arg-type]
        moves = node.op_type in ("Transpose", "Unsqueeze")
        found |= _readers(node.outputs[0]) if moves else {node.op_type}
    return found


def test_the_states_of_the_reference_lie_to_the_left() -> None:
    after = appended(lowered_steps(DRAWINGS["rotary, grouped heads"], "pack_states")).lowered
    (state_map,) = after.state_maps
    assert isinstance(state_map, LeftAligned)
    moved = LeftAligned((("a", 1, 4),)).apply({"a": np.ones((1, 2, 1)), "b": np.ones(3)})
    assert moved["a"][0, :, 0].tolist() == [1, 1, 0, 0]
    assert moved["b"].tolist() == [1, 1, 1]


def test_what_lies_behind_a_chunk_or_in_a_free_row_is_not_seen() -> None:
    after = appended(lowered_steps(DRAWINGS["rotary, grouped heads"], "pack_states")).lowered
    runner, session = runners_of(after, ROWS)(), session_of(after.model)
    active, names = np.array([True, False, True]), list(graphs.outputs_named(after.model))
    for feed in calls(1):
        full = runner.full_feed(feed)
        spoiled = poisoned(after, full, active, [np.nan, np.inf, -np.inf])
        for row, length in enumerate(feed["time_length"]):
            spoiled["tokens"] = spoiled["tokens"].copy()
            spoiled["tokens"][row, length:] = LABELS - 1
        clean, got = (dict(zip(names, session.run(names, each), strict=True)) for each in (full, spoiled))
        for row in (0, 2):
            valid = slice(int(feed["time_length"][row]))
            np.testing.assert_array_equal(got["scores"][row, valid], clean["scores"][row, valid])
        runner.step(feed)


def test_a_step_of_one_frame_is_static_and_looks_nothing_of_a_cache_up() -> None:
    after = appended(lowered_steps(DRAWINGS["rotary, grouped heads"], "pack_states")).lowered
    built = OnnxStatic().emit(after, {"batch": (1, ROWS), "time": (1, 4)})
    assert len({each.file for each in built.artifacts}) == 2  # rows stay open
    frozen = FreezeAxes((("batch", 1), ("time", 1))).apply(copy_of(after)).lowered
    outputs = graphs.outputs_named(frozen.model)
    assert all(1 in (outputs[state.output].shape or ()) for state in after.states)
    assert "GatherND" in ops_of(frozen.model)  # masks of a few numbers


def test_a_graph_without_a_cache_stays() -> None:
    lowered = Lowered("decoder", whole_graph(Drawing()))
    assert AppendStates().apply(lowered) == Outcome(lowered)


def turned(lowered: Lowered) -> Lowered:
    """Beside the next state, what comes out hangs on where a cached frame lies."""
    model = lowered.model
    insert = graphs.Inserter(model, "test")
    state = lowered.states[0]
    cache = graphs.inputs_named(model)[state.input]
    first = insert.op("Slice", [cache, *(insert.int64s(each) for each in (0, 1, state.frames_axis or 0))], name="first")
    total = insert.op("ReduceMax", [first], {"keepdims": 0}, name="largest")
    scores = graphs.outputs_named(model)["scores"]
    more = insert.op("Add", [scores, total], name="more", shape=scores.shape)
    graphs.take_over(model, scores, more, except_in=graphs.consumers_of(total))
    return lowered


def other_frames(lowered: Lowered) -> Lowered:
    """The next state holds the opposite of what it should."""
    state, model = lowered.states[0], lowered.model
    given = graphs.outputs_named(model)[state.output]
    twice = graphs.Inserter(model, "test").op("Neg", [given], name="turned", shape=given.shape)
    graphs.take_over(model, given, twice, except_in=graphs.consumers_of(given))
    return lowered


REFUSED: dict[str, tuple[Callable[[Lowered], Lowered], str]] = {
    "frames that make room": (
        lambda each: dataclasses.replace(each, caches=(dataclasses.replace(each.caches[0], is_whole=False),)),
        "a cache in which every frame has a slot of its own",
    ),
    "rows that are not proved": (
        lambda each: dataclasses.replace(each, rows_independent=False), "an axis of rows, which are proved"
    ),
    "a slot that is read by its number": (turned, "no rule is known for it"),
    "a next state of other frames": (other_frames, "to hold the cached frames and the new ones behind them"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_shown_is_refused(name: str) -> None:
    change, message = REFUSED[name]
    before = change(lowered_steps(DRAWINGS["rotary, grouped heads"], "pack_states"))
    with pytest.raises(Refused, match=message):
        AppendStates().apply(before)


def test_packed_states_and_states_of_other_kinds_are_refused() -> None:
    with pytest.raises(Refused) as refused:
        AppendStates().apply(lowered_steps(Drawing(positions="rotary", layers=2)))
    assert "pack_states" in refused.value.cure
    with pytest.raises(Refused, match="a cache in which every frame has a slot of its own"):
        AppendStates().apply(padded())
