"""Chooses the quantisation grids of layers: for data by the error of results, for weights by data-weighted error."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.base.records.precision import TensorRange
from compiler.calib.grid import Array, Grid, Weights, grid_of, quantize_weights
from compiler.calib.histogram import Histogram, Table
from compiler.calib.ranges import Range, ranges_of
from compiler.numerics.quantization.placement import Placement
from compiler.numerics.quantization.recording import Wanted
from compiler.numerics.quantization.weighted_layers import WeightedLayer, root_of


@dataclasses.dataclass(frozen=True)
class Plan:
    """How one layer is quantised.

    Attributes:
        data: grid of its input.
        data_range: how that was chosen.
        weights: its weights.
        correction: addend of its bias, float32 [out]: the mean of the error that the two roundings make.
        result: grid of its result, where the target rounds that.
        result_range: how that was chosen.
    """

    data: Grid
    data_range: Range
    weights: Weights
    correction: Array
    result: Grid | None = None
    result_range: Range | None = None


def make_plans(layers: Sequence[WeightedLayer], table: Table, placement: Placement) -> dict[str, Plan]:
    """Return the plan of every layer, by its name.

    Values that are only moved have one grid, so that movements can move codes.
    """
    readers: dict[ir.Value, list[WeightedLayer]] = {}
    for layer in layers:
        readers.setdefault(root_of(layer.data), []).append(layer)
    chosen = {root: _choose(group, table, placement) for root, group in readers.items()}
    plans = {}
    for layer in layers:
        grid, data_range = chosen[root_of(layer.data)]
        tensor = table.tensors[_key(layer)]
        weights = quantize_weights(layer.weights, layer.weight_axis, _importance(layer, tensor))
        plan = Plan(grid, data_range, weights, _correction(layer, tensor, grid, weights))
        if layer.is_convolution and placement.rounds_convolution_outputs:
            if layer.result not in chosen:
                result_histogram = table.tensors[str(Wanted(str(layer.result.name), 1))]
                chosen[layer.result] = nearest_grid(result_histogram, signed=placement.signed)
            plan = dataclasses.replace(plan, result=chosen[layer.result][0], result_range=chosen[layer.result][1])
        plans[layer.name] = plan
    return plans


def _key(layer: WeightedLayer) -> str:
    return str(Wanted(str(layer.data.name), layer.channel_axis))


def _choose(readers: Sequence[WeightedLayer], table: Table, placement: Placement) -> tuple[Grid, Range]:
    """Return the grid with the least square error in the results of all readers together."""
    tensor = table.tensors[_key(readers[0])]
    behind = [(table.tensors[_key(layer)].rows, layer.matrix) for layer in readers]
    return nearest_grid(tensor, behind, signed=placement.signed)


def nearest_grid(
    tensor: Histogram, readers: Sequence[tuple[Array, Array | None]] = (), *, signed: bool
) -> tuple[Grid, Range]:
    """Return the grid with the least square error in readers' results, each given by rows of data and a matrix.

    Where there is no matrix, and without readers, the error is that of the entries themselves.
    """
    best: tuple[float, Grid, Range] | None = None
    for candidate in ranges_of(tensor):
        grid = grid_of(candidate.low, candidate.high, signed=signed)
        behind = readers or [(tensor.rows, None)]
        error = sum(_error(rows, matrix, grid) for rows, matrix in behind)
        if best is None or error < best[0]:
            best = (error, grid, candidate)
    assert best is not None
    return best[1], best[2]


def _error(rows: Array, matrix: Array | None, grid: Grid) -> float:
    off = grid.rounded(rows) - rows
    return float(np.square(off if matrix is None else off @ matrix).sum())


def _importance(layer: WeightedLayer, tensor: Histogram) -> Array | None:
    """Return the mean squares of the input channels, in the shape of the weights."""
    squares = tensor.mean_squares
    if not layer.is_convolution:
        return squares[:, None]
    return squares.reshape(1, -1, *([1] * (layer.weights.ndim - 2))) if layer.groups == 1 else None


def _correction(layer: WeightedLayer, tensor: Histogram, grid: Grid, weights: Weights) -> Array:
    """Return E[W x] - E[W_q x_q] per output channel: the mean error of both roundings."""
    rows = tensor.rows.astype(np.float64)
    exact = layer.mean_output(layer.weights, rows.mean(axis=0))
    rounded = layer.mean_output(weights.rounded, grid.rounded(tensor.rows).astype(np.float64).mean(axis=0))
    return (exact - rounded).astype(np.float32)


def ranges_chosen(layers: Sequence[WeightedLayer], plans: Mapping[str, Plan], table: Table) -> list[TensorRange]:
    """Return the chosen ranges for reports: one record per value and one per weight."""
    records: dict[str, TensorRange] = {}
    for layer in layers:
        plan, tensor = plans[layer.name], table.tensors[_key(layer)]
        records[str(layer.data.name)] = range_chosen(str(layer.data.name), plan.data, plan.data_range, tensor)
        if plan.result is not None and plan.result_range is not None:
            tensor, name = table.tensors[str(Wanted(str(layer.result.name), 1))], str(layer.result.name)
            records[name] = range_chosen(name, plan.result, plan.result_range, tensor)
        scales, weight = plan.weights.scales, layer.node.inputs[1]
        highest = float(scales.max()) * 127
        name = "" if weight is None else str(weight.name)
        beyond = np.abs(layer.weights) > 127.5 * plan.weights.along(scales)
        clipped = float(np.mean(beyond))
        records[name] = TensorRange(name, -highest, highest, "least weighted square error", clipped, len(scales))
    return list(records.values())


def range_chosen(name: str, grid: Grid, chosen: Range, tensor: Histogram) -> TensorRange:
    """Return the chosen range of a value, for reports."""
    share = tensor.share_outside(grid.low, grid.high)
    return TensorRange(name, grid.low, grid.high, chosen.method, share, 1, grid.type)
