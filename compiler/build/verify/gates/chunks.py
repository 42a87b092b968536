"""Checks, for every chunk length, the graph on the padded chunk against the original on the unpadded one."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

from compiler.base.records.findings import Finding
from compiler.build.verify.bucket_runner import BucketRunners
from compiler.build.verify.chunk_lengths import (
    Flush,
    chunk_axis,
    held_axes,
    length_of,
    of_every_length,
    streams_of_every_length,
    streams_that_fit,
)
from compiler.build.verify.differences import Difference, compare
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.build.verify.gates.parity import require_parity
from compiler.errors import DataError, GateFailed, Location
from compiler.graph.runners.stream import Advance, OriginalCall
from compiler.graph.stages import Feed, Lowered, PaddedAxis
from compiler.recipe.record import Recipe


def _promised(recipe: Recipe, graph: str) -> Iterator[Finding]:
    spec = recipe.graphs.get(graph)
    if spec is None or spec.has_utterances:
        return
    chunks = [axis for axis in spec.padded if axis not in spec.held]
    for axis in [*(chunks if len(chunks) == 1 else ()), *spec.held]:
        yield Finding("chunks", graph, axis)


def _check(shipped: Shipped, advance: Advance) -> Checked:
    lowered, original = shipped.graph.lowered, shipped.original
    spec = shipped.loaded.recipe.graphs[shipped.name]
    tried: list[_Tried] = []
    axis = chunk_axis(lowered)
    if axis is not None:
        feeds = of_every_length(lowered, original.streams()[0])
        feeds += Flush(spec.flush, spec.flush_values).feeds(lowered, feeds[-1], axis)
        tried.append(_Tried(axis, streams_that_fit(lowered, feeds), bool(spec.flush)))
    for held in held_axes(lowered):
        tried.append(_Tried(held, streams_of_every_length(lowered, held, original.streams())))
    differences_of = [_checked(shipped, chunks, advance) for chunks in tried]
    receipt = [
        (chunks.lengths(lowered), differences) for chunks, differences in zip(tried, differences_of, strict=True)
    ]
    return Checked(
        [
            Finding("chunks", shipped.name, chunks.axis.axis, holds=True, detail=chunks.told(lowered))
            for chunks in tried
        ],
        f"chunks of {', '.join(chunks.told(lowered) for chunks in tried)}",
        {
            "chunks": {
                "lengths": [length for lengths, _ in receipt for length in lengths],
                "compared": [
                    dataclasses.asdict(difference) for _, differences in receipt for difference in differences
                ],
            }
        },
    )


@dataclasses.dataclass(frozen=True)
class _Tried:
    """Streams that show chunks of every length along an axis."""

    axis: PaddedAxis
    streams: Sequence[Sequence[Feed]]
    is_flushed: bool = False

    def lengths(self, lowered: Lowered) -> list[int]:
        return [length_of(lowered, self.axis, feed) for feeds in self.streams for feed in feeds]

    def told(self, lowered: Lowered) -> str:
        lengths = self.lengths(lowered)
        flushed = ", flushed" if self.is_flushed else ""
        return f"{len(set(lengths))} lengths from {min(lengths)} to {max(lengths)}{flushed}"


def _checked(shipped: Shipped, tried: _Tried, advance: Advance) -> list[Difference]:
    """Return the differences of the smallest artefact from the original.

    Raises:
        GateFailed: a difference exceeds its limit.
        DataError: the original rejects the chunks.
    """
    graph, axis, emitted = shipped.graph, tried.axis.axis, shipped.graph.built.artifacts[0]
    lengths = tried.lengths(graph.lowered)
    try:
        streams = [
            [OriginalCall(feed, *answer) for feed, answer in zip(stream, shipped.original.run(stream), strict=True)]
            for stream in tried.streams
        ]
    except Exception as error:
        raise DataError(
            f"expected the original to answer chunks of {min(lengths)} to {max(lengths)} entries along {axis!r}, "
            f"got {' '.join(str(error).split())[:200]}",
            cure="give the chunks one size, fixed, where the model takes no others",
            place=Location(stage="verify", graph=shipped.name, axis=axis),
        ) from error
    runners = BucketRunners(graph.lowered, graph.built.artifacts, lambda file: shipped.open(shipped.folder / file))
    rows = runners.rows(emitted)
    differences: list[Difference] = []
    compared = 0
    for steps in streams:
        repeated = steps if rows == 1 else [step.repeated(rows) for step in steps]
        done = functools.partial(_advanced, advance, compared, len(lengths))
        differences += compare(runners.record(emitted), runners.runner(emitted), repeated, done)
        compared += len(steps)
    try:
        require_parity(shipped.name, "verify chunks", differences, graph.limits, "report the graph and the length")
    except GateFailed as error:
        error.findings = (Finding("chunks", shipped.name, axis, holds=False, detail=tried.told(graph.lowered)),)
        raise graph.explain(error, streams[0], graph.limits, advance) from None
    return differences


def _advanced(advance: Advance, before: int, most: int, done: int) -> None:
    """Report progress in the calls of one stream, after those of earlier streams."""
    advance(before + done, most)


CHUNKS = Gate("chunks", _check, _promised, stage="verify")
