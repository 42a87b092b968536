"""Carry what is computed from a cache instead of the cache, so that no frame is projected twice.

Before:
    joined = Concat(cache, x); keys = MatMul(LayerNorm(joined), Wk)      # 128 old frames projected again in every call
After:
    keys = Concat(carried_keys, MatMul(LayerNorm(x), Wk))                # of LayerNorm(cache)

Requires: symbolic shapes; each cache is joined once, in front of the new frames, and fed back whole.
Ensures: no row-wise function of a cache is left; caches that nothing but their own output reads are gone.
Keeps: caches with other readers, and caches whose joined value is itself what mixes frames.
Numerics: exact up to the order of summation in a matrix product of other height: a row-wise f commutes with
    concatenation.
Source: f(Concat(a, b)) = Concat(f(a), f(b)) for row-wise f, as judged by the rule table; cached frames never change.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.analysis.pointwise import pointwise_axis
from compiler.errors import Place, Refused
from compiler.evaluate import open_session
from compiler.passes.window_states import rename_output
from compiler.stages import Array, Lowered, Outcome, Refusal, State, Window

TO_THE_END = 2**31 - 1
"""Exporters with 32-bit indices write this for "to the end of the axis"; no axis is that long."""


@dataclasses.dataclass(frozen=True)
class _Joined:
    """A value that is Concat(old, new) along `axis`: `old` lives in the map graph, `new` in the step graph.

    `is_projected` says whether a product lies between the cache and it.
    """

    old: ir.Value
    new: ir.Value
    axis: int
    is_projected: bool = False


class _Cache:
    """One cache on its way to being replaced: everything that is a row-wise function of it."""

    def __init__(self, state: State, join: ir.Node, window: Window) -> None:
        assert state.frames_axis is not None
        self.state = state
        self.join = join
        self.cached = house.symbol(window.axis)
        self.new_frames = window.step_frames
        self.input = join.inputs[0]
        assert self.input is not None and join.inputs[1] is not None
        self.map_input = ir.Value(name=state.input, shape=self.input.shape, type=self.input.type)
        self.map_nodes: list[ir.Node] = []
        self.new_nodes: list[tuple[ir.Node, ir.Node]] = []
        self.new_parts: list[tuple[ir.Value, ir.Value]] = []
        self.joined: dict[ir.Value, _Joined] = {
            join.outputs[0]: _Joined(self.map_input, join.inputs[1], state.frames_axis)
        }
        self.read_whole: list[ir.Value] = []
        self.lengths: list[ir.Node] = []

    @property
    def projects(self) -> bool:
        """Whether something that is read whole comes out of a product."""
        return any(self.joined[value].is_projected for value in self.read_whole)


@dataclasses.dataclass(frozen=True)
class CarryProjections:
    """Move row-wise functions from the joined axis to the new frames."""

    name: ClassVar[str] = "carry_projections"

    def apply(self, lowered: Lowered) -> Outcome:
        """Replace caches by what is computed from them, where that saves work."""
        window = lowered.window
        if window is None:
            return Outcome(lowered)
        if window.static:
            raise Refused("the cache axis is padded already", cure="put carry_projections before pad_axes")
        house.infer_shapes(lowered.model)
        caches, refused = _find(lowered, window)
        for cache in caches:
            _spread(lowered.model, cache)  # plans only; the graph changes below
        chosen = [cache for cache in caches if cache.projects or not cache.read_whole]
        if not any(cache.read_whole for cache in chosen):  # somebody must still know the length
            chosen = []
        if not chosen:
            return Outcome(lowered, matched=len(caches), refused=tuple(refused))
        for cache in chosen:
            _commit(lowered.model, cache)
        states, map_model = _replace(lowered, chosen)
        _rewire_lengths(lowered.model, chosen, states)
        house.prune(lowered.model)
        house.forget_shapes(lowered.model)
        house.infer_shapes(lowered.model)
        gone = {cache.state.input for cache in chosen}
        kept = tuple(state for state in lowered.states if state.input not in gone)
        new = dataclasses.replace(
            lowered,
            states=(*states, *kept),
            state_maps=(*lowered.state_maps, Projected(house.serialized(map_model), tuple(sorted(gone)))),
        )
        return Outcome(new, matched=len(caches), rewritten=len(chosen), refused=tuple(refused))


@dataclasses.dataclass(frozen=True)
class Projected:
    """State map: the carried values are computed from the caches by a small graph.

    Attributes:
        model: serialized ONNX graph from caches to carried values, dynamic along frames.
        gone: caches that are no longer states.
    """

    model: bytes
    gone: tuple[str, ...]

    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        """Map state values by input name; empty caches give empty values."""
        session = open_session(self.model)
        feeds = {value.name: states[value.name] for value in session.get_inputs()}
        kept = {name: array for name, array in states.items() if name not in self.gone}
        outputs = session.get_outputs()
        if any(array.size == 0 for array in feeds.values()):
            batch = next(iter(feeds.values())).shape[0]
            sizes = [
                [batch if i == 0 else d if isinstance(d, int) else 0 for i, d in enumerate(o.shape)] for o in outputs
            ]
            dtype = next(iter(feeds.values())).dtype
            empty = {o.name: np.zeros(size, dtype) for o, size in zip(outputs, sizes, strict=True)}
            return kept | empty
        names = [output.name for output in outputs]
        return kept | dict(zip(names, session.run(names, feeds), strict=True))


def _find(lowered: Lowered, window: Window) -> tuple[list[_Cache], list[Refusal]]:
    """The caches that are joined once, cache first, and fed back whole."""
    inputs, outputs = house.inputs_named(lowered.model), house.outputs_named(lowered.model)
    caches, refused = [], []
    for state in lowered.states:
        if state.frames_axis is None:
            continue
        value, output = inputs[state.input], outputs[state.output]
        readers = [node for node in house.consumers_of(value) if not house.is_op(node, "Shape")]
        join = readers[0] if len(readers) == 1 else None
        fits = (
            join is not None
            and house.is_op(join, "Concat")
            and len(join.inputs) == 2
            and join.inputs[0] is value
            and join.outputs[0] is output
            and house.int_attribute(join, "axis", 0) % len(value.shape or ()) == state.frames_axis
        )
        if fits and join is not None:
            caches.append(_Cache(state, join, window))
        else:
            reason = "the cache is not joined exactly once, in front of the new frames, and fed back whole"
            refused.append(Refusal(reason, Place(tensor=state.input, source=house.source_of(join))))
    return caches, refused


def _spread(model: ir.Model, cache: _Cache) -> None:
    """Follow row-wise functions of the joined value, splitting each into an old and a new half."""
    for node in house.nodes_of(model):
        if not any(value in cache.joined for value in node.inputs):
            continue
        if house.is_op(node, "Shape"):
            cache.lengths.append(node)
        elif not (_split(cache, node) or _is_new_part(cache, node)):
            for value in node.inputs:
                if value in cache.joined and value not in cache.read_whole:
                    cache.read_whole.append(value)
    for value in model.graph.outputs:
        if value in cache.joined and value is not cache.join.outputs[0] and value not in cache.read_whole:
            cache.read_whole.append(value)


def _commit(model: ir.Model, cache: _Cache) -> None:
    """Insert the new halves, and let slices of the new frames read them."""
    for node, new in cache.new_nodes:
        new.metadata_props[house.PASS_KEY] = CarryProjections.name
        new.outputs[0].name = house.fresh_name(model.graph, str(new.outputs[0].name))
        model.graph.insert_before(node, new)
    for old, new_half in cache.new_parts:
        ir.convenience.replace_all_uses_with(old, new_half)


def _is_new_part(cache: _Cache, node: ir.Node) -> bool:
    """A slice that keeps exactly the new frames: read the new half instead."""
    value = node.inputs[0]
    if not house.is_op(node, "Slice") or value not in cache.joined:
        return False
    axis = cache.joined[value].axis
    starts, ends = house.integers_of(node.inputs[1]), house.integers_of(node.inputs[2])
    axes = house.integers_of(node.inputs[3]) if len(node.inputs) > 3 else (0,)
    if starts is None or ends is None or axes is None or len(starts) != 1 or value.shape is None:
        return False
    length = cache.cached + cache.new_frames
    to_the_end = ends[0] == length or (isinstance(ends[0], int) and ends[0] >= TO_THE_END)
    if axes[0] not in (axis, axis - len(value.shape)) or not to_the_end:
        return False
    if starts[0] not in (cache.cached, -cache.new_frames):
        return False
    cache.new_parts.append((node.outputs[0], cache.joined[value].new))
    return True


def _split(cache: _Cache, node: ir.Node) -> bool:
    """Duplicate a row-wise node: once for old frames in the map graph, once for new frames here."""
    others = [value for value in node.inputs if value is not None and value not in cache.joined]
    if len(node.outputs) != 1 or any(house.array_of(value) is None for value in others) or None in node.inputs:
        return False
    positions = {i: cache.joined[value].axis for i, value in enumerate(node.inputs) if value in cache.joined}
    axis = pointwise_axis(node, positions)
    if axis is None or not _keeps_batch(cache, node.outputs[0]):
        return False
    if house.is_op(node, "Reshape"):
        target = house.array_of(node.inputs[1])
        if target is None or target[axis] not in (0, -1):
            return False
    old = _copy(node, [cache.joined[v].old if v in cache.joined else v for v in node.inputs], "old")
    new = _copy(node, [cache.joined[v].new if v in cache.joined else v for v in node.inputs], "new")
    cache.new_nodes.append((node, new))
    cache.map_nodes.append(old)
    is_projected = house.is_op(node, "MatMul") or any(
        cache.joined[value].is_projected for value in node.inputs if value in cache.joined
    )
    cache.joined[node.outputs[0]] = _Joined(old.outputs[0], new.outputs[0], axis, is_projected)
    return True


def _keeps_batch(cache: _Cache, value: ir.Value) -> bool:
    """Whether rows of the batch are still the first axis, as they must be in every state."""
    dims = house.dims_of(value)
    assert cache.input is not None and cache.input.shape is not None
    return bool(dims) and dims is not None and str(dims[0]) == str(cache.input.shape[0])


def _copy(node: ir.Node, inputs: list[ir.Value | None], half: str) -> ir.Node:
    output = ir.Value(name=f"{node.outputs[0].name}_{half}", type=node.outputs[0].type)
    return ir.Node(
        node.domain,
        node.op_type,
        inputs,
        list(node.attributes.values()),
        outputs=[output],
        name=f"{node.name}_{half}",
        metadata_props=dict(node.metadata_props),
    )


def _replace(lowered: Lowered, chosen: list[_Cache]) -> tuple[list[State], ir.Model]:
    """Swap inputs and outputs, materialise the joined values that are read whole, and build the map graph."""
    model = lowered.model
    outputs = house.outputs_named(model)
    states: list[State] = []
    map_inputs, map_outputs, map_nodes = [], [], []
    for cache in chosen:
        ir_outputs = list(model.graph.outputs)
        position = ir_outputs.index(outputs[cache.state.output])
        model.graph.outputs.pop(position)
        inserted: list[ir.Value] = []
        for count, value in enumerate(cache.read_whole):
            part = cache.joined[value]
            name = f"{cache.state.input}_carried_{count}"
            joined = _materialise(model, cache, value, part, name)
            states.append(State(name, f"next_{name}", part.axis))
            inserted.append(joined)
            old = part.old
            if old is cache.map_input:  # carried as it is, beside what is computed from it
                copy = ir.node("Identity", [old], outputs=[ir.Value(name=name, type=old.type)])
                cache.map_nodes.append(copy)
                old = copy.outputs[0]
            old.name = name
            old.shape = ir.Shape(_dims_at(value, part.axis, lowered.window))
            map_outputs.append(old)
        for offset, joined in enumerate(inserted):
            model.graph.outputs.insert(position + offset, joined)
        if inserted:
            map_inputs.append(cache.map_input)
            map_nodes.extend(cache.map_nodes)
        assert cache.input is not None
    initializers = {v.name: v for node in map_nodes for v in node.inputs if v is not None and v.is_initializer()}
    return states, _map_model(model, map_inputs, map_outputs, map_nodes, list(initializers.values()))


def _dims_at(value: ir.Value, axis: int, window: Window | None) -> list[int | ir.SymbolicDim]:
    """The shape of a joined value with only the cached frames along `axis`."""
    assert value.shape is not None and window is not None
    dims = list(value.shape)
    dims[axis] = ir.SymbolicDim(window.axis)
    return dims


def _materialise(model: ir.Model, cache: _Cache, value: ir.Value, part: _Joined, name: str) -> ir.Value:
    """Concat(carried input, new half) in the place of a joined value."""
    carried = ir.Value(name=name, type=value.type)
    assert value.shape is not None
    dims = list(value.shape)
    dims[part.axis] = ir.SymbolicDim(str(cache.cached))
    carried.shape = ir.Shape(dims)
    model.graph.inputs.append(carried)
    producer = value.producer()
    insert = house.Inserter(model, CarryProjections.name, before=producer, source=house.source_of(producer))
    joined = insert.op(
        "Concat",
        [carried, part.new],
        {"axis": part.axis},
        name=f"next_{name}",
        shape=list(value.shape),
        dtype=value.dtype,
    )
    for use in list(value.uses()):
        whole = use.node not in cache.lengths and use.node.outputs[0] not in cache.joined
        if whole:
            use.node.replace_input_with(use.idx, joined)
    if value in model.graph.outputs:  # a result of the model besides the state
        copy = insert.op("Identity", [joined], name=f"{value.name}_whole", shape=list(value.shape), dtype=value.dtype)
        rename_output(model, value, copy, str(value.name))
    return joined


def _map_model(
    model: ir.Model, inputs: list[ir.Value], outputs: list[ir.Value], nodes: list[ir.Node], weights: list[ir.Value]
) -> ir.Model:
    """The graph from caches to carried values, with its own copies of the weights."""
    copies = {
        weight: ir.Value(name=weight.name, const_value=weight.const_value, shape=weight.shape, type=weight.type)
        for weight in weights
    }
    for node in nodes:
        for index, value in enumerate(node.inputs):
            if value in copies:
                node.replace_input_with(index, copies[value])
    graph = ir.Graph(
        inputs,
        outputs,
        nodes=nodes,
        initializers=list(copies.values()),
        opset_imports=dict(model.opset_imports),
        name="map",
    )
    whole = ir.Model(graph, ir_version=model.ir_version)
    house.prune(whole)
    return whole


def _rewire_lengths(model: ir.Model, chosen: list[_Cache], states: list[State]) -> None:
    """Read cache lengths from a carried state, and dimensions of caches that are gone from other inputs."""
    inputs = house.inputs_named(model)
    carried = states[0]
    assert carried.frames_axis is not None
    source = inputs[carried.input]
    joined = house.outputs_named(model)[carried.output]
    for cache in chosen:
        assert cache.input is not None
        cached = [node for node in house.consumers_of(cache.input) if house.is_op(node, "Shape")]
        for nodes, replacement in ((cached, source), (cache.lengths, joined)):
            for node in nodes:
                _rewire(model, cache, node, replacement, carried.frames_axis)
        model.graph.inputs.remove(cache.input)


def _rewire(model: ir.Model, cache: _Cache, node: ir.Node, replacement: ir.Value, axis: int) -> None:
    read = node.inputs[0]
    assert read is not None and read.shape is not None
    own = cache.joined[read].axis if read in cache.joined else cache.state.frames_axis
    producer = replacement.producer()
    insert = house.Inserter(model, CarryProjections.name, before=node, source=house.source_of(node))
    if producer is not None:
        insert = house.Inserter(
            model, CarryProjections.name, before=house.node_after(model, producer), source=house.source_of(node)
        )
    sizes = []
    for position in house.dims_read(node, len(read.shape)):
        fixed = read.shape[position]
        if isinstance(fixed, int):
            sizes.append(insert.int64s(fixed))
            continue
        if position not in (own, 0):
            raise Refused(
                f"dimension {position} of the cache {cache.state.input!r} is read as a number",
                cure="remove carry_projections from the recipe",
                place=Place(node=str(node.name), op="Shape", source=house.source_of(node)),
            )
        at = axis if position == own else 0
        size = insert.op("Shape", [replacement], {"start": at, "end": at + 1}, name=f"{node.outputs[0].name}_carried")
        size.dtype = ir.DataType.INT64
        sizes.append(size)
    whole = (
        sizes[0] if len(sizes) == 1 else insert.op("Concat", sizes, {"axis": 0}, name=f"{node.outputs[0].name}_joined")
    )
    ir.convenience.replace_all_uses_with(node.outputs[0], whole)
