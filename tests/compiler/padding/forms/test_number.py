"""A length that serves as data is the true length of each row."""

import pytest

from compiler.errors import Refused
from compiler.passes.pad_axes import PadAxes
from tests.kit.offline import offline, verify_offline

BODIES = [
    "f = Cast<to = 1>(n)  y = Mul(x, f)",
    "f = Cast<to = 1>(n)  r = Sqrt(f)  q = Add(r, one)  y = Div(x, q)",
    "m = Sub(n, whole)  f = Cast<to = 1>(m)  y = Add(x, f)",
    "b = Shape<start = 0, end = 1>(x)  l = Expand(n, b)  u = Unsqueeze(l, behind)  f = Cast<to = 1>(u)  y = Div(x, f)",
    "b = Shape<start = 0, end = 2>(x)  l = Expand(n, b)  u = Unsqueeze(l, last)  f = Cast<to = 1>(u)  y = Mul(x, f)",
    "m = Sub(n, nine)  f = Cast<to = 1>(m)  y = Mul(x, f)",
    "m = Sub(n, nine)  h = Div(m, two)  f = Cast<to = 1>(h)  y = Mul(x, f)",
    "m = Sub(n, two)  o = Max(m, none)  s = Sub(n, o)  f = Cast<to = 1>(s)  y = Mul(x, f)",
    "t = Transpose<perm = [0, 2, 1]>(x)  b = Shape<start = 0, end = 1>(x)  c = Mul(b, four)  s = Concat<axis = 0>(c, n)"
    "  r = Reshape(t, s)  f = Cast<to = 1>(n)  q = Mul(r, f)  g = Concat<axis = 0>(b, four, n)  u = Reshape(q, g)"
    "  y = Transpose<perm = [0, 2, 1]>(u)",
]
HEAD = """(float[batch,time,4] x) => (float[batch,time,4] y) <float[1] one = {1.0}, int64[1] whole = {1},
     int64[2] behind = {1, 2}, int64[1] last = {2},
     int64[1] nine = {9}, int64[1] two = {2}, int64[1] none = {0}, int64[1] four = {4}>
    { n = Shape<start = 1, end = 2>(x)  BODY }"""


@pytest.mark.parametrize("body", BODIES)
def test_rows_read_their_own_length(body: str) -> None:
    verify_offline(offline(HEAD.replace("BODY", body)))


def test_the_batch_size_is_no_number_to_compute_with() -> None:
    text = HEAD.replace("BODY", "b = Shape<start = 0, end = 1>(x)  f = Cast<to = 1>(b)  y = Mul(x, f)")
    with pytest.raises(Refused, match="batch"):
        PadAxes().apply(offline(text))


MASK = """(float[batch,time,4] x) => (float[batch,2,time] y) <int64 none = {0}, int64 whole = {1}, int64[1] end = {-1},
     int64[1] front = {0}, int64[1] middle = {1}>
    { n = Shape<start = 1, end = 2>(x)  b = Shape<start = 0, end = 1>(x)  s = Squeeze(n, front)
      l = Expand(n, b)  e = Sub(l, whole)  c = Unsqueeze(e, end)  p = Range(none, s, whole)  q = Unsqueeze(p, front)
      m = Less(q, c)  f = Cast<to = 1>(m)  u = Unsqueeze(f, middle)
      w = MaxPool<kernel_shape = [3], pads = [1, 1]>(u)
      t = Transpose<perm = [0, 2, 1]>(x)  z = Mul(t, w)  y = Slice(z, front, two, middle) }"""


def test_a_mask_made_of_lengths_is_pooled_per_row() -> None:
    verify_offline(offline(MASK.replace("<int64 none", "<int64[1] two = {2}, int64 none")))


def test_what_an_operator_of_data_makes_of_a_length_is_no_constant() -> None:
    body = "b = Shape<start = 0, end = 1>(x)  f = Cast<to = 1>(n)  u = Unsqueeze(f, behind)  w = GlobalMaxPool(u)"
    text = HEAD.replace("BODY", f"{body}  y = Add(x, w)")
    with pytest.raises(Refused, match="GlobalMaxPool"):
        PadAxes().apply(offline(text))


def test_the_last_entry_of_each_row_is_chosen_by_its_number() -> None:
    text = """(float[batch,time,4] x) => (float[batch,4] y) <int64 whole = {1}, int64[1] end = {-1}>
    { n = Shape<start = 1, end = 2>(x)  b = Shape<start = 0, end = 1>(x)  l = Expand(n, b)  m = Sub(l, whole)
      u = Unsqueeze(m, end)  y = GatherND<batch_dims = 1>(x, u) }"""
    verify_offline(offline(text))
