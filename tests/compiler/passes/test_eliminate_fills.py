"""eliminate_fills: free slots stay as they are where nothing can be seen of them, and only there."""

import numpy as np
import pytest

from compiler.graph.runners.choose import runner_of
from compiler.passes.carry_codes import CarryCodes
from compiler.passes.eliminate_fills import EliminateFills
from compiler.passes.quantize_attention import QuantizeAttention
from tests.kit.contract import check_padding, verify_pass, verify_untouched
from tests.kit.graphs import copy_of, feeds_of
from tests.kit.guarded import CODED, filled_inputs, guarded
from tests.kit.quantization import speech


def test_keys_that_are_not_seen_need_no_fill_and_values_that_are_summed_do() -> None:
    outcome = verify_pass(EliminateFills(), guarded(), tolerance=0.0)
    assert (outcome.matched, outcome.rewritten) == (3, 1)
    assert filled_inputs(outcome.lowered) == ["values"]


@pytest.mark.parametrize("lowest", [-np.inf, -1e31])
def test_values_of_codes_need_none_where_shares_are_codes_of_zero(lowest: float) -> None:
    outcome = verify_pass(EliminateFills(), guarded(CODED, lowest), tolerance=0.0)
    assert outcome.rewritten == 2
    assert filled_inputs(outcome.lowered) == []


def test_a_state_of_codes_that_keys_and_values_share_needs_none() -> None:
    graph = QuantizeAttention(sqnr_db=30.0).apply(copy_of(speech())).lowered
    graph = CarryCodes().apply(graph).lowered
    assert "past" in filled_inputs(graph)
    after = EliminateFills().apply(copy_of(graph)).lowered
    assert "past" not in filled_inputs(after)
    check_padding(after, 12)
    before, behind = runner_of(graph, 2), runner_of(after, 2)
    for feed in feeds_of(graph, 12, 2):
        right, found = before.step(feed), behind.step(feed)
        assert {name: array.tobytes() for name, array in found.items()} == {
            name: array.tobytes() for name, array in right.items()
        }


def test_a_state_that_keys_and_values_share_needs_it() -> None:
    verify_untouched(EliminateFills(), speech())


KEPT = {
    "one free slot is seen": {"seen": "more = Sub(first, one)  seen = GreaterOrEqual(all_places, more)"},
    "only free slots are seen": {"hidden": "hidden = Where(seen_wide, lowest, scores)"},
    "NaN plus a mask is NaN": {"hidden": "mask = Where(seen_wide, nil, lowest)  hidden = Add(scores, mask)"},
    "nothing is hidden": {"hidden": "hidden = Identity(scores)"},
    "scores are given out": {"z": "z = Neg(scores)"},
    "keys are given out": {"z": "z = Transpose<perm = [0, 2, 1]>(turned)"},
    "slots are mixed": {"z": "z = Softmax<axis = -1>(turned)"},
    "rows of a product": {"z": "z = MatMul(all_keys, turned)"},
    "a sum over slots": {"z": "z = MatMul(turned, all_keys)"},
    "a state moves on by less than a call adds": {"next_keys": "next_keys = Slice(all_keys, one, five, one)"},
    "a state holds scores": {"next_keys": "back = MatMul(scores, x_turned)  next_keys = Concat<axis = 1>(x, back)"},
    "the condition is of data": {
        "first": "top = ReduceMax<keepdims = 0>(x)  top_int = Cast<to = 7>(top)  first = Sub(length, top_int)"
    },
}  # fmt: skip


@pytest.mark.parametrize("reason", KEPT)
def test_keys_that_something_sees_keep_it(reason: str) -> None:
    outcome = EliminateFills().apply(guarded(KEPT[reason]))
    assert outcome.rewritten == 0
    assert filled_inputs(outcome.lowered) == ["keys", "values"]


def test_a_selection_that_hides_more_serves_as_well() -> None:
    parts = {"seen": "less = Add(first, one)  seen = GreaterOrEqual(all_places, less)"}
    assert filled_inputs(verify_pass(EliminateFills(), guarded(parts), tolerance=0.0).lowered) == ["values"]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"lowest": -50.0}, {}),
        ({"scale": 1e-38}, {}),
        ({}, {"shares": CODED["shares"].replace("axis = -1", "axis = 1")}),
        ({}, {"y": "y = MatMul(shares, read_values)"}),
        ({}, {"y": "y = MatMul(read_shares, all_values)"}),
        ({}, {"seen": "none = Add(first, slots)  seen = GreaterOrEqual(all_places, none)"}),
    ],
)
def test_values_keep_it_where_a_share_may_be_another_code_or_they_are_real(
    options: dict[str, float], parts: dict[str, str]
) -> None:
    assert "values" in filled_inputs(EliminateFills().apply(guarded(CODED | parts, **options)).lowered)
