"""The gate on chunks: each length is compared with the original, and one that is answered otherwise fails it."""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from compiler.build.verify.gate import Shipped
from compiler.build.verify.gates.chunks import CHUNKS
from compiler.errors import DataError, GateFailed
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.session import Session, session_of
from compiler.graph.stages import Array, Feed, Lowered
from compiler.targets.base import Emitted
from tests.kit.shipped import shipped, silent
from tests.kit.short_chunks import captured, chunk, frozen, padded


def checked(folder: Path, lowered: Lowered, most: int = 4, flush: dict[str, int] | None = None) -> Shipped:
    artifacts = [Emitted({"batch": 1, "chunk": slots}, str(slots), (), lowered) for slots in (2, 4)]
    original = captured()

    def open_file(path: Path) -> Session:
        return session_of(frozen(lowered, 1, int(path.name)))

    def run(feeds: Iterable[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        runner = runner_of(original)
        for feed in feeds:
            if feed["features"].shape[1] > most:
                raise ValueError("too long")
            outputs = runner.step(feed)
            yield outputs, dict(runner.states)

    whole = shipped(folder, None, artifacts)  # type: ignore[arg-type]
    streams = [[chunk(4, seed) for seed in range(3)]]
    originals = {"net": dataclasses.replace(whole.original, run=run, streams=lambda: streams)}
    loaded = mock.Mock()
    loaded.recipe.graphs = {"net": mock.Mock(flush=flush or {}, flush_values={})}
    return dataclasses.replace(whole, loaded=loaded, originals=originals, open=open_file)


def test_every_length_is_compared(tmp_path: Path) -> None:
    found = CHUNKS.check(checked(tmp_path, padded()), silent)
    assert [(each.gate, each.subject, each.holds, each.detail) for each in found.findings] == [
        ("chunks", "chunk", True, "4 lengths from 1 to 4")
    ]
    assert found.receipt["chunks"]["lengths"] == [4, 1, 4, 2, 4, 3, 4, 4]


def test_what_completes_a_stream_is_compared_at_its_end(tmp_path: Path) -> None:
    found = CHUNKS.check(checked(tmp_path, padded(), flush={"features": 2}), silent)
    assert found.findings[0].detail == "4 lengths from 1 to 4, flushed"
    assert found.receipt["chunks"]["lengths"] == [4, 1, 4, 2, 4, 3, 4, 4, 2]


def test_a_state_that_counts_whole_chunks_fails(tmp_path: Path) -> None:
    lowered = padded()
    for node in list(lowered.model.graph):  # the newest frames of the slots, whatever the true length
        if node.op_type == "GatherND" and "next_keys" in str(node.outputs[0].name):
            insert = graphs.Inserter(lowered.model, "test", before=node)
            bounds = [insert.int64s(-6), insert.int64s(2**62), insert.int64s(1)]
            kept = insert.op("Slice", [node.inputs[0], *bounds], name="wrong")
            graphs.take_over(lowered.model, node.outputs[0], kept)
    with pytest.raises(GateFailed) as failed:
        CHUNKS.check(checked(tmp_path, lowered), silent)
    assert [(each.gate, each.holds) for each in failed.value.findings] == [("chunks", False)]


def test_an_original_that_takes_no_such_chunk_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="to answer chunks of 1 to 4 entries along 'chunk', got too long"):
        CHUNKS.check(checked(tmp_path, padded(), most=3), silent)
