"""Replaces a ScatterND at positions that a boolean mask selects by a Where between the old and the new value.

    y = ScatterND(x, Transpose(NonZero(mask)), Expand(0.0, ..))               ->  y = Where(mask, 0.0, x)
    y = ScatterND(x, Transpose(NonZero(mask)), GatherND(z, the same places))  ->  y = Where(mask, z, x)
    y = ScatterND(x, .., f(GatherND(z, the same places)))                     ->  y = Where(mask, f(z), x)

So exporters write boolean indices, `x[mask] = 0` and `y[mask] = f(x[mask])`. NonZero names every place once, in the
order of the places; with a mask that is the same along the last axes, what is written there comes one behind the other.
"""

import dataclasses

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.rewriting.simplification.chosen_entries import of_all_entries
from compiler.rewriting.simplification.rules import Candidate
from compiler.rewriting.simplification.spread import chosen, number_of


@dataclasses.dataclass(frozen=True)
class Mask:
    """A mask over the first axes of the tensor that is written into.

    Attributes:
        value: of type bool; broadcasts to `dims`.
        dims: of the axes that NonZero counts.
        repeated: how many of them, from the last on, the mask is the same along.
    """

    value: ir.Value
    dims: tuple[Dim, ...]
    repeated: int


def masked(candidate: Candidate, data: ir.Value, indices: ir.Value, new: ir.Value) -> ir.Value | None:
    """Rewrite a masked write as a Where; None where its indices or updates have another form."""
    mask, dims = _mask_of(indices), graphs.dims_of(data)
    if mask is None or dims is None or dims[: len(mask.dims)] != mask.dims:
        return None
    source = _source(candidate, mask, new, data)
    if source is None:
        return None
    where, behind = mask.value, range(len(mask.dims), len(dims))
    if behind:
        where = candidate.insert.op("Unsqueeze", [where, candidate.insert.int64s(*behind)], name="mask")
    return chosen(candidate, where, source, data)


def _mask_of(indices: ir.Value | None) -> Mask | None:
    """Return the mask whose true positions are the rows of the indices; None for other indices."""
    transposed = None if indices is None else indices.producer()
    if transposed is None or not graphs.is_op(transposed, "Transpose") or transposed.inputs[0] is None:
        return None
    places = transposed.inputs[0].producer()
    mask = places.inputs[0] if places is not None and graphs.is_op(places, "NonZero") else None
    dims = None if mask is None else graphs.dims_of(mask)
    if mask is None or mask.dtype != ir.DataType.BOOL or not dims:
        return None
    maker = mask.producer()
    inner = maker.inputs[0] if maker is not None and graphs.is_op(maker, "Expand") else None
    inside = None if inner is None else graphs.dims_of(inner)
    if inner is None or inside is None or len(inside) != len(dims):
        return Mask(mask, dims, 0)
    repeated = next((axis for axis, dim in enumerate(reversed(inside)) if dim != 1), len(dims))
    return Mask(inner, dims, repeated)


def _source(candidate: Candidate, mask: Mask, new: ir.Value, data: ir.Value) -> ir.Value | None:
    """Return what all positions would hold if all were written; None where that is not known."""
    number, dims = number_of(candidate, new), graphs.dims_of(data) or ()
    if number is not None:
        return number
    maker = new.producer()
    flat = maker is not None and graphs.is_op(maker, "Reshape") and len(graphs.dims_of(new) or ()) == 1
    rows = maker.inputs[0] if flat and maker is not None else new
    written = None if rows is None else graphs.dims_of(rows)
    last = dims[len(dims) - mask.repeated :] if flat else dims[len(mask.dims) :]
    if rows is None or written is None or (flat and len(mask.dims) < len(dims)) or written[1:] != last:
        return None
    inner = rows.producer()
    if inner is None or not graphs.is_op(inner, "Expand"):
        return _of_all(candidate, rows, mask, data, flat=flat)
    source = inner.inputs[0]
    inside = None if source is None else graphs.dims_of(source)
    if source is None or inside is None:
        return None
    if len(inside) <= len(last):
        return source
    return _of_all(candidate, source, mask, data, flat=flat) if inside[1:] == last else None


def _of_all(candidate: Candidate, rows: ir.Value, mask: Mask, data: ir.Value, *, flat: bool) -> ir.Value | None:
    """Return a value computed from entries at the mask's positions, computed for all positions; else None."""
    made = rows.producer()
    if made is not None and graphs.is_op(made, "GatherND"):
        source = _looked_up(made, mask, flat=flat)
        return source if source is not None and graphs.dims_of(source) == graphs.dims_of(data) else None
    count = len(mask.dims) - (mask.repeated if flat else 0)
    return of_all_entries(candidate, rows, lambda node: _looked_up(node, mask, flat=flat), data, count)


def _looked_up(made: ir.Node, mask: Mask, *, flat: bool) -> ir.Value | None:
    """Return the data of a GatherND at the positions of the mask; None for other nodes."""
    source, other = made.inputs[0], _mask_of(made.inputs[1])
    dims = None if source is None else graphs.dims_of(source)
    if source is None or other is None or dims is None or graphs.int_attribute(made, "batch_dims", 0):
        return None
    if dims[: len(other.dims)] != other.dims:
        return None
    if other.value is mask.value and other.dims == mask.dims and not flat:
        return source
    if not flat or other.dims != mask.dims[: len(mask.dims) - mask.repeated]:
        return None
    return source if _is_widened(mask, other) else None


def _is_widened(mask: Mask, other: Mask) -> bool:
    """Whether one mask is the other, unsqueezed by the axes along which it is repeated."""
    if not mask.repeated:
        return other.value is mask.value
    made = mask.value.producer()
    return made is not None and graphs.is_op(made, "Unsqueeze") and made.inputs[0] is other.value
