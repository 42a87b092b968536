"""Times that do not depend on the machine: a graph takes as long as it has weights."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.passes import compress
from compiler.rewriting.pruning import channel_times

SECONDS_PER_WEIGHT = 1e-6


@dataclasses.dataclass(frozen=True)
class Weighed:
    """A call that nobody runs.

    Attributes:
        weights: numbers in the constants that its graph reads.
    """

    weights: int

    def __call__(self) -> None:
        raise AssertionError("it is not run")


def weighed(model: ir.Model, _feeds: object) -> Weighed:
    read = {value for node in model.graph for value in node.inputs if value is not None}
    return Weighed(sum(np.size(array) for array in map(graphs.array_of, read) if array is not None))


def weigh_graphs(patch: pytest.MonkeyPatch) -> None:
    """Let graphs take a time for each of their weights."""
    for module in (channel_times, compress):
        patch.setattr(module, "call_of", weighed)
        patch.setattr(module, "seconds_of", lambda calls: [SECONDS_PER_WEIGHT * call.weights for call in calls])
