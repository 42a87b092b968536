"""operands: what rules ask of a node's inputs."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.analysis.facts import ANYTHING, FINITE, PLAIN, ZERO, Fact, Fill, Segment
from compiler.analysis.rules.operands import content_of, rank_of, the_padded
from compiler.errors import Refused
from tests.kit.graphs import parse


def constant(array: np.ndarray) -> ir.Value:
    return ir.Value(name="c", const_value=ir.tensor(array), shape=ir.Shape(array.shape))


@pytest.mark.parametrize(
    ("array", "fill"), [([0.0, 0.0], ZERO), ([0.0, 1.0], FINITE), ([0.0, np.inf], ANYTHING), ([np.nan], ANYTHING)]
)
def test_constants_are_known_by_content(array: list[float], fill: Fill) -> None:
    assert content_of(constant(np.array(array)), PLAIN) == fill


def test_activations_are_finite_and_padding_is_what_the_fact_says() -> None:
    padded = Fact(0, (Segment(2, 2),), ANYTHING)
    assert content_of(ir.Value(name="x"), PLAIN) == FINITE
    assert content_of(ir.Value(name="x"), padded) == ANYTHING


def test_an_unknown_rank_is_refused() -> None:
    with pytest.raises(Refused, match="the rank of 'x' is unknown"):
        rank_of(ir.Value(name="x"))


def test_two_padded_inputs_are_refused() -> None:
    node = next(iter(parse("(float[2] a, float[2] b) => (float[2] y) { y = Add(a, b) }").graph))
    padded = Fact(0, (Segment(2, 2),), ZERO)
    assert the_padded(node, [PLAIN, padded]) == (1, padded)
    with pytest.raises(Refused, match="2 padded inputs"):
        the_padded(node, [padded, padded])
