"""Which graph runs a model at one of its latencies: named by the caller, or refused with the names that there are."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runtime_lite
from runtime_lite.errors import BadInput, BundleRefused
from runtime_lite.format.describe import describe_bundle
from runtime_lite.format.latencies import graph_at, latencies_of
from runtime_lite.format.manifest import Latency, Wire
from runtime_lite.format.reader import read_bundle
from tests.runtime_lite.bundles import (
    edit_manifest,
    manifest_of,
    plain_graph,
    random_chunks,
    streaming_graph,
    truth_of_stream,
    write_latencies_bundle,
    write_streaming_bundle,
)

GRAPHS = {
    f"asr_{name}": dataclasses.replace(streaming_graph(), latency=Latency("asr", name)) for name in ("fast", "exact")
}
ALONE = manifest_of(GRAPHS, {})
BESIDE = manifest_of({**GRAPHS, "plain": plain_graph()}, {})


def test_a_latency_names_its_graph_with_or_without_the_model() -> None:
    assert latencies_of(BESIDE) == {"asr": {"fast": "asr_fast", "exact": "asr_exact"}}
    for manifest in (ALONE, BESIDE):
        assert graph_at("here", manifest, "asr", "exact") == "asr_exact"
        assert graph_at("here", manifest, None, "fast") == "asr_fast"
        assert graph_at("here", manifest, "asr_fast", None) == "asr_fast"
    assert graph_at("here", BESIDE, "plain", None) == "plain"
    assert graph_at("here", BESIDE, None, None) is None


WRONG: dict[str, tuple[Any, Any, str]] = {
    "no latency": ("asr", None, "expected latency of 'asr' as one of 'fast', 'exact', got none; pass latency=..."),
    "no latency of the only model": (None, None, "expected latency of 'asr' as one of 'fast', 'exact', got none"),
    "an unknown one": ("asr", "slow", "expected latency of 'asr' as one of 'fast', 'exact', got 'slow'"),
    "a number": ("asr", 4, "expected latency of 'asr' as one of 'fast', 'exact', got 4"),
    "of a graph": ("asr_fast", "fast", "expected a model with several latencies ('asr') for latency='fast', got graph"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_latency_is_answered_with_those_that_there_are(case: str) -> None:
    graph, latency, message = WRONG[case]
    with pytest.raises(BadInput) as caught:
        graph_at("here", ALONE, graph, latency)
    assert message in str(caught.value)


def test_streams_of_several_latencies_run_side_by_side(tmp_path: Path) -> None:
    chunks = random_chunks(4)
    with runtime_lite.Runtime() as runtime:
        model = runtime.load(write_latencies_bundle(tmp_path, beside=True))
        assert model.latencies == {"asr": {"fast": "asr_fast", "exact": "asr_exact"}}
        streams = [model.open_stream(latency="fast"), model.open_stream("asr", latency="exact")]
        for chunk, (expected, _) in zip(chunks, truth_of_stream(chunks), strict=True):
            for stream in streams:
                np.testing.assert_allclose(stream.push({"x": chunk})["y"], expected, atol=1e-5)
        with pytest.raises(BadInput, match="expected the name of one of its graphs"):
            model.open_stream()
    assert "asr    fast     asr_fast" in describe_bundle(read_bundle(tmp_path))


def test_a_bundle_without_latencies_takes_none(tmp_path: Path) -> None:
    with runtime_lite.Runtime() as runtime:
        model = runtime.load(write_streaming_bundle(tmp_path))
        assert model.latencies == {}
        with pytest.raises(BadInput, match=r"expected a model with several latencies \(none\) for latency='fast'"):
            model.open_stream(latency="fast")


HOSTILE: dict[str, tuple[Any, str]] = {
    "a list": (["asr", "fast"], "latency"),
    "another key": ({"of": "asr", "name": "fast", "ms": 4}, "latency"),
    "the name of a graph": ({"of": "asr_exact", "name": "fast"}, "expected a name that no graph has, got 'asr_exact'"),
    "one twice": ({"of": "asr", "name": "exact"}, "expected another latency than that of every other graph, got that"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_manifest_whose_latencies_contradict_is_refused(case: str, tmp_path: Path) -> None:
    latency, message = HOSTILE[case]
    write_latencies_bundle(tmp_path)
    edit_manifest(tmp_path, lambda manifest: manifest["graphs"]["asr_fast"].update(latency=latency))
    with pytest.raises(BundleRefused, match="latency") as caught:
        read_bundle(tmp_path)
    assert message in str(caught.value)


def test_a_wired_graph_has_no_latency(tmp_path: Path) -> None:
    write_latencies_bundle(tmp_path, beside=True)
    wire = dataclasses.asdict(Wire("asr_fast", "y", "plain", "x"))
    edit_manifest(tmp_path, lambda manifest: manifest.update(wiring=[wire]))
    with pytest.raises(BundleRefused, match="expected none in a graph that is wired, got 'fast'"):
        read_bundle(tmp_path)
