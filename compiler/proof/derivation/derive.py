"""Derives the graph of one streaming call from a stateless graph, together with the certificate that justifies it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.axis_map import dims
from compiler.proof.derivation.any_length import AnyLength
from compiler.proof.derivation.caching import CachedValue
from compiler.proof.derivation.conditions import conditions
from compiler.proof.derivation.delays import write_delays
from compiler.proof.derivation.dependence import chunk_of, reach_of
from compiler.proof.derivation.emission import Emission
from compiler.proof.derivation.judging import CURE, Judging, offenders
from compiler.proof.derivation.lateness import NotLate, write_late
from compiler.proof.derivation.row_positions import NotByRow
from compiler.proof.derivation.shifted_scores import (
    in_terms_of_movements,
    look_up,
    require_masked,
    require_not_carried,
    restore,
)
from compiler.proof.derivation.written_sizes import STAMP, Part, Parts, written_size
from compiler.proof.facts.lengths import infer_settled
from compiler.proof.facts.lookup_ranges import Ranges, assumed_ranges, lookup_ranges, told_ranges


@dataclasses.dataclass(frozen=True, eq=False)
class DerivedSteps:
    """A graph that is called chunk by chunk.

    Attributes:
        model: the graph; its time axis counts the frames of a call.
        cached: the carried values, by the value of the whole graph.
        certificate: its claims, for the checker.
        early: where answers come later, the graph of which they are the answers; the graph that was given answers as
            the steps do then, and has their new input.
    """

    model: ir.Model
    cached: tuple[CachedValue, ...]
    certificate: dict[str, Any]
    early: ir.Model | None = None


def derive(
    model: ir.Model,
    time: str,
    past: str,
    longest: int,
    most: Mapping[str, int] | None = None,
    chunk: int = 1,
    *,
    forget: bool = False,
    later: bool = False,
    ranges: Ranges | None = None,
) -> DerivedSteps:
    """Derive the graph of one call from a graph over whole sequences.

    Args:
        model: a stateless graph, simplified, with symbolic shapes; delays are normalized first.
        time: name of the time axis in the shapes of its inputs.
        past: name for the axis of cached frames.
        longest: frames of the longest sequence; masks are evaluated up to it.
        most: the largest sizes of other axes, by name, such as that of a prefix joined to the frames.
        chunk: frames that may read each other: every call begins at a multiple of it, and a shorter one is the
            last of its stream.
        forget: whether to drop frames that no later call reads, under sliding masks.
        later: whether answers come as many frames later as they read ahead.
        ranges: the whole numbers that inputs hold; None takes those at which tables have entries.

    Raises:
        Refused: attention is not causal, something depends on the length of the sequence, or has no rule.
    """
    write_delays(model, graphs.symbol(time))
    early, marks_of_frames, delay = None, "", 0
    if later:
        early = graphs.clone(model)
        marks_of_frames, delay = _write_later(model, time, longest, most, chunk)
    _require_lengths(model, time, longest, most or {})
    if ranges is None:
        ranges = lookup_ranges(model, {}, graphs.inputs_named(model), most or {})
    marks = _marks(model, time) if forget else None
    lookups = look_up(model, graphs.symbol(time), longest)
    judging = Judging(model, time, longest, most, chunk, marks)
    if judging.offences:
        first = judging.offences[0]
        raise Refused(
            f"no steps can be derived: {offenders(judging.offences)}",
            cure=_cure(judging, most),
            place=Location(
                node=str(first.node.name), op=first.node.op_type, axis=time, source=graphs.source_of(first.node)
            ),
        )
    unmasked = require_masked(judging, lookups)
    emission, why_it_ends = _emitted(judging, past, marks, is_looked_up=bool(lookups))
    require_not_carried((cached_value.value for cached_value in emission.caches.cached), lookups)
    graphs.prune(emission.model)
    certificate = {**_certificate(judging, emission, time, past, longest), "ranges": told_ranges(ranges)}
    certificate |= {"why_it_ends": why_it_ends, "delay": delay, "marks": marks_of_frames}
    certificate["assumes"] += assumed_ranges(ranges)
    certificate["values"] = in_terms_of_movements(certificate["values"], lookups, unmasked)
    restore(model, lookups)
    return DerivedSteps(emission.model, tuple(emission.caches.cached), certificate, early)


def _write_later(
    model: ir.Model, time: str, longest: int, most: Mapping[str, int] | None, chunk: int
) -> tuple[str, int]:
    """Write a graph whose frames read later ones as one that answers later.

    Returns:
        The name of its new input, and by how many frames.

    Raises:
        Refused: no rule says how.
    """
    marks = graphs.fresh_name(model.graph, "marks")
    try:
        frames = write_late(model, Judging(model, time, longest, most, chunk), marks)
    except NotLate as never:
        message = f"no steps can be derived that answer later: {never}"
        raise Refused(message, cure=CURE, place=Location(axis=time)) from None
    graphs.prune(model)
    graphs.infer_shapes(model)
    return marks, frames


def _emitted(judging: Judging, past: str, marks: ir.Value | None, *, is_looked_up: bool) -> tuple[Emission, str]:
    """Return the derived graph, and why its streams end with the window; an empty reason where they do not.

    Streams continue where frames are dropped and the masks' properties hold for sequences of any length.
    """
    counts = [count for count, *_ in judging.recent.values() if 0 < 2 * count <= judging.longest]
    recent = 0 if marks is None else max(counts, default=0)
    if not recent:
        return Emission(judging, past, marks), "all frames are kept"
    if judging.chunk > 1:
        why = "the window tells a chunk that is shorter, and the last of its stream"
    elif is_looked_up:
        why = f"scores by distance are looked up among those of {judging.longest} frames"
    else:
        why = AnyLength(judging, recent).why_not()
    if not why:
        try:
            return Emission(judging, past, marks, recent, is_endless=True), ""
        except NotByRow as never:
            why = str(never)
    return Emission(judging, past, marks, recent), why


def _marks(model: ir.Model, time: str) -> ir.Value:
    """Return one number per frame, read from the input of lowest rank that has the time axis."""
    timed = (value for value in model.graph.inputs if graphs.symbol(time) in dims(value))
    value = min(timed, key=lambda graph_input: len(dims(graph_input)), default=None)
    if value is None:
        raise Refused(f"no steps can be derived: no input has an axis {time}", cure=CURE, place=Location(axis=time))
    insert = graphs.Inserter(model, STAMP)
    for axis, dim in reversed(list(enumerate(dims(value)))):
        if isinstance(dim, int):
            first = insert.constant(np.array(0, np.int64), "first")
            shape = [*dims(value)[:axis], *dims(value)[axis + 1 :]]
            value = insert.op("Gather", [value, first], {"axis": axis}, name="marks",
                              shape=[written_size(size) for size in shape], dtype=value.dtype)  # fmt: skip
    return value


def _cure(judging: Judging, most: Mapping[str, int] | None) -> str:
    """Return the cure for offences: to call in whole chunks where chunked masks are the only cause."""
    chunk = chunk_of(judging.supports)
    try:
        if chunk is None or Judging(judging.model, str(judging.frames), judging.longest, most, chunk).offences:
            return CURE
    except Refused:
        return CURE
    return f"frames read within chunks of {chunk}: write chunk: {chunk} in derive_steps, and call with whole chunks"


def _require_lengths(model: ir.Model, time: str, longest: int, most: Mapping[str, int]) -> None:
    """Infer shapes and require that they hold for every length from 1 frame to the longest.

    Raises:
        Refused: a table has fewer rows, or the graph needs more frames than one.
    """
    for size, limit in infer_settled(model):
        for frames in (1, longest):
            longest_size = size.subs(
                {**{graphs.symbol(name): length for name, length in most.items()}, graphs.symbol(time): frames}
            )
            if longest_size.is_number and longest_size > limit:
                raise Refused(
                    f"no steps can be derived: sequences of {frames} frames do not fit, as {graphs.written(size)} may "
                    f"be at most {limit}",
                    cure="choose a window that the tables of the model hold, and let it answer a single frame",
                    place=Location(axis=time),
                )


def _certificate(judging: Judging, emission: Emission, time: str, past: str, longest: int) -> dict[str, Any]:
    """Return the certificate's claims for each value, in the checker's vocabulary."""
    remaining = {value for node in emission.graph for value in node.outputs} | set(emission.graph.inputs)
    results = dict(zip(emission.graph.outputs, judging.model.graph.outputs, strict=False))
    standing = {
        **{
            step: told
            for step, told in emission.standing.items()
            if step in remaining and step not in emission.graph.inputs
        },
        **{step: (whole_value, _all_new(judging, whole_value)) for step, whole_value in results.items()},
    }
    values = [
        {
            "step": str(step.name),
            "value": str(value.name),
            "parts": [[axis, part.value, *_around(judging, value, axis)] for axis, part in parts],
            "reach": {str(axis): str(along_axis.reach) for axis, along_axis in sorted(judging.of(value).along.items())},
        }
        for step, (value, parts) in standing.items()
    ]
    values += [
        {"step": str(left.name), "value": str(cached.value.name), "parts": [_left(judging, cached)],
         "reach": {str(cached.axis): str(cached.reach)}}
        for cached, left in zip(emission.caches.cached, emission.caches.left, strict=True)
    ]  # fmt: skip
    reaches = [along_axis.reach for value in results.values() for along_axis in judging.of(value).along.values()]
    ahead = max((reach.high for reach in reaches if not reach.first), default=0)
    masks = [
        {"value": str(value.name), "reach": str(reach_of(outside.support, judging.chunk))}
        for value, fact in judging.known.items()
        if fact.is_data and (outside := judging.masks.outside(value, "zero")) is not None
    ]
    return {
        "time": time,
        "past": past,
        "longest": longest,
        "largest": dict(judging.masks.most),
        "chunk": judging.chunk,
        "recent": emission.recent,
        "look_ahead": int(max(ahead, 0)),
        "first": max([int(reach.first) for reach in reaches], default=0),
        "caches": [
            {"value": str(cached.value.name), "axis": cached.axis, "input": cached.input, "output": cached.output,
             "before": graphs.written(cached.before), "is_state": cached.is_state, "is_count": cached.is_count,
             "reach": str(cached.reach), "initial": cached.begins.tolist()}
            for cached in emission.caches.cached
        ],
        "masks": masks,
        "values": values,
        "conditions": conditions(judging, list(results.values()), emission.caches.cached),
        "assumes": ["scores are finite, and differ by less than half of what hidden ones lie lower"],
    }  # fmt: skip


def _around(judging: Judging, value: ir.Value, axis: int) -> tuple[list[str], str]:
    """Return the factors that share an axis with the frames, and the number of entries in front of them."""
    along = judging.of(value).along[axis]
    at = next(at for at, each in enumerate(along.factors) if graphs.mentions(each, str(judging.frames)))
    return [str(each) for each in along.factors[at + 1 :]], graphs.written(along.before)


def _left(judging: Judging, each: CachedValue) -> list[Any]:
    """Return how a certificate writes a cached value.

    That is its axis, the kind of part that is kept, factors that share its axis with the frames, and a number of
    entries.
    """
    if each.is_count:
        return [each.axis, "count", [], "0"]
    if each.is_state:
        return [each.axis, "state", [], "0"]
    if each.kept:
        return [each.axis, "last", _around(judging, each.value, each.axis)[0], graphs.written(each.kept)]
    return [each.axis, Part.SINCE.value, [], graphs.written(each.before)]


def _all_new(judging: Judging, value: ir.Value) -> Parts:
    return tuple((axis, Part.NEW) for axis in sorted(judging.of(value).along))
