"""What a backend is handed: contents whose hashes were checked, of the files that the manifest lists."""

from pathlib import Path

import pytest

from runtime_lite import BundleRefused, read_bundle
from runtime_lite.executors.graph_file import GraphFile, read_graph_file
from tests.runtime_lite.bundles import (
    STREAMING_TEXT,
    WEIGHT,
    edit_manifest,
    onnx_bytes,
    replace_graph,
    write_streaming_bundle,
)

FILE = "graphs/streaming.batch1.onnx"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_streaming_bundle(tmp_path / "bundle")


def read(directory: Path) -> GraphFile:
    with read_bundle(directory) as bundle:
        graph = bundle.manifest.graphs["streaming"]
        return read_graph_file(bundle, graph, graph.artifacts[0])


def test_a_file_comes_with_what_it_reads_under_the_names_that_it_writes(directory: Path) -> None:
    file = read(directory)
    assert file.where == f"{directory}: {FILE}"
    assert file.content == (directory / FILE).read_bytes()
    assert file.data == {"weights.bin": WEIGHT.tobytes()}


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        (onnx_bytes(STREAMING_TEXT.format(n=1), "other.bin"), r"external data in \['weights.bin'\], got 'other.bin'"),
        (onnx_bytes(STREAMING_TEXT.format(n=1), "../graphs/weights.bin"), "got '../graphs/weights.bin'"),
        (onnx_bytes(STREAMING_TEXT.format(n=1), offset=8), "within the 16 bytes of 'graphs/weights.bin', got data up"),
        (
            onnx_bytes(STREAMING_TEXT.format(n=1).replace('"" : 20', '"" : 19')),
            "opset 20, as the manifest says, got 10",
        ),
    ],
)
def test_a_file_that_disagrees_with_the_manifest_is_refused(directory: Path, content: bytes, refused: str) -> None:
    replace_graph(directory, FILE, content)
    with pytest.raises(BundleRefused, match=refused):
        read(directory)


def test_a_file_of_another_hash_is_refused(directory: Path) -> None:
    edit_manifest(directory, lambda plain: plain["files"]["graphs/weights.bin"].update(sha256="0" * 64))
    with pytest.raises(BundleRefused, match=r"weights\.bin"):
        read(directory)
