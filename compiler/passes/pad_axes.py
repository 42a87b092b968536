"""Pad the cache axis to its window, so that the graph is static along it and the padding cannot be seen.

Before:
    cache [batch, cache, W], new [batch, 16, W]
    joined = Concat(cache, new); rows = Slice(table, 0, cache + 16); p = Softmax(scores)
After:
    cache [batch, 128, W], new [batch, 16, W], real_length int64 [batch], mask float32 [batch, 144]
    clean  = Where(mask[:, :128], cache, 0)
    joined = Concat(clean, new); rows = Gather(table, Max(iota(144) - (128 - real_length), 0))
    p      = Softmax(Where(mask, scores, lowest)) * mask

Requires: symbolic shapes; the batch axis, if any, is the first axis of every padded value.
Ensures: no dimension mentions the cache axis; state outputs hold [cached ++ new] with zero padding in front.
Keeps: everything that no padded value reaches.
Numerics: exact at valid places up to the order of summation; padded keys have probability exactly 0.
Source: segments, rules and the right-aligned layout as in compiler/analysis; masking before and after softmax as used
    in production streaming recognisers (finite lowest before, 0/1 product after), because -inf makes NaN in empty rows.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.analysis.facts import PLAIN, ZERO, Action, Fact, Segment, Segments, Verdict, physical_length, refuse
from compiler.analysis.propagate import Derivation, input_facts, propagate
from compiler.analysis.rules.lookup import slice_bounds
from compiler.errors import Place, Refused
from compiler.ir import Dim
from compiler.stages import Array, Lowered, Outcome, Window, right_aligned
from compiler.window_inputs import WindowInputs

LOWEST = float(np.finfo(np.float32).min)
"""Score of a padded key: finite, so that Softmax never sees an infinity; exp underflows to exactly 0."""


@dataclasses.dataclass(frozen=True)
class PadAxes:
    """Make the cache axis static. Without a window in the recipe there is nothing to do."""

    name: ClassVar[str] = "pad_axes"

    def apply(self, lowered: Lowered) -> Outcome:
        """See the module docstring.

        Raises:
            Refused: some op has no rule, or its rule does not hold; with node, axis, source line and cure.
        """
        window = lowered.window
        if window is None or window.static:
            return Outcome(lowered)
        model = lowered.model
        house.infer_shapes(model)
        start = input_facts(model, window.axis, window.frames)
        if not start:
            raise Refused(
                f"no input has an axis {window.axis!r}",
                cure="name the growing axis in the shapes of the recipe's inputs, or drop the window",
                place=Place(axis=window.axis),
            )
        cleaned = {value: dataclasses.replace(fact, fill=ZERO) for value, fact in start.items()}
        derivation = propagate(model, window.axis, cleaned)
        batch = _batch_of(start, lowered.batch_axis)
        _check_outputs(derivation, lowered, window)
        _check_masked(derivation, batch)
        before = {output: house.dims_of(output) for node in model.graph for output in node.outputs}
        lengths = WindowInputs(model, window, batch, PadAxes.name)
        for value, fact in start.items():
            _clean_input(model, lengths, value, fact)
        acted = sum(_rewrite(model, lengths, derivation, node, verdict) for node, verdict in derivation.verdicts)
        _freeze(model, window, start)
        _check_shapes(model, before, batch)
        static = dataclasses.replace(lowered, window=dataclasses.replace(window, static=True))
        states = tuple((state.input, state.frames_axis) for state in lowered.states if state.frames_axis is not None)
        static = dataclasses.replace(static, state_maps=(*lowered.state_maps, RightAligned(states, window.frames)))
        count = len(start) + acted
        return Outcome(static, matched=len(derivation.verdicts), rewritten=count, records=derivation.records())


@dataclasses.dataclass(frozen=True)
class RightAligned:
    """State map: the named states move to the end of `frames` slots, zeros in front."""

    axes: tuple[tuple[str, int], ...]
    frames: int

    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        """Map state values by input name."""
        axes = dict(self.axes)
        return {
            name: right_aligned(array, axes[name], self.frames) if name in axes else array
            for name, array in states.items()
        }


def _batch_of(start: dict[ir.Value, Fact], batch_axis: str | None) -> int | str:
    """The size of the first axis of the padded inputs, which must agree."""
    sizes = {str(value.shape[0]) for value in start if value.shape is not None}
    if len(sizes) != 1:
        raise refuse(
            f"the padded inputs have first axes {sorted(sizes)}", "make the batch axis the first axis of every cache"
        )
    size = sizes.pop()
    if size.isdigit():
        return int(size)
    if size != batch_axis:
        raise refuse(f"the first axis of the caches is {size!r}", "declare it with buckets under axes")
    return size


def _check_outputs(derivation: Derivation, lowered: Lowered, window: Window) -> None:
    """States hold [cached ++ new], perhaps cut to the window; no other output may be padded, for nobody could tell."""
    axes = {state.output: state.frames_axis for state in lowered.states}
    for name, value in house.outputs_named(lowered.model).items():
        fact = derivation.facts.get(value, PLAIN)
        node = value.producer()
        frames_axis = axes.get(name)
        place = {"tensor": name, "node": str(node.name) if node else "", "op": node.op_type if node else ""}
        if frames_axis is None and fact != PLAIN:
            raise refuse(
                f"the output has the axis {window.axis!r}",
                "return the new frames only, or declare the output as a state",
                axis=window.axis,
                source=house.source_of(node),
                **place,
            )
        if frames_axis is not None and not _is_state(fact, frames_axis, value, window):
            raise refuse(
                f"the state holds {fact}, not the cached frames and then {window.step_frames} new ones",
                "join the cache with the new frames, cache first, and feed the whole back",
                axis=window.axis,
                source=house.source_of(node),
                **place,
            )


def _is_state(fact: Fact, frames_axis: int, value: ir.Value, window: Window) -> bool:
    """Whether the newest frames of a state are the newest slots, and at least the window's number."""
    if fact == PLAIN:
        return value.shape is not None and value.shape[frames_axis] == window.frames <= window.step_frames
    cached, *others = fact.segments
    new = physical_length(tuple(others))
    kept = cached.slots + new
    return (
        fact.axis == frames_axis
        and all(segment.is_full for segment in others)
        and new == window.step_frames
        and kept >= window.frames
        and (kept == window.frames or cached.length == house.symbol(window.axis))
    )


def _check_masked(derivation: Derivation, batch: int | str) -> None:
    """Masks are float32 and per batch row, so every value that is masked must be so too, the batch axis in front."""
    for node, verdict in derivation.verdicts:
        if verdict.action not in (Action.MASK_SOFTMAX, Action.FILL_INPUT):
            continue
        value = node.inputs[verdict.operand]
        assert value is not None
        dims = house.dims_of(value)
        fact = derivation.facts[value]
        wanted = house.symbol(batch) if isinstance(batch, str) else batch
        place = {"node": str(node.name), "op": node.op_type, "source": house.source_of(node)}
        if fact.axis == 0 or dims is None or (dims[0] != wanted and batch != 1):
            raise refuse(
                f"the first axis of {node.op_type}'s input is {dims[0] if dims else 'unknown'}, not the batch axis",
                "keep the batch axis in front, apart from frames and heads; "
                "nn.MultiheadAttention does so with need_weights=False",
                **place,
            )
        if value.dtype != ir.DataType.FLOAT:
            raise refuse(
                f"{node.op_type} of {value.dtype} has to be masked", "pad in float32 and convert later", **place
            )


def _clean_input(model: ir.Model, lengths: WindowInputs, value: ir.Value, fact: Fact) -> None:
    """Overwrite the padding of one input with zero, by selection: whatever was there, NaN included, is gone."""
    assert fact.axis is not None and value.shape is not None
    uses = list(value.uses())
    shape = list(value.shape)
    shape[fact.axis] = physical_length(fact.segments)
    condition = lengths.shaped("valid", fact.axis, len(shape), physical_length(fact.segments))
    zero = lengths.insert.constant(np.array(0, value.dtype.numpy() if value.dtype else np.float32), "zero")
    clean = lengths.insert.op(
        "Where", [condition, value, zero], name=f"{value.name}_clean", shape=shape, dtype=value.dtype
    )
    for use in uses:
        use.node.replace_input_with(use.idx, clean)


def _rewrite(model: ir.Model, lengths: WindowInputs, derivation: Derivation, node: ir.Node, verdict: Verdict) -> int:
    """Carry out what one verdict asks for; 1 if the graph changed."""
    match verdict.action:
        case Action.MASK_SOFTMAX:
            _mask_softmax(model, lengths, derivation.facts[node.outputs[0]], node)
        case Action.LOOK_UP_POSITIONS:
            _look_up_positions(model, lengths, derivation.facts[node.outputs[0]].segments, node)
        case Action.LOOK_UP_NEW_ROWS:
            _look_up_new_rows(model, lengths, verdict.bounds, node)
        case Action.SLICE_LAST_ROWS:
            _slice_last_rows(model, derivation.facts[node.outputs[0]], node)
        case Action.FILL_INPUT:
            _fill_input(model, lengths, derivation, node, verdict.operand)
        case Action.SPLIT_SLICE:
            _move_slice(model, verdict.bounds, node)
        case Action.NONE:
            return 0
    return 1


def _mask_softmax(model: ir.Model, lengths: WindowInputs, fact: Fact, node: ir.Node) -> None:
    """Where before, product after."""
    scores = node.inputs[0]
    assert scores is not None and scores.shape is not None and fact.axis is not None
    _require_standard(fact.segments, lengths, node)
    rank = len(scores.shape)
    insert = house.Inserter(model, PadAxes.name, before=node)
    lowest = insert.constant(np.array(LOWEST, np.float32), "lowest")
    condition = lengths.shaped("valid", fact.axis, rank, lengths.total)
    masked = insert.op("Where", [condition, scores, lowest], name=f"{scores.name}_masked", dtype=scores.dtype)
    node.replace_input_with(0, masked)
    probabilities = node.outputs[0]
    uses = list(probabilities.uses())
    after = house.Inserter(model, PadAxes.name, before=house.node_after(model, node), source=house.source_of(node))
    mask = lengths.shaped("mask", fact.axis, rank, lengths.total)
    product = after.op("Mul", [probabilities, mask], name=f"{probabilities.name}_masked", dtype=probabilities.dtype)
    for use in uses:
        use.node.replace_input_with(use.idx, product)


def _require_standard(segments: Segments, lengths: WindowInputs, node: ir.Node) -> None:
    """The mask describes [cache ++ new] and nothing else."""
    window = lengths.window
    standard = (
        Segment(house.symbol(window.axis), window.frames),
        Segment(window.step_frames, window.step_frames),
    )
    if segments != standard:
        raise refuse(
            f"the axis holds {_shown(segments)}, the mask {_shown(standard)}",
            "join each cache with the new frames once, cache first",
            node=str(node.name),
            op=node.op_type,
            source=house.source_of(node),
        )


def _shown(segments: Segments) -> str:
    return " ++ ".join(f"[{segment.length} of {segment.slots}]" for segment in segments)


def _constant_table(lengths: WindowInputs, node: ir.Node) -> tuple[str, np.ndarray]:
    """Name and rows [rows, channels] of a table that is long enough for every position."""
    table = node.inputs[0]
    array = house.array_of(table)
    name = str(table.name) if table is not None else ""
    place = {"node": str(node.name), "op": node.op_type, "source": house.source_of(node)}
    bounds = slice_bounds(node)
    if array is None or array.ndim != 3 or array.shape[0] != 1 or bounds is None or bounds[0] != 1:
        raise refuse(
            f"position table {name!r} has shape {None if array is None else list(array.shape)}",
            "use a constant table [1, rows, channels], and list canonicalize_positions before pad_axes",
            **place,
        )
    if array.shape[1] < lengths.total:
        raise refuse(
            f"position table {name!r} has {array.shape[1]} rows, the padded axis {lengths.total}",
            f"make the table at least {lengths.total} rows long or the window shorter",
            **place,
        )
    return name, np.ascontiguousarray(array[0, : lengths.total])


def _look_up_new_rows(model: ir.Model, lengths: WindowInputs, bounds: tuple[int, int], node: ir.Node) -> None:
    """Rows C..C+n-1 per batch row, for n new frames after C cached ones."""
    window, count = bounds
    if (window, count) != (lengths.window.frames, lengths.window.step_frames):
        raise refuse(
            f"{count} rows after {window} slots are looked up, the window has {lengths.window.frames} and a call adds "
            f"{lengths.window.step_frames}",
            "look up one row per new frame",
            node=str(node.name),
            op=node.op_type,
            source=house.source_of(node),
        )
    name, rows = _constant_table(lengths, node)
    output = node.outputs[0]
    insert = house.Inserter(model, PadAxes.name, before=node)
    table = insert.constant(rows, f"{name}_rows")
    shape = [lengths.batch, count, rows.shape[1]]
    index = lengths.new_rows()
    found = insert.op(
        "Gather", [table, index], {"axis": 0}, name=f"{output.name}_rows", shape=shape, dtype=output.dtype
    )
    _replace(model, output, found)


def _look_up_positions(model: ir.Model, lengths: WindowInputs, segments: Segments, node: ir.Node) -> None:
    """Rows 0..L-1 per batch row: cached frames at 0.., new frames at real_length.., padded slots at row 0."""
    _require_standard(segments, lengths, node)
    name, array = _constant_table(lengths, node)
    output = node.outputs[0]
    insert = house.Inserter(model, PadAxes.name, before=node)
    rows = insert.constant(array, f"{name}_rows")
    shape = [lengths.batch, lengths.total, array.shape[1]]
    found = insert.op(
        "Gather", [rows, lengths.rows()], {"axis": 0}, name=f"{output.name}_rows", shape=shape, dtype=output.dtype
    )
    _replace(model, output, found)


def _slice_last_rows(model: ir.Model, fact: Fact, node: ir.Node) -> None:
    """The last L rows: right-aligned slots want the last physical rows, whatever L is."""
    table = house.array_of(node.inputs[0])
    output = node.outputs[0]
    total = physical_length(fact.segments)
    assert fact.axis is not None
    if table is None or table.shape[fact.axis] < total:
        raise refuse(
            f"the table has {None if table is None else table.shape[fact.axis]} rows, the padded axis {total}",
            "make the table longer or the window shorter",
            node=str(node.name),
            op=node.op_type,
            source=house.source_of(node),
        )
    insert = house.Inserter(model, PadAxes.name, before=node)
    rows = np.ascontiguousarray(
        np.take(table, range(table.shape[fact.axis] - total, table.shape[fact.axis]), fact.axis)
    )
    _replace(model, output, insert.constant(rows, f"{output.name}_rows"))


def _fill_input(model: ir.Model, lengths: WindowInputs, derivation: Derivation, node: ir.Node, operand: int) -> None:
    """Zero in the padding of one contracted operand."""
    value = node.inputs[operand]
    assert value is not None and value.shape is not None
    fact = derivation.facts[value]
    assert fact.axis is not None
    _require_standard(fact.segments, lengths, node)
    insert = house.Inserter(model, PadAxes.name, before=node)
    condition = lengths.shaped("valid", fact.axis, len(value.shape), lengths.total)
    zero = insert.constant(np.array(0, np.float32), "zero")
    filled = insert.op("Where", [condition, value, zero], name=f"{value.name}_filled", dtype=value.dtype)
    node.replace_input_with(operand, filled)


def _move_slice(model: ir.Model, bounds: tuple[int, int], node: ir.Node) -> None:
    """Bounds in slots instead of logical positions."""
    insert = house.Inserter(model, PadAxes.name, before=node)
    found = slice_bounds(node)
    assert found is not None
    numbers = (*bounds, found[0], 1)  # start, end, axis and step are of one type
    for index in range(1, len(node.inputs)):
        node.replace_input_with(index, insert.int64s(numbers[index - 1]))


def _replace(model: ir.Model, old: ir.Value, new: ir.Value) -> None:
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)


def _freeze(model: ir.Model, window: Window, start: dict[ir.Value, Fact]) -> None:
    """Write the window into the input shapes and let all other shapes follow."""
    for value, fact in start.items():
        assert value.shape is not None and fact.axis is not None
        dims = list(value.shape)
        dims[fact.axis] = window.frames
        value.shape = ir.Shape(dims)
    house.prune(model)
    house.forget_shapes(model)
    house.infer_shapes(model)


def _check_shapes(model: ir.Model, before: Mapping[ir.Value, tuple[Dim, ...] | None], batch: int | str) -> None:
    """Positions were the same for all rows and now differ: what reads them must let the first axis grow."""
    for node in model.graph:
        old, new = before.get(node.outputs[0]), house.dims_of(node.outputs[0])
        if old is None:
            continue
        follows = new is not None and len(new) == len(old)
        for axis, (was, now) in enumerate(zip(old, new or (), strict=False)):
            may_grow = axis == 0 and was == 1 and str(now) == str(batch)
            padded = not isinstance(was, int) and isinstance(now, int)
            follows = follows and (was == now or padded or may_grow)
        if not follows or (house.is_op(node, "Squeeze") and _entries(node.inputs[0]) != _entries(node.outputs[0])):
            raise refuse(
                f"{node.op_type} fixes the first axis of positions, which differ between rows of the batch",
                "list canonicalize_reshapes before pad_axes, or keep the first axis of the positions",
                node=str(node.name),
                op=node.op_type,
                source=house.source_of(node),
            )


def _entries(value: ir.Value | None) -> Dim:
    """The number of entries of a value."""
    total: Dim = 1
    for dim in (house.dims_of(value) if value is not None else None) or ():
        total = total * dim
    return total
