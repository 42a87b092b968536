"""Quantises a whole graph: puts QuantizeLinear and DequantizeLinear between all operators, and on constants.

    y = MatMul(x, W) + b   ->   DQ(Q(MatMul(DQ(Q(x)), DQ(W8)))) + DQ(b8), rounded again

A device that computes on integers alone takes each such unit as one operator of its own. Weights of products and
convolutions are int8 with a scale per output channel, every other constant has a grid of the kind of the values; the
biases of convolutions, and those of normalisations, are int32 in steps of the product that they are added to.
"""

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir

from compiler.calib.grid import Grid, grid_of, quantize_weights
from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Array
from compiler.numerics.quantization.value_grids import is_real, real_values

LONG_CODES_DOMAIN = "com.microsoft"
"""Of QuantizeLinear and DequantizeLinear of 16 bits: ONNX has them from operator set 21 on."""

WEIGHT_AXES: Mapping[str, int] = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}
"""The axis of the output channels in constant weights, the second operand; of Gemm with transB the first."""

NORMALISATIONS = ("InstanceNormalization", "LayerNormalization")
"""Multiply by a constant of 8 bits, the second operand, and add the third."""

BOUNDS: Mapping[str, tuple[int, ...]] = {"Clip": (1, 2), "Resize": (1, 2)}
"""Operands of real numbers that are no data."""


def write_on_grids(model: ir.Model, stamp: str, grids: Mapping[str, Grid], bits: int) -> None:
    """Round every value and every constant of a graph, in place.

    Args:
        model: a graph in float32 without subgraphs.
        stamp: name of the pass or target that writes.
        grids: by name of a value.
        bits: of the codes of values, 8 or 16.

    Raises:
        Refused: a value that has to be rounded has no grid.
    """
    _compare_flags(model, stamp)
    writer = _Writer(model, stamp, grids, bits)
    nodes, rounded = list(model.graph), real_values(model)
    for value in rounded:
        if value.name not in grids:
            raise Refused(
                f"expected a range of {value.name} from calibration, got none",
                cure="build for sizes of which the largest computes it, too",
                place=Location(tensor=str(value.name)),
            )
    writer.round_constants(nodes)
    writer.round_values(rounded)
    graphs.prune(model)


def _compare_flags(model: ir.Model, stamp: str) -> None:
    """Write Not(Equal(x, 0)) for a Cast of real numbers to truths, which is exact, and defined on codes."""
    for node in list(model.graph):
        if not graphs.is_op(node, "Cast") or node.outputs[0].dtype != ir.DataType.BOOL or not is_real(node.inputs[0]):
            continue
        insert, name, shape = (
            graphs.Inserter(model, stamp, before=node),
            str(node.outputs[0].name),
            node.outputs[0].shape,
        )
        zero = insert.constant(np.zeros((), np.float32), "nothing")
        operands = [node.inputs[0], zero]
        is_zero = insert.op("Equal", operands, name=f"{name}_is_zero", shape=shape, dtype=ir.DataType.BOOL)
        graphs.take_over(model, node.outputs[0], insert.op("Not", [is_zero], name=f"{name}_is_set", shape=shape))
    graphs.prune(model)


class _Writer:
    def __init__(self, model: ir.Model, stamp: str, grids: Mapping[str, Grid], bits: int) -> None:
        self.model, self.stamp, self.grids, self.bits = model, stamp, grids, bits
        self.domain = LONG_CODES_DOMAIN if bits > 8 else ""
        if self.domain:
            model.graph.opset_imports[self.domain] = 1

    def round_values(self, values: Iterable[ir.Value]) -> None:
        """Put QuantizeLinear and DequantizeLinear between every value and its readers."""
        for value in values:
            grid = self.grids[str(value.name)]
            insert, name = graphs.Inserter.behind(self.model, self.stamp, value), str(value.name)
            readers = {use.node for use in value.uses()}
            codes = self._node(insert, "QuantizeLinear", value, grid, f"{name}_codes", ir.DataType[grid.type.upper()])
            rounded = self._node(insert, "DequantizeLinear", codes, grid, f"{name}_rounded", ir.DataType.FLOAT)
            graphs.take_over(self.model, value, rounded, except_in={use.node for use in value.uses()} - readers)

    def round_constants(self, nodes: Iterable[ir.Node]) -> None:
        """Put codes and DequantizeLinear in the place of constants of real numbers."""
        for node in nodes:
            for place, value in enumerate(node.inputs):
                array = graphs.array_of(value)
                if array is None or array.dtype != np.float32 or place in BOUNDS.get(node.op_type, ()):
                    continue
                insert = graphs.Inserter(self.model, self.stamp, before=node)
                node.replace_input_with(place, self._constant(insert, node, place, array))

    def _constant(self, insert: graphs.Inserter, node: ir.Node, place: int, array: Array) -> ir.Value:
        """Return the numbers that an operator reads in the place of a constant."""
        axis = self._weight_axis(node, array) if place == 1 else None
        if axis is not None:
            weights = quantize_weights(array, axis)
            return self._dequantized(
                insert, weights.codes, weights.scales, np.zeros_like(weights.scales, np.int8), axis
            )
        if place == 1 and graphs.is_op(node, *NORMALISATIONS):
            return self._on_grid(insert, array, _grid_around(array, 8))
        if place == 2 and graphs.is_op(node, "Conv", "ConvTranspose", "Gemm", *NORMALISATIONS):
            bias = self._bias(insert, node, array)
            if bias is not None:
                return bias
        moved_into = self.grids.get(str(node.outputs[0].name)) if _is_moved(node, place) else None
        return self._on_grid(insert, array, moved_into or _grid_around(array, self.bits))

    def _weight_axis(self, node: ir.Node, array: Array) -> int | None:
        """Return the axis of the output channels; None where the constant has a grid of one scale."""
        if not graphs.is_op(node, *WEIGHT_AXES) or (graphs.is_op(node, "MatMul", "Gemm") and array.ndim != 2):
            return None
        if graphs.is_op(node, "ConvTranspose") and graphs.int_attribute(node, "group", 1) != 1:
            return None
        return 0 if graphs.int_attribute(node, "transB", 0) else WEIGHT_AXES[node.op_type]

    def _bias(self, insert: graphs.Inserter, node: ir.Node, array: Array) -> ir.Value | None:
        """Return a bias in steps of data times weights; None where the weights have no grid."""
        data, weights = node.inputs[0], None if node.inputs[1] is None else node.inputs[1].producer()
        grid = None if data is None else self.grids.get(str(data.name))
        scales = None if weights is None else graphs.array_of(weights.inputs[1])
        is_plain = all(node.attributes.get_float(name, 1.0) == 1.0 for name in ("alpha", "beta"))
        if grid is None or scales is None or not is_plain or array.ndim != 1:
            return None
        steps = (np.float32(grid.scale) * scales).astype(np.float32)
        limit = np.iinfo(np.int32).max
        codes = np.clip(np.rint(array.astype(np.float64) / steps), -limit, limit).astype(np.int32)
        return self._dequantized(insert, codes, steps, np.zeros(steps.shape, np.int32), 0)

    def _on_grid(self, insert: graphs.Inserter, array: Array, grid: Grid) -> ir.Value:
        codes = np.clip(np.rint(array / np.float32(grid.scale)) + grid.zero_point, grid.low_code, grid.high_code)
        zero = np.array(grid.zero_point, grid.type)
        return self._dequantized(insert, codes.astype(grid.type), np.array(grid.scale, np.float32), zero, None)

    def _dequantized(
        self, insert: graphs.Inserter, codes: Array, scales: Array, zeros: Array, axis: int | None
    ) -> ir.Value:
        """Return the numbers of constant codes, with one scale or with one per entry of an axis.

        A constant has one grid: vendors know a tensor by its name, and take the codes of another grid for its own.
        """
        grid = hashlib.sha256(scales.tobytes() + zeros.tobytes()).hexdigest()[:8]
        held = insert.constant(codes, f"codes_{grid}")
        inputs = [held, insert.constant(scales, "scales"), insert.constant(zeros, "zeros")]
        attributes = {} if axis is None or not scales.ndim else {"axis": axis}
        name = graphs.fresh_name(self.model.graph, f"{held.name}_real")
        numbers = ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=held.shape)
        domain = LONG_CODES_DOMAIN if codes.dtype == np.uint16 else ""
        insert.place(
            ir.node("DequantizeLinear", inputs, attributes, domain=domain, outputs=[numbers], name=f"{name}_node")
        )
        return numbers

    def _node(
        self, insert: graphs.Inserter, op_type: str, value: ir.Value, grid: Grid, name: str, dtype: ir.DataType
    ) -> ir.Value:
        unique = graphs.fresh_name(self.model.graph, name)
        result = ir.Value(name=unique, type=ir.TensorType(dtype), shape=value.shape)
        scale = insert.constant(np.array(grid.scale, np.float32), "scale")
        zero = insert.constant(np.array(grid.zero_point, grid.type), "zero")
        node = ir.node(op_type, [value, scale, zero], domain=self.domain, outputs=[result], name=f"{unique}_node")
        insert.place(node)
        return result


def _is_moved(node: ir.Node, place: int) -> bool:
    """Whether an operand's numbers come out of a node as they are."""
    if graphs.is_op(node, "Where"):
        return place > 0
    return graphs.is_op(node, "Concat", "Pad") or (graphs.is_op(node, "Gather", "GatherElements") and place == 0)


def _grid_around(array: Array, bits: int) -> Grid:
    return grid_of(float(array.min()), float(array.max()), signed=False, bits=bits)
