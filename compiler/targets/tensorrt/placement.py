"""Where TensorRT wants QuantizeLinear and DequantizeLinear: inputs of weighted operators only, bias in float.

Source: its parser and the vendor's guide.
"""

from compiler.quantization.placement import Placement

SYMMETRIC = Placement("tensorrt", signed=True, rounds_convolution_outputs=False, splits_bias=False, least_channels=16)
