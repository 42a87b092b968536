"""A random step graph as a bundle, served: streams of different ages beside each other, last chunks, and a flush."""

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler.build.bundle.manifest_of import GraphParts, graph_record
from compiler.graph.stages import Array, Feed, Lowered
from compiler.targets.onnx_static import OnnxStatic
from runtime_lite import Runtime, Stream
from runtime_lite.format.golden import npz_from_golden
from tests.property.stream_grower import BATCH, CHUNK, Grown
from tests.runtime_lite.bundles import plain_golden, write_bundle

NET = "net"
FLUSHED = 1
"""Entries of zeros that are fed at the end of a stream."""


def write_grown(folder: Path, grown: Grown, lowered: Lowered) -> Path:
    """The bundle of a lowered graph."""
    batch = {} if grown.whole is not None else {BATCH: grown.spec.axes[BATCH].buckets or ()}
    buckets = {**batch, **({CHUNK: (grown.chunk,)} if grown.is_ragged else {})}
    built = OnnxStatic().emit(lowered, buckets)
    golden = npz_from_golden(plain_golden())
    parts = GraphParts(lowered, lowered.parts, buckets, OnnxStatic.name, built, b"{}\n", golden)
    record = dataclasses.replace(graph_record(NET, parts), flush={"features": FLUSHED} if can_flush(grown) else {})
    files = {name: bytes(content) for name, content in built.files.items()}
    return write_bundle(folder, {NET: record}, {**files, record.golden: golden, record.certificate: b"{}\n"})


def can_flush(grown: Grown) -> bool:
    """Whether a stream of it can be flushed: callers feed chunks alone, of any length."""
    return grown.is_ragged and not grown.positions and not grown.spec.held and grown.shortest <= FLUSHED


def served(
    grown: Grown, lowered: Lowered, rows: Sequence[Sequence[Feed]], starts: Sequence[int]
) -> list[list[Mapping[str, Array]]]:
    """What streams that begin at different calls are answered, by row and call; last, where there is one, the flush.

    Args:
        grown: the graph.
        lowered: what became of it.
        rows: the feeds of every row.
        starts: the call with which each row begins.
    """
    answers: list[list[Mapping[str, Array]]] = [[] for _ in rows]
    with tempfile.TemporaryDirectory() as folder, Runtime() as runtime:
        model = runtime.load(str(write_grown(Path(folder), grown, lowered)))
        streams: dict[int, Stream] = {}
        for call in range(max(start + len(feeds) for start, feeds in zip(starts, rows, strict=True))):
            now = [row for row, start in enumerate(starts) if start <= call < start + len(rows[row])]
            streams |= {row: model.open_stream() for row in now if row not in streams}
            tickets = {row: streams[row].submit(rows[row][call - starts[row]]) for row in now}
            for row, ticket in tickets.items():
                answers[row].append(ticket.result())
        for row, stream in streams.items():
            if can_flush(grown):
                answers[row].append(stream.flush())
    return answers
