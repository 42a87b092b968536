"""The gate on chunks of any length: a shorter one is answered as the original answers it, at its own length."""

import dataclasses
import functools
from collections.abc import Iterator

from compiler.errors import DataError, GateFailed, Place
from compiler.recipe.record import Recipe
from compiler.records.findings import Finding
from compiler.runners.stream import Advance, OriginalCall
from compiler.verify.bucket_runner import BucketRunners
from compiler.verify.chunk_lengths import Flush, chunk_axis, length_of, of_every_length, streams_that_fit
from compiler.verify.differences import compare
from compiler.verify.gate import Checked, Gate, Shipped
from compiler.verify.gates.parity import require_parity


def _promised(recipe: Recipe, graph: str) -> Iterator[Finding]:
    spec = recipe.graphs.get(graph)
    if spec is not None and len(spec.padded) == 1 and not spec.has_utterances:
        yield Finding("chunks", graph, next(iter(spec.padded)))


def _check(shipped: Shipped, advance: Advance) -> Checked:
    graph, original = shipped.graph, shipped.original
    axis, emitted = chunk_axis(graph.lowered), graph.built.artifacts[0]
    assert axis is not None
    spec = shipped.loaded.recipe.graphs[shipped.name]
    feeds = of_every_length(graph.lowered, original.streams()[0])
    feeds += Flush(spec.flush, spec.flush_values).feeds(graph.lowered, feeds[-1], axis)
    lengths = [length_of(graph.lowered, axis, feed) for feed in feeds]
    try:
        streams = [
            [OriginalCall(feed, *answer) for feed, answer in zip(each, original.run(each), strict=True)]
            for each in streams_that_fit(graph.lowered, feeds)
        ]
    except Exception as error:
        raise DataError(
            f"expected the original to answer chunks of {min(lengths)} to {max(lengths)} entries along {axis.axis!r}, "
            f"got {' '.join(str(error).split())[:200]}",
            cure="give the chunks one size, fixed, where the model takes no others",
            place=Place(stage="verify", graph=shipped.name, axis=axis.axis),
        ) from error
    runners = BucketRunners(graph.lowered, graph.built.artifacts, lambda file: shipped.open(shipped.folder / file))
    rows = runners.rows(emitted)
    differences, compared = [], 0
    for steps in streams:
        repeated = steps if rows == 1 else [step.repeated(rows) for step in steps]
        done = functools.partial(_advanced, advance, compared, len(feeds))
        differences += compare(runners.record(emitted), runners.runner(emitted), repeated, done)
        compared += len(steps)
    told = f"{len(set(lengths))} lengths from {min(lengths)} to {max(lengths)}{', flushed' if spec.flush else ''}"
    try:
        require_parity(shipped.name, "verify chunks", differences, graph.limits, "report the graph and the length")
    except GateFailed as error:
        error.findings = (Finding("chunks", shipped.name, axis.axis, holds=False, detail=told),)
        raise graph.explain(error, streams[0], graph.limits, advance) from None
    return Checked(
        [Finding("chunks", shipped.name, axis.axis, holds=True, detail=told)],
        f"chunks of {told}",
        {"chunks": {"lengths": lengths, "compared": [dataclasses.asdict(each) for each in differences]}},
    )


def _advanced(advance: Advance, before: int, most: int, done: int) -> None:
    """Tell of the calls of one stream, behind those of others."""
    advance(before + done, most)


CHUNKS = Gate("chunks", _check, _promised, stage="verify")
