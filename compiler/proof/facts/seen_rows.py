"""Proves that every row of a softmax has an unmasked score, one above the lowest number, at every length of a call.

    hidden = Where(mask, scores, -inf);  shares = Softmax(hidden)

The nodes in front of a softmax are run with 0 in the place of scores of data, which are assumed to be above the lowest
number. The rest follows from constants and true lengths, and is run at every combination of lengths; where these are
too many, at some of them, the shortest and the longest included. Rows in the padding of an axis may see nothing: their
results are never read.

Source: a score counts as itself wherever selections choose it; the rest is evaluation.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.traits import MOVING
from compiler.graph.runners.part import Part
from compiler.graph.stages import Array, Lowered
from runtime_lite.format.cache_axis import CacheAxis

MOST_RUNS, MOST_SCORES = 2**11, 2**26
"""Combinations of lengths that are tried of one softmax, and scores that are computed in all of them."""

HANDING_ON = MOVING | {
    "Add", "Cast", "Clip", "Div", "Max", "Min", "Mul", "Neg", "ScatterElements", "ScatterND", "Sub", "Sum", "Trilu",
    "Where",
}  # fmt: skip
"""A list of its own: operators that may give an infinite number of an operand; others are taken to make numbers."""


def infinite_constants(value: ir.Value) -> tuple[ir.Value, ...]:
    """Return the constants containing -inf that may reach a value of a graph or body."""
    return _constants_below(value, -math.inf)


def _constants_below(value: ir.Value, most: float) -> tuple[ir.Value, ...]:
    """Return the constants with an entry of at most `most` that may reach a value."""
    constants, done, work = list[ir.Value](), set[ir.Value](), [value]
    while work:
        here = work.pop()
        if here in done:
            continue
        done.add(here)
        node, array = here.producer(), _numbers_of(here)
        if array is not None:
            if (array <= most).any():
                constants.append(here)
        elif _hands_on(node) and not _is_bounded(node):
            work += _reals(node)
    return tuple(constants)


def _hands_on(node: ir.Node | None) -> TypeGuard[ir.Node]:
    return node is not None and graphs.is_op(node, *HANDING_ON)


def _reals(node: ir.Node) -> list[ir.Value]:
    """Return the operands of a node that are floats."""
    given = (each for each in node.inputs if each is not None and each.dtype is not None)
    return [each for each in given if each.dtype is not None and each.dtype.is_floating_point()]


def _numbers_of(value: ir.Value) -> Array | None:
    """Return a constant's entries, or those of a ConstantOfShape, as float64; None for other values."""
    node = value.producer()
    given = node.attributes.get("value") if node is not None and graphs.is_op(node, "ConstantOfShape") else None
    array = graphs.array_of(value) if given is None else given.as_tensor().numpy()
    if array is None or value.dtype is None or not value.dtype.is_floating_point():
        return None
    return array.astype(np.float64)


def _is_bounded(node: ir.Node) -> bool:
    """Whether a node's result has a lower bound."""
    bounds = {"Clip": node.inputs[1:2], "Max": node.inputs}.get(node.op_type, ())
    arrays = [_numbers_of(each) for each in bounds if each is not None]
    return any(array is not None and not np.isneginf(array).any() for array in arrays)


@dataclasses.dataclass(frozen=True)
class _Length:
    """A true length that calls differ in.

    Attributes:
        axis: its name.
        input: the graph input that holds it.
        lengths: those that a row may have.
        cache: whose mask goes with it, or None.
    """

    axis: str
    input: str
    lengths: range
    cache: CacheAxis | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the graph inputs that are computed from this length."""
        mask = None if self.cache is None else self.cache.mask_input
        return (self.input,) if mask is None else (self.input, mask)

    def held_by(self, value: ir.Value, length: int) -> Array:
        """Return the content of one of these inputs at a length, the same in every row."""
        assert value.dtype is not None
        sizes = [dim if isinstance(dim, int) else 1 for dim in graphs.dims_of(value) or ()]
        if self.cache is not None and value.name == self.cache.mask_input:
            mask = self.cache.mask(np.array([length]))
            return np.broadcast_to(mask, (sizes[0], mask.shape[1])).astype(value.dtype.numpy())
        return np.full(sizes, length, value.dtype.numpy())


class SeenRows:
    """Asks softmaxes of a graph whether each of their rows sees something.

    Args:
        lowered: the graph, with names for its axes.
        frozen: a copy of it for one row, whose sizes are numbers; its values have the same names.
        sizes: of the axes.
    """

    def __init__(self, lowered: Lowered, frozen: ir.Model, sizes: Mapping[str, int]) -> None:
        self.frozen = frozen
        caches = (_Length(each.axis, each.length_input, range(each.slots + 1), each) for each in lowered.caches)
        padded = (
            _Length(each.axis, each.length_input, range(each.minimum, sizes[each.axis] + 1))
            for each in lowered.padded_axes
            if each.axis in sizes
        )
        self.lengths = (*caches, *padded) if lowered.is_padded else ()

    def why_not(self, node: ir.Node) -> str:
        """Return why a row of a softmax may see nothing, as text; empty where every row that is read sees a score.

        Args:
            node: a softmax of the graph with named axes, or of one of its bodies.
        """
        nodes = ir.traversal.RecursiveGraphIterator(self.frozen.graph)
        twin = next((node_copy for node_copy in nodes if node_copy.outputs[0].name == node.outputs[0].name), None)
        scores, named = None if twin is None else twin.inputs[0], node.inputs[0]
        if scores is None or named is None or scores.shape is None or scores.producer() is None:
            return "its scores are not computed, or nothing is known of their shape"
        if scores.dtype is None:
            return "its scores have no type"
        fed = frozenset(name for length_input in self.lengths for name in length_input.inputs)
        axis, most = axis_of(node, len(scores.shape)), float(scores.dtype.min) / 2
        part = _of_no_data(self.frozen, scores, fed, most)
        if part is None:
            return "it does not follow from sizes how many there are"
        if part.inputs.keys() - fed:
            return f"what hides scores follows from {min(part.inputs.keys() - fed)}"
        used = [length_input for length_input in self.lengths if part.inputs.keys() & set(length_input.inputs)]
        padded = self._padded(named)
        for lengths in itertools.product(*_tried([length_input.lengths for length_input in used], scores)):
            by_axis = {length_input.axis: length for length_input, length in zip(used, lengths, strict=True)}
            (scores_computed,) = part.run(
                {
                    name: length_input.held_by(part.inputs[name], by_axis[length_input.axis])
                    for length_input in used
                    for name in length_input.inputs
                    if name in part.inputs
                }
            )
            blind = ~(np.asarray(scores_computed, np.float64).max(axis=axis, keepdims=True) > most)
            for index, name in padded.items():
                if name in by_axis and index != axis:
                    valid = np.arange(blind.shape[index]) < by_axis[name]
                    blind &= valid.reshape([-1 if index == axis_number else 1 for axis_number in range(blind.ndim)])
            for row in np.argwhere(blind)[:1]:
                where = ", ".join(f"{name} {length}" for name, length in by_axis.items())
                return f"row {row.tolist()} sees nothing{' at ' if where else ''}{where}"
        return ""

    def _padded(self, value: ir.Value) -> dict[int, str]:
        """Return the axes of a value that are padded axes themselves, with valid entries first."""
        names = {graphs.symbol(each.axis): each.axis for each in self.lengths if each.cache is None}
        dims = enumerate(graphs.dims_of(value) or ())
        return {index: names[dim] for index, dim in dims if not isinstance(dim, int) and dim in names}


def _tried(lengths: Sequence[range], scores: ir.Value) -> list[list[int]]:
    """Return the lengths of each axis to combine: all of them, or evenly spaced ones."""
    entries = math.prod(dim for dim in graphs.dims_of(scores) or () if isinstance(dim, int))
    runs = max(min(MOST_RUNS, MOST_SCORES // max(entries, 1)), 1)
    if math.prod(map(len, lengths)) <= runs:
        return [list(each) for each in lengths]
    count = max(int(runs ** (1 / len(lengths))), 4)
    spread = [np.linspace(0, len(each) - 1, min(count, len(each))).astype(int).tolist() for each in lengths]
    return [[each[at] for at in places] for each, places in zip(lengths, spread, strict=True)]


def _of_no_data(model: ir.Model, scores: ir.Value, fed: frozenset[str], most: float) -> Part | None:
    """Return the part of a graph that computes scores with zeros in place of data; None where a shape is unknown.

    Args:
        model: a graph with numbers as sizes; not changed.
        scores: a value of that graph, or of one of its bodies.
        fed: the inputs that are not data.
        most: data that no constant of at most this number reaches are assumed to be larger.
    """
    copy = graphs.clone(model)
    insert, nodes = graphs.Inserter(copy, __name__), list(ir.traversal.RecursiveGraphIterator(copy.graph))
    twin = next(value for node in nodes for value in node.outputs if value.name == scores.name)
    work, done = [twin.producer()], set[ir.Node]()
    while work:
        node = work.pop()
        if node is None or node in done:
            continue
        done.add(node)
        for index, value in enumerate(node.inputs):
            if value is None or value not in _reals(node) or graphs.array_of(value) is not None:
                continue
            if _hands_on(value.producer()) and _constants_below(value, most):
                work.append(value.producer())
            elif {str(read_input.name) for read_input in _read_from_outside(value)} - fed:
                sizes = [dim for dim in graphs.dims_of(value) or () if isinstance(dim, int)]
                if value.shape is None or len(sizes) < len(value.shape) or value.dtype is None:
                    return None
                zeros = insert.constant(np.zeros(sizes, value.dtype.numpy()), f"no_{value.name}")
                node.replace_input_with(index, zeros)
    makers = graphs.makers_of([twin])
    for node in nodes:  # what a body computes of the scores can be computed outside of it
        if node.graph is not copy.graph and node.graph is not None and node in makers:
            node.graph.remove(node)
            copy.graph.append(node)
    return Part(copy.graph, [twin])


def _read_from_outside(value: ir.Value) -> set[ir.Value]:
    """Return the inputs of its graph, or of a body, that a value depends on."""
    read = {each for node in graphs.makers_of([value]) for each in node.inputs if each is not None} | {value}
    return {each for each in read if each.producer() is None and graphs.array_of(each) is None}
