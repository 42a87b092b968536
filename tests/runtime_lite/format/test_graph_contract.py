"""A graph file carries what it was built for, and a manifest that says anything else is refused when it is loaded."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from runtime_lite import BundleRefused, Runtime
from runtime_lite.format.graph_contract import KEY, contract_of, with_contract
from runtime_lite.format.onnx_file import metadata_of, with_metadata
from tests.attacks.edits import graph_of, set_at
from tests.runtime_lite.bundles import (
    CACHE,
    STREAMING_TEXT,
    edit_manifest,
    onnx_bytes,
    replace_hashed,
    streaming_graph,
    write_ragged_bundle,
    write_streaming_bundle,
)


def swap_files(manifest: dict[str, Any]) -> None:
    one, other = graph_of(manifest)["artifacts"]
    one["file"], other["file"] = other["file"], one["file"]


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "initial state": (set_at("states", 0, "initial", to=1.0), "(states[0].initial is 0.0), got 1.0"),
    "initial state of another type": (set_at("states", 0, "initial", to=0), "(states[0].initial is 0.0), got 0"),
    "front end": (lambda m: m["front_end"].update(dither=0.0), "(front_end.dither is 0.5), got 0.0"),
    "parameter of the front end dropped": (lambda m: m["front_end"].pop("dither"), "got 'nothing'"),
    "buckets swapped": (swap_files, "(sizes.batch is 4), got 1"),
    "one static file for two buckets": (
        lambda m: graph_of(m)["artifacts"][0].update(file=graph_of(m)["artifacts"][1]["file"]),
        "(sizes.batch is 4), got None",
    ),
}


def refusal(directory: Path) -> str:
    with Runtime() as runtime, pytest.raises(BundleRefused) as refused:
        runtime.load(directory)
    return str(refused.value)


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_manifest_is_refused_by_the_graph(tmp_path: Path, change: str) -> None:
    edit, words = CHANGES[change]
    directory = write_streaming_bundle(tmp_path / "bundle")
    edit_manifest(directory, edit)
    assert words in refusal(directory)


def test_frames_per_push_belong_to_the_graph(tmp_path: Path) -> None:
    """Nothing else of a graph without a mask input says how many frames a push adds."""
    graph = dataclasses.replace(streaming_graph(), caches=(dataclasses.replace(CACHE, mask_input=None),))
    other = dataclasses.replace(graph, caches=(dataclasses.replace(CACHE, mask_input=None, step=2),))
    assert contract_of("g", graph, graph.artifacts[0], {}, "") != contract_of("g", other, graph.artifacts[0], {}, "")


def test_a_smallest_length_that_was_not_proved_is_refused(tmp_path: Path) -> None:
    directory = write_ragged_bundle(tmp_path / "bundle")
    edit_manifest(directory, set_at("axes", "time", "minimum", to=1))
    assert "(axes.time.minimum is 3), got 1" in refusal(directory)


def test_rows_independent_that_is_dropped_is_refused(tmp_path: Path) -> None:
    directory = write_ragged_bundle(tmp_path / "bundle")

    def drop(plain: dict[str, Any]) -> None:
        graph = graph_of(plain)
        graph["rows_independent"] = False
        graph["axes"]["batch"]["buckets"] = [1]
        graph["artifacts"] = graph["artifacts"][:2]

    edit_manifest(directory, drop)
    for name in ("graphs/ragged.batch4.time4.onnx", "graphs/ragged.batch4.time8.onnx"):
        (directory / name).unlink()
        edit_manifest(directory, lambda plain, name=name: plain["files"].pop(name))  # type: ignore[misc]
    assert "what the graph was built for (" in refusal(directory)


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", "nonsense", '{"graph": 1}'])
def test_a_contract_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    directory = write_streaming_bundle(tmp_path / "bundle")
    content = with_metadata(onnx_bytes(STREAMING_TEXT.format(n=1)), KEY, text)
    replace_hashed(directory, "graphs/streaming.batch1.onnx", content)
    assert ": expected " in refusal(directory)


def test_metadata_is_what_the_schema_reads() -> None:
    content = with_contract(onnx_bytes(STREAMING_TEXT.format(n=1)), {"long": "x" * 100_000})
    (entry,) = onnx.load_model_from_string(content).metadata_props
    assert (entry.key, entry.value) == (KEY, '{"long":"%s"}' % ("x" * 100_000))
    assert metadata_of(content, "g") == {KEY: entry.value.encode()}


def test_a_second_contract_is_refused() -> None:
    with pytest.raises(BundleRefused, match="every key of the metadata once"):
        metadata_of(with_metadata(with_metadata(b"", KEY, "a"), KEY, "b"), "g")
