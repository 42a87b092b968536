"""Bundles of schema 3 load as they are, and say no more than they said; a kept one stands for all of them."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import BundleRefused, Runtime, json_from_manifest, manifest_from_json, read_bundle
from runtime_lite.format.graph_contract import contract_of
from runtime_lite.format.schema_3 import VERSION, contract_fields
from runtime_lite.verify import verify_model
from tests.attacks.edits import Edit, graph_of, set_at
from tests.attacks.manifest_mutants import ask, leaves, mutants
from tests.runtime_lite.bundles import edit_manifest, random_chunks, streaming_graph, truth_of_stream

KEPT = Path("tests/golden/bundles/schema_3/streaming")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KEPT, tmp_path / "bundle"))


def test_a_manifest_of_schema_3_gives_the_records_of_today() -> None:
    manifest = manifest_from_json((KEPT / "manifest.json").read_bytes())
    assert manifest.schema_version == VERSION
    assert manifest.graphs == {"streaming": streaming_graph()}
    assert manifest.wiring == ()


def test_a_bundle_of_schema_3_is_verified_and_streams() -> None:
    chunks = random_chunks(6, 3)
    with Runtime() as runtime:
        model = runtime.load(KEPT)
        assert all(comparison.holds for comparison in verify_model(model))
        with model.open_stream(rows=3) as stream:
            for chunk, (expected, _) in zip(chunks, truth_of_stream(chunks), strict=True):
                np.testing.assert_allclose(stream.push({"x": chunk})["y"], expected, atol=1e-5)


def test_what_files_of_schema_3_say_is_worded_as_they_do() -> None:
    with read_bundle(KEPT) as bundle:
        graph = bundle.manifest.graphs["streaming"]
    item = graph.artifacts[0]
    assert contract_fields(graph).keys() == {"inputs", "outputs", "axes", "states", "stream", "rows_independent"}
    assert contract_of("g", graph, item, {}, "", VERSION) != contract_of("g", graph, item, {}, "")


def test_a_name_that_another_axis_has_is_not_given_to_the_cache() -> None:
    plain = json.loads((KEPT / "manifest.json").read_bytes())
    graph = graph_of(plain)
    graph["axes"]["cache"] = {"buckets": [3], "length_input": None, "minimum": 1}
    graph["inputs"][0]["shape"] = ["batch", "cache", 2]
    for artifact in graph["artifacts"]:
        artifact["sizes"]["cache"] = 3
    found = manifest_from_json(json.dumps(plain).encode()).graphs["streaming"]
    assert [cache.axis for cache in found.caches] == [state.cache for state in found.states] == ["cache_"]


def test_a_manifest_of_schema_3_is_not_written_again() -> None:
    manifest = manifest_from_json((KEPT / "manifest.json").read_bytes())
    with pytest.raises(BundleRefused, match="expected a Manifest of schema 4, got one of schema 3; rebuild the bundle"):
        json_from_manifest(manifest)
    assert json_from_manifest(dataclasses.replace(manifest, schema_version=4))


EDITS: dict[str, tuple[Edit, str]] = {
    "wires": (lambda m: m.update(wiring=[1]), "wiring: expected an empty list, got wired graphs"),
    "words of today": (set_at("caches", to=[]), "graphs.streaming: expected only the keys"),
    "rows of today": (set_at("batch_axis", to="batch"), "graphs.streaming: expected only the keys"),
    "left alignment": (set_at("stream", "alignment", to="left"), "alignment: expected one of right, got 'left'"),
    "unknown update": (set_at("states", 0, "update", to="append"), "update: expected one of replace, got 'append'"),
    "another window of a state": (set_at("states", 0, "window", to=4), "window: expected the window of the stream"),
    "true as a window": (set_at("states", 0, "window", to=True), "window: expected an integer from 1"),
    "no stream": (set_at("stream", to=None), "window: expected the window of the stream, or null, got 5"),
    "axes as a list": (set_at("axes", to=[]), "axes: expected an object, got []"),
    "states as a text": (set_at("states", to="keys"), "states: expected a list, got 'keys'"),
    "stream as a list": (set_at("stream", to=[1]), "stream: expected an object, got [1]"),
    "slots as a text": (set_at("stream", "window", to="5"), "window: expected the window of the stream"),
}


@pytest.mark.parametrize("attack", EDITS)
def test_hostile_words_are_refused(bundle: Path, attack: str) -> None:
    edit, sentence = EDITS[attack]
    edit_manifest(bundle, edit)
    with pytest.raises(BundleRefused) as refused:
        read_bundle(bundle)
    assert sentence in str(refused.value)


def test_changed_words_of_schema_3_change_no_answer_in_silence(bundle: Path) -> None:
    chunks = random_chunks(3)

    def probe(model: Any) -> dict[str, Any]:
        with model.open_stream() as stream:
            return {f"y{number}": stream.push({"x": chunk})["y"] for number, chunk in enumerate(chunks)}

    path = bundle / "manifest.json"
    plain = json.loads(path.read_bytes())
    truth = ask(bundle, probe)
    assert truth is not None and list(leaves(plain))
    for what, changed in mutants(plain):
        if ".stream" not in what and ".states" not in what:
            continue
        path.write_text(json.dumps(changed))
        got = ask(bundle, probe)
        assert got is None or all(np.array_equal(got[name], truth[name]) for name in truth), what
