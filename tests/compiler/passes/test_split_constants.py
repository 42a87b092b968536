"""split_constants: what is added behind a convolution is no constant of anything else."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.passes.split_constants import SplitConstants
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import node_named, parse, random_weights

GATE = """(float[2,8,5] x, float[2,8,5] shared, float[8,8,1] w) => (float[2,8,5] y) {
    a = Add(x, shared)  u = Conv(a, w)  y = Add(u, shared) }"""


def lowered(text: str) -> Lowered:
    return Lowered("tiny", parse(text, random_weights({"shared": (2, 8, 5), "w": (8, 8, 1)})))


@pytest.mark.parametrize("op", ["Add", "Mul", "Sub"])
def test_a_constant_behind_a_convolution_is_read_once(op: str) -> None:
    outcome = verify_pass(SplitConstants(), lowered(GATE.replace("y = Add", f"y = {op}")), tolerance=0.0)
    assert outcome.rewritten == 1
    first, last = (node_named(outcome.lowered.model, name).inputs[1] for name in ("a", "y"))
    assert first is not None and last is not None and first is not last
    np.testing.assert_array_equal(graphs.array_of(first), graphs.array_of(last))


@pytest.mark.parametrize(
    "text",
    [
        GATE.replace("Conv(a, w)", "Relu(a)").replace(", float[8,8,1] w", ""),
        GATE.replace("y = Add(u, shared)", "y = Relu(u)"),
        GATE.replace("a = Add(x, shared)", "a = Relu(x)"),
    ],
)
def test_others_stay(text: str) -> None:
    verify_untouched(SplitConstants(), lowered(text))
