"""What rules ask of a node's inputs."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler.analysis.facts import ANYTHING, FINITE, ZERO, Fact, Fill, refuse
from compiler.ir import array_of, dims_of


def rank_of(value: ir.Value | None) -> int:
    """The number of axes of a value.

    Raises:
        Refused: it is unknown.
    """
    dims = None if value is None else dims_of(value)
    if dims is None:
        raise refuse(
            f"the rank of {value.name if value is not None else 'an absent input'!r} is unknown",
            "export the model with known ranks",
        )
    return len(dims)


def the_padded(node: ir.Node, facts: Sequence[Fact]) -> tuple[int, Fact]:
    """Index and fact of the only padded input.

    Raises:
        Refused: there are several.
    """
    padded = [(index, fact) for index, fact in enumerate(facts) if fact.axis is not None]
    if len(padded) != 1:
        raise refuse(f"{node.op_type} has {len(padded)} padded inputs", "rewrite the model so that one input is padded")
    return padded[0]


def content_of(value: ir.Value | None, fact: Fact) -> Fill:
    """What the op may meet at a padded place: the padding of a padded input, any entry of an unpadded one."""
    if fact.axis is not None:
        return fact.fill
    array = array_of(value)
    if array is None:
        return FINITE  # an activation at a valid place; the runtime refuses feeds that are not finite
    if not np.all(np.isfinite(array)):
        return ANYTHING
    return ZERO if not np.any(array) else FINITE
