"""Where a target wants QuantizeLinear and DequantizeLinear, and of which types: one record per kind of target.

Sources: for CPUs, the graphs that ONNX Runtime 1.31 makes of each form, and their times (benchmarks/README.md); for
TensorRT, its parser and the vendor's guide: symmetric int8, inputs of weighted operators only, bias in float.
"""

import dataclasses
from collections.abc import Mapping


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


PLACEMENTS: Mapping[str, Placement] = {
    "cpu": Placement("cpu", signed=False, rounds_convolution_outputs=True, splits_bias=True),
    "tensorrt": Placement(
        "tensorrt", signed=True, rounds_convolution_outputs=False, splits_bias=False, least_channels=16
    ),
}
