"""Makes the graph that the first pass receives: adds the recipe's states and axes to the captured graph."""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import sympy

from compiler.build.capture.appended_frames import append_frames
from compiler.build.capture.counts import add_counts, count_states, frames_counted, start_counts
from compiler.build.capture.fed_numbers import ranges_of_lookups
from compiler.build.capture.held_states import hold_states
from compiler.build.capture.shapes_at_work import shapes_at_work
from compiler.errors import Location, RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.sizes.growth import grows_by
from compiler.graph.stages import Lowered, PaddedAxis, RowAxis, State
from compiler.proof.facts.lookup_ranges import Ranges
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Input
from compiler.recipe.load import RecipeLocation
from compiler.states.kept_frames import keep_newest
from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.format.initial_value import Initial, initial_of_array

ROWS = (3, 5)
"""Of two calls that tell where an output has its rows."""

UNKNOWN = sympy.Dummy("unknown")
"""A size that inference does not know."""


def initial_graph(
    location: RecipeLocation,
    graph: str,
    spec: Graph,
    models: tuple[ir.Model, ir.Model | None],
    steps: int,
    longest: Mapping[str, int],
) -> Lowered:
    """Return the captured graph with the recipe's states and axes.

    Args:
        location: paths and keys of the recipe.
        graph: the graph's name.
        spec: the graph's record.
        models: graphs of later calls and, where it is another, of the first call.
        steps: number of chained steps in the parity gate.
        longest: the largest bucket of every axis; refusals alone depend on it.

    Raises:
        Refused: the graph contradicts the recipe.
        RecipeError: the steps are too few to see a cache overflow, or a window is smaller than the frames of a call.
    """
    model, first = models
    for captured in models:
        if captured is not None:
            graphs.infer_shapes(captured)
    states = states_of(spec)
    given_rows = _row_axes(spec, model)
    append_frames(model, spec, [(state, _graph_axis(state, given_rows)) for state in states])
    given_back = [state for state in states if state.output in graphs.outputs_named(model)]  # counts are added below
    windows = {name: axis_spec.window for name, axis_spec in spec.axes.items() if axis_spec.window is not None}
    _check_state_sizes(model, given_back, given_rows, graph, {**dict.fromkeys(spec.axes, 2), **windows, **longest})
    caches = _caches(spec, graph, model, states, given_rows)
    counted = frames_counted(spec, {cache.axis: added_by_call(cache) for cache in caches})
    if first is not None:
        start_counts(first, spec, counted, graphs.inputs_named(model))
    add_counts(model, spec, counted)
    rows = _row_axes(spec, model)
    for cache in caches if spec.derive_steps is None else ():
        check_window(location, graph, cache, max(cache.frames_of(longest), 1), steps)
    if spec.batch is not None and not spec.is_for_one_row:
        _check_rows_first(model, spec.batch, {row_axis.tensor for row_axis in rows}, graph)
    fed_back = {state.output for state in states}
    data_outputs = tuple(name for name in spec.outputs if name not in fed_back)
    padded = padded_axes_of(spec)
    for axis in spec.axes.values():
        for name in (axis.length_input, axis.mask_input):
            if name is not None and name not in spec.inputs and name not in spec.outputs:
                _free(models, name)
    for cache in caches:
        if cache.added is not None:
            axes = {state.output: _graph_axis(state, rows) for state in states if state.cache == cache.axis}
            growing = {output: axis for output, axis in axes.items() if axis is not None}
            for captured in (captured for captured in models if captured is not None):
                keep_newest(captured, cache.slots, growing)
    for captured in (captured for captured in models if captured is not None and spec.held):
        hold_states(captured, spec)
    ranges = _ranges(spec, graph, model, states)
    return Lowered(
        graph,
        model,
        first,
        states,
        caches,
        spec.batch,
        data_outputs,
        padded_axes=padded,
        row_axes=rows,
        ranges=ranges,
    )


def _ranges(spec: Graph, graph: str, model: ir.Model, states: Sequence[State]) -> Ranges:
    """Return the ranges of integers that inputs hold; for derived steps, those checked in the whole graph."""
    try:
        return ranges_of_lookups(model, spec, states)
    except Refused as refused:
        raise refused.at(stage="capture", graph=graph) from None


def _free(models: Sequence[ir.Model | None], name: str) -> None:
    """Rename values inside graphs whose name is that of an input to be added."""
    for model in models:
        if model is None or name not in graphs.names_taken(model.graph):
            continue
        weight = model.graph.initializers.pop(name, None)
        values = [weight] if weight is not None else [each for node in model.graph for each in node.outputs]
        for value in values:
            if value.name == name:
                value.name = graphs.fresh_name(model.graph, name)
        if weight is not None:
            model.graph.register_initializer(weight)


def states_of(spec: Graph) -> tuple[State, ...]:
    """Return the states that a recipe declares, each with its cache axis, followed by counts."""
    found = []
    for name, given in spec.inputs.items():
        if given.state is not None:
            caches = ((at, dim) for at, dim in enumerate(given.shape) if isinstance(dim, str) and dim in spec.caches)
            along, cache = next(caches, (None, None))
            found.append(State(name, given.state, along, cache, _begins(name, given)))
    return (*found, *count_states(spec))


def _begins(name: str, given: Input) -> Initial:
    """Return the initial value of a state, with the batch as first axis."""
    assert not isinstance(given.initial, str), "files of first states are read before anything is captured"
    if given.initial is None or given.original is None or not isinstance(given.initial, tuple):
        return 0 if given.initial is None else given.initial
    return initial_of_array(RowAxis(name, given.row_axis).to_caller(np.asarray(given.initial)))


def padded_axes_of(spec: Graph) -> tuple[PaddedAxis, ...]:
    """Return the axes with a length per row, with the mask and length inputs of each."""
    return tuple(_padded_axis(spec, axis) for axis in spec.padded)


def _padded_axis(spec: Graph, axis: str) -> PaddedAxis:
    length_input, is_held = spec.axes[axis].length_input, axis in spec.held
    assert length_input is not None
    return PaddedAxis(
        axis,
        length_input,
        mask_inputs=tuple(name for name, input_spec in spec.inputs.items() if input_spec.mask_of == axis),
        pad_mask_inputs=tuple(name for name, input_spec in spec.inputs.items() if input_spec.pad_mask_of == axis),
        length_inputs=tuple(name for name, input_spec in spec.inputs.items() if input_spec.length_of == axis),
        maximum=spec.slots(axis) if is_held else None,
        limited_by="states lie along it" if is_held else "",
        is_held=is_held,
    )


def _caches(
    spec: Graph, graph: str, model: ir.Model, states: Sequence[State], row_axes: Sequence[RowAxis]
) -> tuple[CacheAxis, ...]:
    """Return the cache axes that a recipe declares, with the number of frames that a call adds along each."""
    found = []
    for name in spec.caches:
        frames = step_frames(model, states, row_axes, name, graph)
        _require_size(model, frames, spec.axes, name, graph)
        found.append(cache_axis(spec, name, *_formula(frames, name, graph, spec.padded)))
    return tuple(found)


def cache_axis(spec: Graph, name: str, step: int, added: str | None = None) -> CacheAxis:
    """Return the record of a window along which a call adds a fixed or a computed number of frames."""
    axis = spec.caches[name]
    assert axis.window is not None and axis.length_input is not None  # as every window has
    return CacheAxis(
        name,
        axis.window,
        step,
        axis.length_input,
        axis.mask_input,
        added=added,
        is_whole=spec.derive_steps is not None,
        chunk=1 if spec.derive_steps is None else spec.derive_steps.chunk,
    )


def added_by_call(cache: CacheAxis) -> Dim:
    """Return the number of frames that a call adds along a window, as an expression over its lengths."""
    return cache.step if cache.added is None else graphs.expression(cache.added)


def check_window(location: RecipeLocation, graph: str, cache: CacheAxis, frames: int, steps: int) -> None:
    """Refuse a window that holds fewer frames than a call adds, or that never overflows in the parity gate.

    Args:
        location: paths and keys of the recipe.
        graph: the graph's name.
        cache: the window.
        frames: number of frames that the longest call adds.
        steps: number of chained steps in the parity gate.

    Raises:
        RecipeError: the window is refused; the message has the recipe's line.
    """
    _check_room(location, graph, cache, frames)
    _check_overflow(location, graph, cache, frames, steps)


def _require_size(model: ir.Model, frames: Dim, axes: Collection[str], axis: str, graph: str) -> None:
    """Refuse a number of new frames that depends on no axis, naming the node that produces it."""
    unknown = () if isinstance(frames, int) else [symbol for symbol in frames.free_symbols if str(symbol) not in axes]
    for node in model.graph if unknown else ():
        sizes = [size for value in node.outputs for size in graphs.dims_of(value) or ()]
        if any(graphs.mentions(size, str(symbol)) for size in sizes for symbol in unknown):
            raise Refused(
                f"how many frames a call adds to the caches along {axis!r} is not known from the sizes of its inputs: "
                f"it depends on what {node.op_type} gives here",
                cure="let their number follow from shapes alone: cut with fixed bounds, or mask frames, and keep them",
                place=Location(
                    "capture", graph, str(node.name), node.op_type, axis=axis, source=graphs.source_of(node)
                ),
            )


def _formula(frames: Dim, axis: str, graph: str, counted: Collection[str]) -> tuple[int, str | None]:
    """Return the step of a cache axis, and a formula where a call's frames depend on its lengths.

    Raises:
        Refused: the number depends on something else.
    """
    if isinstance(frames, int):
        return frames, None
    if {str(symbol) for symbol in frames.free_symbols} <= set(counted):
        with contextlib.suppress(ValueError):
            return 1, graphs.written(frames)
    raise Refused(
        f"a call adds {frames} frames to the caches along {axis!r}, which no length of its chunks tells",
        cure=NEW_FRAMES_CURE,
    ).at(graph=graph, axis=axis, stage="capture")


def _check_room(location: RecipeLocation, graph: str, cache: CacheAxis, frames: int) -> None:
    """Require that a window holds at least the frames of one call, which the first call adds at once."""
    if cache.slots < frames:
        call = "every call" if cache.added is None else "the longest chunk"
        raise RecipeError(
            f"{location.where('graphs', graph, 'axes', cache.axis, 'window')}: expected at least {frames} slots, "
            f"as {call} adds {frames} frames, got {cache.slots}",
            cure=f"write {frames} or more",
        )


def _check_overflow(location: RecipeLocation, graph: str, cache: CacheAxis, frames: int, steps: int) -> None:
    """Require enough chained steps in the parity gate for a cache to overflow."""
    needed = cache.slots // frames + 2
    if steps < needed:
        raise RecipeError(
            f"{location.where('gates', 'parity', graph, 'chained_steps')}: expected at least {needed} "
            f"steps, so that a window of {cache.slots} frames overflows at {frames} per call, got {steps}",
            cure=f"write {needed} or more, and yield a stream that long",
        )


def _check_rows_first(model: ir.Model, batch: str, moved: Collection[str], graph: str) -> None:
    """Require that the axis with buckets is the first axis of every input and output."""
    for value in (*model.graph.inputs, *model.graph.outputs):
        dims = graphs.dims_of(value)
        if dims is None or str(value.name) in moved or (dims and dims[0] == graphs.symbol(batch)):
            continue
        if not dims or isinstance(dims[0], int) or graphs.symbol(batch) in dims[1:]:
            raise Refused(
                f"expected {batch!r}, the axis with buckets, in front of {value.name}, got {list(dims)}",
                cure="transpose the model's inputs and outputs, or fix the axis",
                place=Location(stage="capture", graph=graph, tensor=str(value.name), axis=batch),
            )


def _row_axes(spec: Graph, model: ir.Model) -> tuple[RowAxis, ...]:
    """Return where an original for one row has its batch axis, by tensor."""
    moved = {
        name: RowAxis(name, input_spec.row_axis)
        for name, input_spec in spec.inputs.items()
        if input_spec.original is not None
    }
    if not spec.is_for_one_row:
        return (*moved.values(), *_rows_elsewhere(spec, model))
    inputs = moved
    fed = {state.output: inputs[state.input].axis for state in states_of(spec)}
    first = _first_sizes(spec, model)
    outputs = [
        RowAxis(name, fed[name] if name in fed else 0 if first[name] == 1 else None)
        for name in graphs.outputs_named(model)
    ]
    return (*inputs.values(), *outputs)


def _first_sizes(spec: Graph, model: ir.Model) -> dict[str, Dim | None]:
    """Return the size of the first axis of every output; where inference does not know it, that of a call."""
    found: dict[str, Dim | None] = {}
    for name, value in graphs.outputs_named(model).items():
        dims = graphs.dims_of(value)
        known = dims is not None and (not dims or isinstance(dims[0], int) or _is_named(dims[0], spec))
        found[name] = (dims[0] if dims else None) if known and dims is not None else UNKNOWN
    if UNKNOWN not in found.values():
        return found
    shapes = shapes_at_work(model, spec)
    return {name: next(iter(shapes.get(name, ())), None) if size is UNKNOWN else size for name, size in found.items()}


def _is_named(size: Dim, spec: Graph) -> bool:
    return all(str(each) in spec.axes for each in sympy.sympify(size).free_symbols)


def _rows_elsewhere(spec: Graph, model: ir.Model) -> Iterator[RowAxis]:
    """Yield the outputs whose batch is not their first axis, with that axis."""
    fed = {state.output: spec.inputs[state.input] for state in states_of(spec) if state.input in spec.inputs}
    for name in graphs.outputs_named(model):
        given = fed.get(name)
        at = _batch_of(name, spec, model) if given is None else None if given.original is None else given.row_axis
        if at:
            yield RowAxis(name, at)


def _batch_of(name: str, spec: Graph, model: ir.Model) -> int | None:
    """Return the batch axis of an output, from inferred sizes or from calls with different numbers of rows."""
    dims = graphs.dims_of(graphs.outputs_named(model)[name])
    if spec.batch is None:
        return None
    if dims is not None and all(isinstance(dim, int) or _is_named(dim, spec) for dim in dims):
        places = [at for at, dim in enumerate(dims) if dim == graphs.symbol(spec.batch)]
    else:
        few, more = (shapes_at_work(model, spec, {spec.batch: rows}).get(name, ()) for rows in ROWS)
        places = [at for at, sizes in enumerate(zip(few, more, strict=False)) if sizes == ROWS]
    return places[0] if len(places) == 1 else None


def _graph_axis(state: State, row_axes: Sequence[RowAxis]) -> int | None:
    """Return the frames axis of a state in the captured graph; None for a state without one."""
    place = next((each for each in row_axes if each.tensor == state.input), None)
    return state.frames_axis if place is None or state.frames_axis is None else place.axis_of(state.frames_axis)


def _check_state_sizes(
    model: ir.Model, states: Sequence[State], row_axes: Sequence[RowAxis], graph: str, lengths: Mapping[str, int]
) -> None:
    """Require that every state is returned in the type and size in which it is taken; a frames axis may grow.

    Args:
        model: the graph.
        states: states that the graph returns.
        row_axes: batch axes of tensors.
        graph: the graph's name.
        lengths: lengths of a call, by axis, at which computed sizes are compared.
    """
    inputs, outputs = graphs.inputs_named(model), graphs.outputs_named(model)
    for state in states:
        taken, got = inputs[state.input].dtype, outputs[state.output].dtype
        if taken is not None and got is not None and taken != got:
            kind, other = taken.numpy(), got.numpy()
            raise Refused(
                f"state {state.input!r} goes in as {kind} and comes back from {state.output!r} as {other}",
                cure=f"cast it to {kind} before the model returns it",
                place=Location(stage="capture", graph=graph, tensor=state.input),
            )
        fed, back = graphs.dims_of(inputs[state.input]), graphs.dims_of(outputs[state.output])
        if fed is None or back is None:
            continue
        differ = [
            axis != _graph_axis(state, row_axes) and _differ(a, b, lengths)
            for axis, (a, b) in enumerate(zip(fed, back, strict=False))
        ]
        if len(fed) != len(back) or any(differ):
            raise Refused(
                f"state {state.input!r} goes in as {list(fed)} and comes back from {state.output!r} as {list(back)}",
                cure="feed back a state of one size, or declare the growing axis with a window",
                place=Location(stage="capture", graph=graph, tensor=state.input),
            )


def _differ(fed: Dim, back: Dim, lengths: Mapping[str, int]) -> bool:
    """Whether two sizes differ at some lengths; False where they depend on others."""
    found = [
        sympy.sympify(each).subs({graphs.symbol(name): size for name, size in lengths.items()}) for each in (fed, back)
    ]
    return all(each.is_number for each in found) and found[0] != found[1]


NEW_FRAMES_CURE = (
    "join each cache with the new frames by concatenation, and fix their number per call, or give the axis of the "
    "chunks buckets and a length_input"
)


def step_frames(model: ir.Model, states: Sequence[State], row_axes: Sequence[RowAxis], axis: str, graph: str) -> Dim:
    """Return how many frames a call adds: the growth of a cache, else the frames joined to it along its frames axis.

    Attention may read more, as frames of a look-ahead are given again to the next call.

    Raises:
        Refused: no cache is joined along the axis, or two caches grow differently.
    """
    along = {
        state: frames_axis
        for state in states
        if state.cache == axis and (frames_axis := _graph_axis(state, row_axes)) is not None
    }
    growths = {state: _growth(model, state, frames_axis, axis) for state, frames_axis in along.items()}
    told = {state: growth for state, growth in growths.items() if growth is not None}
    if told:
        return _the_same_growth(told, axis, graph)
    caches = {state.cache for state in states if state.cache is not None}
    joined = [new for state, frames_axis in along.items() for new in _joined(model, state, frames_axis)]
    independent = [new for new in joined if not any(graphs.mentions(new, cache) for cache in caches)]
    if joined:
        return (*independent, *joined)[0]  # the others count what another cache holds, too
    raise Refused(f"no cache is joined along {axis!r} with new frames", cure=NEW_FRAMES_CURE).at(
        graph=graph, axis=axis, stage="capture"
    )


def _growth(model: ir.Model, state: State, frames_axis: int, axis: str) -> Dim | None:
    """Return the growth of a cache in a call, before it is sliced to its newest frames; None where unknown."""
    for value in _sliced_from(graphs.outputs_named(model)[state.output]):
        dims = graphs.dims_of(value)
        grown = None if dims is None else grows_by(dims[frames_axis], axis) or _grown(dims[frames_axis], axis)
        if grown is not None:
            return grown
    return None


def _the_same_growth(growths: Mapping[State, Dim], axis: str, graph: str) -> Dim:
    """Return the growth that all caches of an axis share, as the runtime counts their valid frames once."""
    (first, growth), *others = growths.items()
    for state, other in others:
        if sympy.sympify(other) != sympy.sympify(growth):
            raise Refused(
                f"a call adds {growth} frames to {first.input!r} and {other} to {state.input!r}, "
                f"which lie along one axis {axis!r}",
                cure="give each of them an axis of its own, with a window of its own",
                place=Location(stage="capture", graph=graph, tensor=state.input, axis=axis),
            )
    return growth


def _sliced_from(value: ir.Value) -> list[ir.Value]:
    """Return a value with the values that it is sliced from, transitively."""
    found = [value]
    for each in found:
        maker = each.producer()
        if maker is not None and graphs.is_op(maker, "Slice", "Identity") and maker.inputs[0] is not None:
            found.append(maker.inputs[0])
    return found


def _joined(model: ir.Model, state: State, frames_axis: int) -> Iterator[Dim]:
    """Yield the number of frames that each Concat joins to a cache."""
    kept = _kept_of(graphs.inputs_named(model)[state.input])
    for node in [reader for value in kept for reader in graphs.consumers_of(value)]:
        if graphs.is_op(node, "Concat"):
            added = [graphs.dims_of(value) for value in node.inputs if value is not None and value not in kept]
            sizes = [dims[frames_axis] if dims is not None else None for dims in added]
            frames = [size for size in sizes if size is not None and not graphs.mentions(size, str(state.cache))]
            if frames and len(frames) == len(sizes):
                yield graphs.normal_form(sum(frames[1:], frames[0]))


def _kept_of(cache: ir.Value) -> list[ir.Value]:
    """Return a cache with the values that the model slices from it before it joins new frames."""
    found = [cache]
    for value in found:
        readers = [node for node in graphs.consumers_of(value) if graphs.is_op(node, "Slice", "Identity")]
        found += [node.outputs[0] for node in readers if node.inputs[0] is value]
    return found


def _grown(size: Dim, axis: str) -> Dim | None:
    """Return the growth of a cache that may be sliced to its newest frames, for chunks with lengths; else None."""
    sizes = [] if isinstance(size, int) else size.args if isinstance(size, sympy.Min) else [size]
    added = [graphs.normal_form(each - graphs.symbol(axis)) for each in sizes if graphs.mentions(each, axis)]
    return added[0] if len(added) == 1 and added[0] != 0 and not graphs.mentions(added[0], axis) else None
