"""Maps operators to the rules that batch them; an operator without a rule cannot read values that differ by row."""

from collections.abc import Callable
from typing import TypeAlias

from compiler.graph.operators.traits import ENTRYWISE, RECURRENCES, REDUCTIONS
from compiler.proof.batching.lifter import LiftedNode
from compiler.proof.batching.rules import along_axes, lookup, movement, pointwise

Rule: TypeAlias = Callable[[LiftedNode], None]
"""Lets one node work on the values of all rows, each row as the original does."""

_ALONG_FIRST = [
    "AveragePool",
    "BatchNormalization",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "DepthToSpace",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "GroupNormalization",
    "InstanceNormalization",
    "LRN",
    "LpPool",
    "MaxPool",
    "QLinearConv",
    "SpaceToDepth",
    "STFT",
]
"""A list of its own: operators that take the rows in front, whatever lies behind them."""

_ALONG_ONE = ("Softmax", "LogSoftmax", "Hardmax", "TopK", "LpNormalization")
"""A list of its own: operators with an attribute `axis` along which they work, and no other."""

RULES: dict[str, Rule] = {
    **dict.fromkeys(ENTRYWISE - {"CastLike", "Clip"}, pointwise.pointwise),
    "CastLike": pointwise.first_pointwise,
    "Clip": pointwise.clip,
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), pointwise.quantization),
    **dict.fromkeys(("MatMul", "MatMulInteger"), pointwise.product),
    "Gemm": pointwise.gemm,
    "Einsum": pointwise.einsum,
    **dict.fromkeys(_ALONG_ONE, along_axes.along_axis),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), along_axes.normalization),
    **dict.fromkeys(REDUCTIONS, along_axes.reduction),
    **dict.fromkeys(("ArgMax", "ArgMin"), along_axes.search),
    **dict.fromkeys(_ALONG_FIRST, along_axes.along_first),
    **dict.fromkeys(RECURRENCES, along_axes.sequences),
    "Resize": along_axes.resize,
    "CumSum": along_axes.cumulative_sum,
    "DFT": along_axes.fourier,
    "DynamicQuantizeLinear": along_axes.one_scale,
    "GridSample": along_axes.grid_sample,
    "MeanVarianceNormalization": along_axes.central_moments,
    "OneHot": along_axes.one_hot,
    "ReverseSequence": along_axes.turned_sequences,
    "RotaryEmbedding": along_axes.rotary,
    "Trilu": along_axes.triangle,
    "Transpose": movement.transpose,
    "Squeeze": movement.squeeze,
    "Unsqueeze": movement.unsqueeze,
    "Reshape": movement.reshape,
    "Flatten": movement.flatten,
    "Expand": movement.expand,
    "Tile": movement.tile,
    "Concat": movement.concat,
    "Split": movement.split,
    "Slice": movement.slice_axes,
    "Pad": movement.pad,
    "Gather": lookup.gather,
    "GatherElements": lookup.gather_elements,
    "ScatterElements": lookup.gather_elements,
    "GatherND": lookup.gather_tuples,
    "ScatterND": lookup.scatter_tuples,
    "Shape": lookup.shape,
    "Size": lookup.size,
}
