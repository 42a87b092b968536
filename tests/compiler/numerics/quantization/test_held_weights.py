"""The guard on the weights of a lowered graph."""

import numpy as np
import pytest

from compiler.errors import InternalError
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.numerics.quantization.held_weights import held_weights, require_same_weights
from compiler.passes.lower_integers import LowerIntegers
from tests.kit.graphs import node_named
from tests.kit.integers import product


def test_weights_are_compared_as_numbers_whatever_holds_them() -> None:
    model = product(bias="[4]")
    before = held_weights(model)
    assert before.total() == 1
    lowered = (
        LowerIntegers().apply(Lowered("net", graphs.clone(model), batch_axis="batch", data_outputs=("y",))).lowered
    )
    require_same_weights(before, lowered.model)


@pytest.mark.parametrize("place", [1, 3, 5])
def test_other_codes_scales_or_zero_points_are_noticed(place: int) -> None:
    model = product(bias="[4]")
    before = held_weights(model)
    after = LowerIntegers().apply(Lowered("net", graphs.clone(model), batch_axis="batch", data_outputs=("y",)))
    node = node_named(after.lowered.model, str(after.lowered.model.graph.outputs[0].name))
    array = graphs.array_of(node.inputs[place])
    assert array is not None
    other = np.roll(array, 1) if place < 5 else array + np.int8(1)
    node.replace_input_with(place, graphs.Inserter(after.lowered.model, "test").constant(other, "other"))
    with pytest.raises(InternalError, match="expected the weights of the graph before lowering, got 1 others for 1"):
        require_same_weights(before, after.lowered.model)
