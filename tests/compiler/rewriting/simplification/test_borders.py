"""borders: a value and its last entry a number of times is padded by its edge, whatever writes it; nothing else is."""

import numpy as np
import pytest

from tests.kit.graphs import ops_of, parse
from tests.kit.same_bits import agree

TEXT = """(float[time,2,3] x) => (float[r,2,3] y) <int64[1] none = {0}, int64[1] two = {2}, int64[1] three = {3},
    int64[1] one = {1}, int64[1] last = {-1}, int64[1] before = {-2}, int64[1] end = {9223372036854775807}> {
        n = Shape<start = 0, end = 1>(x)  first = Sub(n, one)  rest = Mod(n, two)
        sizes = Concat<axis = 0>(rest, two, three)  times = Concat<axis = 0>(rest, one, one)  BODY }"""

CASES = {
    "the last, expanded": ("z = Slice(x, last, end, none)  e = Expand(z, sizes)  y = Concat<axis = 0>(x, e)", True),
    "cut by its number": ("z = Slice(x, first, n, none)  e = Expand(z, sizes)  y = Concat<axis = -3>(x, e)", True),
    "gathered, tiled": ("z = Gather(x, last)  e = Tile(z, times)  y = Concat<axis = 0>(x, e)", True),
    "the last but one": ("z = Slice(x, before, last, none)  e = Expand(z, sizes)  y = Concat<axis = 0>(x, e)", False),
    "the first": ("z = Slice(x, none, one, none)  e = Expand(z, sizes)  y = Concat<axis = 0>(x, e)", False),
    "of another value": (
        "w = Neg(x)  z = Slice(w, last, end, none)  e = Expand(z, sizes)  y = Concat<axis = 0>(x, e)", False
    ),
    "in front": ("z = Slice(x, last, end, none)  e = Expand(z, sizes)  y = Concat<axis = 0>(e, x)", False),
    "once": ("z = Slice(x, last, end, none)  y = Concat<axis = 0>(x, z)", False),
}  # fmt: skip


def test_sizes_of_the_last_axes_alone() -> None:
    # regression: of a target that names the last axes alone, the entry of another axis was taken for the number
    model = parse(
        """(float[1,time,4] x) => (float[1,r,4] y) <int64[1] four = {4}, int64[1] none = {0}, int64[1] one = {1},
        int64[1] last = {-1}, int64[1] end = {9223372036854775807}> {
            n = Shape<start = 1, end = 2>(x)  rest = Mod(n, four)  z = Slice(x, last, end, one)
            sizes = Concat<axis = 0>(rest, four)  e = Expand(z, sizes)  y = Concat<axis = 1>(x, e) }"""
    )
    x = np.random.default_rng(0).standard_normal((1, 6, 4), dtype=np.float32)
    assert "Pad" in ops_of(agree(model, {"x": x}))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("length", [2, 5])
def test_last_entries_that_are_repeated(name: str, length: int) -> None:
    body, is_padded = CASES[name]
    x = np.random.default_rng(0).standard_normal((length, 2, 3), dtype=np.float32)
    simple = agree(parse(TEXT.replace("BODY", body)), {"x": x})
    assert ("Pad" in ops_of(simple)) == is_padded
