"""TOSA graphs for an Ethos-U: what the host computes, how numbers become integers, and what is refused.

A stub takes the place of Arm's reference model: it adds its two inputs.
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from runtime_lite import BundleRefused, EngineAbsent, InternalError, Runtime, read_bundle
from runtime_lite.executors.ethos_u import Border, EthosUExecutor
from runtime_lite.format.arrays import Array
from runtime_lite.format.golden import npz_from_golden
from runtime_lite.format.graph_contract import contract_of, with_contract
from runtime_lite.format.manifest import Engine
from runtime_lite.format.manifest_json import json_from_manifest
from tests.runtime_lite.bundles import (
    FRONT_END,
    WIDTH,
    entry_of,
    graph_files,
    manifest_of,
    plain_golden,
    plain_graph,
)

PLAN = "ethos_u/plain.build_plan.json"

SIZES = {"batch": 1, "frames": 2}

HOST = """<ir_version: 10, opset_import: ["" : 20]> host (int64[n] shift) => (float[n,1,1] number)
<int64[2] axes = {1, 2}> { real = Cast<to = 1>(shift)  number = Unsqueeze(real, axes) }"""

BEHIND = """<ir_version: 10, opset_import: ["" : 20]> behind (float[n,2,m] half, float[n,1,1] number)
=> (float[n,2,m] y) { sum = Add(half, number)  y = Neg(sum) }"""
"""What `leaving` computes of the device's output and of the host's."""

BORDER = {
    "inputs": [
        {"name": "x", "scale": 0.5, "zero_point": 3, "dtype": "int8"},
        {"name": "number", "scale": 1.0, "zero_point": 0, "dtype": "int8"},
    ],
    "outputs": [{"name": "y", "scale": 0.5, "zero_point": -1, "dtype": "int8"}],
}


def added(tosa: bytes, inputs: list[Array]) -> tuple[list[Array], str]:
    """What the stub computes: y = x + number, in the integers of `BORDER`."""
    assert tosa == b"TOSA"
    x, number = (each.astype(np.int32) for each in inputs)
    return [np.clip(x - 3 + 2 * number - 1, -128, 127).astype(np.int8)], "GraphStatus.TOSA_VALID"


def without_change(parts: dict[str, Any]) -> None:
    """Leave a bundle as it is."""


def write_bundle(folder: Path, change: Callable[[dict[str, Any]], None] = without_change) -> Path:
    """Write a bundle of the stateless graph with an engine per bucket, after a change of its parts.

    Args:
        folder: where it goes.
        change: is given `plan`, `border`, and the content of the host's graphs, `host` and `behind`.
    """
    graph, files = plain_graph(), graph_files()
    stems = {each.file: f"engines/{Path(each.file).stem}" for each in graph.artifacts}
    programs: list[dict[str, Any]] = [
        {"engine": f"{stem}.tosa", "host": f"{stem}.host.onnx", "behind": None, "border": f"{stem}.border.json"}
        for stem in stems.values()
    ]
    plan = {"accelerator": "ethos-u85-256", "precision": "int8", "programs": programs}
    host = onnx.parser.parse_model(HOST).SerializeToString()
    behind = onnx.parser.parse_model(BEHIND).SerializeToString()
    parts = {"plan": plan, "border": json.loads(json.dumps(BORDER)), "host": host, "behind": behind}
    change(parts)
    built_with = {"accelerator": "ethos-u85-256", "precision": "int8"}
    engines = {file: f"{stem}.tosa" for file, stem in stems.items()}
    graph = dataclasses.replace(graph, target="ethos_u", engine=Engine("built", None, PLAN, engines, built_with))
    named = {path for item in graph.artifacts for path in (item.file, *item.files)} | {graph.certificate}
    kept = {name: files[name] for name in named} | {graph.golden: npz_from_golden(plain_golden())}
    kept |= {"receipts.json": b"{}\n", "recipe.yaml": b"name: tiny\ntargets: [{kind: ethos_u}]\n"}
    kept[PLAN] = json.dumps(parts["plan"]).encode()
    digest = entry_of(kept[graph.certificate]).sha256
    for item in graph.artifacts:
        kept[item.file] = with_contract(kept[item.file], contract_of("plain", graph, item, FRONT_END, digest))
    for program in programs:
        kept[program["engine"]] = b"TOSA"
        for part in ("host", "behind"):
            if program[part] is not None:
                kept[program[part]] = parts[part]
        kept[program["border"]] = json.dumps(parts["border"]).encode()
    for path, content in kept.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (folder / "manifest.json").write_bytes(json_from_manifest(manifest_of({"plain": graph}, kept)))
    return folder


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    stub = SimpleNamespace(run=added)
    monkeypatch.setitem(sys.modules, "tosa_reference_model", stub)
    return stub


def run(bundle: Path) -> Array:
    """The result for x = -1, 0, 1, 100 and a shift of 2."""
    with read_bundle(bundle) as opened:
        executor = EthosUExecutor(opened, "plain", 1)
        x = np.array([-1.0, 0.0, 1.0, 100.0], np.float32).reshape(1, 2, WIDTH)
        outputs = {"y": np.empty((1, 2, WIDTH), np.float32)}
        executor.run(SIZES, {"x": x, "shift": np.array([2], np.int64)}, outputs)
        executor.close()
        return outputs["y"]


def test_the_host_prepares_and_the_device_computes_in_integers(tmp_path: Path) -> None:
    assert run(write_bundle(tmp_path)).reshape(-1).tolist() == [1.0, 2.0, 3.0, 64.0]


def test_numbers_become_the_nearest_integers_and_are_cut_off_at_the_ends() -> None:
    border = Border("x", 0.5, 3, "int8")
    numbers = np.array([-1000.0, 0.25, 0.3, 0.75, 1000.0], np.float32)
    integers = border.integers(numbers)
    assert integers.dtype == np.int8
    assert integers.tolist() == [-128, 3, 4, 5, 127]
    assert border.numbers(integers).tolist() == [-65.5, 0.0, 0.5, 1.0, 62.0]


def test_a_graph_whose_host_has_nothing_to_do_needs_no_session(tmp_path: Path, model: SimpleNamespace) -> None:
    def alone(parts: dict[str, Any]) -> None:
        for program in parts["plan"]["programs"]:
            program["host"] = None
        del parts["border"]["inputs"][1]

    model.run = lambda tosa, inputs: ([inputs[0] - 4], "GraphStatus.TOSA_VALID")
    assert run(write_bundle(tmp_path, alone)).reshape(-1).tolist() == [-1.0, 0.0, 1.0, 62.0]


def leaving(parts: dict[str, Any]) -> None:
    """Let the host compute the output."""
    for program in parts["plan"]["programs"]:
        program["behind"] = f"{program['engine']}.behind.onnx"
    parts["border"]["outputs"][0]["name"] = "half"


def test_the_host_computes_what_leaves_the_device(tmp_path: Path) -> None:
    assert run(write_bundle(tmp_path, leaving)).reshape(-1).tolist() == [-3.0, -4.0, -5.0, -66.0]


def leaving_for_nothing(parts: dict[str, Any]) -> None:
    leaving(parts)
    parts["border"]["outputs"][0]["name"] = "other"


def of_another_accelerator(parts: dict[str, Any]) -> None:
    parts["plan"]["accelerator"] = "ethos-u55-128"


def with_another_output(parts: dict[str, Any]) -> None:
    parts["border"]["outputs"][0]["name"] = "z"


def with_another_input(parts: dict[str, Any]) -> None:
    parts["border"]["inputs"][1]["name"] = "numbers"


def without_a_step(parts: dict[str, Any]) -> None:
    parts["border"]["inputs"][0]["scale"] = 0.0


def with_other_integers(parts: dict[str, Any]) -> None:
    parts["border"]["inputs"][0]["dtype"] = "uint8"


def without_a_host(parts: dict[str, Any]) -> None:
    parts["host"] = b"no graph"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (of_another_accelerator, "expected engines for the accelerator ethos-u55-128, got those for 'ethos-u85-256'"),
        (with_another_output, r"expected outputs as the manifest lists them \(\['y'\]\), got \['z'\]"),
        (with_another_input, r"expected inputs that the host has, got \['numbers'\]"),
        (without_a_step, "expected a number from 1e-30"),
        (with_other_integers, "dtype"),
        (without_a_host, "expected a graph for the host, got"),
        (leaving_for_nothing, r"expected outputs as the manifest lists them \(\['y'\]\), got \['other'\]"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    change: Callable[[dict[str, Any]], None], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(BundleRefused, match=sentence):
        run(write_bundle(tmp_path, change))


def test_a_changed_byte_of_a_tosa_graph_is_refused(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path)
    (bundle / "engines/plain.batch1.frames2.tosa").write_bytes(b"TOSB")
    with pytest.raises(BundleRefused, match=r"plain\.batch1\.frames2\.tosa"):
        run(bundle)


def test_a_graph_that_the_reference_model_does_not_run_is_an_error_of_one_run(
    tmp_path: Path, model: SimpleNamespace
) -> None:
    model.run = lambda tosa, inputs: ([], "GraphStatus.TOSA_ERROR")
    with pytest.raises(InternalError, match=r"expected a TOSA graph that the reference model runs, got .*TOSA_ERROR"):
        run(write_bundle(tmp_path))


def test_without_the_reference_model_the_error_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = write_bundle(tmp_path)
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(tmp_path / "none"))
    with Runtime() as runtime, pytest.raises(EngineAbsent, match=r"expected Arm's reference model in .*none/ethos_u"):
        runtime.load(bundle)
    monkeypatch.setitem(sys.modules, "tosa_reference_model", None)
    with pytest.raises(EngineAbsent, match="expected the packages tosa-tools and onnxruntime, got"):
        run(bundle)
