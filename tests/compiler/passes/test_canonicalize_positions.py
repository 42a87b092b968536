"""canonicalize_positions: every lookup by length is one Slice of a table with a leading axis."""

import numpy as np
import pytest

from compiler.graph.stages import Lowered
from compiler.passes.canonicalize_positions import CanonicalizePositions
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import node_named, ops_of, parse

TABLE = {"table": np.arange(48, dtype=np.float32).reshape(12, 4) / 7}

BY_RANGE = """(float[batch,6,4] x, float[12,4] table) => (float[batch,6,4] y)
<int64 zero = {0}, int64 one = {1}, int64[1] first = {0}>
{
    size = Shape<start = 1, end = 2>(x)
    end = Squeeze(size, first)
    index = Range(zero, end, one)
    rows = Gather(table, index)
    READERS
}"""


def lowered_of(readers: str, text: str = BY_RANGE) -> Lowered:
    return Lowered("tiny", parse(text.replace("READERS", readers), TABLE), batch_axis="batch")


@pytest.mark.parametrize(
    "readers",
    [
        "y = Add(x, rows)",
        "wide = Unsqueeze(rows, first)  y = Add(x, wide)",
        "bent = Tanh(rows)  wide = Unsqueeze(bent, first)  y = Mul(wide, x)",
    ],
)
def test_a_lookup_by_range_becomes_a_slice(readers: str) -> None:
    outcome = verify_pass(CanonicalizePositions(), lowered_of(readers), tolerance=0.0, steps=1)
    assert "Slice" in ops_of(outcome.lowered.model)
    assert "Gather" not in ops_of(outcome.lowered.model)


def test_rows_that_reach_another_operator_are_reported() -> None:
    lowered = lowered_of("summed = ReduceSum<keepdims = 0>(rows, first)  y = Add(x, summed)")
    outcome = verify_untouched(CanonicalizePositions(), lowered, refused="would see a leading axis")
    assert (outcome.refused[0].place.op, outcome.refused[0].place.node) == ("Gather", "rows_gather")


def test_rows_normalised_over_axes_counted_from_the_front_stay() -> None:
    text = BY_RANGE.replace("int64[1] first", "float[6,4] gamma = {" + ", ".join(["1"] * 24) + "}, int64[1] first")
    readers = "normed = LayerNormalization<axis = 0>(rows, gamma)  y = Add(x, normed)"
    verify_untouched(CanonicalizePositions(), lowered_of(readers, text), refused="would see a leading axis")


def test_other_indices_are_no_lookup_by_length() -> None:
    text = BY_RANGE.replace("zero = {0}", "zero = {1}")
    outcome = verify_untouched(
        CanonicalizePositions(), lowered_of("part = Slice(x, first, size, first)  y = Identity(x)", text)
    )
    assert outcome.matched == 0
    assert node_named(lowered_of("y = Add(x, rows)").model, "rows").op_type == "Gather"


def test_a_range_of_32_bits_stays() -> None:
    text = BY_RANGE.replace("int64 zero", "int32 zero").replace("int64 one", "int32 one")
    text = text.replace("end = Squeeze(size, first)", "short = Cast<to = 6>(size)  end = Squeeze(short, first)")
    assert verify_untouched(CanonicalizePositions(), lowered_of("y = Add(x, rows)", text)).matched == 0


@pytest.mark.parametrize(("start", "is_own"), [(0, True), (1, False)])
def test_an_entry_that_each_row_chooses_in_itself_is_looked_up_with_the_rows_in_common(
    start: int, is_own: bool
) -> None:
    text = f"""(float[batch,5,3] x, int64[batch] at) => (float[batch,3] y)
        <int64 first = {{{start}}}, int64 one = {{1}}, int64[0] none = {{}}, int64[1] last = {{1}},
         int64[1] five = {{5}}>
        {{ b = Shape<start = 0, end = 1>(x)  n = Reshape(b, none)  m = Add(n, first)  rows = Range(first, m, one)
        r = Unsqueeze(rows, last)  q = Mod(at, five)  a = Unsqueeze(q, last)  i = Concat<axis = 1>(r, a)
        y = GatherND(x, i) }}"""
    lowered = Lowered("tiny", parse(text), batch_axis="batch")
    if not is_own:
        verify_untouched(CanonicalizePositions(), lowered)
        return
    outcome = verify_pass(CanonicalizePositions(), lowered, tolerance=0.0)
    assert node_named(outcome.lowered.model, "y").attributes["batch_dims"].value == 1
