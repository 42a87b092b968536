"""Bundles from before a key was known read as they did; what says something is written."""

import dataclasses
import json
from pathlib import Path

from runtime_lite import json_from_manifest, manifest_from_json, read_bundle
from runtime_lite.format.graph_contract import contract_of
from runtime_lite.format.later_keys import OF_CACHE, OF_GRAPH
from tests.runtime_lite.bundles import write_double_bundle, write_streaming_bundle


def test_what_says_nothing_is_not_written_and_reads_as_nothing(tmp_path: Path) -> None:
    path = write_streaming_bundle(tmp_path / "b")
    graph = json.loads((path / "manifest.json").read_bytes())["graphs"]["streaming"]
    assert not OF_GRAPH.keys() & graph.keys()
    assert not any(OF_CACHE.keys() & cache.keys() for cache in graph["caches"])
    with read_bundle(path) as bundle:  # and what its graph files say agrees
        read = bundle.manifest.graphs["streaming"]
    assert (read.flush, [cache.added for cache in read.caches]) == ({}, [None] * len(read.caches))


def test_what_says_something_is_written_everywhere(tmp_path: Path) -> None:
    with read_bundle(write_streaming_bundle(tmp_path / "b")) as bundle:
        manifest = bundle.manifest
    graph = manifest.graphs["streaming"]
    caches = tuple(dataclasses.replace(cache, added=str(cache.step)) for cache in graph.caches)
    lagging = dataclasses.replace(graph, caches=caches)
    told = contract_of("streaming", lagging, graph.artifacts[0], {}, "")
    assert [cache["added"] for cache in told["caches"]] == [cache.added for cache in caches]
    said = contract_of(
        "streaming",
        dataclasses.replace(graph, flush={"x": 1}, flush_values={"x": 2.0}, options={"precision": "float32"}),
        graph.artifacts[0],
        {},
        "",
    )
    assert (said["flush"], said["flush_values"]) == ({"x": 1}, {"x": 2.0})
    assert said["options"] == {"precision": "float32"}


def test_a_key_that_is_written_out_reads_as_one_that_is_left_out(tmp_path: Path) -> None:
    text = (write_streaming_bundle(tmp_path / "b") / "manifest.json").read_bytes()
    plain = json.loads(text)
    graph = plain["graphs"]["streaming"]
    graph.update(OF_GRAPH)
    for cache in graph["caches"]:
        cache.update(OF_CACHE)
    manifest = manifest_from_json(json.dumps(plain).encode())
    assert manifest == manifest_from_json(text)
    assert json_from_manifest(manifest) == text


def test_the_range_of_an_input_is_written_where_there_is_one(tmp_path: Path) -> None:
    with read_bundle(write_double_bundle(tmp_path / "b")) as bundle:
        manifest = bundle.manifest
    plain = manifest.graphs["plain"]
    inputs = tuple(dataclasses.replace(each, range=(-1, 7) if each.name == "shift" else None) for each in plain.inputs)
    graph = dataclasses.replace(plain, inputs=inputs)
    text = json_from_manifest(dataclasses.replace(manifest, graphs={**manifest.graphs, "plain": graph}))
    written = {each["name"]: each for each in json.loads(text)["graphs"]["plain"]["inputs"]}
    assert (written["shift"]["range"], "range" in written["x"]) == ([-1, 7], False)
    assert json_from_manifest(manifest_from_json(text)) == text
    told = contract_of("plain", graph, graph.artifacts[0], {}, "")
    assert [each.get("range") for each in told["inputs"]] == [None, [-1, 7]]
