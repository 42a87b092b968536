"""Finds the stable values of a streaming graph: those whose cached frames provably change in no later call.

A cache that is joined as Concat(old, new) and fed back whole keeps its old frames as they are. So does every value
that is computed from joined caches frame by frame, with constants beside them: f(Concat(old, new)) is
Concat(f(old), f(new)), and f(old) is what earlier calls computed. Several caches over one axis join alike. So it is
where the newest frames alone are fed back, as many as there were old ones: contexts.py finds such states.
"""

import dataclasses

import onnx_ir as ir

from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.slices import END, slice_of
from compiler.graph.operators.traits import RANDOM
from compiler.graph.stages import Lowered, Refusal, State
from compiler.proof.propagation.pointwise import pointwise_axes
from runtime_lite.format.cache_axis import CacheAxis


@dataclasses.dataclass(frozen=True)
class Frames:
    """How many frames are joined along an axis.

    Attributes:
        cached: those of earlier calls, in front: the name of a cache axis, or a number.
        new: those of a call.
        slots: of how many cached frames prices are.
        step: of how many new ones.
    """

    cached: graphs.Dim
    new: graphs.Dim
    slots: int
    step: int

    @classmethod
    def along(cls, cache: CacheAxis) -> "Frames":
        """Return the frames of states along a cache axis."""
        return cls(graphs.symbol(cache.axis), cache.step, cache.slots, cache.step)

    @property
    def joined(self) -> graphs.Dim:
        """Return the number of cached and new frames together."""
        return self.cached + self.new

    @property
    def cached_dim(self) -> int | ir.SymbolicDim:
        """Return the number of cached frames, as shapes write it."""
        return self.cached if isinstance(self.cached, int) else ir.SymbolicDim(str(self.cached))

    @property
    def sizes(self) -> dict[str, int]:
        """Return the cache axis with its number of slots; empty without one."""
        return {} if isinstance(self.cached, int) else {str(self.cached): self.slots}


@dataclasses.dataclass(frozen=True)
class Cache:
    """A state whose frames are joined once, in front of the new ones, and fed back: whole, or the newest of them.

    Attributes:
        state: the state.
        axis: where its frames lie.
        old: the graph input with the frames of earlier calls.
        new: the frames of this call.
        joined: both.
        fed: the graph output that is fed back; `joined` along a cache axis.
    """

    state: State
    axis: int
    old: ir.Value
    new: ir.Value
    joined: ir.Value
    fed: ir.Value


class Stable:
    """Everything that is stable in a graph, and who reads it how.

    Args:
        model: a graph with symbolic shapes.
        caches: the caches to start from.
        frames: that all of them join.

    Attributes:
        caches: the caches.
        axes: the frames axis of every stable value, in graph order.
        operators: the nodes that compute stable values frame by frame, in graph order.
        demanded: values that something mixes, or that leave the graph: they are needed whole.
        newest: slices that keep exactly the new frames of a stable value.
        lengths: Shape nodes of stable values that read no more than their lengths, their rows and fixed sizes.
    """

    def __init__(self, model: ir.Model, caches: tuple[Cache, ...], frames: Frames) -> None:
        self.caches = caches
        self.frames = frames
        self.axes: dict[ir.Value, int] = {cache.joined: cache.axis for cache in caches}
        self.operators: list[ir.Node] = []
        self.demanded: list[ir.Value] = []
        self.newest: list[ir.Node] = []
        self.lengths: list[ir.Node] = []
        fed = {cache.fed for cache in caches}
        axis_slices = {cache.fed.producer() for cache in caches if cache.fed is not cache.joined}
        for node in model.graph:
            read = [value for value in (*node.inputs, *graphs.read_inside(node)) if value in self.axes]
            if read and node not in axis_slices and (graphs.has_body(node) or not self._follows(node)):
                self.demanded += [value for value in read if value is not None]
        self.demanded += [value for value in model.graph.outputs if value in self.axes and value not in fed]
        self.demanded = list(dict.fromkeys(self.demanded))

    def _follows(self, node: ir.Node) -> bool:
        """Whether a node needs no stable value as a whole; records how it uses them."""
        if graphs.is_op(node, "Shape"):
            return self._reads_lengths(node)
        axes = self._axes_of(node)
        if axes is not None:
            self.operators.append(node)
            self.axes |= zip(node.outputs, axes, strict=True)
            return True
        if self._keeps_newest(node):
            self.newest.append(node)
            return True
        return False

    def _axes_of(self, node: ir.Node) -> tuple[int, ...] | None:
        """Return the frames axis of every result; None where the node mixes frames or reads a value that may change."""
        others = [value for value in node.inputs if value is not None and value not in self.axes]
        if not all(is_constant(value) for value in others):
            return None
        axes = pointwise_axes(node, {i: self.axes[value] for i, value in enumerate(node.inputs) if value in self.axes})
        if axes is None:
            return None
        shapes = [graphs.dims_of(output) for output in node.outputs]
        if any(dims is None or dims[axis] != self.frames.joined for dims, axis in zip(shapes, axes, strict=True)):
            return None
        if graphs.is_op(node, "Reshape"):  # the target must not name the joined length, which the new frames have not
            target = graphs.array_of(node.inputs[1])
            if target is None or target[axes[0]] not in (0, -1):
                return None
        return axes

    def _reads_lengths(self, node: ir.Node) -> bool:
        value = node.inputs[0]
        assert value is not None
        # of a state of one size none is left to count new frames by, where their number is open
        is_told = isinstance(self.frames.joined, int) or not isinstance(self.frames.cached, int)
        if not reads_rows_and_frames(node, self.axes[value] if is_told else None, self.rows_name):
            return False
        self.lengths.append(node)
        return True

    @property
    def rows_name(self) -> str:
        """Return the size of the batch axis, the first of every state, as shapes write it."""
        shape = self.caches[0].old.shape
        assert shape is not None
        return str(shape[0])

    def _keeps_newest(self, node: ir.Node) -> bool:
        """Whether a node is a slice that keeps exactly the new frames."""
        value = node.inputs[0] if node.inputs else None
        return value in self.axes and keeps_last(node, self.axes[value], self.frames.new, self.frames.joined)

    def can_be_state(self, value: ir.Value) -> bool:
        """Whether a stable value holds numbers and its first axis is still the batch."""
        numbers = value.dtype is not None and (value.dtype.is_floating_point() or value.dtype.is_integer())
        rows = str(value.shape[0]) if value.shape else None
        return numbers and rows == self.rows_name


def keeps_last(node: ir.Node, axis: int, count: graphs.Dim, size: graphs.Dim) -> bool:
    """Whether a node is a Slice that keeps the last entries along one axis, and all along the others.

    Args:
        node: a node whose input has a known rank.
        axis: the axis.
        count: the number of entries to keep.
        size: the size of the axis.
    """
    view = slice_of(node)
    sliced = None if view is None or view.data.shape is None else view.only_axis_slice(graphs.integers_of)
    if sliced is None or (sliced.axis, sliced.step) != (axis, 1):
        return False
    to_the_end = sliced.end == size or sliced.end == END
    return to_the_end and sliced.start in (size - count, -count)


def find_caches(lowered: Lowered, along: CacheAxis) -> tuple[tuple[Cache, ...], tuple[Refusal, ...]]:
    """Return the caches of a graph along one axis, and for every other state along it why it is none.

    Args:
        lowered: a graph with symbolic shapes.
        along: the cache axis.
    """
    inputs, outputs = graphs.inputs_named(lowered.model), graphs.outputs_named(lowered.model)
    caches, refused = [], []
    for state in lowered.states:
        if state.frames_axis is None or state.cache != along.axis:
            continue
        old, output = inputs[state.input], outputs[state.output]
        readers = [node for node in graphs.consumers_of(old) if not graphs.is_op(node, "Shape")]
        join = readers[0] if len(readers) == 1 else None
        reader = join or next((node for node in readers if not graphs.is_op(node, "Concat")), None)
        location = (
            Location(tensor=state.input) if reader is None else Location(node=str(reader.name), op=reader.op_type)
        )
        place = dataclasses.replace(location, tensor=state.input, source=graphs.source_of(reader))
        new = None if join is None else _joined_to(join, old, output, state.frames_axis)
        rows = str((old.shape or ("",))[0])
        if new is None:
            refused.append(Refusal(_why_carried_as_it_is(readers, output, state.frames_axis), place))
        elif not _has_frames(old, state.frames_axis, along.axis) or not _has_frames(
            new, state.frames_axis, str(along.step)
        ):
            expected = f"{along.axis} cached frames and {along.step} new ones"
            refused.append(Refusal(f"expected {expected}, got shapes {old.shape} and {new.shape}", place))
        elif not all(
            reads_rows_and_frames(node, state.frames_axis, rows)
            for node in graphs.consumers_of(old)
            if node is not join
        ):
            refused.append(Refusal("a size of the cache besides its length and its rows is read as a number", place))
        else:
            caches.append(Cache(state, state.frames_axis, old, new, output, output))
    return tuple(caches), tuple(refused)


def _why_carried_as_it_is(readers: list[ir.Node], output: ir.Value, axis: int) -> str:
    """Return why a cache is not replaced by a value computed from it, and what to write so that it may be."""
    if any(_takes_a_part(node, axis) for node in readers):
        return (
            "the tensor holds several caches, is cut up by the model, and is carried as it is; to have a choice, take "
            "and return a list of caches, one for each layer, not a stack"
        )
    sliced = output.producer()
    if (
        sliced is not None
        and graphs.is_op(sliced, "Slice")
        and any(sliced.inputs[0] in node.outputs for node in readers)
    ):
        return (
            "the model cuts the joined cache before it returns it, and it is carried as it is; to have a choice, "
            "return it uncut, as the window of the recipe keeps the newest frames"
        )
    return (
        "the cache is not joined exactly once, in front of the new frames, and fed back whole, and is carried "
        "as it is; to have a choice, give every layer a cache of its own and feed it back uncut"
    )


def _takes_a_part(node: ir.Node, axis: int) -> bool:
    """Whether a node reads a part of a cache along another axis than its frames."""
    if graphs.is_op(node, "Slice"):
        view = slice_of(node)
        return any(
            sliced.axis != axis for sliced in (None if view is None else view.axis_slices(graphs.integers_of)) or ()
        )
    rank = len(node.inputs[0].shape or ()) if node.inputs[0] is not None else 0
    return graphs.is_op(node, "Gather", "Split", "SplitToSequence") and axis_of(node, rank) != axis


def reads_rows_and_frames(node: ir.Node, axis: int | None, rows: str) -> bool:
    """Whether a Shape node reads no named size but the frames along `axis` and the rows.

    Args:
        node: a Shape whose input has a known rank.
        axis: the frames axis of that value; None where their number may not be read.
        rows: the name of the batch axis.
    """
    value = node.inputs[0]
    assert value is not None and value.shape is not None
    read = graphs.dims_read(node, len(value.shape))
    return all(isinstance(value.shape[at], int) or at == axis or str(value.shape[at]) == rows for at in read)


def _joined_to(join: ir.Node, old: ir.Value, output: ir.Value, axis: int) -> ir.Value | None:
    """Return the new frames, if the node is the only join of a cache and its result is fed back; else None."""
    fits = (
        graphs.is_op(join, "Concat")
        and len(join.inputs) == 2
        and join.inputs[0] is old
        and join.inputs[1] is not old
        and join.outputs[0] is output
        and axis_of(join, len(old.shape or (0,))) == axis
    )
    return join.inputs[1] if fits else None


def _has_frames(value: ir.Value, axis: int, frames: str) -> bool:
    return value.shape is not None and str(value.shape[axis]) == frames


def is_constant(value: ir.Value) -> bool:
    """Whether a value is the same in every call: a constant, or computed from constants alone."""
    if graphs.array_of(value) is not None:
        return True
    node = value.producer()
    if node is None or node.op_type in RANDOM or graphs.has_body(node):
        return False
    return all(operand is None or is_constant(operand) for operand in node.inputs)
