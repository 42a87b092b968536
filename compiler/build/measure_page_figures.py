"""Measures what a build's HTML report shows beyond the build's results: histograms, precisions, the original's time."""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.base.records.precision import Pin, PrecisionRecord, TensorRange
from compiler.build.lowering.lowering import Lowering
from compiler.build.lowering.pass_parity import PASS_STEPS
from compiler.build.report.graph_drawing import Box
from compiler.build.report.page_figures import GraphFigures, OriginalCosts, Precision, TensorHistogram
from compiler.build.verify.differences import max_abs_difference
from compiler.build.verify.explained_rounding import QUANTIZED, is_counted
from compiler.calib.noise import Noise
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.coded_states import states_in_numbers
from compiler.graph.runners.forced_values import Bench, common_values
from compiler.graph.runners.instrumented import exposed
from compiler.graph.runners.stream import OriginalCall
from compiler.graph.stages import Array, Feed, Lowered

WORST = 6
"""Tensors that are drawn."""

BINS = 48

TIMED_CALLS = 40

HALF = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


def measure_page_figures(lowering: Lowering) -> GraphFigures:
    """Measure the figures of one graph for the HTML page: run it and the original on some calls."""
    plan, final, original = lowering.plan, lowering.graph.final, lowering.plan.original
    steps = original.steps(min(PASS_STEPS, plan.gate.chained_steps))
    start = original.start()
    return GraphFigures(
        plan.name,
        boxes_of(final.model, lowering.precision),
        worst_histograms(lowering.graph.exact if plan.is_rounded else None, final, steps),
        OriginalCosts(
            sum(1 for _ in start.model.graph),
            sum(v.const_value.nbytes for v in start.model.graph.initializers.values() if v.const_value is not None),
            time_original(start, [step.feed for step in steps]),
            1,
        ),
        sum(1 for _ in final.model.graph),
    )


# The graph by precision


def boxes_of(model: ir.Model, records: Sequence[PrecisionRecord]) -> tuple[Box, ...]:
    """Return a box for every input and node, with its precision and the reason for it."""
    pins = {pin.node: pin for pin in records if isinstance(pin, Pin)}
    ranges = {record.tensor: record for record in records if isinstance(record, TensorRange)}
    boxes = []
    for value in model.graph.inputs:
        kind = _kind_of_value(value)
        name = str(value.name)
        boxes.append(Box(name, "input", kind, _type_words(value), True, (f"{name}: input",), (), (name,)))
    for node in model.graph:
        pin = pins.get(str(node.name))
        kind = Precision.PINNED if pin is not None else precision_of(node)
        notes = [f"{node.name}: {node.op_type}"]
        notes += [f"{value.name}: {_type_words(value)}" for value in node.outputs]
        notes += [] if pin is None else [f"kept in {pin.kept}: {pin.reason}"]
        for name in [str(value.name) for value in (*node.inputs, *node.outputs) if value is not None]:
            interval = ranges.get(name)
            if interval is not None:
                notes.append(
                    f"{interval.tensor}: {interval.low:.4g}..{interval.high:.4g} in {interval.type}, {interval.method}"
                )
        stamp = node.metadata_props.get(graphs.PASS_KEY, "")
        notes += [f"written by {stamp}"] if stamp else []
        notes += [graphs.source_of(node)] if graphs.source_of(node) else []
        boxes.append(
            Box(
                str(node.name),
                node.op_type,
                kind,
                _type_words(node.outputs[0]),
                kind is not Precision.OTHER,
                tuple(notes),
                tuple(str(value.name) for value in node.inputs if value is not None),
                tuple(str(value.name) for value in node.outputs),
            )
        )
    return tuple(boxes)


def precision_of(node: ir.Node) -> Precision:
    """Return the precision of a node; with inputs dequantised by the node before, a backend computes in int8."""
    operands = [value.producer() for value in node.inputs if value is not None]
    if any(part in node.op_type.lower() for part in QUANTIZED):
        return Precision.INT8
    if operands and operands[0] is not None and graphs.is_op(operands[0], "DequantizeLinear"):
        return Precision.INT8
    return _kind_of_value(node.outputs[0])


def _kind_of_value(value: ir.Value) -> Precision:
    if value.dtype in HALF:
        return Precision.HALF
    is_real = value.dtype is not None and value.dtype.is_floating_point()
    return Precision.FLOAT32 if is_real else Precision.OTHER


def _type_words(value: ir.Value) -> str:
    kind = "?" if value.dtype is None else {"float": "float32"}.get(value.dtype.name.lower(), value.dtype.name.lower())
    dims = graphs.dims_of(value)
    shape = "?" if dims is None else ", ".join("?" if getattr(dim, "is_Dummy", False) else str(dim) for dim in dims)
    return f"{kind} [{shape}]"


# Histograms


def worst_histograms(
    exact: Lowered | None, final: Lowered, steps: Sequence[OriginalCall]
) -> tuple[TensorHistogram, ...]:
    """Return histograms of the tensors with the lowest signal-to-noise ratio.

    Args:
        exact: the graph before rounding, to compare intermediate values too; None to compare outputs only.
        final: the graph that ships.
        steps: the original's calls.
    """
    by_tensor: dict[str, tuple[list[Array], list[Array]]] = {}
    pairs = _outputs(final, steps) if exact is None or exact.first_call is not None else _values(exact, final, steps)
    for name, right, got in pairs:
        if right.dtype.kind == "f" and right.size == got.size:
            reference, shipped = by_tensor.setdefault(name, ([], []))
            right, got = right.astype(np.float64).ravel(), got.astype(np.float64).ravel()
            counted = is_counted(right)  # without what masks fill with
            reference.append(right[counted])
            shipped.append(got[counted])
    sources = {str(value.name): graphs.source_of(node) for node in final.model.graph for value in node.outputs}
    histograms = [
        _histogram(name, sources.get(name, ""), np.concatenate(right), np.concatenate(got))
        for name, (right, got) in by_tensor.items()
    ]
    differing = [histogram for histogram in histograms if histogram.max_abs > 0.0]
    return tuple(
        sorted(differing, key=lambda histogram: np.inf if histogram.sqnr_db is None else histogram.sqnr_db)[:WORST]
    )


def _outputs(final: Lowered, steps: Sequence[OriginalCall]) -> Iterator[tuple[str, Array, Array]]:
    runner = runner_of(final)
    states = {state.output for state in final.states}
    for step in steps:
        outputs = runner.step(step.feed)
        for name in outputs.keys() & step.outputs.keys() - states:
            yield name, step.outputs[name], outputs[name]
        carried = states_in_numbers(final, runner.states)
        for name, array in step.states_after(final.state_maps).items():
            yield name, array, carried[name]


def _values(exact: Lowered, final: Lowered, steps: Sequence[OriginalCall]) -> Iterator[tuple[str, Array, Array]]:
    names = common_values(exact, final)
    old, new = Bench(exposed(exact, names)), Bench(exposed(final, names))
    for step in steps:
        right, got = old.call(step.feed), new.call(step.feed)
        for name in names:
            yield (
                name,
                right[name][old.runner.valid(name, right[name], step.feed)],
                got[name][new.runner.valid(name, got[name], step.feed)],
            )


def _histogram(name: str, source: str, right: Array, got: Array) -> TensorHistogram:
    finite = np.isfinite(right) & np.isfinite(got)
    finite_values = np.concatenate([right[finite], got[finite]])
    low, high = (float(finite_values.min()), float(finite_values.max())) if finite_values.size else (0.0, 0.0)
    high = high if high > low else low + 1.0
    counts = [tuple(np.histogram(values[finite], BINS, (low, high))[0].tolist()) for values in (right, got)]
    noise = Noise()
    noise.add(got, right)
    return TensorHistogram(
        name,
        source,
        low,
        high,
        counts[0],
        counts[1],
        max_abs_difference(got, right),
        noise.sqnr_db,
    )


# Costs


def time_original(start: Lowered, feeds: Sequence[Feed]) -> float:
    """Return the median milliseconds of a call of the captured graph on one thread, with full caches."""
    runner = runner_of(start, optimize=True)
    warm = 5 + max((cache.calls_to_fill for cache in start.caches), default=0)
    times_ms = []
    for count in range(warm + TIMED_CALLS):
        feed: Mapping[str, Array] = feeds[count % len(feeds)]
        began = time.perf_counter()
        runner.step(feed)
        if count >= warm:
            times_ms.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times_ms)
