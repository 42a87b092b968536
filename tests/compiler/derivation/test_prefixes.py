"""A prefix that is joined to the frames: told by sizes, and computed of itself alone."""

import pytest

from compiler import ir as house
from compiler.derivation.derive import derive
from compiler.derivation.prefixes import before_frames, is_count
from compiler.errors import Refused
from compiler.ir import Dim
from tests.kit.whole_sequences import LETTERS, MASKS, Drawing, whole_graph
from tests.property.derived_steps import tried

TIME, LETTERS_AXIS = house.symbol("time"), house.symbol("letters")
NAMED = {"letters": LETTERS}

SIZES: dict[str, tuple[Dim, Dim | None]] = {
    "frames": (TIME, 0),
    "text": (TIME + LETTERS_AXIS, LETTERS_AXIS),
    "a voice and two texts": (TIME + 2 * LETTERS_AXIS + 1, 2 * LETTERS_AXIS + 1),
    "frames left out": (TIME - 1, None),
    "fewer than letters": (TIME - LETTERS_AXIS, None),
    "frames twice": (2 * TIME, None),
    "half of them": (TIME // 2, None),
    "no frames": (LETTERS_AXIS, None),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_tells_what_lies_before_the_frames(name: str) -> None:
    size, before = SIZES[name]
    assert before_frames(size, TIME) == before


def test_counts_never_fall_below_zero() -> None:
    assert [is_count(each) for each in (0, 3, LETTERS_AXIS + 1, -1, LETTERS_AXIS - 1, -LETTERS_AXIS)] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


DRAWINGS = [
    *(Drawing(mask=each, width=4, text="fixed") for each in MASKS),
    *(Drawing(positions=each, layers=2, text="named") for each in ("rotary", "linear_bias", "sinusoid")),
    *(Drawing(writing=each, text="named", groups=1, flat=True, keys_turned=True) for each in ("add", "factor", "late")),
    Drawing(positions="looked_up", layers=2, text="fixed", einsum=True),
]


@pytest.mark.parametrize("drawing", DRAWINGS, ids=str)
def test_calls_behind_a_text_answer_as_the_whole_sequence(drawing: Drawing) -> None:
    assert tried(drawing).verdict == "accepted"


def test_the_text_is_not_cached() -> None:
    derived = derive(whole_graph(Drawing(text="named", layers=2)), "time", "past", 19, NAMED)
    assert [str(each.before) for each in derived.cached] == ["letters"] * 4
    inputs = {str(value.name): [str(dim) for dim in value.shape or ()] for value in derived.model.graph.inputs}
    assert inputs["text"] == ["batch", "letters"]
    caches = [dims for name, dims in inputs.items() if name.startswith("cache")]
    assert all("past" in dims and "letters" not in dims for dims in caches)


REFUSED = {
    "text_hears": (
        Drawing(spoiler="text_hears", text="named"),
        "Softmax",
        "lets what lies in front of the frames read",
    ),
    "text_behind": (Drawing(spoiler="text_behind", text="named"), "Concat", "joins frames to what lies behind them"),
    "running": (Drawing(positions="summed", text="named"), "CumSum", "a running sum along time"),
    "table": (Drawing(positions="looked_up", text="named"), "Gather", "of another length at every call"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_prefix_that_is_none_is_refused_with_its_node(name: str) -> None:
    drawing, op, said = REFUSED[name]
    with pytest.raises(Refused, match=said) as refused:
        derive(whole_graph(drawing), "time", "past", 19, NAMED)
    assert refused.value.place.op == op


def test_a_text_whose_longest_is_not_known_is_refused() -> None:
    with pytest.raises(Refused, match="reads all frames of the sequence"):
        derive(whole_graph(Drawing(text="named")), "time", "past", 19)
