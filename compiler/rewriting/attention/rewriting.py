"""Rewrites attention so that heads share keys and values: fewer are projected, and none is repeated.

    q [batch, heads, time, d]   -> [batch, groups, heads of a group, time, d]
    k [batch, groups, d, time]  -> [batch, groups, 1, d, time]
    scores = q k, softmax, context = weights v in five axes      # products broadcast, no copies
    context -> [batch, heads, time, d] -> projection behind

Queries lie in the order of the groups. What is added to the scores head by head is put into that order.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.operators.slices import slice_of
from compiler.rewriting.attention.attention import Attention, Heads
from compiler.rewriting.attention.layout import axes_of_cache, heads_along
from compiler.rewriting.attention.ordering import in_order
from compiler.rewriting.attention.probing import Affine
from compiler.rewriting.attention.rows import BATCH_AND_TIME, rows_behind, rows_projected
from compiler.rewriting.attention.shared_maps import Array, Maps
from compiler.rewriting.attention.site import Site

Partition = Sequence[Sequence[int]]


@dataclasses.dataclass(frozen=True)
class Weights:
    """The projection weights of a merged attention.

    Attributes:
        query: of all heads in the order of the groups, [width, heads * d].
        key: of the groups, [width, groups * d].
        value: of the groups.
        output: behind the context, [heads * d, width].
    """

    query: Affine
    key: Affine
    value: Affine
    output: Affine


def merged_weights(site: Site, partition: Partition, keys: Sequence[Maps], values: Sequence[Maps]) -> Weights:
    """Fold the maps of every group into the projections.

    Args:
        site: the attention before merging.
        partition: heads of every group.
        keys: the maps of every group's keys.
        values: the maps of every group's values.
    """
    heads, size = site.attention.heads, site.attention.size

    def by_head(affine: Affine) -> tuple[Array, Array]:
        return affine.weights.reshape(-1, heads, size), affine.bias.reshape(heads, size)

    def projected(affine: Affine, maps: Sequence[Array]) -> Affine:
        """Return the shared projection of each group; maps are [heads of the group, d, d]."""
        weights, bias = by_head(affine)
        columns = [np.einsum("whi,hij->wj", weights[:, list(g)], m) for g, m in zip(partition, maps, strict=True)]
        offsets = [np.einsum("hi,hij->j", bias[list(g)], m) for g, m in zip(partition, maps, strict=True)]
        return Affine(np.concatenate(columns, axis=1), np.concatenate(offsets))

    weights, bias = by_head(site.query)
    order = [head for group in partition for head in group]
    turned = np.concatenate([np.swapaxes(group_maps.from_shared, 1, 2) for group_maps in keys])
    query = np.einsum("whi,hij->whj", weights[:, order], turned).reshape(-1, heads * size)
    output = site.output.weights.reshape(heads, size, -1)[order]
    folded = np.einsum("hij,hjw->hiw", np.concatenate([group_maps.from_shared for group_maps in values]), output)
    return Weights(
        Affine(query, np.einsum("hi,hij->hj", bias[order], turned).reshape(-1)),
        projected(site.key, [group_maps.to_shared for group_maps in keys]),
        projected(site.value, [group_maps.to_shared for group_maps in values]),
        Affine(folded.reshape(heads * size, -1), site.output.bias),
    )


@dataclasses.dataclass(frozen=True)
class Merged:
    """A merged attention in the graph.

    Attributes:
        context: the input of the projection behind it, [batch, time, heads * d].
        output: that projection; its second input is its weights.
    """

    context: ir.Value
    output: ir.Node


def require_rewritable(attention: Attention) -> None:
    """Refuse an attention that cannot be written with shared keys.

    Raises:
        Refused: a value in between is read by something else, or is not laid out as heads.
    """
    inside = {attention.scores, *attention.between, attention.context}
    for node in inside - {attention.context}:
        for output in node.outputs:
            if output.is_graph_output() or any(reader not in inside for reader in graphs.consumers_of(output)):
                raise Refused(f"{output.name} is read by more than this attention")
    for heads in (attention.query, attention.key, attention.value):
        rows_projected(heads)
    rows_behind(attention)
    for heads in (attention.key, attention.value):
        _require_sizes_elsewhere(heads)
        for node, _ in heads_along(heads):
            if graphs.is_op(node, "Reshape", "Expand"):
                _parts_of_sizes(node)
        if heads.cache is not None:
            axes_of_cache(heads)
    inner_outputs = {output for node in inside for output in node.outputs}
    for node in attention.between:
        for value in node.inputs:
            if value is not None and value not in inner_outputs:
                _head_axis(value, attention.heads)


def _require_sizes_elsewhere(heads: Heads) -> None:
    """Refuse a path whose number of heads another node reads."""
    axes = {heads.value: heads.heads_axis, **{node.outputs[0]: axis for node, axis in heads_along(heads)}}
    for value, axis in axes.items():
        for node in graphs.consumers_of(value):
            if graphs.is_op(node, "Shape") and _counts(node, axis, len(graphs.dims_of(value) or ())):
                raise Refused(f"expected {node.name} to leave the heads of {value.name} alone, got their number")


def _counts(shape: ir.Node, axis: int, rank: int) -> bool:
    """Whether the size of an axis is read from a Shape: it is returned, and some reader does not exclude it."""
    start, end = graphs.int_attribute(shape, "start", 0), graphs.int_attribute(shape, "end", rank)
    entries = list(range(rank))[start:end]
    if axis not in entries:
        return False
    read = [_selected_entries(node, entries) for node in graphs.consumers_of(shape.outputs[0])]
    return shape.outputs[0].is_graph_output() or any(selected is None or axis in selected for selected in read)


def _selected_entries(node: ir.Node, entries: list[int]) -> list[int] | None:
    """Return the entries of a vector that a node selects; None where they are not known."""
    if graphs.is_op(node, "Gather"):
        places = graphs.array_of(node.inputs[1])
        return None if places is None else [entries[at] for at in places.reshape(-1).tolist()]
    view = slice_of(node)
    picked = None if view is None else view.picked(entries, graphs.integers_of)
    return None if picked is None else list(picked)


def _head_axis(value: ir.Value, heads: int) -> int | None:
    """Return the heads axis of an operand of the scores; None where all heads share its entries."""
    dims = graphs.dims_of(value)
    if dims is None or len(dims) > 4:
        raise Refused(f"expected {value.name} to be laid out as the scores are, got {value.shape}")
    if len(dims) < 3 or dims[-3] == 1:
        return None
    if dims[-3] != heads:
        raise Refused(f"expected {value.name} to have 1 or {heads} heads, got {dims[-3]}")
    return len(dims) - 3


def _parts_of_sizes(node: ir.Node) -> list[tuple[ir.Value, int]]:
    """Return the constants and computed values that make up a node's target sizes, each with its number of entries.

    Raises:
        Refused: the sizes are computed in another way.
    """
    stated = node.inputs[1]
    joined = None if stated is None else stated.producer()
    parts = (
        [stated]
        if graphs.array_of(stated) is not None
        else [*joined.inputs]
        if graphs.is_op(joined, "Concat") and joined
        else []
    )
    sized_parts = []
    for part in parts:
        dims = None if part is None else graphs.dims_of(part)
        if part is None or dims is None or len(dims) != 1 or not isinstance(dims[0], int):
            break
        sized_parts.append((part, dims[0]))
    else:
        if sized_parts:
            return sized_parts
    raise Refused(f"expected {node.name} ({node.op_type}) to state its sizes one by one, got {stated}")


class Rewriter:
    """Writes one merged attention.

    Args:
        model: the graph.
        attention: the replaced attention.
        partition: heads of every group.
        weights: the projection weights.
        stamp: the pass.
    """

    def __init__(
        self, model: ir.Model, attention: Attention, partition: Partition, weights: Weights, stamp: str
    ) -> None:
        self.model, self.attention, self.weights, self.stamp = model, attention, weights, stamp
        self.order = [head for group in partition for head in group]
        self.groups = len(partition)
        self.each = len(partition[0])

    def write(self) -> Merged:
        """Replace the attention; `prune` removes nodes that are no longer read."""
        attention, groups = self.attention, self.groups
        self._project(attention.query, self.weights.query, attention.heads)
        for heads, weights in ((attention.key, self.weights.key), (attention.value, self.weights.value)):
            self._narrow(heads)
            self._resize(heads)
            self._project(heads, weights, groups)
        self._widen(attention.scores, 0, shared=False)
        self._widen(attention.scores, 1, shared=True)
        self._widen(attention.context, 1, shared=True)
        self._order_operands()
        return self._finish()

    def _project(self, heads: Heads, affine: Affine, count: int) -> None:
        first = min(graphs.consumers_of(heads.value), key=list(self.model.graph).index)
        insert = graphs.Inserter(self.model, self.stamp, before=first, source=graphs.source_of(heads.product))
        stem = f"{heads.value.name}_merged"
        rows = rows_projected(heads)
        _, projected = _projected(insert, rows.value, affine, stem)
        projected = insert.op(
            "Reshape",
            [projected, insert.int64s(0, 0, count, self.attention.size)],
            name=f"{stem}_heads",
            dtype=projected.dtype,
        )
        laid_out = {heads.batch_axis: int(rows.time_first), heads.time_axis: int(not rows.time_first)}
        perm = [laid_out.get(axis, axis if axis == 3 else 2) for axis in range(4)]
        if perm != sorted(perm):
            projected = insert.op("Transpose", [projected], {"perm": perm}, name=f"{stem}_turned")
        graphs.take_over(self.model, heads.value, projected)

    def _resize(self, heads: Heads) -> None:
        """Replace the number of heads by that of groups in the target sizes along a path."""
        for node, axis in heads_along(heads):
            if graphs.is_op(node, "Reshape", "Expand"):
                insert = graphs.Inserter(self.model, self.stamp, before=node)
                node.replace_input_with(1, self._sizes(insert, node, axis))
        for node in heads.path:
            for output in node.outputs:
                output.shape = None

    def _narrow(self, heads: Heads) -> None:
        """Resize the cache along a path to the number of groups."""
        if heads.cache is None:
            return
        dims = list(graphs.dims_of(heads.cache.value) or ())
        dims[axes_of_cache(heads)[0]] = self.groups
        heads.cache.value.shape = ir.Shape([dim if isinstance(dim, int) else graphs.written(dim) for dim in dims])
        for node in heads.cache.moved:
            for output in node.outputs:
                output.shape = None

    def _sizes(self, insert: graphs.Inserter, node: ir.Node, axis: int) -> ir.Value:
        """Return a node's target sizes with the number of groups at an axis; 0 and -1 stay."""
        parts, position = [], 0
        for part, length in _parts_of_sizes(node):
            array = graphs.array_of(part)
            if (
                array is not None
                and position <= axis < position + length
                and array[axis - position] == self.attention.heads
            ):
                changed = array.copy()
                changed[axis - position] = self.groups
                part = insert.constant(changed, f"{node.name}_sizes")
            parts.append(part)
            position += length
        if len(parts) == 1:
            return parts[0]
        return insert.op("Concat", parts, {"axis": 0}, name=f"{node.name}_sizes", dtype=ir.DataType.INT64)

    def _widen(self, reader: ir.Node, at: int, *, shared: bool) -> None:
        """Add an axis of the heads of a group to an operand: of size 1 where they share it, else of their number."""
        operand = reader.inputs[at]
        assert operand is not None
        insert = graphs.Inserter(self.model, self.stamp, before=reader)
        name = f"{operand.name}_grouped"
        if shared:
            found = insert.op("Unsqueeze", [operand, insert.int64s(2)], name=name)
        else:
            sizes = insert.int64s(0, self.groups, self.each, -1, self.attention.size)
            found = insert.op("Reshape", [operand, sizes], name=name)
        reader.replace_input_with(at, found)

    def _order_operands(self) -> None:
        inside = {self.attention.scores, *self.attention.between}
        made = {output for node in inside for output in node.outputs}
        for node in self.attention.between:
            if graphs.is_op(node, "Softmax"):
                node.attributes["axis"] = ir.AttrInt64("axis", -1)
            for at, value in enumerate(node.inputs):
                if value is not None and value not in made:
                    node.replace_input_with(at, self._ordered(node, value))
            for output in node.outputs:
                output.shape = None

    def _ordered(self, reader: ir.Node, value: ir.Value) -> ir.Value:
        dims = graphs.dims_of(value) or ()
        axis = _head_axis(value, self.attention.heads)
        insert = graphs.Inserter(self.model, self.stamp, before=reader)
        name = f"{value.name}_grouped"
        if axis is None:
            return value if len(dims) < 4 else insert.op("Unsqueeze", [value, insert.int64s(1)], name=name)
        picked = in_order(self.model, reader, value, axis, self.order, self.stamp)
        spread = insert.op("Unsqueeze", [picked, insert.int64s(axis + 1)], name=name)
        front = (0,) if axis else ()
        return insert.op("Reshape", [spread, insert.int64s(*front, self.groups, self.each, 0, 0)], name=name)

    def _finish(self) -> Merged:
        attention = self.attention
        output = attention.output
        insert = graphs.Inserter(self.model, self.stamp, before=output)
        size, heads = attention.size, attention.heads
        context = attention.context.outputs[0]
        context.shape = attention.scores.outputs[0].shape = None
        name = f"{context.name}_heads"
        heads_apart = insert.op("Reshape", [context, insert.int64s(0, heads, -1, size)], name=name)
        heads_apart = insert.op("Transpose", [heads_apart], {"perm": [0, 2, 1, 3]}, name=f"{name}_turned")
        flat = insert.op("Reshape", [heads_apart, insert.int64s(0, 0, heads * size)], name=f"{name}_side_by_side")
        rows, stem = rows_behind(attention), f"{output.name}_merged"
        product, result = _projected(insert, flat, self.weights.output, stem)
        if rows.time_first:
            result = insert.op("Transpose", [result], {"perm": BATCH_AND_TIME}, name=f"{stem}_time_first")
        if rows.merged:
            sizes = insert.int64s(-1, self.weights.output.bias.size)
            result = insert.op("Reshape", [result, sizes], name=f"{stem}_rows")
        graphs.take_over(self.model, output.outputs[0], result)
        return Merged(flat, product)


def _projected(insert: graphs.Inserter, source: ir.Value, affine: Affine, stem: str) -> tuple[ir.Node, ir.Value]:
    """Write a projection; return the product's node, and the result after the bias."""
    weights = insert.constant(affine.weights.astype(np.float32), f"{stem}_weights")
    found = insert.op("MatMul", [source, weights], name=stem)
    product = found.producer()
    assert product is not None
    if np.any(affine.bias != 0):
        found = insert.op("Add", [found, insert.constant(affine.bias.astype(np.float32), f"{stem}_bias")], name=stem)
    return product, found
