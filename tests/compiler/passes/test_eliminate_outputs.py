"""eliminate_outputs: what is declared and not read goes, where the operator need not have it."""

import numpy as np
import pytest

from compiler.graph.stages import Lowered
from compiler.passes.eliminate_outputs import EliminateOutputs
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import node_named, parse

DECLARED = {
    "LayerNormalization": """(float[2,4] x, float[4] g) => (float[2,4] z)
        { y, m, d = LayerNormalization(x, g)  z = Neg(y) }""",
    "MaxPool": "(float[1,1,4,4] x) => (float[1,1,3,3] z) { y, i = MaxPool<kernel_shape = [2, 2]>(x)  z = Neg(y) }",
}


@pytest.mark.parametrize("op", DECLARED)
def test_a_second_output_that_nothing_reads_goes(op: str) -> None:
    before = Lowered("tiny", parse(DECLARED[op], {"g": np.ones(4, np.float32)}))
    outcome = verify_pass(EliminateOutputs(), before, tolerance=0.0)
    assert len(node_named(outcome.lowered.model, "y").outputs) == 1


@pytest.mark.parametrize(
    "text",
    [
        "(float[2,4] x, float[4] g) => (float[2,4] y, float[2,1] m) { y, m = LayerNormalization(x, g) }",
        "(float[2,4] x) => (float[2,2] y) { k = Constant<value_ints = [2]>()  y, i = TopK(x, k) }",
    ],
)
def test_one_that_is_given_out_and_one_that_an_operator_always_has_stay(text: str) -> None:
    verify_untouched(EliminateOutputs(), Lowered("tiny", parse(text, {"g": np.ones(4, np.float32)})))
