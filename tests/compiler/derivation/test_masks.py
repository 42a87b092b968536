"""Supports of masks are what the arithmetic says, whoever wrote them."""

import numpy as np
import pytest

from compiler.derivation.judging import Judging
from tests.kit.whole_sequences import LONGEST, MASKS, Drawing, whole_graph

ROWS, COLUMNS = np.indices((LONGEST, LONGEST))
CAUSAL = COLUMNS <= ROWS

EXPECTED = dict.fromkeys(MASKS, CAUSAL) | {
    "band": CAUSAL & (COLUMNS > ROWS - 5),
    "chunks": CAUSAL & (COLUMNS // 5 > ROWS // 5 - 2),
}


@pytest.mark.parametrize("low", [-np.inf, float(np.finfo(np.float32).min), -1.0e9])
@pytest.mark.parametrize("writing", ["select", "add"])
@pytest.mark.parametrize("mask", MASKS)
def test_the_support_behind_a_softmax_is_that_of_the_mask(mask: str, writing: str, low: float) -> None:
    judging = Judging(whole_graph(Drawing(mask=mask, writing=writing, low=low, width=5)), "time", LONGEST)
    (softmax,) = (node for node in judging.model.graph if node.op_type == "Softmax")
    outside = judging.of(softmax.outputs[0]).outside
    assert outside is not None
    assert outside.kind == "zero"
    assert np.array_equal(outside.support, EXPECTED[mask])


def test_a_mask_that_is_not_low_enough_is_none() -> None:
    judging = Judging(whole_graph(Drawing(low=-100.0)), "time", LONGEST)
    assert all(fact.outside is None or fact.outside.kind != "zero" for fact in judging.known.values())
    assert judging.offences
