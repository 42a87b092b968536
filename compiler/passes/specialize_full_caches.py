"""Adds If branches for calls in which all caches are full, without masks and with constant positions.

Before:
    shares = Softmax(Where(seen, scores + GatherElements(by_place, places), lowest))
    values = Concat(Where(valid, cache, 0), new)
After:
    is_full = all of seen, of valid, and of places = 0, 1, 2, ...     once per call
    shares = If(is_full) {Softmax(scores + by_place)} else {as before}
    values = If(is_full) {Concat(cache, new)} else {as before}

A stream fills its caches once, and they are full from then on until it ends.

Requires: caches that are padded, whose oldest frames make room for new ones.
Ensures: results of calls are unchanged; the conditions and places of a call select its branch.
Keeps: conditions and places that depend on anything but one cache's lengths and masks, or that hide slots of a full
    one; products with large weights, which a runtime would keep once for each branch.
Numerics: exact.
Source: a selection of everything, and a lookup of every entry at its own place, give their operand.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.lengths.every_length import EveryLength
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.traits import BROADCASTING, REARRANGING
from compiler.graph.stages import Array, Lowered, Outcome
from compiler.rewriting.simplification.constants import fold
from runtime_lite.format.cache_axis import CacheAxis

SMALL = 1 << 12
"""Entries of a constant that an operator in a branch may read: a gain or a scale, not the weights of a product."""

PRODUCTS = ("MatMul", "MatMulIntegerToFloat")
"""Spread operands over the rows."""


@dataclasses.dataclass(frozen=True)
class SpecializeFullCaches:
    """Branches for calls in which all caches are full."""

    name: ClassVar[str] = "specialize_full_caches"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("pad_axes",)
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Add branches for full caches, in which selections and lookups are resolved; in place."""
        model = lowered.model
        graphs.infer_shapes(model)
        by_node = {settled_node.node: settled_node for settled_node in _settled(lowered)}
        asking = graphs.makers_of((*(settled_node.asked for settled_node in by_node.values()), *_conditions(model)))
        settled = {
            node: settled_node
            for node, settled_node in by_node.items()
            if not asking.intersection((node, *settled_node.behind))
        }
        regions = [_Region(nodes, settled) for nodes in _regions(model, settled, asking)]
        is_full, written = _condition(model, settled.values()), list[_Region]()
        for region in regions:
            if is_full is not None and region.is_convex(model):
                region.write(model, is_full)
                written.append(region)
        if settled:
            graphs.prune(model)
        count = sum(len(region.settled) for region in written)
        detail = f"{count} in {len(written)} branches" if count else ""
        return Outcome(lowered, len(by_node), count, detail=detail)


@dataclasses.dataclass(frozen=True)
class _Settled:
    """A node whose result is settled where caches are full.

    Attributes:
        node: a selection or a lookup.
        asked: the value that settles it: a condition, or places in front of what spreads them.
        holds: what that is for a row whose cache is full.
        gives: the operand that is then the result; None of a lookup in a constant, which gives a constant.
        behind: nodes that only move that constant on.
    """

    node: ir.Node
    asked: ir.Value
    holds: Array
    gives: ir.Value | None
    behind: tuple[ir.Node, ...] = ()


def _settled(lowered: Lowered) -> Iterator[_Settled]:
    for cache in lowered.caches if lowered.is_padded else ():
        if not _makes_room(cache):
            continue
        at_every_length = EveryLength(lowered.model, cache, {})
        for node in graphs.nodes_of(lowered.model):
            settled = _selection(node, at_every_length) or _lookup(node, at_every_length, lowered)
            if settled is not None and _is_read(node.outputs[0]):
                yield settled


def _conditions(model: ir.Model) -> Iterator[ir.Value]:
    """Yield the conditions of the branches that a graph already has."""
    ifs = (node for node in graphs.nodes_of(model) if graphs.is_op(node, "If"))
    return (value for node in ifs for value in node.inputs if value is not None)


def _is_read(value: ir.Value) -> bool:
    return value.is_graph_output() or bool(value.uses())


def _makes_room(cache: CacheAxis) -> bool:
    """Whether a full cache stays full, as its oldest frames are dropped."""
    return cache.kind.is_given_whole and not cache.is_whole


def _when_full(value: ir.Value | None, at_every_length: EveryLength) -> Array | None:
    """Return the row that a value [rows, ...] has when a cache is full; None where it does not depend on that."""
    if value is None or len(graphs.dims_of(value) or ()) < 2 or graphs.array_of(value) is not None:
        return None
    found = at_every_length.of(value)
    if found is None or found.ndim != len(value.shape or ()) or (found == found[-1:]).all():
        return None
    return found[-1:]


def _selection(node: ir.Node, at_every_length: EveryLength) -> _Settled | None:
    """Return a Where that takes one whole operand when the cache is full; None for other nodes."""
    if not graphs.is_op(node, "Where"):
        return None
    asked, dims = node.inputs[0], graphs.dims_of(node.outputs[0])
    holds = _when_full(asked, at_every_length)
    if asked is None or holds is None or holds.min() != holds.max():
        return None
    gives = node.inputs[1 if holds.all() else 2]
    if gives is None or graphs.array_of(gives) is not None or dims is None or graphs.dims_of(gives) != dims:
        return None
    return _Settled(node, asked, holds[(slice(0, 1),) * holds.ndim], gives)


def _lookup(node: ir.Node, at_every_length: EveryLength, lowered: Lowered) -> _Settled | None:
    """Return a lookup that is the identity, or constant, when the cache is full; None for other nodes."""
    if not graphs.is_op(node, "Gather", "GatherElements") or None in node.inputs:
        return None
    data, places = node.inputs
    assert data is not None and places is not None
    asked = _in_front_of_spreading(places)
    holds = _when_full(asked, at_every_length)
    dims = graphs.dims_of(node.outputs[0])
    if holds is None or dims is None:
        return None
    if graphs.is_op(node, "GatherElements"):
        is_own = graphs.dims_of(data) == dims and _are_own(holds, axis_of(node, len(dims)) - len(dims), dims)
        return _Settled(node, asked, holds, data) if is_own else None
    rows = graphs.symbol(str(lowered.batch_axis))
    behind = _moves(node, rows) if asked is places and graphs.array_of(data) is not None else None
    return None if behind is None else _Settled(node, asked, holds, None, behind)


def _are_own(places: Array, axis: int, dims: Sequence[graphs.Dim]) -> bool:
    """Whether indices, broadcast to a shape, select each entry itself along an axis counted from the end."""
    if places.ndim < -axis or places.shape[axis] != dims[axis]:
        return False
    own = np.arange(places.shape[axis]).reshape(-1, *(1,) * (-axis - 1))
    return bool((places == own).all())


def _in_front_of_spreading(value: ir.Value) -> ir.Value:
    maker = value.producer()
    return maker.inputs[0] or value if maker is not None and graphs.is_op(maker, "Expand") else value


def _moves(lookup: ir.Node, rows: graphs.Dim) -> tuple[ir.Node, ...] | None:
    """Return the nodes that only move looked-up entries row by row; None where a reader does not broadcast them."""
    moving, behind = [lookup], list[ir.Node]()
    for node in moving:
        value = node.outputs[0]
        if value.is_graph_output() or (graphs.dims_of(value) or (0,))[0] != rows:
            return None
        for reader in graphs.consumers_of(value):
            if graphs.is_op(reader, *REARRANGING) and reader.inputs[0] is value:
                moving.append(reader)
                behind.append(reader)
            elif not _spreads(reader, value):
                return None
    return tuple(behind)


def _spreads(node: ir.Node, value: ir.Value) -> bool:
    """Whether an operand with one row has the same effect as with equal rows."""
    if node.op_type not in PRODUCTS and not graphs.is_op(node, *BROADCASTING):
        return False
    dims = graphs.dims_of(node.outputs[0])
    others = [graphs.dims_of(each) for each in node.inputs if each is not None and each is not value]
    return dims is not None and any(
        each is not None and each[:1] == dims[:1] and len(each) == len(dims) for each in others
    )


def _regions(model: ir.Model, settled: Mapping[ir.Node, _Settled], asking: Collection[ir.Node]) -> list[list[ir.Node]]:
    """Return the groups of nodes for each branch, in order: resolved nodes, their readers, and nodes between."""
    groups_of = _Groups()
    for node, settled_node in settled.items():
        groups_of.join(node, *settled_node.behind)
        for value in (node.outputs[0], *(move.outputs[0] for move in settled_node.behind)):
            for reader in graphs.consumers_of(value):
                if reader in settled or _may_join(model, reader, asking):
                    groups_of.join(node, reader)
    for node in graphs.nodes_of(model):
        around = [
            maker for value in node.inputs if value is not None and (maker := value.producer()) in groups_of.parent
        ]
        readers = [
            reader for value in node.outputs for reader in graphs.consumers_of(value) if reader in groups_of.parent
        ]
        parts = {groups_of.first(maker) for maker in around if maker is not None}
        joins = node in groups_of.parent or ((len(parts) > 1 or (parts and readers)) and _may_join(model, node, asking))
        if joins:
            groups_of.join(node, *parts, *readers)
    groups: dict[ir.Node, list[ir.Node]] = {}
    for node in graphs.nodes_of(model):
        if node in groups_of.parent:
            groups.setdefault(groups_of.first(node), []).append(node)
    return list(groups.values())


def _may_join(model: ir.Model, node: ir.Node, asking: Collection[ir.Node]) -> bool:
    """Whether a node may be duplicated: it has no body and no weights, and no branch condition depends on it.

    Integers and their scale stay where a runtime sees both.
    """
    if (
        node.graph is not model.graph
        or node in asking
        or graphs.has_body(node)
        or graphs.is_op(node, "DequantizeLinear")
    ):
        return False
    return all(array.size <= SMALL for value in node.inputs if (array := graphs.array_of(value)) is not None)


class _Groups:
    """Nodes that belong together."""

    def __init__(self) -> None:
        self.parent: dict[ir.Node, ir.Node] = {}

    def first(self, node: ir.Node) -> ir.Node:
        """Return the representative of a node's group."""
        while self.parent.setdefault(node, node) is not node:
            node = self.parent[node]
        return node

    def join(self, node: ir.Node, *others: ir.Node) -> None:
        """Merge the groups of nodes."""
        for other in others:
            self.parent[self.first(other)] = self.first(node)
        self.first(node)


class _Region:
    """Nodes that are computed in a branch.

    Args:
        nodes: in order.
        settled: nodes that are settled, these and others.
    """

    def __init__(self, nodes: Sequence[ir.Node], settled: Mapping[ir.Node, _Settled]) -> None:
        self.nodes = nodes
        self.settled = {node: settled[node] for node in nodes if node in settled}
        inside = set(nodes)
        self.results = [
            value
            for node in nodes
            for value in node.outputs
            if value.is_graph_output() or any(use.node not in inside for use in value.uses())
        ]

    def is_convex(self, model: ir.Model) -> bool:
        """Whether no node outside lies between two nodes of the region."""
        inside, behind = set(self.nodes), set(self.results)
        for node in model.graph:
            if node not in inside and behind.intersection((*node.inputs, *graphs.read_inside(node))):
                behind |= set(node.outputs)
        read = {value for node in self.nodes for value in node.inputs}
        return not read & (behind - set(self.results))

    def write(self, model: ir.Model, is_full: ir.Value) -> None:
        """Replace the nodes by an If with two branches."""
        branches = [
            ir.AttrGraph("then_branch", self._branch(model, "full", self.settled)),
            ir.AttrGraph("else_branch", self._branch(model, "filling", {})),
        ]
        chosen = [
            ir.Value(name=graphs.fresh_name(model.graph, f"{old.name}_chosen"), type=old.type, shape=old.shape)
            for old in self.results
        ]
        insert = graphs.Inserter(model, SpecializeFullCaches.name, source=graphs.source_of(self.nodes[-1]))
        insert.place(ir.Node("", "If", [is_full], branches, outputs=chosen, name=f"{chosen[0].name}_node"))
        for old, new in zip(self.results, chosen, strict=True):
            graphs.take_over(model, old, new, except_in=self.nodes)
        model.graph.remove(self.nodes, safe=True)
        model.graph.sort()

    def _branch(self, model: ir.Model, name: str, settled: Mapping[ir.Node, _Settled]) -> ir.Graph:
        """Return the nodes as the graph of a branch, without the resolved ones."""
        copies: dict[ir.Value, ir.Value] = {}
        nodes = list[ir.Node]()
        for node in self.nodes:
            known = settled.get(node)
            if known is not None and known.gives is not None:
                copies[node.outputs[0]] = copies.get(known.gives, known.gives)
                continue
            copy = _copied(model, node, copies, known)
            folded = fold(copy) if settled else None
            if folded is not None:
                model.graph.remove(copy, safe=True)  # so that its operands count as unread
                constants = graphs.Inserter(model, SpecializeFullCaches.name)
                new = [constants.constant(array, "when_full") for array in folded]
            else:
                nodes.append(copy)
                new = list(copy.outputs)
            copies |= dict(zip(node.outputs, new, strict=True))
        results = []
        for old in self.results:
            if copies[old].producer() not in nodes or copies[old] in results:
                copy = _placed(
                    model, ir.Node("", "Identity", [copies[old]], outputs=[_fresh(model, old)]), self.nodes[-1]
                )
                nodes.append(copy)
                results.append(copy.outputs[0])
            else:
                results.append(copies[old])
        model.graph.remove(nodes)
        return ir.Graph([], results, nodes=nodes, name=name, opset_imports=dict(model.graph.opset_imports))


def _copied(model: ir.Model, node: ir.Node, made: Mapping[ir.Value, ir.Value], known: _Settled | None) -> ir.Node:
    """Return a copy of a node at the end of the graph; resolved indices become a constant."""
    operands = [None if value is None else made.get(value, value) for value in node.inputs]
    if known is not None:
        operands[1] = graphs.Inserter(model, SpecializeFullCaches.name).constant(known.holds, "places")
    outputs = [_fresh(model, old) for old in node.outputs]
    copy = ir.Node(node.domain, node.op_type, operands, list(node.attributes.values()), outputs=outputs,
                   version=node.version)  # fmt: skip
    return _placed(model, copy, node)


def _fresh(model: ir.Model, old: ir.Value) -> ir.Value:
    return ir.Value(name=graphs.fresh_name(model.graph, f"{old.name}_in_branch"), type=old.type, shape=old.shape)


def _placed(model: ir.Model, node: ir.Node, like: ir.Node) -> ir.Node:
    node.name = f"{node.outputs[0].name}_node"
    graphs.Inserter(model, SpecializeFullCaches.name, source=graphs.source_of(like)).place(node)
    return node


def _condition(model: ir.Model, settled: Collection[_Settled]) -> ir.Value | None:
    """Return whether all resolved conditions hold in every row; None without resolved nodes."""
    is_full: ir.Value | None = None
    for value, (holds, node) in {
        settled_node.asked: (settled_node.holds, settled_node.node) for settled_node in settled
    }.items():
        source = graphs.source_of(value.producer() or node)
        insert = graphs.Inserter(model, SpecializeFullCaches.name, source=source)
        same = insert.op("Equal", [value, insert.constant(holds, "when_full")], name="same", dtype=ir.DataType.BOOL)
        number = insert.op("Cast", [same], {"to": ir.DataType.FLOAT}, name="same_number")
        least = insert.op("ReduceMin", [number], {"keepdims": 0}, name="least_same", shape=[])
        held = insert.op("Cast", [least], {"to": ir.DataType.BOOL}, name="all_same", shape=[])
        is_full = held if is_full is None else insert.op("And", [is_full, held], name="is_full", shape=[])
    graphs.infer_shapes(model)
    return is_full
