"""masked_writes: boolean indices are choices, with the same bits; other places stay."""

import numpy as np
import pytest

from tests.kit.graphs import ops_of, parse
from tests.kit.same_bits import agree

X = np.array([[[0.0, 2.0], [1.0, np.nan], [1e-30, np.inf]], [[7.0, -2.5], [9.0, 3.0], [4.0, 5.0]]], np.float32)
MASKS = [np.zeros((2, 3), bool), np.ones((2, 3), bool), np.array([[True, False, True], [False, False, True]])]
CONSTANTS = (
    """int64[1] last = {-1}, float seven = {7.0}, float[2] pair = {5.0, -6.0}, int64 three = {3}, int64[1] two = {2}"""
)

WRITTEN = {
    "a number": "one = ReduceSum(ones)  many = Mul(one, two)  new = Expand(seven, many)",
    "a vector": """one = ReduceSum(ones)  shape = Concat<axis = 0>(one, two)  rows = Expand(pair, shape)
        new = Reshape(rows, last)""",
    "entries of another tensor": """narrow = NonZero(m)  at = Transpose<perm = [1, 0]>(narrow)  found = GatherND(z, at)
        one = ReduceSum(ones)  shape = Concat<axis = 0>(one, two)  rows = Expand(found, shape)
        new = Reshape(rows, last)""",
}


@pytest.mark.parametrize("mask", MASKS, ids=["none", "all", "some"])
@pytest.mark.parametrize("written", WRITTEN)
def test_a_mask_that_is_the_same_along_the_last_axis(written: str, mask: np.ndarray) -> None:
    text = f"""(float[b,n,2] x, float[b,n,2] z, bool[b,n] m) => (float[b,n,2] y) <{CONSTANTS}>
        {{ wide = Unsqueeze(m, last)  sizes = Shape(x)  whole = Expand(wide, sizes)  found0 = NonZero(whole)
        places = Transpose<perm = [1, 0]>(found0)  flat = Reshape(m, last)  ones = Cast<to = 7>(flat)
        {WRITTEN[written]}  y = ScatterND(x, places, new) }}"""
    simple = ops_of(agree(parse(text), {"x": X, "z": X[::-1].copy(), "m": mask}))
    assert "NonZero" not in simple and "ScatterND" not in simple


@pytest.mark.parametrize("mask", MASKS, ids=["none", "all", "some"])
@pytest.mark.parametrize("taken", ["seven", "pair", "z"])
def test_a_mask_over_the_first_axes(taken: str, mask: np.ndarray) -> None:
    """Whole entries [.., 2] are written where the mask holds."""
    new = "GatherND(z, places)" if taken == "z" else f"Expand({taken}, shape)"
    text = f"""(float[b,n,2] x, float[b,n,2] z, bool[b,n] m) => (float[b,n,2] y) <{CONSTANTS}>
        {{ found = NonZero(m)  places = Transpose<perm = [1, 0]>(found)  flat = Reshape(m, last)
        ones = Cast<to = 7>(flat)  one = ReduceSum(ones)  shape = Concat<axis = 0>(one, two)  new = {new}
        y = ScatterND(x, places, new) }}"""
    simple = ops_of(agree(parse(text), {"x": X, "z": X[::-1].copy(), "m": mask}))
    assert "NonZero" not in simple and "ScatterND" not in simple


STAYING = {
    "added": ("m", "new = Expand(seven, shape)", '<reduction = "add">'),
    "entries of other places": ("m", "u = Not(m)  f = NonZero(u)  a = Transpose(f)  new = GatherND(z, a)", ""),
    "what is fed": ("m", "new = Identity(given)", ""),
    "places of numbers": ("k", "new = Expand(seven, shape)", ""),
}


@pytest.mark.parametrize("name", STAYING)
def test_other_writes_stay(name: str) -> None:
    mask, new, reduction = STAYING[name]
    text = f"""(float[b,n,2] x, float[b,n,2] z, bool[b,n] m, int64[b,n] k, float[c,2] given) => (float[b,n,2] y)
        <{CONSTANTS}>
        {{ found = NonZero({mask})  places = Transpose<perm = [1, 0]>(found)  flat = Reshape(m, last)
        ones = Cast<to = 7>(flat)  one = ReduceSum(ones)  shape = Concat<axis = 0>(one, two)  {new}
        y = ScatterND{reduction}(x, places, new) }}"""
    mask_of_three = MASKS[2]
    feeds = {"x": X, "z": X, "m": mask_of_three, "k": mask_of_three.astype(np.int64), "given": X[0]}
    assert "ScatterND" in ops_of(agree(parse(text), feeds))
