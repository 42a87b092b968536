"""Chooses quantisation grids for the operands of MatMuls with states and tables."""

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from compiler.base.records.precision import TensorRange
from compiler.calib.grid import Grid
from compiler.graph.stages import Feed, Lowered
from compiler.numerics.quantization.cached_products import CachedProduct
from compiler.numerics.quantization.plans import nearest_grid, range_chosen
from compiler.numerics.quantization.recording import Wanted, record
from compiler.numerics.quantization.weighted_layers import root_of

Grids = Mapping[str, Grid]
"""By name of a value."""


def operands_of(products: Iterable[CachedProduct]) -> list[str]:
    """Return the names of the products' operands, without duplicates."""
    return list(dict.fromkeys(str(value.name) for each in products for value in (each.first, each.second)))


def grids_of(
    lowered: Lowered, products: Iterable[CachedProduct], streams: Sequence[Sequence[Feed]]
) -> tuple[Grids, Mapping[str, TensorRange]]:
    """Return the grid of every operand, and how it was chosen.

    Data are unsigned, with one grid in any order of entries. States and tables are signed, and all values read from one
    have one grid: a state that holds the keys and values of all layers can carry no other codes.

    Args:
        lowered: the graph, in floats.
        products: products of that graph.
        streams: calibration streams.

    Raises:
        DataError: a value was never computed.
    """
    alike: dict[tuple[ir.Value, bool], list[str]] = {}
    for product in products:
        for value, of, signed in ((product.first, root_of(product.first), False), (product.second, product.held, True)):
            names = alike.setdefault((of, signed), [])
            names += [] if value.name in names else [str(value.name)]
    wanted = {name: Wanted(name, -1) for names in alike.values() for name in names}
    table = record(lowered, list(wanted.values()), streams)
    grids, ranges = {}, {}
    for (_, signed), names in alike.items():
        tensors = {name: table.tensors[str(wanted[name])] for name in names}
        behind = [(tensor.rows, None) for tensor in tensors.values()]
        widest = max(tensors.values(), key=lambda tensor: max(-tensor.low, tensor.high))
        grid, chosen_range = nearest_grid(widest, behind, signed=signed)
        for name, tensor in tensors.items():
            grids[name], ranges[name] = grid, range_chosen(name, grid, chosen_range, tensor)
    return grids, ranges
