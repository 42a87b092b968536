"""A recurrent network is told true lengths only where padding could be seen."""

import pytest

from compiler.passes.pad_axes import PadAxes
from tests.compiler.proof.rules.test_recurrence import network, weights
from tests.kit.offline import offline

OUTPUTS = "q = Transpose<perm = [2, 0, 1, 3]>(o)  y = Reshape(q, flat)"
FINAL = "y = Transpose<perm = [1, 0, 2]>(h)"


@pytest.mark.parametrize(
    ("direction", "body", "told"), [("forward", OUTPUTS, 0), ("reverse", OUTPUTS, 1), ("forward", FINAL, 1)]
)
def test_lengths_are_given_where_they_are_needed(direction: str, body: str, told: int) -> None:
    lowered = offline(network("GRU", direction, body).replace("-1, 6", "-1, 3"), weights("GRU", direction))
    model = PadAxes().apply(lowered).lowered.model
    (node,) = [node for node in model.graph if node.op_type == "GRU"]
    assert (len(node.inputs) > 4 and node.inputs[4] is not None) == bool(told)
