"""fold_table_product: scores are looked up in place of what they are computed with."""

import numpy as np
import pytest

from compiler.graph.stages import Lowered
from compiler.passes.fold_table_product import FoldTableProduct
from tests.kit.contract import ContractBroken, verify_pass, verify_untouched
from tests.kit.graphs import ops_of, parse, random_weights

HEADS = """(float[batch,2,3,4] q, float[batch] start, float[6,8] table) => (float[batch,2,3,6] y)
<int64[4] heads = {0, 6, 2, 4}, int64[2] column = {-1, 1}, int64[1,6] places = {0, 1, 2, 3, 4, 5},
 int64[1] low = {0}, int64[1] high = {5}>
{
    whole = Cast<to = 7>(start)
    first = Reshape(whole, column)
    shifted = Add(places, first)
    index = Clip(shifted, LOW, HIGH)
    rows = Gather<axis = 0>(table, index)
    parted = Reshape(rows, heads)
    turned = Transpose<perm = [0, 2, 3, 1]>(parted)
    y = MatMul(q, turned)
}""".replace("LOW, HIGH", "least, most").replace(
    "int64[1] low = {0}, int64[1] high = {5}", "int64 least = {0}, int64 most = {5}"
)
ALMOST = 1e-6


def lowered_of(text: str) -> Lowered:
    return Lowered("tiny", parse(text, random_weights({"table": (6, 8)})), batch_axis="batch")


def test_scores_of_all_places_are_looked_up() -> None:
    outcome = verify_pass(FoldTableProduct(), lowered_of(HEADS), tolerance=ALMOST, steps=4)
    assert ops_of(outcome.lowered.model)[-4:] == ["Unsqueeze", "Expand", "MatMul", "GatherElements"]
    assert (outcome.matched, outcome.rewritten) == (1, 1)


def test_one_index_is_spread_once_for_all_that_share_it() -> None:
    text = HEADS.replace("y = MatMul(q, turned)", "z = MatMul(q, turned)") + "}"
    text = text.replace("}}", """
        again = Gather<axis = 0>(table, index)
        parted2 = Reshape(again, heads)
        turned2 = Transpose<perm = [0, 2, 3, 1]>(parted2)
        other = Neg(q)
        z2 = MatMul(other, turned2)
        y = Add(z, z2)
    }""")  # fmt: skip
    outcome = verify_pass(FoldTableProduct(), lowered_of(text), tolerance=ALMOST, steps=4)
    assert ops_of(outcome.lowered.model).count("Expand") == 1
    assert outcome.rewritten == 2


def test_rows_of_a_fixed_number_are_followed_one_by_one() -> None:
    lowered = Lowered("tiny", parse(HEADS.replace("batch", "2"), random_weights({"table": (6, 8)})))
    assert verify_pass(FoldTableProduct(), lowered, tolerance=ALMOST, steps=4).rewritten == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("perm = [0, 2, 3, 1]", "perm = [0, 2, 1, 3]"),
        ("heads = {0, 6, 2, 4}", "heads = {0, 2, 6, 4}"),
        ("y = MatMul(q, turned)", "z = MatMul(q, turned)  t = ReduceSum(turned)  y = Add(z, t)"),
        ("q, float[batch]", "given, float[batch]"),
    ],
    ids=["places are not columns", "rows are torn apart", "read twice", "more frames than channels"],
)
def test_others_stay(old: str, new: str) -> None:
    text = HEADS.replace(old, new)
    if "perm = [0, 2, 1, 3]" in text:
        text = text.replace("[batch,2,3,4] q", "[batch,2,3,6] q").replace("[batch,2,3,6] y", "[batch,2,3,4] y")
    if "heads = {0, 2, 6, 4}" in text:
        text = text.replace("perm = [0, 2, 3, 1]", "perm = [0, 1, 3, 2]")
    if "given" in text:
        text = text.replace("[batch,2,3,4] given", "[batch,2,5,4] q").replace("[batch,2,3,6] y", "[batch,2,5,6] y")
    assert verify_untouched(FoldTableProduct(), lowered_of(text)).rewritten == 0


def test_a_larger_table_stays() -> None:
    lowered = Lowered(
        "tiny", parse(HEADS.replace("[6,8]", "[9,8]"), random_weights({"table": (9, 8)})), batch_axis="batch"
    )
    verify_untouched(FoldTableProduct(), lowered)


def test_a_way_that_is_not_followed_breaks_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.passes.fold_table_product._Lookup.moves_columns", lambda _: True)
    text = HEADS.replace("heads = {0, 6, 2, 4}", "heads = {0, 2, 6, 4}").replace("[0, 2, 3, 1]", "[0, 1, 3, 2]")
    with pytest.raises(ContractBroken, match="meaning"):
        verify_pass(FoldTableProduct(), lowered_of(text), tolerance=ALMOST, steps=4)


def test_movement_is_followed_by_where_entries_go_not_by_what_they_are() -> None:
    table = np.zeros((6, 8), np.float32)
    text = HEADS.replace("heads = {0, 6, 2, 4}", "heads = {0, 2, 6, 4}").replace("[0, 2, 3, 1]", "[0, 1, 3, 2]")
    verify_untouched(FoldTableProduct(), Lowered("tiny", parse(text, {"table": table}), batch_axis="batch"))
