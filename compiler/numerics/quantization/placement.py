"""Defines for each kind of target where QuantizeLinear and DequantizeLinear stand, and which types they have.

Those of a vendor lie in its folder. Source, for CPUs: the graphs that ONNX Runtime 1.31 makes of each form, and their
times (benchmarks/README.md).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from compiler.errors import RecipeError


@dataclasses.dataclass(frozen=True)
class Placement:
    """The rules of one kind of target.

    Attributes:
        name: as recipes write it.
        signed: activations are int8 around zero point 0; else uint8 with any zero point.
        rounds_convolution_outputs: whether a convolution runs on integers only if its output is quantised, too.
        splits_bias: whether a bias must be added in a shape that keeps the runtime from fusing it with a product of
            real numbers before it sees that the product could be one of integers.
        least_channels: convolutions of fewer channels stay in float.
    """

    name: str
    signed: bool
    rounds_convolution_outputs: bool
    splits_bias: bool
    least_channels: int = 1


CPU = Placement("cpu", signed=False, rounds_convolution_outputs=True, splits_bias=True)


def with_placement(options: Mapping[str, Any], placements: Mapping[str, Placement]) -> dict[str, Any]:
    """Return options of a pass with a target's placement rules in place of their name.

    Raises:
        RecipeError: the name is unknown.
    """
    completed = dict(options)
    name = completed.get("placement")
    if name is None:
        return completed
    if not isinstance(name, str) or name not in placements:
        raise RecipeError(
            f"expected a placement of {', '.join(sorted(placements))}, got {name!r}", cure="write one of them"
        )
    return {**completed, "placement": placements[name]}
