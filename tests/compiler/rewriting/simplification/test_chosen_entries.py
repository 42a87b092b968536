"""chosen_entries: what is computed of each entry that a mask chooses is computed of all; what mixes entries stays."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.passes.simplify import simplify_model
from tests.kit.graphs import ops_of, parse
from tests.kit.same_bits import agree

HEAD = """(float[b,n,4] x, float[b,n,4] z, bool[b,n] m) => (float[b,n,4] y)
    <int64[1] last = {-1}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3},
     int64 first = {0}, int64 unit = {1}, int64[3] pairs = {-1, 2, 2}, int64[2] fours = {-1, 4}, float half = {0.5},
     float[4] bias = {1.0, -2.0, 0.5, 3.0}, float[2,4] table = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0},
     float[4,4] w = {1.0, 0.5, 0.0, 1.0, -1.0, 2.0, 0.25, 0.0, 0.5, 0.5, 1.0, 1.0, 2.0, -1.0, 0.0, 0.5}> {
    found = NonZero(m)  places = Transpose<perm = [1, 0]>(found)
    v0 = GatherND(x, places)  u0 = GatherND(z, places)
"""

BY_ENTRY = (
    "{} = Tanh({})", "{} = Add({}, bias)", "{} = MatMul({}, w)", "{} = Gemm({}, w, bias)", "{} = Mul({}, u0)",
    "{} = LayerNormalization<axis = -1>({}, bias)", "{} = Softmax<axis = 1>({})", "{} = Sub(half, {})",
    "{0}a = Reshape({1}, pairs)  {0}b = Softmax<axis = 2>({0}a)  {0} = Reshape({0}b, fours)",
    "{0}a = Greater({1}, u0)  {0} = Where({0}a, {1}, bias)", "{0}a = ReduceMax({1}, one)  {0} = Sub({1}, {0}a)",
    "{0}a = Transpose<perm = [1, 0]>({1})  {0}b = Neg({0}a)  {0} = Transpose<perm = [1, 0]>({0}b)",
)  # fmt: skip
MIXING = (
    "{} = Softmax<axis = 0>({})", "{0}a = ReduceMean({1}, zero)  {0} = Sub({1}, {0}a)", "{} = CumSum({}, first)",
    "{0}a = Transpose<perm = [1, 0]>({1})  {0}b = MatMul({1}, {0}a)  {0} = MatMul({0}b, {1})",
    "{0}a = Shape<end = 1>({1})  {0}b = Cast<to = 1>({0}a)  {0} = Div({1}, {0}b)",
    "{0}a = Cast<to = 7>({1})  {0}b = Clip({0}a, unit)  {0}c = ReduceMin({0}b, one)  {0}d = Div({0}c, {0}c)"
    "  {0}e = Cast<to = 1>({0}d)  {0} = Mul({1}, {0}e)",
    "{0}a = Cast<to = 7>({1})  {0}b = Mul({0}a, zero)  {0}c = ReduceMin<keepdims = 0>({0}b, one)"
    "  {0} = Gather<axis = 0>(table, {0}c)",
)  # fmt: skip
"""Entries meet, or numbers are whole: those of entries that are not chosen could fail."""

MASK = np.array([[True, False, True], [False, False, True]])


def drawn(seed: int, *, mixes: bool) -> str:
    """A write of what a few nodes compute of chosen entries, one of which mixes them or not."""
    rng = np.random.default_rng(seed)
    kinds = [BY_ENTRY[int(rng.integers(len(BY_ENTRY)))] for _ in range(int(rng.integers(1, 6)))]
    if mixes:
        kinds[int(rng.integers(len(kinds)))] = MIXING[int(rng.integers(len(MIXING)))]
    nodes = [kind.format(f"v{at + 1}", f"v{at}") for at, kind in enumerate(kinds)]
    return HEAD + "  ".join(nodes) + f"  y = ScatterND(z, places, v{len(kinds)}) }}"


@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_computed_of_chosen_entries(seed: int, mixes: bool) -> None:
    rng = np.random.default_rng(seed)
    model = parse(drawn(seed, mixes=mixes))
    x, z = rng.standard_normal((2, 2, 3, 4), dtype=np.float32)
    simple = graphs.clone(model)
    simplify_model(simple)
    assert ("ScatterND" in ops_of(simple)) == mixes
    feeds = {"x": x, "z": z, "m": MASK}
    (before,), (after,) = (run_model(each, feeds).values() for each in (model, simple))
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)


def test_entries_that_are_not_chosen_are_as_they_were_whatever_is_computed_of_them() -> None:
    text = HEAD + "a = Sub(v0, u0)  v1 = Div(bias, a)  y = ScatterND(z, places, v1) }"
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    simple = agree(parse(text), {"x": x, "z": np.where(MASK[:, :, None], -x - 1, x), "m": MASK})
    assert "ScatterND" not in ops_of(simple)
