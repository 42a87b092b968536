"""Values computed again for every row hold what each row computes alone, in its own first slots."""

import numpy as np
import pytest

from compiler.graph.runners.session import run_model
from compiler.graph.stages import Array
from compiler.proof.padding.row_values import RowValues
from compiler.proof.padding.valid_slots import Length, ValidSlots
from tests.kit.graphs import node_named, parse
from tests.kit.offline import offline, verify_offline

CONSTANTS = """<int64[1] zero = {0}, int64[1] one = {1}, int64[1] last = {-1}, int64 first = {0}, int64 step = {1},
 int64 two = {2}, float half = {0.5}, int64[2] both = {1, 0}, int64[3] wide = {3, 1, 1}>"""
LENGTH = "s = Shape<start = 1, end = 2>(x)  n = Squeeze(s)  i = Range(first, n, step)"
VALUES = {
    "from the end": f"{LENGTH}  top = Sub(n, step)  y = Sub(top, i)",
    "in steps": f"{LENGTH}  m = Mul(n, two)  y = Range(n, m, step)",
    "fractions": f"""{LENGTH}  f = Cast<to = 1>(i)  g = Cast<to = 1>(n)  h = Div(f, g)
        z = Clip(h, half)  k = Mul(z, g)  y = Cast<to = 7>(k)""",
    "a grid": f"{LENGTH}  c = Unsqueeze(i, one)  d = Sub(c, i)  e = Add(d, n)  y = Transpose(e)",
    "repeated": f"{LENGTH}  c = Unsqueeze(i, zero)  w = Concat<axis = 0>(two_, s)  d = Expand(c, w)  y = Sub(n, d)",
    "side by side": f"""{LENGTH}  c = Unsqueeze(i, one)  d = Sub(n, c)  e = Concat<axis = 1>(c, d)
        y = Gather<axis = 1>(e, both)""",
    "reshaped": f"{LENGTH}  c = Reshape(i, column)  y = Sub(c, n)",
    "bits": f"{LENGTH}  b = BitwiseAnd(i, n)  c = BitwiseXor(b, two)  y = BitwiseNot(c)",
    "shifted bits": f"""{LENGTH}  u = Cast<to = 13>(i)  t = Cast<to = 13>(two)  b = BitShift<direction = "LEFT">(u, t)
        y = Cast<to = 7>(b)""",
    "one or the other": f"""{LENGTH}  a = Less(i, two)  b = Greater(n, two)  c = Xor(a, b)  y = Cast<to = 7>(c)""",
    "like another": f"{LENGTH}  f = CastLike(i, half)  g = Erf(f)  h = Ceil(g)  y = Cast<to = 7>(h)",
    "several sizes": "s = Shape<start = 1>(x)  y = Mul(s, s)",
    "a size of another type": """s = Shape<start = 1, end = 2>(x)  f = Cast<to = 1>(s)  h = Mul(f, half)
        y = Cast<to = 7>(h)""",
}


@pytest.mark.parametrize("body", VALUES.values(), ids=VALUES)
def test_every_row_holds_what_it_computes_alone(body: str) -> None:
    more = ", int64[1] two_ = {2}, int64[2] column = {-1, 1}>"
    text = f"(float[batch,time,4] x, int64[batch] time_length) => (int64[q] y) {CONSTANTS[:-1]}{more} {{ {body} }}"
    model = parse(text)
    lengths = np.array([1, 5, 3], np.int64)
    alone = []
    for each in lengths:
        feeds: dict[str, Array] = {"x": np.zeros((1, each, 4), np.float32), "time_length": lengths}
        alone.append(run_model(model, feeds)["y"])
    (length,) = (value for value in model.graph.inputs if value.name == "time_length")
    places = ValidSlots(model, [Length("time", length)], "batch", "test")
    made = RowValues(places).of(node_named(model, "y").outputs[0])
    model.graph.outputs.append(made)
    feeds = {"x": np.zeros((3, 6, 4), np.float32), "time_length": lengths}
    got = run_model(model, feeds)[str(made.name)]
    for row, wanted in zip(np.broadcast_to(got, (3, *got.shape[1:])), alone, strict=True):
        assert np.array_equal(row[tuple(slice(size) for size in wanted.shape)], wanted)


BACKWARDS = f"{LENGTH}  top = Sub(n, step)  r = Sub(top, i)"
LOOKED_UP = {
    "a row of indices turned to a column": (
        "float[batch,time,1,4]", "u = Unsqueeze(r, zero)  t = Transpose<perm = [1, 0]>(u)  y = Gather<axis = 1>(x, t)"
    ),
    "pairs of a frame and a channel, with the batch behind": (
        "float[batch,q]",
        """u = Unsqueeze(r, one)  c = Mul(u, zero)  pairs = Concat<axis = 1>(u, c)
        t = Transpose<perm = [1, 2, 0]>(x)  g = GatherND(t, pairs)  y = Transpose<perm = [1, 0]>(g)""",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("result", "body"), LOOKED_UP.values(), ids=LOOKED_UP)
def test_every_row_looks_up_by_indices_of_its_own(result: str, body: str) -> None:
    verify_offline(offline(f"(float[batch,time,4] x) => ({result} y) {CONSTANTS} {{ {BACKWARDS}  {body} }}"))
