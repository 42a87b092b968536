"""Tables line up, and a description leaves nothing out."""

from pathlib import Path

from runtime_lite import read_bundle
from runtime_lite.describe import describe_bundle, format_table
from tests.runtime_lite.bundles import write_double_bundle


def test_a_table_lines_up() -> None:
    assert format_table(("a", "long"), [("wide cell", 1), ("b", "")]) == ("  a          long\n  wide cell  1\n  b")


def test_every_name_of_the_manifest_is_described(tmp_path: Path) -> None:
    with read_bundle(write_double_bundle(tmp_path / "bundle")) as bundle:
        text = describe_bundle(bundle)
        manifest = bundle.manifest
    names = [*manifest.files, *manifest.tools, *manifest.front_end, *manifest.sha256.checkpoint, manifest.sha256.recipe]
    for name, graph in manifest.graphs.items():
        names += [name, *(tensor.name for tensor in graph.inputs + graph.outputs), *graph.axes]
        names += [state.name for state in graph.states]
    assert [name for name in names if name not in text] == []
    assert all(line == line.rstrip() for line in text.splitlines())
