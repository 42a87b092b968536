"""Writes quantised layers into a graph: QuantizeLinear and DequantizeLinear around MatMuls and convolutions.

    MatMul(x, W) + b  ->  MatMul(DQ(Q(x)), DQ(W8)) + b'
    Relu(Conv(x, W, b))  ->  DQ(Q(Relu(Conv(DQ(Q(x)), DQ(W8), DQ(b32)))))

All operators are standard ones; the runtime turns the pattern into integer kernels.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir

from compiler.calib.grid import Grid
from compiler.graph import model as graphs
from compiler.graph.runners.instrumented import switch, switched
from compiler.numerics.quantization.placement import Placement
from compiler.numerics.quantization.plans import Plan
from compiler.numerics.quantization.weighted_layers import WeightedLayer


class Writer:
    """Rewrites one graph in place.

    Args:
        model: the graph.
        stamp: name of the pass.
        placement: the target's rules.
        plans: by layer name.
    """

    def __init__(self, model: ir.Model, stamp: str, placement: Placement, plans: Mapping[str, Plan]) -> None:
        self.model, self.stamp, self.placement, self.plans = model, stamp, placement, plans
        self._rounded: dict[tuple[ir.Value, Grid], ir.Value] = {}
        self._grids: dict[ir.Value, Grid] = {}

    def write(self, layers: Iterable[WeightedLayer]) -> None:
        """Replace layers, given in graph order, by their quantized forms."""
        for layer in layers:
            graphs.take_over(self.model, layer.result, self._quantised(layer))
        graphs.prune(self.model)

    def write_switched(self, layers: Iterable[WeightedLayer]) -> dict[str, str]:
        """Add quantized forms beside layers, each with a graph input, bool [], that selects it.

        Returns:
            The name of the input, by name of the layer.
        """
        switches = {}
        for layer in layers:
            by = switch(self.model)
            switched(self.model, layer.result, by, lambda _, layer=layer: self._quantised(layer))  # type: ignore[misc]
            switches[layer.name] = str(by.name)
        return switches

    def _quantised(self, layer: WeightedLayer) -> ir.Value:
        """Return the result of the quantized form, written after the layer's last node."""
        plan = self.plans[layer.name]
        data = self.on_grid(layer.data, plan.data)
        insert = graphs.Inserter(self.model, self.stamp, after=layer.parts[-1], source=graphs.source_of(layer.node))
        name, shape = f"{layer.name}_int8", layer.node.outputs[0].shape
        codes = insert.constant(plan.weights.codes, f"{layer.name}_weights")
        weights = self._numbers(insert, codes, plan.weights.scales, plan.weights.axis, ir.DataType.FLOAT)
        bias = plan.correction if layer.bias is None else layer.bias + plan.correction
        if not layer.is_convolution:
            product = insert.op("MatMul", [data, weights], name=name, shape=shape)
            rank = len(shape or ()) if self.placement.splits_bias else 1
            constant = insert.constant(bias.reshape((1,) * (rank - 1) + (-1,)), f"{layer.name}_bias")
            return insert.op("Add", [product, constant], name=f"{name}_biased", shape=shape)
        inputs = [data, weights, self._bias(insert, layer, plan, bias)]
        slid = ir.Value(name=graphs.fresh_name(self.model.graph, name), shape=shape)
        slid.dtype = ir.DataType.FLOAT
        attributes = list(layer.node.attributes.values())
        insert.place(ir.Node("", "Conv", inputs, attributes, outputs=[slid], name=f"{slid.name}_node"))
        if len(layer.parts) > 1:
            slid = insert.op("Relu", [slid], name=f"{name}_relu", shape=shape)
        return slid if plan.result is None else self.on_grid(slid, plan.result)

    def _bias(self, insert: graphs.Inserter, layer: WeightedLayer, plan: Plan, bias: np.ndarray) -> ir.Value:
        """Return a convolution's bias: int32 in steps of data times weights where kernels need that, else float."""
        if not self.placement.rounds_convolution_outputs:
            return insert.constant(bias, f"{layer.name}_bias")
        scales = (np.float32(plan.data.scale) * plan.weights.scales).astype(np.float32)
        limit = np.iinfo(np.int32).max
        codes = np.clip(np.rint(bias.astype(np.float64) / scales), -limit, limit).astype(np.int32)
        return self._numbers(insert, insert.constant(codes, f"{layer.name}_bias"), scales, 0, ir.DataType.FLOAT)

    def _numbers(
        self, insert: graphs.Inserter, codes: ir.Value, scales: np.ndarray, axis: int, dtype: ir.DataType
    ) -> ir.Value:
        assert codes.dtype is not None
        zeros = insert.constant(np.zeros(scales.shape, codes.dtype.numpy()), "zero_points")
        inputs = [codes, insert.constant(scales, f"{codes.name}_scales"), zeros]
        return insert.op(
            "DequantizeLinear", inputs, {"axis": axis}, name=f"{codes.name}_real", shape=codes.shape, dtype=dtype
        )

    def on_grid(self, value: ir.Value, grid: Grid) -> ir.Value:
        """Return a value rounded to a grid, shared by all its readers."""
        if self._grids.get(value) == grid:
            return value
        if (value, grid) not in self._rounded:
            insert = graphs.Inserter.behind(self.model, self.stamp, value)
            scale = insert.constant(np.array(grid.scale, np.float32), "scale")
            zero = insert.constant(np.array(grid.zero_point, grid.type), "zero_point")
            kind = ir.DataType.from_numpy(np.dtype(grid.type))
            parts, shape = [scale, zero], value.shape
            codes = insert.op("QuantizeLinear", [value, *parts], name=f"{value.name}_codes", shape=shape, dtype=kind)
            real = insert.op(
                "DequantizeLinear", [codes, *parts], name=f"{value.name}_rounded", shape=shape, dtype=ir.DataType.FLOAT
            )
            self._rounded[value, grid] = real
            self._grids[real] = grid
        return self._rounded[value, grid]
