"""Graphs over whole sequences, called chunk by chunk."""

import dataclasses
from collections.abc import Mapping, Sequence

from compiler.graph import model as graphs
from compiler.graph.stages import Feed, Lowered, PaddedAxis, State
from compiler.passes.simplify import simplify_model
from compiler.proof.derivation.derive import derive
from compiler.states.kept_frames import keep_newest
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.calibration import with_streams


def steps_of(whole: Lowered, window: int, time: str = "time", most: Mapping[str, int] | None = None) -> Lowered:
    """The steps that are derived of a graph, as capture hands them to the passes; without calibration streams.

    Args:
        whole: the stateless graph.
        window: frames of the longest sequence.
        time: its axis.
        most: the largest sizes of other axes, by name, which are padded, too.
    """
    model = graphs.clone(whole.model)
    simplify_model(model)
    derived = derive(model, time, "past", window, most)
    keep_newest(derived.model, window, {each.output: each.axis for each in derived.cached})
    return dataclasses.replace(
        whole,
        model=derived.model,
        states=tuple(State(each.input, each.output, each.axis, "past") for each in derived.cached),
        caches=(CacheAxis("past", window, 1, "past_length", None, added=time, is_whole=True),),
        padded_axes=tuple(PaddedAxis(name, f"{name}_length") for name in (time, *(most or {}))),
        calibration=None,
    )


def in_chunks(feeds: Sequence[Feed], lengths: Sequence[int], axis: int = 1) -> list[Feed]:
    """Whole sequences of one call each, cut into calls of these lengths."""
    found: list[Feed] = []
    for feed in feeds:
        at = 0
        for length in lengths:
            found.append({name: array.take(range(at, at + length), axis) for name, array in feed.items()})
            at += length
    return found


def with_chunks(steps: Lowered, streams: Sequence[Sequence[Feed]], lengths: Sequence[int]) -> Lowered:
    """Steps with calibration streams that are cut into calls of these lengths."""
    return with_streams(steps, *(in_chunks(stream, lengths) for stream in streams))
