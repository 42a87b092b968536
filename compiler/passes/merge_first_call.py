"""Proves that the first call of a stream equals a later call with empty caches, and drops the first-call graph.

Before:
    first(features) and later(features, cache, context)
After:
    later(features, cache of length 0, context of zeros) alone

Values without entries, because a cache is empty, are found by shapes behind slices, moves and stacks, and are dropped
from every concatenation; zeros are followed the same way. Values computed from counts, which begin with 0, are equal in
every row: they are computed for one row, and equal the constants of the first call.

Requires: both graphs simplified; outputs in the same order.
Ensures: one graph; a stream starts with empty caches and zero states.
Keeps: the later-call graph, node by node.
Numerics: exact; the two graphs are proved to be the same expression, otherwise the pass refuses.
Source: concatenation with an empty tensor is the identity; concatenation with zeros is padding with zeros; a Slice
    forwards that gives as many entries as it is given is the identity.
"""

import dataclasses
import hashlib
from collections.abc import Collection
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.operators.attributes import stated_attributes
from compiler.graph.operators.axes import axis_of, perm_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.operators.traits import BROADCASTING, ENTRYWISE, PICKING, REARRANGING
from compiler.graph.stages import Lowered, Outcome
from compiler.passes.canonicalize_reshapes import CanonicalizeReshapes
from compiler.passes.simplify import simplify_model
from compiler.proof.propagation.equal_rows import EqualRows

MOVES = PICKING | {"Cast", "Concat"}
"""Give zeros of zeros, whatever the operands behind the first one are, or of zeros alone."""


@dataclasses.dataclass(frozen=True)
class MergeFirstCall:
    """Prove that the first call is the later call with empty caches, and drop it."""

    name: ClassVar[str] = "merge_first_call"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("add_batch_axis",)
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Merge the graph of the first call into that of later calls, after comparing them as expressions.

        Raises:
            Refused: the graphs differ; the message names the first different output and node.
        """
        if lowered.first_call is None:
            return Outcome(lowered)
        zeros = [state.input for state in lowered.states if _is_zero(np.asarray(state.initial, np.float64))]
        started = _started(lowered, zeros)
        first = _canonical(graphs.clone(lowered.first_call), lowered)
        keys, first_keys = _Keys(started, zeros), _Keys(first)
        for later, other in zip(started.graph.outputs, first.graph.outputs, strict=True):
            if keys.of(later) != first_keys.of(other):
                raise _difference(keys, first_keys, later, other)
        return Outcome(dataclasses.replace(lowered, first_call=None), matched=len(started.graph.outputs), rewritten=1)


def _started(lowered: Lowered, zeros: Collection[str]) -> ir.Model:
    """Return the later-call graph with every cache empty; `_Keys` replaces some of its other states by zeros.

    Args:
        lowered: the graph.
        zeros: states that begin with zeros; a first call, which has no states, equals no others.
    """
    model = graphs.clone(lowered.model)
    inputs = graphs.inputs_named(model)
    caches = [state for state in lowered.states if state.frames_axis is not None]
    for state in caches:
        shape = inputs[state.input].shape
        assert shape is not None and state.frames_axis is not None
        inputs[state.input].shape = ir.Shape(
            [0 if axis == state.frames_axis else dim for axis, dim in enumerate(shape)]
        )
    for value in (value for node in model.graph for value in node.outputs):
        value.shape = None
    graphs.infer_shapes(model)
    _drop_empty(model)
    for state in lowered.states:
        for node in graphs.consumers_of(inputs[state.input]):
            if graphs.is_op(node, "Shape"):
                _batch_from_elsewhere(model, inputs[state.input], node)
    graphs.prune(model)
    for state in caches:
        _require_unread(inputs[state.input])
        model.graph.inputs.remove(inputs[state.input])
    return _canonical(model, lowered, zeros)


def _canonical(model: ir.Model, lowered: Lowered, zeros: Collection[str] = ()) -> ir.Model:
    """Return the graph in canonical form, for slices of everything, for zeros in front, and for equal rows."""
    graphs.infer_shapes(model)
    _pad_instead(model, _zeros_of(model, zeros))
    if lowered.batch_axis is not None:
        _OneRow(model, EqualRows(model, zeros, lowered.batch_axis)).serve()
    graphs.forget_shapes(model)
    simplify_model(model)
    CanonicalizeReshapes().apply(Lowered(lowered.graph, model))
    simplify_model(model)
    graphs.infer_shapes(model)
    for node in list(model.graph):
        if graphs.is_op(node, "Slice") and _keeps_all(node):
            graphs.take_over(model, node.outputs[0], node.inputs[0])  # type: ignore[arg-type]
    graphs.prune(model)
    return model


def _keeps_all(node: ir.Node) -> bool:
    """Whether a forward Slice keeps all entries."""
    view, kept = slice_of(node), node.outputs[0]
    axis_slices = None if view is None else view.axis_slices(graphs.integers_of)
    forwards = axis_slices is not None and all(sliced.step == 1 for sliced in axis_slices)
    sizes = None if view is None else graphs.dims_of(view.data)
    return forwards and sizes is not None and sizes == graphs.dims_of(kept) and not kept.is_graph_output()


def _is_empty(value: ir.Value | None, axis: int | None = None) -> bool:
    """Whether a value has no entries, or none along an axis."""
    dims = None if value is None else graphs.dims_of(value)
    if dims is None:
        return False
    return 0 in dims if axis is None else dims[axis] == 0


def _drop_empty(model: ir.Model) -> None:
    """Remove empty parts from concatenations, and replace known sizes by constants."""
    for node in list(model.graph):
        insert = graphs.Inserter(model, MergeFirstCall.name, before=node)
        dims = graphs.dims_of(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
        if graphs.is_op(node, "Concat") and dims is not None:
            axis = axis_of(node, len(dims))
            parts = [value for value in node.inputs if not _is_empty(value, axis)]
            if parts and len(parts) < len(node.inputs):
                whole = f"{node.outputs[0].name}_joined"
                joined = insert.op("Identity", parts, name=whole) if len(parts) == 1 else None
                joined = joined or insert.op("Concat", parts, {"axis": axis}, name=whole)
                joined.shape = node.outputs[0].shape
                graphs.take_over(model, node.outputs[0], joined)
        elif graphs.is_op(node, "Shape") and dims is not None and _is_empty(node.inputs[0]):
            read = [dims[axis_read] for axis_read in graphs.dims_read(node, len(dims))]
            known = [size for size in read if isinstance(size, int)]
            if len(known) == len(read):
                graphs.take_over(model, node.outputs[0], insert.int64s(*known))
    graphs.prune(model)


def _require_unread(value: ir.Value) -> None:
    """Refuse a graph that computes a value with entries from an empty value.

    Raises:
        Refused: there is such a value; the message names its node.
    """
    front, seen = [value], set()
    while front:
        current = front.pop()
        for node in graphs.consumers_of(current):
            for output in node.outputs:
                if not _is_empty(output):
                    raise _unsupported(node, f"reads the cache {value.name!r} otherwise than by concatenation")
                front += [] if output in seen else [output]
                seen.add(output)
        if current.is_graph_output():
            raise _unsupported(
                current.producer() or next(iter(graphs.consumers_of(value))), f"gives {value.name!r} back"
            )


def _zeros_of(model: ir.Model, names: Collection[str]) -> set[ir.Value]:
    """Return the values that hold zeros alone: these inputs, constants, and values moved or sliced from zeros.

    Args:
        model: the graph.
        names: inputs that hold zeros.
    """
    zeros = {value for value in model.graph.inputs if value.name in names}
    for node in model.graph:
        operands = [value for value in node.inputs if value is not None]
        if graphs.has_body(node) or not operands:
            continue
        if graphs.is_op(node, "ConstantOfShape"):
            value = node.attributes.get("value")
            if value is None or _is_zero(value.as_tensor().numpy()):
                zeros.update(node.outputs)
            continue
        moved = operands if graphs.is_op(node, "Concat") else operands[:1]
        if node.op_type in MOVES and all(value in zeros or _is_zero(graphs.array_of(value)) for value in moved):
            zeros.update(node.outputs)
    return zeros


def _is_zero(array: np.ndarray | None) -> bool:
    return array is not None and array.size > 0 and not array.any() and not np.signbit(array).any()


def _pad_instead(model: ir.Model, zeros: Collection[ir.Value]) -> None:
    """Rewrite Concat(zeros, x) as Pad(x)."""
    for node in list(model.graph):
        if not (graphs.is_op(node, "Concat") and len(node.inputs) == 2 and node.inputs[0] in zeros):
            continue
        first, other = node.inputs
        dims = None if first is None else graphs.dims_of(first)
        axis = axis_of(node, len(dims or ()))
        if dims is None or other is None or other in zeros or not isinstance(dims[axis], int):
            continue
        pads = [0] * (2 * len(dims))
        pads[axis] = int(dims[axis])
        insert = graphs.Inserter(model, MergeFirstCall.name, before=node)
        padded = insert.op("Pad", [other, insert.int64s(*pads)], {"mode": "constant"}, name=f"{other.name}_zeros")
        padded.shape = node.outputs[0].shape
        graphs.take_over(model, node.outputs[0], padded)


class _OneRow:
    """Computes values that are equal in every row once, as one row, for nodes that repeat it for all rows.

    Args:
        model: the graph; changed.
        equal: the values with equal rows.
    """

    def __init__(self, model: ir.Model, equal: EqualRows) -> None:
        self.model, self.equal = model, equal
        self.made: dict[ir.Value, ir.Value] = {}

    def serve(self) -> None:
        """Make operators that broadcast read one row, and expand it at graph outputs."""
        for node in list(self.model.graph):
            if node.op_type in BROADCASTING and node.domain in ("", "ai.onnx"):
                for at, value in enumerate(node.inputs):
                    if value in self.equal.axes and self._is_repeated(node, value):
                        node.replace_input_with(at, self._one(value, node))
        for at, value in enumerate(list(self.model.graph.outputs)):
            if value in self.equal.axes:
                self.model.graph.outputs[at] = self._all(value)

    def _is_repeated(self, node: ir.Node, value: ir.Value) -> bool:
        """Whether another operand has all rows on the axis of this one's equal rows."""
        behind = len(value.shape or ()) - self.equal.axes[value]
        others = [
            graphs.dims_of(each) or () for each in node.inputs if each is not None and each not in self.equal.axes
        ]
        return any(len(dims) >= behind and dims[-behind] == self.equal.batch for dims in others)

    def _one(self, value: ir.Value, before: ir.Node | None) -> ir.Value:
        """Return one row of a value, as a constant or computed from one row."""
        if value in self.made:
            return self.made[value]
        insert = graphs.Inserter(self.model, MergeFirstCall.name, before=before)
        if value in self.equal.contents:
            self.made[value] = insert.constant(self.equal.contents[value], "one_row")
            return self.made[value]
        node = value.producer()
        assert node is not None
        read = [self._one(operand, before) if operand in self.equal.axes else operand for operand in node.inputs]
        outputs = [ir.Value(name=graphs.fresh_name(self.model.graph, f"{output.name}_once"), type=output.type)
                   for output in node.outputs]  # fmt: skip
        insert.place(ir.Node(node.domain, node.op_type, read, list(node.attributes.values()), outputs=outputs))
        self.made |= zip(node.outputs, outputs, strict=True)
        return self.made[value]

    def _all(self, value: ir.Value) -> ir.Value:
        """Return a graph output expanded to the rows of an input."""
        dims, row_axis = list(value.shape or ()), self.equal.axes[value]
        rows = [(fed, (graphs.dims_of(fed) or ()).index(self.equal.batch))
                for fed in self.model.graph.inputs
                if fed not in self.equal.axes and self.equal.batch in (graphs.dims_of(fed) or ())]  # fmt: skip
        insert = graphs.Inserter(self.model, MergeFirstCall.name)
        source, place = rows[0]
        count = insert.op("Shape", [source], {"start": place, "end": place + 1}, name="rows", dtype=ir.DataType.INT64)
        sizes = [count if axis == row_axis else insert.int64s(int(dim)) for axis, dim in enumerate(dims)]  # type: ignore[arg-type]
        shape = count if len(sizes) == 1 else insert.op("Concat", sizes, {"axis": 0}, name="sizes_of_rows")
        expanded = insert.op(
            "Expand", [self._one(value, None), shape], name=f"{value.name}_rows", shape=dims, dtype=value.dtype
        )
        old = str(value.name)
        value.name = graphs.fresh_name(self.model.graph, f"{old}_inside")
        expanded.name = old
        return expanded


def _batch_from_elsewhere(model: ir.Model, value: ir.Value, node: ir.Node) -> None:
    """Read a leading dimension from another input that has the same one on the same axis."""
    own = list(value.shape or ())
    read = graphs.dims_read(node, len(own))
    for candidate in model.graph.inputs:
        others = list(candidate.shape or ())
        reads_same = graphs.dims_read(node, len(others)) == read
        if candidate is not value and reads_same and [others[at] for at in read] == [own[at] for at in read]:
            node.replace_input_with(0, candidate)
            return
    raise _unsupported(node, f"reads dimensions of {value.name!r} that no other input has")


def _unsupported(node: ir.Node, reason: str) -> Refused:
    place = Location(node=str(node.name), op=node.op_type, source=graphs.source_of(node))
    return Refused(
        reason, cure="remove merge_first_call from the recipe and build two graphs, or join caches first", place=place
    )


class _Keys:
    """A key per value that is equal for equal expressions over equal inputs and weights; zeros of one shape are equal.

    Args:
        model: the graph.
        zeros: inputs that hold zeros.
    """

    def __init__(self, model: ir.Model, zeros: Collection[str] = ()) -> None:
        graphs.infer_shapes(model)
        self.bare: dict[ir.Value, str] = {}
        self.keys: dict[ir.Value, str] = {value: f"input {value.name}" for value in model.graph.inputs}
        for value in _zeros_of(model, zeros):
            dims = graphs.dims_of(value)
            if dims is not None:
                self.keys[value] = f"zeros {value.dtype} {list(map(str, dims))}"
        self.transposed: dict[ir.Value, tuple[ir.Value, tuple[int, ...]]] = {}
        for node in model.graph:
            key = self._transposed_key(node) or self._node_key(node)
            for index, output in enumerate(node.outputs):
                self.keys.setdefault(output, _digest(f"{key}#{index}"))

    def of(self, value: ir.Value | None) -> str:
        """Return the key of a value; constants are compared by content."""
        if value is None:
            return "absent"
        if value not in self.keys:
            array = graphs.array_of(value)
            assert array is not None
            self.keys[value] = _digest(f"{array.dtype}{array.shape}", np.ascontiguousarray(array).tobytes())
        return self.keys[value]

    def _node_key(self, node: ir.Node) -> str:
        if graphs.has_body(node):
            return _digest(f"{id(self)} {node.name}")  # a body may read values that are no inputs: equal to no other
        attributes = [(name, str(attribute.value)) for name, attribute in stated_attributes(node).items()]
        operands = [self.of(value) for value in node.inputs]
        if node.op_type in ENTRYWISE and any(self._is_of_constants(value) for value in node.inputs):
            operands = [self._bare(value) for value in node.inputs]
            bare = _digest(repr((node.domain, node.op_type, attributes, operands)))
            if all(value is None or self._is_of_constants(value) for value in node.inputs):
                self.bare[node.outputs[0]] = bare
            attributes.append(("rank", str(len(node.outputs[0].shape or ()))))
        return _digest(repr((node.domain, node.op_type, attributes, operands)))

    def _transposed_key(self, node: ir.Node) -> str:
        """Return the key of a rearranged value by its permutation, ignoring axes of size 1.

        Reshape followed by Transpose has the same key as Transpose followed by Reshape.

        Returns:
            The key; empty for other nodes.
        """
        if node.op_type not in REARRANGING or node.domain not in ("", "ai.onnx"):
            return ""
        operand, result = node.inputs[0], node.outputs[0]
        before, after = (None if moved is None else graphs.dims_of(moved) for moved in (operand, result))
        if operand is None or before is None or after is None:
            return ""
        root, order = self.transposed.get(
            operand, (operand, tuple(axis for axis, dim in enumerate(before) if dim != 1))
        )
        if graphs.is_op(node, "Transpose"):
            wide = [axis for axis, dim in enumerate(before) if dim != 1]
            perm = perm_of(node, len(before))
            order = tuple(order[wide.index(axis)] for axis in perm if before[axis] != 1)
        elif [dim for dim in before if dim != 1] != [dim for dim in after if dim != 1]:
            return ""
        self.transposed[result] = root, order
        ones = [axis for axis, dim in enumerate(after) if dim == 1]
        return _digest(repr(("turned", self.of(root), order, len(after), ones)))

    def _is_of_constants(self, value: ir.Value | None) -> bool:
        return value in self.bare or graphs.array_of(value) is not None

    def _bare(self, value: ir.Value | None) -> str:
        """Return the key of an operand without leading axes of size 1, which broadcasting adds."""
        array = graphs.array_of(value)
        if value is None or array is None:
            return self.of(value) if value is None or value not in self.bare else self.bare[value]
        sizes = list(array.shape)
        while sizes and sizes[0] == 1:
            del sizes[0]
        return _digest(f"{array.dtype}{tuple(sizes)}", np.ascontiguousarray(array).tobytes())


def _digest(text: str, content: bytes = b"") -> str:
    return hashlib.sha256(text.encode() + content).hexdigest()


def _difference(keys: _Keys, first_keys: _Keys, later: ir.Value, other: ir.Value) -> Refused:
    """Return the refusal for two different values, naming the deepest pair of nodes that differ."""
    while True:
        a, b = later.producer(), other.producer()
        if a is None or b is None or (a.op_type, len(a.inputs)) != (b.op_type, len(b.inputs)):
            break
        pairs = [
            (x, y)
            for x, y in zip(a.inputs, b.inputs, strict=True)
            if x is not None and y is not None and keys.of(x) != first_keys.of(y)
        ]
        if not pairs or (pairs[0][0].producer() is None and pairs[0][1].producer() is None):
            break
        later, other = pairs[0]
    a, b = later.producer(), other.producer()
    node = a or b  # an input of the later call is made by no node
    place = Location(
        node=str(node.name) if node else "",
        op=node.op_type if node else "",
        tensor=str(later.name),
        source=graphs.source_of(node),
    )
    got = f"{b.op_type if b else 'input or constant'} ({graphs.source_of(b) or other.name})"
    if a is not None and b is not None and a.op_type == b.op_type:
        got += " with other attributes, weights or inputs"
    return Refused(
        f"the first call is not the later call with empty caches: expected {a.op_type if a else later.name}, got {got}",
        cure="delete first_call where the later call takes empty caches by itself; else make the first call that call, "
        "or build the two calls as two graphs",
        place=place,
    )
