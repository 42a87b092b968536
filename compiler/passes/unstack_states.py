"""Splits a state that stacks several tensors into one state per tensor, so that passes can treat each by itself.

Before:
    caches [batch, 12, 256, 14];  cache_i = Gather(caches, i);  next_caches = Concat(Unsqueeze(next_0), ...)
After:
    cache_0 [batch, 256, 14], cache_1, ...;  next_cache_0 = next_0, ...

Requires: symbolic shapes; the first call merged.
Ensures: every member of such a stack is a state; `carry_contexts` and `select_states` have a choice for each then.
Keeps: a stack of which more than one entry is taken at once, or whose next state is not put together entry by entry.
Numerics: exact; only movement.
Source: entry i of Concat(x_0, x_1, ...) of single entries is x_i.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.errors import Location, RecipeError
from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of, changed_axes, perm_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.stages import Array, Lowered, Outcome, Refusal, State, StateMap
from runtime_lite.format.initial_value import Initial, initial_of_array


@dataclasses.dataclass(frozen=True)
class UnstackStates:
    """A state for every member of a stack.

    Attributes:
        most: states that a step may have: where there were more, stacks stay; None for any number. Targets say it where
            recipes do not.

    Raises:
        RecipeError: that is no number of states.
    """

    name: ClassVar[str] = "unstack_states"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("add_batch_axis", "merge_first_call")
    expensive: ClassVar[bool] = False
    most: int | None = None

    def __post_init__(self) -> None:
        require_number_of_states(self.most)

    def apply(self, lowered: Lowered) -> Outcome:
        """Replace each stacked state by one state per member, in place."""
        graphs.infer_shapes(lowered.model)
        states = lowered.states if lowered.first_call is None else ()
        by_input = {state.input: _stack(lowered, state) for state in states}
        stacks = [stack for stack in by_input.values() if isinstance(stack, _Stack)]
        refused = [stack for stack in by_input.values() if isinstance(stack, Refusal)]
        matched, more = len(stacks) + len(refused), sum(len(stack.parts) - 1 for stack in stacks)
        if stacks and self.most is not None and len(states) + more > self.most:
            detail = f"apart there were {len(states) + more} states, and a step may have {self.most}"
            return Outcome(lowered, matched, refused=tuple(refused), detail=detail)
        apart = {stack.state.input: tuple(_write(lowered.model, stack)) for stack in stacks}
        members = {name: tuple(member.input for member in states) for name, states in apart.items()}
        maps = [Unstacked(stack.state.input, stack.axis, members[stack.state.input]) for stack in stacks]
        if not apart:
            return Outcome(lowered, matched, refused=tuple(refused))
        graphs.prune(lowered.model)
        graphs.forget_shapes(lowered.model)
        graphs.infer_shapes(lowered.model)
        states = tuple(member for state in lowered.states for member in apart.get(state.input, (state,)))
        new = dataclasses.replace(lowered, states=states, state_maps=(*lowered.state_maps, *maps))
        detail = f"{sum(map(len, apart.values()))} states in the place of {len(apart)}"
        return Outcome(new, matched, len(apart), tuple(refused), detail=detail)


def require_number_of_states(most: int | None) -> None:
    """Refuse an option that must be a number of states or null.

    Raises:
        RecipeError: the option is something else; the message states its value.
    """
    if most is not None and (isinstance(most, bool) or most < 0):
        raise RecipeError(f"most: expected a number of states or null, got {most!r}", cure="change the value")


@dataclasses.dataclass(frozen=True)
class Unstacked(StateMap):
    """State map: the entries of a stack become states.

    Attributes:
        stack: input of the state that held them.
        axis: along which they lay.
        members: inputs of the states that hold one each.
    """

    stack: str
    axis: int
    members: tuple[str, ...]

    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        """Return state values by input name, with the members of the stack as separate states."""
        kept = {name: array for name, array in states.items() if name != self.stack}
        return kept | {name: np.take(states[self.stack], at, self.axis) for at, name in enumerate(self.members)}


@dataclasses.dataclass(frozen=True)
class _Stack:
    """A state that is a stack.

    Attributes:
        state: it.
        axis: along which its members lie.
        old: the graph input.
        fed: the value that is fed back.
        parts: the next member of each place, without the axis.
        reads: what reads members: the value that holds them, the place of the first, and whether the axis is left.
        sizes: Shape nodes of the input.
    """

    state: State
    axis: int
    old: ir.Value
    fed: ir.Value
    parts: tuple[ir.Value, ...]
    reads: tuple[tuple[ir.Value, int, int | None], ...]
    sizes: tuple[ir.Node, ...]


def _stack(lowered: Lowered, state: State) -> _Stack | Refusal | None:
    """Return a state as a stack, or why it cannot be split; None where its members are not put together."""
    old = graphs.inputs_named(lowered.model)[state.input]
    fed = graphs.outputs_named(lowered.model)[state.output]
    joined = _put_together(fed)
    dims = graphs.dims_of(old)
    if joined is None or dims is None:
        return None
    axis, parts = joined
    if axis in (0, state.frames_axis) or dims[axis] != len(parts):
        return None
    reads, sizes = list[tuple[ir.Value, int, int | None]](), list[ir.Node]()
    for node in graphs.consumers_of(old):
        read_sizes = graphs.is_op(node, "Shape") and axis not in graphs.dims_read(node, len(dims))
        taken = () if read_sizes or node.graph is not lowered.model.graph else tuple(_taken(node, old, axis))
        if not read_sizes and not taken:
            place = Location(node=str(node.name), op=node.op_type, tensor=state.input, source=graphs.source_of(node))
            return Refusal("more than one member of the stack is read at once, and it is carried as it is", place)
        reads += taken
        sizes += [node] if read_sizes else []
    return _Stack(state, axis, old, fed, parts, tuple(reads), tuple(sizes))


def _put_together(fed: ir.Value) -> tuple[int, tuple[ir.Value, ...]] | None:
    """Return the axis along which single entries are joined to the state fed back, and the entries without it."""
    join, axes = fed.producer(), None
    if join is not None and graphs.is_op(join, "Transpose") and join.inputs[0] is not None:
        axes = perm_of(join, len(fed.shape or ()))
        join = join.inputs[0].producer() if len(graphs.consumers_of(join.inputs[0])) == 1 else None
    if join is None or not graphs.is_op(join, "Concat") or len(join.inputs) < 2 or graphs.consumers_of(fed):
        return None
    along = axis_of(join, len(join.outputs[0].shape or (0,)))
    if axes is not None and not _keeps_order(axes, along):
        return None
    parts = [_entry(value, along) for value in join.inputs]
    return None if None in parts else (along if axes is None else axes.index(along), tuple(filter(None, parts)))


def _keeps_order(perm: tuple[int, ...], axis: int) -> bool:
    """Whether a permutation keeps the order of all axes but one."""
    others = [each for each in perm if each != axis]
    return others == sorted(others)


def _entry(value: ir.Value | None, axis: int) -> ir.Value | None:
    """Return the value to which an Unsqueeze adds a given axis; None for other nodes."""
    node = None if value is None else value.producer()
    if node is None or not graphs.is_op(node, "Unsqueeze"):
        return None
    return node.inputs[0] if changed_axes(node, graphs.integers_of) == (axis,) else None


def _taken(node: ir.Node, value: ir.Value, axis: int) -> Iterator[tuple[ir.Value, int, int | None]]:
    """Yield the members that a node takes: the value, its index, and the remaining axis, if there is one.

    Args:
        node: a node that reads the stack.
        value: the stack, or its transpose.
        axis: the axis of the members in `value`.
    """
    if graphs.is_op(node, "Transpose"):
        perm = perm_of(node, len(value.shape or ()))
        readers = graphs.consumers_of(node.outputs[0])
        turned = perm.index(axis) if perm and _keeps_order(perm, axis) else None
        taken = [
            list(_taken(members_taken, node.outputs[0], turned)) for members_taken in readers if turned is not None
        ]
        if taken and all(taken) and not node.outputs[0].is_graph_output():
            for reader in taken:
                yield from reader
        return
    rank = len(value.shape or ())
    if graphs.is_op(node, "Gather") and node.inputs[0] is value and axis_of(node, rank) == axis:
        index = graphs.array_of(node.inputs[1])
        if index is not None and index.size == 1 and index.ndim < 2:
            yield node.outputs[0], int(index.reshape(())), axis if index.ndim else None
    elif graphs.is_op(node, "Slice") and (start := _single(node, axis)) is not None:
        yield node.outputs[0], start, axis


def _single(node: ir.Node, axis: int) -> int | None:
    """Return the index of the only entry that a slice keeps along an axis; None for other slices."""
    view = slice_of(node)
    sliced = None if view is None else view.only_axis_slice(graphs.integers_of)
    if sliced is None or not isinstance(sliced.start, int) or sliced.start < 0:
        return None
    return sliced.start if (sliced.axis, sliced.step, sliced.end) == (axis, 1, sliced.start + 1) else None


def _write(model: ir.Model, stack: _Stack) -> Iterator[State]:
    """Replace the stack's input and output by those of its members; yield the members' states."""
    dims = [dim for axis_number, dim in enumerate(stack.old.shape or ()) if axis_number != stack.axis]
    members = [
        ir.Value(
            name=graphs.fresh_name(model.graph, f"{stack.state.input}_{number}"),
            type=stack.old.type,
            shape=ir.Shape(dims),
        )
        for number in range(len(stack.parts))
    ]
    place = list(model.graph.inputs).index(stack.old)
    model.graph.inputs[place : place + 1] = members
    for value, number, axis in stack.reads:
        member, insert = members[number], graphs.Inserter(model, UnstackStates.name, before=value.producer())
        if axis is None and value.is_graph_output():
            member = insert.op("Identity", [member], name=f"{member.name}_given")
        if axis is not None:
            member = insert.op("Unsqueeze", [member, insert.int64s(axis)], name=f"{member.name}_wide")
        graphs.take_over(model, value, member)
    for node in stack.sizes:
        _read_size(model, node, members[0], stack.axis)
    outputs = _given(model, stack)
    frames = stack.state.frames_axis
    along = frames if frames is None or frames < stack.axis else frames - 1
    for number, (member, output) in enumerate(zip(members, outputs, strict=True)):
        initial = _member(stack.state.initial, stack.axis, number)
        yield State(str(member.name), str(output.name), along, stack.state.cache, initial)


def _read_size(model: ir.Model, node: ir.Node, member: ir.Value, axis: int) -> None:
    """Read sizes of the stack, except the number of members, from a member."""
    insert = graphs.Inserter(model, UnstackStates.name, before=node)
    read = [at - (at > axis) for at in graphs.dims_read(node, len(member.shape or ()) + 1)]
    sizes = [insert.op("Shape", [member], {"start": at, "end": at + 1}, name="size", dtype=ir.DataType.INT64)
             for at in read]  # fmt: skip
    whole = sizes[0] if len(sizes) == 1 else insert.op("Concat", sizes, {"axis": 0}, name="sizes")
    graphs.take_over(model, node.outputs[0], whole)


def _given(model: ir.Model, stack: _Stack) -> list[ir.Value]:
    """Return the values fed back to the members, as graph outputs in place of the stack."""
    place = list(model.graph.outputs).index(stack.fed)
    insert, given = graphs.Inserter(model, UnstackStates.name, source=graphs.source_of(stack.fed.producer())), []
    for at, part in enumerate(stack.parts):
        name = graphs.fresh_name(model.graph, f"{stack.state.output}_{at}")
        if part.producer() is None or part.is_graph_output() or part in given:
            part = insert.op("Identity", [part], name=name, shape=part.shape, dtype=part.dtype)
        part.name = name
        given.append(part)
    model.graph.outputs[place : place + 1] = given
    return given


def _member(initial: Initial, axis: int, at: int) -> Initial:
    """Return the initial value of one member of a stack."""
    array = np.asarray(initial)
    return initial if not array.ndim else initial_of_array(array.take(at if array.shape[axis] > 1 else 0, axis))
