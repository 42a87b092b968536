"""What the inputs of a bundle's file hold that count, when all of a call is in use."""

import shutil
from pathlib import Path

import pytest

from compiler.front.commands.bench import bench
from compiler.front.commands.file_of_bundle import counts_in_use
from compiler.graph.stages import Feed
from tests.runtime_lite.bundles import ragged_graph, streaming_graph, write_ragged_bundle, write_streaming_bundle


def test_caches_are_full_and_rows_as_long_as_the_bucket(tmp_path: Path) -> None:
    folder = write_streaming_bundle(tmp_path / "streaming")
    assert counts_in_use(folder / streaming_graph().artifacts[0].file) == {"real_length": 5, "mask": 1}
    folder = write_ragged_bundle(tmp_path / "ragged")
    for artifact in ragged_graph().artifacts:
        assert counts_in_use(folder / artifact.file) == {"time_length": artifact.sizes["time"]}


def test_a_file_elsewhere_says_nothing(tmp_path: Path) -> None:
    folder = write_streaming_bundle(tmp_path / "bundle")
    file = folder / streaming_graph().artifacts[0].file
    alone = tmp_path / "graphs" / file.name
    alone.parent.mkdir()
    shutil.copy(file, alone)
    assert counts_in_use(alone) == {}
    (tmp_path / "manifest.json").write_text("{}")
    assert counts_in_use(alone) == {}
    other = file.parent / "other.onnx"
    shutil.copy(file, other)
    assert counts_in_use(other) == {}


def test_a_file_of_a_bundle_is_timed_with_full_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[Feed] = []

    class Watched:
        def run(self, names: object, feed: Feed) -> None:
            fed.append(feed)

    monkeypatch.setattr("compiler.front.commands.bench.open_file", lambda *_, **__: Watched())
    folder = write_streaming_bundle(tmp_path / "bundle")
    bench(str(folder / streaming_graph().artifacts[0].file), None, {}, 1, 2)
    assert fed and all(each["real_length"].tolist() == [5] and each["mask"].all() for each in fed)
