"""Tables line up, and a description leaves nothing out."""

import dataclasses
import json
import re
from pathlib import Path

from runtime_lite import read_bundle
from runtime_lite.format.describe import describe_bundle, format_table, json_of_bundle
from runtime_lite.format.golden import npz_from_golden
from runtime_lite.format.manifest import Axis
from tests.runtime_lite.bundles import (
    graph_files,
    ragged_golden,
    ragged_graph,
    write_bundle,
    write_double_bundle,
    write_ragged_bundle,
    write_streaming_bundle,
    write_wired_bundle,
)


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


def test_numbers_that_a_state_begins_with_are_counted(tmp_path: Path) -> None:
    with read_bundle(write_streaming_bundle(tmp_path / "bundle")) as bundle:
        (name, graph), *_ = bundle.manifest.graphs.items()
        states = (dataclasses.replace(graph.states[0], initial=(((-7.5, 1.5),),)), *graph.states[1:])
        graphs = {name: dataclasses.replace(graph, states=states)}
        changed = dataclasses.replace(bundle, manifest=dataclasses.replace(bundle.manifest, graphs=graphs))
        assert "[1, 1, 2] numbers" in describe_bundle(changed)


def test_what_feeds_what_is_described(tmp_path: Path) -> None:
    with read_bundle(write_wired_bundle(tmp_path / "bundle")) as bundle:
        text = describe_bundle(bundle)
    assert "  output       goes to\n  streaming.y  plain.x\n  streaming.y  ragged.x\n" in text


def test_json_says_whatever_the_tables_say(tmp_path: Path) -> None:
    with read_bundle(write_double_bundle(tmp_path / "bundle")) as bundle:
        tables, text = describe_bundle(bundle), json_of_bundle(bundle).decode()
    found = json.loads(text)
    assert found["schema_version"] == 1
    words = set(re.findall(r"[\w./]{12,}", tables))
    assert len(words) > 20
    assert [word for word in words if word not in text] == []


def test_lengths_formulas_and_independent_rows_are_described(tmp_path: Path) -> None:
    with read_bundle(write_ragged_bundle(tmp_path / "bundle")) as bundle:
        text = describe_bundle(bundle)
    for words in (
        "output  y            [batch, (time - 1) // 2 + 1, 2]  float32  data",
        "axis   buckets  length per row  at least",
        "batch  1, 4     -               1",
        "time   4, 8     time_length     3",
        "rows: independent; proofs in certificates/ragged.json",
    ):
        assert words in text


def test_rows_that_are_not_independent_are_described(tmp_path: Path) -> None:
    graph = ragged_graph()
    axes, artifacts = {**graph.axes, "batch": Axis((1,))}, graph.artifacts[:2]
    alone = dataclasses.replace(graph, rows_independent=False, axes=axes, artifacts=artifacts)
    files = graph_files() | {graph.golden: npz_from_golden(ragged_golden())}
    with read_bundle(write_bundle(tmp_path / "bundle", {"ragged": alone}, files)) as bundle:
        assert "rows: not proved independent, one at a time; proofs in certificates/ragged.json" in describe_bundle(
            bundle
        )
