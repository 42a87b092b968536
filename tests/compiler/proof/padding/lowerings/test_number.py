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


HEADS = """(float[batch,time,4] x) => (float[batch,time,4] y) <int64 none = {0}, int64 whole = {1},
     int64[1] front = {0}, int64[4] apart = {0, 0, 2, 2}, int64[1] two = {2}, int64[1] less = {-1},
     int64[3] back = {0, 0, -1}, float hidden = {-1e9}, int64[2] entries = {3, 5}>
    { h = Reshape(x, apart)  t = Transpose<perm = [PERM]>(h)  n = Shape<start = 1, end = 2>(x)
      b = Shape<start = 0, end = 1>(x)  flat = Concat<axis = 0>(less, n, two)  q = Reshape(t, flat)
      k = Transpose<perm = [0, 2, 1]>(q)  s = MatMul(q, k)  l = Squeeze(n, front)  p = Range(none, l, whole)
      r = Unsqueeze(p, less)  LAID
      w = Softmax<axis = -1>(z)  a = MatMul(w, q)
      parts = Concat<axis = 0>(PARTS, n, two)  o = Reshape(a, parts)  g = Transpose<perm = [BACK]>(o)
      y = Reshape(g, back) }"""
ROWS_FIRST = {"PERM": "0, 2, 1, 3", "PARTS": "b, two", "BACK": "0, 2, 1, 3"}
HEADS_FIRST = {"PERM": "2, 0, 1, 3", "PARTS": "two, b", "BACK": "1, 2, 0, 3"}
LAID = {
    "a mask": "m = GreaterOrEqual(r, p)  z = Where(m, s, hidden)",
    "a mask with an axis in front": "c = Greater(r, p)  e = Unsqueeze(c, front)  z = Where(e, hidden, s)",
    "distances from the end": "d = Sub(l, r)  f = Cast<to = 1>(d)  z = Mul(s, f)",
}


REPEATED = (
    "m = GreaterOrEqual(r, p)  e = Unsqueeze(m, front)  j = Mul(b, two)  one = Div(b, b)"
    "  times = Concat<axis = 0>(j, one, one)  o1 = Tile(e, times)  z = Where(o1, s, hidden)"
)


def in_heads(merged: dict[str, str], laid: str) -> str:
    """Attention of two heads, whose rows are merged with them."""
    text = HEADS.replace("LAID", laid)
    for name, written in merged.items():
        text = text.replace(name, written)
    return text


@pytest.mark.parametrize("merged", [ROWS_FIRST, HEADS_FIRST], ids=["rows first", "heads first"])
@pytest.mark.parametrize("laid", LAID.values(), ids=LAID)
def test_what_follows_from_lengths_is_laid_over_rows_that_are_merged_with_heads(
    merged: dict[str, str], laid: str
) -> None:
    verify_offline(offline(in_heads(merged, laid)))


def test_a_mask_repeated_for_rows_and_heads_is_one_per_row() -> None:
    verify_offline(offline(in_heads(ROWS_FIRST, REPEATED)))


def test_a_mask_repeated_in_another_order_than_that_of_the_rows_is_refused() -> None:
    with pytest.raises(Refused, match=r"joins rows\(batch\) \* 2 with 2 \* rows\(batch\)"):
        PadAxes().apply(offline(in_heads(HEADS_FIRST, REPEATED)))


def test_entries_of_a_row_are_laid_over_rows_that_are_merged_with_heads() -> None:
    """As many in every row, of whatever length: another axis has them."""
    laid = "v = Mul(entries, l)  f = Cast<to = 1>(v)  i = Mul(q, f)  z = MatMul(i, k)"
    verify_offline(offline(in_heads(ROWS_FIRST, laid)))


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
