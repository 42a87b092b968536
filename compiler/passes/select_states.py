"""Choose what to carry from call to call so that a step does the least work: a minimum cut over what is stable.

Before:
    joined = Concat(cache, x); keys = MatMul(LayerNorm(joined), Wk)      # 128 old frames projected again in every call
After:
    keys = Concat(carried_keys, MatMul(LayerNorm(x), Wk))                # of LayerNorm(cache)

Every value that is computed from caches frame by frame can be carried instead of them: its operators then run on the
new frames alone, but its frames are read, joined, cut and written in every call. What is not carried is computed again
for all frames from what is carried before it. Both are priced in time, by shapes and two rates of a machine
(compiler/analysis/streaming/state_network.py), and the cheapest way to have every value that mixes frames is a minimum
cut (compiler/analysis/streaming/carrying_cut.py): the optimum at these prices. With `memory_mb` the states must fit:
bytes get a price beside their time, the lowest at which they do, and the choice is the optimum at that price: no choice
of as few bytes costs less, though one of more bytes that still fits may.

Requires: symbolic shapes; each cache is joined once, in front of the new frames, and fed back whole.
Ensures: the work and transfers of a step, as priced, are the least; caches that nothing needs are gone.
Keeps: caches that are the best thing to carry, and everything that is not computed from caches frame by frame.
Numerics: exact up to the order of summation in a matrix product of other height: a row-wise f commutes with
    concatenation.
Source: f(Concat(a, b)) = Concat(f(a), f(b)) for row-wise f, as judged by the rule table; cached frames never change.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import onnx_ir as ir
import onnxruntime

from compiler import ir as house
from compiler.analysis.operator_costs import Rates, bytes_of
from compiler.analysis.streaming.carrying_cut import choose
from compiler.analysis.streaming.stable import Cache, Stable, find_caches, is_constant
from compiler.analysis.streaming.state_network import MEGA, figures, network_of
from compiler.errors import RecipeError, Refused
from compiler.passes.window_states import rename_output
from compiler.runners.session import open_session
from compiler.stages import Array, Lowered, Outcome, State, StateMap, require_lowered
from runtime_lite.format.cache_axis import CacheAxis


@dataclasses.dataclass(frozen=True)
class SelectStates:
    """Carry what makes the step cheapest.

    Attributes:
        memory_mb: the most that the states of one stream may hold, in units of 1e6 bytes, or None.
        multiply_adds_per_s: what the target does in a second.
        bytes_per_s: what it reads or writes in a second.

    Raises:
        RecipeError: an option is not a number above 0.
    """

    name: ClassVar[str] = "select_states"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("add_batch_axis", "merge_first_call")
    expensive: ClassVar[bool] = False
    memory_mb: float | None = None
    multiply_adds_per_s: float = Rates.multiply_adds
    bytes_per_s: float = Rates.bytes

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and not 0 < value < math.inf:
                raise RecipeError(f"{field.name}: expected a number above 0, got {value!r}", cure="change the value")

    def apply(self, lowered: Lowered) -> Outcome:
        """Replace caches by what is cheaper to carry.

        Raises:
            Refused: a cache axis is of a kind that is not lowered yet, or not even the smallest
                states fit the memory.
        """
        if len(lowered.caches) > 1 and self.memory_mb is not None:
            axes = ", ".join(cache.axis for cache in lowered.caches)
            cure = "drop memory_mb, or name the axis of all caches alike"
            raise Refused(f"memory_mb is not shared out between several cache axes yet ({axes})", cure=cure)
        if not lowered.caches:
            fixed = _fixed_bytes(lowered, ())
            self._require_room(fixed, fixed)
        made = Outcome(lowered)
        for along in lowered.caches:
            require_lowered(along)
            made = _together(made, self._choose(made.lowered, along))
        return made

    def _choose(self, lowered: Lowered, along: CacheAxis) -> Outcome:
        """Of the caches along one axis; those along others are states without a choice."""
        house.infer_shapes(lowered.model)
        caches, refused = find_caches(lowered, along)
        fixed = _fixed_bytes(lowered, caches)
        if not caches:
            self._require_room(fixed, fixed)
            return Outcome(lowered, refused=refused)
        stable = Stable(lowered.model, caches, along)
        network = network_of(stable, Rates(self.multiply_adds_per_s, self.bytes_per_s))
        choice = choose(network, None if self.memory_mb is None else self._room - fixed)
        self._require_room(choice.held + fixed, fixed)
        kept = [cache for cache in caches if cache.joined.name in choice.carried]
        if not choice.carried or len(kept) == len(caches) == len(choice.carried):  # somebody must know the length
            return Outcome(lowered, matched=len(caches), refused=refused)
        detail = figures(stable, choice, fixed)
        again = {stable.operators[index] for index in choice.again}
        split = _Split(lowered.model, stable, frozenset(choice.carried), again)
        changed = split.write()
        gone = tuple(sorted(cache.state.input for cache in caches if cache not in kept))
        new = dataclasses.replace(
            lowered,
            states=(*split.states, *(state for state in lowered.states if state.input not in gone)),
            state_maps=(*lowered.state_maps, Projected(split.map_content, gone)),
        )
        return Outcome(new, matched=len(caches), rewritten=changed, refused=refused, detail=detail)

    @property
    def _room(self) -> int:
        """Bytes that the states of one stream may hold."""
        assert self.memory_mb is not None
        return round(MEGA * self.memory_mb)

    def _require_room(self, held: int, fixed: int) -> None:
        if self.memory_mb is not None and held > self._room:
            raise Refused(
                f"expected states of at most {self.memory_mb:g} MB for one stream, got {held / MEGA:g} MB at least, "
                f"of which {fixed / MEGA:g} MB are states without a choice",
                cure=f"allow memory_mb: {held / MEGA:g}, or give the cache fewer slots",
            )


def _together(one: Outcome, other: Outcome) -> Outcome:
    """What was done along one axis after another."""
    return Outcome(
        other.lowered,
        one.matched + other.matched,
        one.rewritten + other.rewritten,
        (*one.refused, *other.refused),
        detail="; ".join(detail for detail in (one.detail, other.detail) if detail),
    )


def _fixed_bytes(lowered: Lowered, caches: tuple[Cache, ...]) -> int:
    """Bytes of the states of one stream that the pass has no say in."""
    chosen = {cache.state.input for cache in caches}
    sizes = {cache.axis: cache.slots for cache in lowered.caches}
    inputs = house.inputs_named(lowered.model)
    return bytes_of([inputs[state.input] for state in lowered.states if state.input not in chosen], sizes)


@dataclasses.dataclass(frozen=True)
class Projected(StateMap):
    """State map: the carried values are computed from the caches by a small graph.

    Attributes:
        model: serialized ONNX graph from caches to carried values, dynamic along frames; empty when there are none.
        gone: caches that are no longer states.
    """

    model: bytes
    gone: tuple[str, ...]

    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        """Map state values by input name; empty caches give empty values."""
        kept = {name: array for name, array in states.items() if name not in self.gone}
        if not self.model:
            return kept
        feeds = {value.name: states[value.name] for value in self._session.get_inputs()}
        if any(array.size == 0 for array in feeds.values()):
            rows = next(iter(feeds.values())).shape[0]
            return kept | {str(o.name): _empty(o, rows) for o in house.deserialized(self.model).graph.outputs}
        names = [output.name for output in self._session.get_outputs()]
        return kept | dict(zip(names, self._session.run(names, feeds), strict=True))

    @functools.cached_property
    def _session(self) -> onnxruntime.InferenceSession:
        """One for all calls: the map is applied to every step after every pass, and opening it takes longer."""
        return open_session(self.model)


def _empty(value: ir.Value, rows: int) -> Array:
    assert value.shape is not None and value.dtype is not None
    sizes = [rows if at == 0 else dim if isinstance(dim, int) else 0 for at, dim in enumerate(value.shape)]
    return np.zeros(sizes, value.dtype.numpy())


class _Split:
    """The graph while operators move from all frames to the new ones.

    Args:
        model: the graph.
        stable: what is stable in it.
        carried: names of the values to carry; those of joined caches stay states as they are.
        again: operators that go on running on all frames.
    """

    def __init__(self, model: ir.Model, stable: Stable, carried: frozenset[str], again: set[ir.Node]) -> None:
        self.model, self.stable, self.again = model, stable, again
        self.caches = {cache.joined: cache for cache in stable.caches}
        self.kept = [cache for cache in stable.caches if cache.joined.name in carried]
        self.carried = [value for value in stable.axes if value.name in carried and value not in self.caches]
        self.states: list[State] = []
        self.map_content = b""
        self.new: dict[ir.Value, ir.Value] = {cache.joined: cache.new for cache in stable.caches}

    def write(self) -> int:
        """Rewrite the graph; the number of caches that are gone, or that something is carried beside."""
        owners = {value: self._owner(value) for value in self.carried}
        inputs = {value: self._carry(value, owners[value]) for value in self.carried}
        for node in self.stable.newest:
            self._read_new_half(node)
        reference = [(cache.old, cache.axis) for cache in self.kept] + [
            (inputs[value], self.stable.axes[value]) for value in self.carried
        ]
        gone = [cache for cache in self.stable.caches if cache not in self.kept]
        shapes = [node for cache in gone for node in house.consumers_of(cache.old) if house.is_op(node, "Shape")]
        for node in shapes + [node for node in self.stable.lengths if not self._is_whole(node.inputs[0])]:
            self._read_length(node, *reference[0])
        if self.carried:
            names = [str(inputs[value].name) for value in self.carried]
            self.map_content = house.serialized(_Map(self.model, self.stable).model(self.carried, names))
        for cache in gone:
            self.model.graph.outputs.remove(cache.joined)
        house.prune(self.model)
        for cache in gone:
            self.model.graph.inputs.remove(cache.old)
        house.forget_shapes(self.model)
        house.infer_shapes(self.model)
        return len({cache.state.input for cache in (*gone, *owners.values())})

    def _is_whole(self, value: ir.Value | None) -> bool:
        """Whether a value is still there with all frames, under its own name."""
        assert value is not None
        return value.producer() in self.again or any(value is cache.joined for cache in self.kept)

    def _owner(self, value: ir.Value) -> Cache:
        """The first cache that a value is computed from."""
        front, seen = [value], set()
        while front:
            each = front.pop()
            seen.add(each)
            node = each.producer()
            if each not in self.caches and node is not None:
                front += [operand for operand in node.inputs if operand in self.stable.axes and operand not in seen]
        return next(cache for cache in self.stable.caches if cache.joined in seen)

    def _new(self, value: ir.Value) -> ir.Value:
        """The new frames of a stable value: cut from the whole where it is there, else computed from new frames."""
        if value in self.new:
            return self.new[value]
        node, axis = value.producer(), self.stable.axes[value]
        assert node is not None
        if node in self.again:
            frames = -self.stable.along.step
            insert = house.Inserter(self.model, SelectStates.name, after=node)
            bounds = [insert.int64s(frames), insert.int64s(house.END), insert.int64s(axis)]
            self.new[value] = insert.op("Slice", [value, *bounds], name=f"{value.name}_new", dtype=value.dtype)
            return self.new[value]
        inputs = [self._new(each) if each is not None and each in self.stable.axes else each for each in node.inputs]
        names = [house.fresh_name(self.model.graph, f"{output.name}_new") for output in node.outputs]
        copy = _copy(node, inputs, names)
        house.Inserter(self.model, SelectStates.name, before=node).place(copy)
        self.new |= zip(node.outputs, copy.outputs, strict=True)
        return self.new[value]

    def _carry(self, value: ir.Value, owner: Cache) -> ir.Value:
        """Make a value a state, join its new frames to it, and let all who need it whole read that; the input."""
        graph, axis, node = self.model.graph, self.stable.axes[value], value.producer()
        assert value.shape is not None and node is not None
        count = sum(state.input.startswith(f"{owner.state.input}_carried_") for state in self.states)
        name = house.fresh_name(graph, f"{owner.state.input}_carried_{count}")
        dims = list(value.shape)
        dims[axis] = ir.SymbolicDim(self.stable.along.axis)
        state = ir.Value(name=name, type=value.type, shape=ir.Shape(dims))
        graph.inputs.append(state)
        new = self._new(value)
        insert = house.Inserter(self.model, SelectStates.name, before=node)
        joined = insert.op(
            "Concat", [state, new], {"axis": axis}, name=f"next_{name}", shape=list(value.shape), dtype=value.dtype
        )
        self.states.append(State(name, str(joined.name), axis, self.stable.along.axis))
        on_new_frames = {*self.stable.operators, *self.stable.lengths, *self.stable.newest} - self.again
        for use in list(value.uses()):
            if use.node not in on_new_frames:
                use.node.replace_input_with(use.idx, joined)
        if value in graph.outputs:  # a result of the model besides the state
            shape = list(value.shape)
            copy = insert.op("Identity", [joined], name=f"{value.name}_whole", shape=shape, dtype=value.dtype)
            rename_output(self.model, value, copy, str(value.name))
        outputs = [str(output.name) for output in graph.outputs]
        graph.outputs.insert(outputs.index(owner.state.output) + 1 + count, joined)
        return state

    def _read_new_half(self, node: ir.Node) -> None:
        """Let who reads a slice of the new frames read them as they are computed."""
        value, cut = node.inputs[0], node.outputs[0]
        assert value is not None
        if self._is_whole(value):
            return
        new = self._new(value)
        if cut in self.model.graph.outputs:
            insert = house.Inserter(self.model, SelectStates.name, before=node)
            new = insert.op("Identity", [new], name=f"{cut.name}_new", dtype=cut.dtype)
        house.take_over(self.model, cut, new)

    def _read_length(self, node: ir.Node, state: ir.Value, axis: int) -> None:
        """Compute what a Shape node reads from a state that is there: rows, and cached frames plus new ones."""
        value = node.inputs[0]
        assert value is not None and value.shape is not None
        own = self.stable.axes.get(value)
        cache = next((cache for cache in self.stable.caches if cache.old is value), None)
        insert = house.Inserter(self.model, SelectStates.name, before=node)

        def size(at: int) -> ir.Value:
            known = value.shape[at]  # type: ignore[index]
            if isinstance(known, int):
                return insert.int64s(known)
            frames = at == own or (cache is not None and at == cache.axis)
            start = axis if frames else 0
            bounds = {"start": start, "end": start + 1}
            name = f"{node.outputs[0].name}_{at}"
            read = insert.op("Shape", [state], bounds, name=name, dtype=ir.DataType.INT64)
            if not frames or own is None:
                return read
            return insert.op("Add", [read, insert.int64s(self.stable.along.step)], name=f"{name}_joined")

        sizes = [size(at) for at in house.dims_read(node, len(value.shape))]
        whole = sizes[0]
        if len(sizes) != 1:
            whole = insert.op("Concat", sizes, {"axis": 0}, name=f"{node.outputs[0].name}_sizes")
        house.take_over(self.model, node.outputs[0], whole)


class _Map:
    """The graph from caches to carried values, with its own copies of the weights."""

    def __init__(self, model: ir.Model, stable: Stable) -> None:
        self.origin, self.stable = model, stable
        self.inputs: dict[ir.Value, ir.Value] = {}
        self.nodes: list[ir.Node] = []
        self.weights: list[ir.Value] = []
        self.copies: dict[ir.Value, ir.Value] = {}

    def model(self, values: list[ir.Value], names: list[str]) -> ir.Model:
        """The graph whose outputs are the old frames of some values, under new names."""
        outputs = [self._old(value) for value in values]
        for value, output, name in zip(values, outputs, names, strict=True):
            assert value.shape is not None
            dims = list(value.shape)
            dims[self.stable.axes[value]] = ir.SymbolicDim(self.stable.along.axis)
            output.name, output.shape, output.type = name, ir.Shape(dims), value.type
        graph = ir.Graph(
            list(self.inputs.values()),
            outputs,
            nodes=self.nodes,
            initializers=self.weights,
            opset_imports=dict(self.origin.opset_imports),
            name="map",
        )
        return ir.Model(graph, ir_version=self.origin.ir_version)

    def _old(self, value: ir.Value) -> ir.Value:
        """The old frames of a stable value, or a copy of a constant."""
        if value in self.copies:
            return self.copies[value]
        cache = next((cache for cache in self.stable.caches if cache.joined is value), None)
        node = value.producer()
        if cache is not None:
            copy = ir.Value(name=cache.state.input, shape=cache.old.shape, type=cache.old.type)
            self.inputs[value] = copy
        elif house.array_of(value) is not None:
            tensor = ir.convenience.get_const_tensor(value)
            copy = ir.Value(name=value.name, const_value=tensor, shape=value.shape, type=value.type)
            self.weights.append(copy)
        else:
            assert node is not None and (value in self.stable.axes or is_constant(value))
            made = _copy(
                node,
                [None if operand is None else self._old(operand) for operand in node.inputs],
                [str(output.name) for output in node.outputs],
            )
            self.nodes.append(made)
            self.copies |= zip(node.outputs, made.outputs, strict=True)
            return self.copies[value]
        self.copies[value] = copy
        return copy


def _copy(node: ir.Node, inputs: list[ir.Value | None], names: list[str]) -> ir.Node:
    """The same operator on other operands, its results under other names."""
    return ir.Node(
        node.domain,
        node.op_type,
        inputs,
        list(node.attributes.values()),
        outputs=[ir.Value(name=name, type=value.type) for name, value in zip(names, node.outputs, strict=True)],
        name=f"{names[0]}_node",
        metadata_props=dict(node.metadata_props),
    )
