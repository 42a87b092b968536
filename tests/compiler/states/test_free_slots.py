"""free_slots: entries are followed wherever they go, and only there."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.lengths.every_length import EveryLength
from compiler.graph.stages import Lowered
from compiler.states.free_slots import FreeSlots, Slots
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.graphs import BATCH, parse

SLOTS, WIDTH = 4, 3
CACHE = CacheAxis("cache", SLOTS, 2, "length", None)


def free_slots(body: str) -> tuple[FreeSlots, Lowered]:
    """A graph in which y is what a caller sees: `body` makes it of h [batch, 4, 3]."""
    text = f"""(float[{BATCH},{SLOTS},{WIDTH}] x, int64[{BATCH}] length) => (float[{BATCH},p,q] y)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] four = {{4}}, int64[2] both = {{1, 2}},
     int64[2] none = {{0, 0}}, int64[2] ends = {{2, 2}}, int64[2] halves = {{2, 2}}, int64[3] image = {{0, 2, 6}},
     int64[4] apart = {{0, 4, 1, 3}}, int64[4] heads = {{0, 2, 2, 3}}>
    {{
        h = Neg(x)
        {body}
    }}"""
    lowered = Lowered("net", parse(text), caches=(CACHE,), batch_axis=BATCH, data_outputs=("y",), is_padded=True)
    graphs.infer_shapes(lowered.model)
    return FreeSlots(lowered, EveryLength(lowered.model, CACHE, {})), lowered


def seen(body: str) -> list[int]:
    """The entries along the axis of slots that a caller sees something of."""
    free, lowered = free_slots(body)
    value = next(node.outputs[0] for node in lowered.model.graph if node.op_type == "Neg")
    found = []
    for slot in range(SLOTS):
        which = np.zeros((SLOTS + 1, SLOTS), np.bool_)
        which[:, slot] = True
        if not free.are_hidden(value, Slots(1, which)):
            found.append(slot)
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Slice(h, one, four, one)", [1, 2, 3]),
        ("t = Transpose<perm = [0, 2, 1]>(h)  y = Slice(t, zero, two, two)", [0, 1]),
        ("y = Slice(h, none, ends, both)", [0, 1]),
        ("y, rest = Split<axis = 1>(h, halves)", [0, 1]),
        ("left, right = Split<axis = 1>(h, halves)  y = Add(left, left)", [0, 1]),
        ("j = Concat<axis = 1>(x, h)  y = Slice(j, two, four, one)", []),
        ("j = Concat<axis = 1>(h, x)  y = Slice(j, two, four, one)", [2, 3]),
        ("u = Unsqueeze(h, one)  s = Squeeze(u, one)  y = Slice(s, one, two, one)", [1]),
        ("r = Reshape(h, apart)  s = Squeeze(r, two)  y = Slice(s, one, two, one)", [1]),
        ("r = Reshape(h, image)  y = Slice(r, zero, one, one)", [0, 1, 2, 3]),
        ("r = Reshape(h, heads)  s = Slice(r, zero, one, one)  y = Squeeze(s, one)", [0, 1, 2, 3]),
        ("c = ReduceSum(h, one)  y = Identity(c)", [0, 1, 2, 3]),
        ("t = Transpose<perm = [1, 0, 2]>(h)  y = Slice(t, zero, one, zero)", [0, 1, 2, 3]),
    ],
)  # fmt: skip
def test_entries_are_followed(body: str, expected: list[int]) -> None:
    assert seen(body) == expected


def test_what_nothing_reads_is_hidden() -> None:
    assert seen("y = Neg(x)") == []
