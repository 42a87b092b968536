"""Packs states of equal shape into one tensor, so that a step has few inputs and outputs.

Before:
    a_0 [batch, 4, 64, 128], ..., a_11 [batch, 4, 64, 128] with next_a_i = Slice(Concat(clean(a_i), x_i), 16, 144)
After:
    packed [batch, 12, 4, 64, 128]; a_i = Squeeze(Split(clean(packed))[i])
    next_packed = Concat(Slice(clean(packed), 16, 128), Stack(x_i))

Requires: static shapes but for the batch axis.
Ensures: one input and one output per group of equally shaped states; states alone in their shape stay.
Keeps: everything else; states that hold codes, each on a grid of its own (quantize_states); all of them where the graph
    has no more than a step may have. Packed states are split and stacked in every call: this helps devices that accept
    few tensors, and costs time where a step is bound by memory.
Numerics: exact; only movement.
Source: stacking commutes with slicing and joining along another axis.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.runners.coded_states import codes_of
from compiler.graph.stages import Array, Lowered, Outcome, State, StateMap
from compiler.passes.unstack_states import require_number_of_states
from compiler.passes.window_states import rename_output
from runtime_lite.format.initial_value import Initial, initial_of_array


@dataclasses.dataclass(frozen=True)
class PackStates:
    """Stack equal states along a new axis 1.

    Attributes:
        most: number of separate states that a step may have; None for any number. Targets set it where recipes do not.

    Raises:
        RecipeError: that is no number of states.
    """

    name: ClassVar[str] = "pack_states"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("pad_axes",)
    expensive: ClassVar[bool] = False
    most: int | None = 0

    def __post_init__(self) -> None:
        require_number_of_states(self.most)

    def apply(self, lowered: Lowered) -> Outcome:
        """Pack every group of two or more states with the same shape, type, frames axis and cache.

        Raises:
            Refused: a state's shape is not static.
        """
        if self.most is None or len(lowered.states) <= self.most:
            detail = f"{len(lowered.states)} states stay apart" if lowered.states else ""
            return Outcome(lowered, matched=len(lowered.states), detail=detail)
        coded = {state.input for state in lowered.states if codes_of(lowered, state.input) is not None}
        inputs = graphs.inputs_named(lowered.model)
        numbers = {
            state.input for state in lowered.states if not inputs[state.input].shape
        }  # have no axis to lie along
        packed = [state for state in lowered.states if state.input in _carriers(lowered) | coded | numbers]
        groups: dict[tuple[str, str, int | None, str | None], list[State]] = {}
        for state in lowered.states:
            if state in packed:
                continue
            value = inputs[state.input]
            dims = list(value.shape or ())
            if not all(isinstance(dim, int) for dim in dims[1:]):
                raise Refused(
                    f"expected sizes behind the batch in state {state.input!r}, got {value.shape}",
                    cure="fix its axes, or give the one that grows a window",
                    place=Location(tensor=state.input),
                )
            groups.setdefault((str(dims), str(value.dtype), state.frames_axis, state.cache), []).append(state)
        maps: list[tuple[str, tuple[str, ...]]] = []
        for members in groups.values():
            if len(members) == 1:
                packed.extend(members)
                continue
            name = graphs.fresh_name(lowered.model.graph, f"packed_{len(packed)}")
            packed.append(_pack(lowered.model, members, name))
            maps.append((name, tuple(state.input for state in members)))
        if not maps:
            return Outcome(lowered, matched=len(lowered.states))
        graphs.prune(lowered.model)
        graphs.infer_shapes(lowered.model)
        new = dataclasses.replace(lowered, states=tuple(packed), state_maps=(*lowered.state_maps, Stacked(tuple(maps))))
        return Outcome(new, matched=len(lowered.states), rewritten=sum(len(members) for _, members in maps))


@dataclasses.dataclass(frozen=True)
class Stacked(StateMap):
    """State map: groups of states become one, stacked along axis 1."""

    groups: tuple[tuple[str, tuple[str, ...]], ...]

    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        """Return state values by input name, with the states of each group stacked."""
        members = {name for _, names in self.groups for name in names}
        kept = {name: array for name, array in states.items() if name not in members}
        return kept | {name: np.stack([states[member] for member in names], axis=1) for name, names in self.groups}

    @property
    def packed(self) -> Mapping[str, tuple[str, ...]]:
        """Return the members of each group by its name."""
        return dict(self.groups)


def _carriers(lowered: Lowered) -> set[str]:
    """Return the inputs that an earlier run has packed."""
    return set(lowered.parts)


def _pack(model: ir.Model, members: list[State], name: str) -> State:
    inputs, outputs = graphs.inputs_named(model), graphs.outputs_named(model)
    values = [inputs[state.input] for state in members]
    shape = list(values[0].shape or ())
    carrier = ir.Value(name=name, type=values[0].type, shape=ir.Shape([shape[0], len(members), *shape[1:]]))
    position = list(model.graph.inputs).index(values[0])
    model.graph.inputs.insert(position, carrier)
    clean, replaced = _clean(model, carrier, values)
    shifts = [_shift(outputs[state.output], old, state) for state, old in zip(members, replaced, strict=True)]
    _unpack(model, clean, replaced)
    frames_axis = members[0].frames_axis
    along = None if frames_axis is None else frames_axis + (frames_axis > 0)  # frames in front of all stay there
    fed = [outputs[state.output] for state in members]
    insert = graphs.Inserter(model, PackStates.name, source=graphs.source_of(fed[0].producer()))
    shift_of_all = next((shift for shift in shifts if shift is not None), None)
    if (
        shift_of_all is not None
        and along is not None
        and all(s is not None and s.start == shift_of_all.start for s in shifts)
    ):
        stacked = _stack(insert, [shift.new for shift in shifts if shift is not None], f"{name}_new")
        bounds = [insert.int64s(x) for x in (shift_of_all.start, shift_of_all.frames, along)]
        older = insert.op("Slice", [clean, *bounds], name=f"{name}_older")
        joined = insert.op("Concat", [older, stacked], {"axis": along}, name=f"{name}_next")
    else:
        joined = _stack(insert, fed, f"{name}_next")
    member_shape = list(fed[0].shape or shape)  # no more than the new frames, of caches to which calls append
    joined.shape, joined.type = ir.Shape([member_shape[0], len(members), *member_shape[1:]]), carrier.type
    rename_output(model, fed[0], joined, f"next_{name}")
    for value in fed[1:]:
        model.graph.outputs.remove(value)
    for value in values:
        model.graph.inputs.remove(value)
    return State(name, f"next_{name}", along, members[0].cache, _initial(members, len(shape)))


def _initial(members: list[State], rank: int) -> Initial:
    """Return the stacked initial values of a group's states; each state has `rank` axes."""
    arrays = [np.asarray(member.initial) for member in members]
    full = [array if array.ndim else array.reshape([1] * rank) for array in arrays]
    return initial_of_array(np.stack(np.broadcast_arrays(*full), axis=1))


def _stack(insert: graphs.Inserter, values: list[ir.Value], name: str) -> ir.Value:
    """Stack values [batch, ...] to [batch, count, ...]."""
    axis = insert.int64s(1)
    rows = [insert.op("Unsqueeze", [value, axis], name=f"{value.name}_row") for value in values]
    return insert.op("Concat", rows, {"axis": 1}, name=name)


def _clean(model: ir.Model, carrier: ir.Value, values: list[ir.Value]) -> tuple[ir.Value, list[ir.Value]]:
    """Clean the packed state once, if the same selection cleans every member."""
    wheres = [readers[0] if len(readers) == 1 else None for readers in map(graphs.consumers_of, values)]
    first = wheres[0]
    same = first is not None and all(
        node is not None
        and graphs.is_op(node, "Where")
        and node.inputs[0] is first.inputs[0]
        and node.inputs[1] is value
        and node.inputs[2] is first.inputs[2]
        for node, value in zip(wheres, values, strict=True)
    )
    if not same or first is None or not _spans(first.inputs[0], values[0]):
        return carrier, values
    earliest = next(node for node in model.graph if node in wheres)
    insert = graphs.Inserter(model, PackStates.name, before=earliest)
    condition = insert.op(
        "Unsqueeze", [first.inputs[0], insert.int64s(1)], name=f"{carrier.name}_valid", dtype=ir.DataType.BOOL
    )
    clean = insert.op(
        "Where", [condition, carrier, first.inputs[2]], name=f"{carrier.name}_clean", shape=list(carrier.shape or ()),
        dtype=carrier.dtype,
    )  # fmt: skip
    return clean, [node.outputs[0] for node in wheres if node is not None]


def _spans(condition: ir.Value | None, value: ir.Value) -> bool:
    """Whether a condition has as many axes as a value, so that both can be stacked alike."""
    if condition is None or condition.shape is None or value.shape is None:
        return False
    return len(condition.shape) == len(value.shape)


def _unpack(model: ir.Model, clean: ir.Value, replaced: list[ir.Value]) -> None:
    """Split the packed state, and make the members' readers read the parts."""
    producer = clean.producer()
    before = _first_reader(model, replaced) if producer is None else None
    insert = graphs.Inserter(model, PackStates.name, before, after=producer)
    rows = [ir.Value(name=graphs.fresh_name(model.graph, f"{value.name}_row"), type=clean.type) for value in replaced]
    insert.place(
        ir.node("Split", [clean], {"axis": 1, "num_outputs": len(rows)}, outputs=rows, name=f"{clean.name}_split")
    )
    axis = insert.int64s(1)
    for row, value in zip(rows, replaced, strict=True):
        member = insert.op("Squeeze", [row, axis], name=f"{value.name}_member", shape=list(value.shape or ()))
        ir.convenience.replace_all_uses_with(value, member)


def _first_reader(model: ir.Model, values: list[ir.Value]) -> ir.Node | None:
    wanted = set(values)
    return next((node for node in model.graph if wanted & set(node.inputs)), None)


@dataclasses.dataclass(frozen=True)
class _Shift:
    """next = Slice(Concat(old, new), start, frames + start): drop the oldest, append the new."""

    new: ir.Value
    start: int
    frames: int


def _shift(output: ir.Value, old: ir.Value, state: State) -> _Shift | None:
    slice_node = output.producer()
    view = slice_of(slice_node)
    if state.frames_axis is None or view is None:
        return None
    join = view.data.producer()
    if not graphs.is_op(join, "Concat") or join is None or len(join.inputs) != 2 or join.inputs[0] is not old:
        return None
    frames, new = (old.shape or ())[state.frames_axis], join.inputs[1]
    if new is None or not isinstance(frames, int) or axis_of(join, len(old.shape or ())) != state.frames_axis:
        return None
    sliced = view.only_axis_slice(graphs.integers_of)
    if sliced is None or not isinstance(sliced.start, int) or (sliced.axis, sliced.step) != (state.frames_axis, 1):
        return None
    start = sliced.start
    if sliced.end != start + frames or not 0 <= start <= frames:
        return None
    return _Shift(new, start, frames) if new.shape is not None and new.shape[state.frames_axis] == start else None
