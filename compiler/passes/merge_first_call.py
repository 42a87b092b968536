"""Merge the call that starts a stream into the later-call graph: an empty cache is the first call.

Before:
    first(features) and later(features, cache, context)
After:
    later(features, cache of length 0, context of zeros) alone

Requires: both graphs simplified; outputs in the same order.
Ensures: one graph; a stream starts with empty caches and zero states.
Keeps: the later-call graph, node by node.
Numerics: exact; the two graphs are proved to be the same expression, otherwise the pass refuses.
Source: concatenation with an empty tensor is the identity; concatenation with zeros is padding with zeros.
"""

import dataclasses
import hashlib
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.errors import Place, Refused
from compiler.passes.canonicalize_reshapes import CanonicalizeReshapes
from compiler.passes.simplify import simplify_model
from compiler.stages import Lowered, Outcome, State


@dataclasses.dataclass(frozen=True)
class MergeFirstCall:
    """Prove that the first call is the later call with empty caches, and drop it."""

    name: ClassVar[str] = "merge_first_call"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("add_batch_axis",)
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Compare the two graphs as expressions.

        Raises:
            Refused: the graphs differ; names the first output and node that do.
        """
        if lowered.first_call is None:
            return Outcome(lowered)
        started = _started(lowered)
        first = _canonical(house.clone(lowered.first_call), lowered.graph)
        keys, first_keys = _Keys(started), _Keys(first)
        for later, other in zip(started.graph.outputs, first.graph.outputs, strict=True):
            if keys.of(later) != first_keys.of(other):
                raise _difference(keys, first_keys, later, other)
        return Outcome(dataclasses.replace(lowered, first_call=None), matched=len(started.graph.outputs), rewritten=1)


def _started(lowered: Lowered) -> ir.Model:
    """The later-call graph with every cache empty and every other state zero."""
    model = house.clone(lowered.model)
    inputs = house.inputs_named(model)
    for state in lowered.states:
        value = inputs[state.input]
        if state.frames_axis is None:
            _pad_instead(model, value)
        else:
            _empty(model, value, state)
    for state in lowered.states:
        model.graph.inputs.remove(inputs[state.input])
    return _canonical(model, lowered.graph)


def _canonical(model: ir.Model, graph: str) -> ir.Model:
    house.forget_shapes(model)
    simplify_model(model)
    CanonicalizeReshapes().apply(Lowered(graph, model))
    simplify_model(model)
    return model


def _empty(model: ir.Model, value: ir.Value, state: State) -> None:
    """Drop a zero-length operand from its concatenations, and make its length 0."""
    rank = len(value.shape or ())
    for use in list(value.uses()):
        node = use.node
        insert = house.Inserter(model, MergeFirstCall.name, before=node)
        if (
            house.is_op(node, "Concat")
            and len(node.inputs) == 2
            and house.int_attribute(node, "axis", 0) % rank == state.frames_axis
        ):
            joined = insert.op("Identity", [node.inputs[1 - use.idx]], name=f"{value.name}_joined")
            ir.convenience.replace_all_uses_with(node.outputs[0], joined, replace_graph_outputs=True)
        elif house.is_op(node, "Shape") and house.dims_read(node, rank) == (state.frames_axis,):
            ir.convenience.replace_all_uses_with(node.outputs[0], insert.int64s(0))
        elif not house.is_op(node, "Shape"):
            raise _unsupported(node, f"reads the cache {state.input!r} otherwise than by concatenation")
    house.prune(model)
    for node in house.consumers_of(value):  # batch read from the shape of a cache
        _batch_from_elsewhere(model, value, node)


def _pad_instead(model: ir.Model, value: ir.Value) -> None:
    """Zeros in front: Concat(zeros, x) is Pad(x)."""
    for use in list(value.uses()):
        node = use.node
        if house.is_op(node, "Shape"):
            _batch_from_elsewhere(model, value, node)
            continue
        if not (house.is_op(node, "Concat") and len(node.inputs) == 2 and use.idx == 0):
            raise _unsupported(node, f"reads the state {value.name!r} otherwise than in front of a concatenation")
        other = node.inputs[1]
        assert value.shape is not None and other is not None
        rank = len(value.shape)
        axis = house.int_attribute(node, "axis", 0) % rank
        frames = value.shape[axis]
        if not isinstance(frames, int):
            raise _unsupported(node, f"joins the state {value.name!r} along an axis that is not fixed")
        pads = [0] * (2 * rank)
        pads[axis] = frames
        insert = house.Inserter(model, MergeFirstCall.name, before=node)
        padded = insert.op("Pad", [other, insert.int64s(*pads)], {"mode": "constant"}, name=f"{value.name}_zeros")
        ir.convenience.replace_all_uses_with(node.outputs[0], padded, replace_graph_outputs=True)
    house.prune(model)


def _batch_from_elsewhere(model: ir.Model, value: ir.Value, node: ir.Node) -> None:
    """Read a leading dimension from another input that has the same one in the same place."""
    own = list(value.shape or ())
    read = house.dims_read(node, len(own))
    for candidate in model.graph.inputs:
        others = list(candidate.shape or ())
        reads_same = house.dims_read(node, len(others)) == read
        if candidate is not value and reads_same and [others[at] for at in read] == [own[at] for at in read]:
            node.replace_input_with(0, candidate)
            return
    raise _unsupported(node, f"reads dimensions of {value.name!r} that no other input has")


def _unsupported(node: ir.Node, reason: str) -> Refused:
    place = Place(node=str(node.name), op=node.op_type, source=house.source_of(node))
    return Refused(
        reason, cure="remove merge_first_call from the recipe and build two graphs, or join caches first", place=place
    )


class _Keys:
    """A key per value that is equal for equal expressions over equal inputs and weights."""

    def __init__(self, model: ir.Model) -> None:
        self.keys: dict[ir.Value, str] = {value: f"input {value.name}" for value in model.graph.inputs}
        for node in model.graph:
            key = self._node_key(node)
            for index, output in enumerate(node.outputs):
                self.keys[output] = _digest(f"{key}#{index}")

    def of(self, value: ir.Value | None) -> str:
        """The key of a value; constants by content."""
        if value is None:
            return "absent"
        if value not in self.keys:
            array = house.array_of(value)
            assert array is not None
            self.keys[value] = _digest(f"{array.dtype}{array.shape}", np.ascontiguousarray(array).tobytes())
        return self.keys[value]

    def _node_key(self, node: ir.Node) -> str:
        if house.has_body(node):
            return _digest(f"{id(self)} {node.name}")  # a body may read values that are no inputs: equal to no other
        attributes = sorted((name, str(attribute.value)) for name, attribute in node.attributes.items())
        return _digest(repr((node.domain, node.op_type, attributes, [self.of(value) for value in node.inputs])))


def _digest(text: str, content: bytes = b"") -> str:
    return hashlib.sha256(text.encode() + content).hexdigest()


def _difference(keys: _Keys, first_keys: _Keys, later: ir.Value, other: ir.Value) -> Refused:
    """Descend while exactly the same op has differing inputs, to name the deepest difference."""
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
    place = Place(
        node=str(a.name) if a else "", op=a.op_type if a else "", tensor=str(later.name), source=house.source_of(a)
    )
    got = f"{b.op_type if b else 'input or constant'} ({house.source_of(b) or other.name})"
    if a is not None and b is not None and a.op_type == b.op_type:
        got += " with other attributes, weights or inputs"
    return Refused(
        f"the first call is not the later call with empty caches: expected {a.op_type if a else later.name}, got {got}",
        cure="build the two calls as two graphs, or make the first call the later call with empty caches",
        place=place,
    )
