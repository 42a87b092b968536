"""Runs a graph over calibration streams and looks inside.

Streams are chained calls that begin with empty caches. Padded cache slots hold NaN: valid results never depend on what
lies there, so whatever is NaN inside the graph is padding, and no measurement takes it in.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.calib.noise import Noise
from compiler.errors import Refused
from compiler.runners.ahead import ahead
from compiler.runners.padded_rows import RowsRunner
from compiler.runners.session import Session, session_of
from compiler.runners.stream import Runner, poisoned
from compiler.stages import Array, Feed, Lowered

MAGNITUDE = "slipway.magnitude."
"""Begins the names of outputs that hold the largest magnitude of a value."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a stream.

    Attributes:
        stream: its number.
        feed: everything the graph takes, states, lengths and NaN in padded slots included.
        outputs: everything it gives.
    """

    stream: int
    feed: Mapping[str, Array]
    outputs: Mapping[str, Array]


def streams_of(lowered: Lowered) -> Sequence[Sequence[Feed]]:
    """The calibration streams of a graph.

    Raises:
        Refused: there are no calibration data, or the first call is a graph of its own, which streams begin with.
    """
    if lowered.evidence is None:
        raise Refused(
            "expected data.calibration to measure on, got none",
            cure="name a generator of streams under data.calibration",
        )
    if lowered.first_call is not None:
        raise Refused("expected one graph, got one for the first call besides", cure="list merge_first_call before")
    return lowered.evidence.streams


def run_streams(lowered: Lowered, streams: Sequence[Sequence[Feed]]) -> Iterator[Call]:
    """Every call of every stream, in order, run ahead of the caller; half precision is rounded as the types say.

    Args:
        lowered: the graph; whatever it returns besides its own outputs is part of `Call.outputs`.
        streams: feeds of one row.
    """
    yield from ahead(_calls(lowered, streams))


def _calls(lowered: Lowered, streams: Sequence[Sequence[Feed]]) -> Iterator[Call]:
    session = _Watched(lowered, session_of(lowered.model))
    for number, stream in enumerate(streams):
        rows = RowsRunner(lowered, session) if lowered.padded_axes else None
        runner = None if rows is not None else Runner(lowered, session)
        for feed in stream:
            if runner is not None:
                outputs = runner.step(feed)
            elif rows is not None:
                outputs = rows.run([feed], np.nan)[0]
            yield Call(number, session.feed, outputs)


class _Watched:
    """A session that puts NaN into padded cache slots, and keeps what it was fed."""

    def __init__(self, lowered: Lowered, session: Session) -> None:
        self.lowered, self.session = lowered, session
        self.feed: dict[str, Array] = {}

    def run(self, names: Sequence[str] | None, feeds: dict[str, Array]) -> list[Array]:
        self.feed = feeds
        if self.lowered.caches and self.lowered.is_padded:
            self.feed = poisoned(self.lowered, feeds, np.ones(1, np.bool_), [np.nan])
        return self.session.run(names, self.feed)


def measured_values(model: ir.Model) -> list[ir.Value]:
    """Inputs and results of nodes that hold real numbers."""
    values = [*model.graph.inputs, *(output for node in model.graph for output in node.outputs)]
    return [value for value in values if value.dtype is not None and value.dtype.is_floating_point() and value.name]


HALF_MAX = float(np.finfo(np.float16).max)
"""65504, the largest finite number in half precision."""


def mask_fills(model: ir.Model) -> set[float]:
    """Numbers beyond half precision that masks put in place of what they hide; any number as low serves them."""
    found = set()
    for node in model.graph:
        for value in node.inputs[1:] if house.is_op(node, "Where") else ():
            array = house.array_of(value)
            if array is not None and array.size == 1 and array.dtype.kind == "f":
                number = float(array.reshape(-1)[0])
                found |= {number} if np.isfinite(number) and abs(number) > HALF_MAX else set()
    return found


def with_magnitudes(lowered: Lowered) -> Lowered:
    """A copy whose graph returns, beside its outputs, the largest finite magnitude of every real value.

    Numbers that masks fill in are not counted.
    """
    model = house.clone(lowered.model)
    insert = house.Inserter(model, "with_magnitudes")
    zeros: dict[ir.DataType, ir.Value] = {}
    fills = [insert.constant(np.array(abs(fill), np.float32), "fill") for fill in sorted(mask_fills(model))]
    for value in measured_values(model):
        kind = value.dtype
        assert kind is not None
        zero = zeros.setdefault(kind, insert.constant(np.zeros((), kind.numpy()), f"nothing_{kind.name.lower()}"))
        most = insert.constant(np.array(np.finfo(np.float32).max, np.float32), "most")
        size = insert.op("Abs", [value], name="size")
        wide = insert.op("Cast", [size], {"to": int(ir.DataType.FLOAT)}, name="wide_size", dtype=ir.DataType.FLOAT)
        finite = insert.op("LessOrEqual", [wide, most], name="is_finite", dtype=ir.DataType.BOOL)  # NaN is not
        for fill in fills:
            masked = insert.op("Equal", [wide, fill], name="is_fill", dtype=ir.DataType.BOOL)
            kept_in = insert.op("Not", [masked], name="is_kept", dtype=ir.DataType.BOOL)
            finite = insert.op("And", [finite, kept_in], name="is_counted", dtype=ir.DataType.BOOL)
        kept = insert.op("Where", [finite, size, zero], name="kept_size", dtype=kind)
        largest = insert.op("ReduceMax", [kept], {"keepdims": 0}, name=f"{MAGNITUDE}{value.name}", dtype=kind)
        largest.shape = ir.Shape([])
        model.graph.outputs.append(largest)
    return dataclasses.replace(lowered, model=model)


def largest_magnitudes(
    lowered: Lowered, streams: Sequence[Sequence[Feed]]
) -> tuple[dict[str, float], list[Mapping[str, Array]]]:
    """The largest finite magnitude of every real value over all calls, and the feed of each stream's last call.

    Numbers that masks fill in are not counted.
    """
    found: dict[str, float] = {}
    last: dict[int, Mapping[str, Array]] = {}
    for call in run_streams(with_magnitudes(lowered), streams):
        last[call.stream] = call.feed
        for name, array in call.outputs.items():
            if name.startswith(MAGNITUDE):
                key = name.removeprefix(MAGNITUDE)
                found[key] = max(found.get(key, 0.0), float(array))
    return found, list(last.values())


def noise_between(exact: Lowered, rounded: Lowered, streams: Sequence[Sequence[Feed]]) -> dict[str, float]:
    """Noise over signal of every output and state of a graph beside those of another, as a share of power.

    Args:
        exact: gives the signal.
        rounded: has the same outputs.
        streams: feeds of one row; each graph carries its own states.
    """
    found: dict[str, Noise] = {}
    for a, b in zip(run_streams(exact, streams), run_streams(rounded, streams), strict=True):
        for name, array in a.outputs.items():
            found.setdefault(name, Noise()).add(b.outputs[name], array)
    return {name: each.share for name, each in found.items()}
