"""Products with what a state or a table holds."""

import numpy as np
import pytest

from compiler.graph.stages import Lowered, State
from compiler.numerics.quantization.cached_products import cached_products
from tests.kit.graphs import BATCH, parse

SECONDS = {
    "cached": "joined = Concat<axis = 1>(past, x)  keys = Transpose<perm = [0, 2, 1]>(joined)",
    "masked": "zero = Sub(three, three)  kept = Where(ok, past, zero)  joined = Concat<axis = 1>(kept, x) "
    "keys = Transpose<perm = [0, 2, 1]>(joined)",
    "table": "picked = Gather<axis = 0>(table, rows)  keys = Transpose<perm = [0, 2, 1]>(picked)",
    "computed": "keys = Transpose<perm = [0, 2, 1]>(x)",
    "scaled": "joined = Mul(past, three)  keys = Transpose<perm = [0, 2, 1]>(joined)",
    "filled": "many = Expand(three, shape)  keys = Where(okay, turned, many)",
}


def attention(second: str, *, soft: bool = False) -> Lowered:
    first = "soft = Softmax(x)  masked = Where(okay, soft, three)  q = Identity(masked)" if soft else "q = Identity(x)"
    model = parse(
        f"""(float[{BATCH},2,3] x, float[{BATCH},2,3] past, bool[{BATCH},2,1] ok, bool okay, int64[{BATCH},4] rows,
          float[9,3] table, float three) => (float[{BATCH},2,l] y, float[{BATCH},2,3] next_past)
        <int64[3] shape = {{1, 3, 2}}>
        {{ turned = Transpose<perm = [0, 2, 1]>(x)  {SECONDS[second]}
           {first}
           y = MatMul(q, keys)  next_past = Identity(x) }}""",
        {"table": np.ones((9, 3), np.float32), "three": np.array(3.0, np.float32)},
    )
    return Lowered("net", model, states=(State("past", "next_past", None),), batch_axis=BATCH, data_outputs=("y",))


@pytest.mark.parametrize("second", ["cached", "masked", "table"])
def test_what_was_there_before_the_call_is_found(second: str) -> None:
    (found,) = cached_products(attention(second))
    assert (found.node.op_type, found.first.name, found.second.name) == ("MatMul", "q", "keys")
    assert found.held.name == ("table" if second == "table" else "past")
    assert not found.of_shares


@pytest.mark.parametrize("second", ["computed", "scaled", "filled"])
def test_what_a_call_computes_is_not(second: str) -> None:
    assert cached_products(attention(second)) == []


def test_shares_of_a_softmax_are_told_through_masks_and_moves() -> None:
    (found,) = cached_products(attention("cached", soft=True))
    assert found.of_shares
