"""pad_axes on what speech models do along time, written as exporters write it: proved, replayed and attacked."""

import numpy as np
import pytest

from compiler.lowering import replay_certificates
from compiler.passes.pad_axes import PadAxes
from compiler.stages import Array, Outcome
from tests.kit.graphs import copy_of, random_weights
from tests.kit.offline import check_padded, offline

CONSTANTS = """<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] last = {-1},
 int64[1] end = {9223372036854775807}, int64 first = {0}, int64 step = {1}, int64 twice = {2}, int64 thrice = {3},
 float half = {0.5}, float nought = {0.0}, float unit = {1.0}>"""
WEIGHTS = random_weights({"w": (4, 4), "kernel": (4, 4, 3)})


def proved(body: str, result: str = "batch,r,4", dims: str = "batch,time,4", *, shortest: int = 0) -> Outcome:
    """The padded graph from x [batch, time, 4] to y, whose certificate holds and whose rows are those alone."""
    inputs = f"float[{dims}] x, float[4,4] w, float[4,4,3] kernel"
    lowered = offline(f"({inputs}) => (float[{result}] y) {CONSTANTS} {{ {body} }}", _weights())
    before = copy_of(lowered)
    outcome = PadAxes().apply(copy_of(lowered))
    assert replay_certificates(before, outcome)
    for seed in range(4):
        check_padded(lowered, outcome, seed=seed, rows=4, shortest=shortest)
    return outcome


def _weights() -> dict[str, Array]:
    return {name: np.asarray(array) for name, array in WEIGHTS.items()}


SIZE = "s = Shape<start = 1, end = 2>(x)  n = Squeeze(s)"
STRETCHED = f"""{SIZE}  m = Mul(n, twice)  i = Range(first, m, step)  f = Cast<to = 1>(i)  f1 = Add(f, half)
    f2 = Mul(f1, half)  f3 = Sub(f2, half)  f4 = Clip(f3, nought)  low = Cast<to = 7>(f4)  low1 = Add(low, step)
    top = Sub(n, step)  high = Clip(low1, , top)  t = Transpose<perm = [1, 0, 2]>(x)
    a = Unsqueeze(low, last)  va = GatherND(t, a)  v = Transpose<perm = [1, 0, 2]>(va)
    b = Unsqueeze(high, last)  ub = GatherND(t, b)  u = Transpose<perm = [1, 0, 2]>(ub)"""

INTERPOLATIONS = {
    "linear by two, as exported": STRETCHED
    + """ g = Cast<to = 1>(low)  g1 = Sub(f4, g)  share = Clip(g1, nought, unit)  column = Unsqueeze(share, last)
    d = Sub(u, v)  e = Mul(d, column)  y = Add(v, e)""",
    "neighbours in front of a convolution": STRETCHED
    + " d = Sub(u, v)  c = Transpose<perm = [0, 2, 1]>(d)  z = Conv<pads = [1, 1]>(c, kernel)  y = Relu(z)",
}


@pytest.mark.parametrize("body", INTERPOLATIONS.values(), ids=INTERPOLATIONS)
def test_linear_interpolation(body: str) -> None:
    proved(body)


POSITIONS = f"{SIZE}  i = Range(first, n, step)"
LOOKUPS = {
    "turned round by a lookup": f"{POSITIONS}  top = Sub(n, step)  j = Sub(top, i)  y = Gather<axis = 1>(x, j)",
    "turned round from the end": f"{POSITIONS}  m = Neg(i)  j = Sub(m, step)  y = Gather<axis = 1>(x, j)",
    "rolled by a lookup": f"{POSITIONS}  h = Sub(i, step)  j = Mod(h, n)  y = Gather<axis = 1>(x, j)",
    "the middle": f"{SIZE}  m = Div(n, twice)  j = Gather<axis = 1>(x, m)  y = Unsqueeze(j, one)",
    "three around the middle": f"""{SIZE}  m = Div(n, thrice)  around = Constant<value = int64[3] {{0, 1, 2}}>()
        j = Add(m, around)  top = Sub(n, step)  k = Min(j, top)  y = Gather<axis = 1>(x, k)""",
}


@pytest.mark.parametrize("body", LOOKUPS.values(), ids=LOOKUPS)
def test_entries_at_positions_that_follow_from_the_length_of_the_row(body: str) -> None:
    proved(body)


def test_a_grid_of_positions() -> None:
    outcome = proved(
        f"""{POSITIONS}  column = Unsqueeze(i, one)  pair = Constant<value = int64[2] {{0, 1}}>()
        grid = Add(column, pair)  top = Sub(n, step)  k = Min(grid, top)  z = Gather<axis = 1>(x, k)
        y = ReduceMax<keepdims = 0>(z, two)"""
    )
    assert outcome.records[0]["minimum"] == {"time": 1}
