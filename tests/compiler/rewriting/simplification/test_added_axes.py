"""added_axes: the same bits before and after, and which axes are not added in the first place."""

import numpy as np
import pytest

from tests.kit.graphs import ops_of, parse
from tests.kit.same_bits import agree

PIECE = """(float[batch,4,6] x) => (OUT y) <int64[ADDS] added = {ADDED}, int64[ADDS] removed = {REMOVED},
    int64[CUTS] start = {START}, int64[CUTS] end = {END}, int64[CUTS] axis = {AXIS}, int64[CUTS] step = {STEP}>
    { wide = Unsqueeze(x, added)  cut = Slice(wide, start, end, axis, step)  y = Squeeze(cut, removed) }"""

PLAIN = {
    "ADDS": "1", "CUTS": "1", "ADDED": "1", "REMOVED": "1", "START": "1", "END": "5", "AXIS": "3", "STEP": "1",
    "OUT": "float[a,b,c]",
}  # fmt: skip


def piece(**change: str) -> str:
    text = PIECE
    for key, value in (PLAIN | change).items():
        text = text.replace(key, value)
    return text


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"AXIS": "0", "END": "2"},
        {"AXIS": "-1"},
        {"AXIS": "2", "START": "-1", "END": "-9", "STEP": "-2"},
        {"AXIS": "2, 3", "CUTS": "2", "START": "0, 2", "END": "2, 9", "STEP": "1, 2"},
        {"ADDED": "0", "REMOVED": "0"},
        {"ADDED": "3", "REMOVED": "3", "AXIS": "2", "END": "3"},
        {"ADDED": "1, 3", "REMOVED": "1, 3", "ADDS": "2", "AXIS": "4"},
        {"ADDED": "0, 1", "REMOVED": "0, 1", "ADDS": "2", "AXIS": "4"},
    ],
)
def test_a_piece_is_cut_where_the_axis_is_not_there_yet(change: dict[str, str]) -> None:
    simple = agree(parse(piece(**change)), {"x": np.arange(48, dtype=np.float32).reshape(2, 4, 6)})
    assert ops_of(simple) == ["Slice"]


@pytest.mark.parametrize(
    "change",
    [
        {"AXIS": "1, 3", "CUTS": "2", "START": "0, 1", "END": "1, 5", "STEP": "1, 1"},  # the axis itself is cut
        {"REMOVED": "0", "AXIS": "0", "END": "2"},  # another axis goes
    ],
)
def test_other_pieces_stay(change: dict[str, str]) -> None:
    simple = agree(parse(piece(**change)), {"x": np.arange(48, dtype=np.float32).reshape(2, 4, 6)})
    assert ops_of(simple) == ["Unsqueeze", "Slice", "Squeeze"]


def test_a_piece_that_somebody_else_reads_stays() -> None:
    text = piece().replace("y = Squeeze(cut, removed)", "part = Squeeze(cut, removed)  y = Add(part, cut)")
    simple = agree(parse(text.replace(PLAIN["OUT"], "float[a,b,c,d]")), {"x": np.ones((2, 4, 6), np.float32)})
    assert "Unsqueeze" in ops_of(simple)


@pytest.mark.parametrize(("added", "removed"), [("-1", "-1"), ("0, 2", "2, 0")])
def test_axes_that_come_and_go_in_any_order_are_not_added(added: str, removed: str) -> None:
    count = added.count(",") + 1
    text = f"""(float[batch,4] x) => (float[batch,4] y) <int64[{count}] added = {{{added}}},
        int64[{count}] removed = {{{removed}}}> {{ wide = Unsqueeze(x, added)
        z = Squeeze(wide, removed)  y = Relu(z) }}"""
    assert ops_of(agree(parse(text), {"x": np.ones((2, 4), np.float32)})) == ["Relu"]
