"""What makes a next state, and what a condition says, is found by running it at every length."""

import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, PaddedAxis, State
from compiler.states.appending.evidence import is_alike_when_full, require_new_frames, says_where_frames_lie
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.graphs import parse

SLOTS = 5
CACHE = CacheAxis("past", SLOTS, 1, "length", None, added="time", is_whole=True)

TEXT = """
(float[batch,5,2] keys, int64[batch] length, int64[batch] chunk, float[batch,time,2] x)
    => (float[batch,5,2] next_keys, float[batch,time,2] y)
<int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1,5] places = {{0, 1, 2, 3, 4}},
 float nothing = {{0}}, int64[1] step = {{{step}}}, int64 room = {{{room}}}, int64[1] many = {{{many}}}>
{{
    new = Neg(x)  y = Abs(x)
    column = Unsqueeze(length, one)  first = Sub(room, column)  valid = GreaterOrEqual(places, first)
    chunks = Unsqueeze(chunk, one)  past = Div(chunks, many)  shown = GreaterOrEqual(places, past)
    both = And(valid, shown)  size = Shape<start = 1, end = 2>(x)  none = Sub(size, size)  late = Add(column, none)
    mask = {mask}
    all = Concat<axis = 1>(keys, {value})
    behind = Mul(chunks, step)  kept = Add(behind, places)
    entry = Unsqueeze(kept, two)  next_keys = GatherND<batch_dims = 1>(all, entry)
}}
"""


def graph(
    value: str = "new", mask: str = "Unsqueeze(valid, two)", step: int = 1, room: int = SLOTS, many: int = 100
) -> Lowered:
    return Lowered(
        "g",
        parse(TEXT.format(value=value, mask=mask, step=step, room=room, many=many)),
        states=(State("keys", "next_keys", 1, "past"),),
        caches=(CACHE,),
        batch_axis="batch",
        data_outputs=("y",),
        padded_axes=(PaddedAxis("time", "chunk"),),
    )


def value_of(lowered: Lowered, name: str) -> object:
    return next(value for node in lowered.model.graph for value in node.outputs if value.name == name)


def test_frames_that_come_behind_the_cached_ones_are_the_new_ones() -> None:
    lowered = graph()
    require_new_frames(lowered, CACHE, lowered.states[0], value_of(lowered, "new"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("lowered", "message"), [
    (graph(step=0), "it holds others in one of"),
    (graph(value="y"), "it is made of 'x', too"),
])  # fmt: skip
def test_a_next_state_of_something_else_is_refused(lowered: Lowered, message: str) -> None:
    with pytest.raises(Refused, match=message):
        require_new_frames(lowered, CACHE, lowered.states[0], value_of(lowered, "new"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("lowered", "holds"), [
    (graph(), True),
    (graph(room=4), False),
    (graph(mask="Unsqueeze(first, two)"), False),
    (graph(mask="Greater(x, nothing)"), False),
    (graph(mask="Unsqueeze(both, two)", many=2), False),
    (graph(mask="Unsqueeze(both, two)", many=6), False),
    (graph(mask="Unsqueeze(both, two)", many=100), False),
])  # fmt: skip
def test_a_condition_says_where_frames_lie_at_every_length_or_not(lowered: Lowered, holds: bool) -> None:
    mask = value_of(lowered, "mask")
    assert says_where_frames_lie(lowered, CACHE, mask, 1) == holds  # type: ignore[arg-type]
    assert graphs.outputs_named(lowered.model).keys() == {"next_keys", "y"}


@pytest.mark.parametrize(("lowered", "holds"), [
    (graph(), True),
    (graph(room=3), True),
    (graph(mask="Greater(x, nothing)"), False),
    (graph(mask="Unsqueeze(shown, two)", many=2), False),
    (graph(mask="Unsqueeze(shown, two)", many=6), False),
    (graph(mask="Unsqueeze(shown, two)", many=100), False),
])  # fmt: skip
def test_what_lies_beside_a_full_cache_is_alike_for_all_slots_at_every_length_or_not(
    lowered: Lowered, holds: bool
) -> None:
    assert is_alike_when_full(lowered, CACHE, value_of(lowered, "mask"), 1) == holds  # type: ignore[arg-type]


BEHIND = """
(int64[batch] length, int64[batch] letters_length, float[batch,letters] text, float[batch,time] x)
    => (bool[batch,all,1] y)
<int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1,5] places = {{0, 1, 2, 3, 4}},
 int64 room = {{5}}, int64 none = {{0}}, int64 single = {{1}}, bool always = {{1}}>
{{
    column = Unsqueeze(length, one)  first = Sub(room, column)  told = Unsqueeze(letters_length, one)
    letters = Shape<start = 1, end = 2>(text)  many = Squeeze(letters)  numbers = Range(none, many, single)
    of_text = Less(numbers, told)  frames = Shape<end = 2>(x)  of_call = Expand(always, frames)
    valid = {valid}
    row = Concat<axis = 1>(of_text, valid, of_call)  mask = Unsqueeze(row, two)  y = Identity(mask)
}}
"""
"""A condition that begins with letters."""


@pytest.mark.parametrize(("valid", "holds"), [
    ("GreaterOrEqual(places, first)", True),
    ("Greater(places, first)", False),
    ("GreaterOrEqual(places, told)", False),
])  # fmt: skip
def test_a_condition_says_where_frames_lie_behind_others(valid: str, holds: bool) -> None:
    lowered = Lowered(
        "net",
        parse(BEHIND.format(valid=valid)),
        caches=(CACHE,),
        batch_axis="batch",
        padded_axes=(PaddedAxis("time", "chunk"), PaddedAxis("letters", "letters_length")),
    )
    mask = value_of(lowered, "mask")
    assert says_where_frames_lie(lowered, CACHE, mask, 1, is_behind=True) == holds  # type: ignore[arg-type]
