"""Contexts of Qualcomm's HTP: who opens them, what is checked, and what is said where nothing runs them.

A stand-in for the provider lives in an environment of its own, as the provider does, and is imported nowhere else.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler.targets.qnn.environment import ENVIRONMENT
from runtime_lite import BundleRefused, EngineAbsent, Runtime, read_bundle
from runtime_lite.__main__ import main
from runtime_lite.executors import qnn
from runtime_lite.executors.executor import is_simulated, make_executor
from runtime_lite.executors.simulator import SimulatorExecutor
from runtime_lite.format.arrays import Array
from runtime_lite.format.golden import npz_from_golden
from runtime_lite.format.graph_contract import contract_of, with_contract
from runtime_lite.format.manifest import Engine
from runtime_lite.format.manifest_json import json_from_manifest
from tests.kit.stand_in_environment import folder_with_stand_in
from tests.runtime_lite.bundles import (
    FRONT_END,
    WIDTH,
    edit_manifest,
    entry_of,
    graph_files,
    manifest_of,
    plain_golden,
    plain_graph,
)

PLAN = "qnn/plain.build_plan.json"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of environments with the stand-in."""
    return folder_with_stand_in(ENVIRONMENT, "stand_in_qnn", tmp_path_factory)


@pytest.fixture
def bundle(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle of the stateless graph with a context per bucket, where the simulator is."""
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(here))
    return write_contexts(tmp_path / "bundle")


def write_contexts(folder: Path, number: int = 43) -> Path:
    """Write a bundle whose engines are contexts of the stand-in, each with its weights inside."""
    graph, files = plain_graph(), graph_files()
    engines = {each.file: f"engines/{Path(each.file).name}" for each in graph.artifacts}
    graph = dataclasses.replace(
        graph, target="qnn", engine=Engine("built", None, PLAN, engines, {"soc": "43", "onnxruntime-qnn": "2.7.0"})
    )
    named = {path for item in graph.artifacts for path in (item.file, *item.files)} | {graph.certificate}
    kept = {name: files[name] for name in named} | {
        graph.golden: npz_from_golden(dataclasses.replace(plain_golden(), tolerance=0.01))
    }
    kept |= {"receipts.json": b"{}\n", "recipe.yaml": b"name: tiny\ntargets: [{kind: qnn}]\n"}
    kept[PLAN] = json.dumps({"soc": {"number": number, "name": "SM8550"}}).encode()
    digest = entry_of(kept[graph.certificate]).sha256
    for item in graph.artifacts:
        kept[item.file] = with_contract(kept[item.file], contract_of("plain", graph, item, FRONT_END, digest))
    for path in ("graphs", "golden", "certificates", "qnn", "engines"):
        (folder / path).mkdir(parents=True)
    for path, content in kept.items():
        (folder / path).write_bytes(content)
    for source, target in engines.items():
        model = onnx.load(folder / source)
        model.metadata_props.add(key="stand_in.context", value="43")
        kept[target] = model.SerializeToString()
        (folder / target).write_bytes(kept[target])
    (folder / "manifest.json").write_bytes(json_from_manifest(manifest_of({"plain": graph}, kept)))
    return folder


def feeds(rows: int = 1) -> dict[str, Array]:
    return {"x": np.ones((rows, 2, WIDTH), np.float32), "shift": np.zeros(rows, np.int64)}


def test_contexts_run_in_the_simulator_and_are_labelled_so(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with read_bundle(bundle) as opened:
        executor = make_executor(opened, "plain", 1)
        assert isinstance(executor, SimulatorExecutor) and is_simulated(executor)
        executor.close()
    with Runtime() as runtime:
        assert runtime.load(bundle).simulated == ("plain",)
    assert main(["verify", str(bundle)]) == 0
    assert "plain: executed in the vendor's simulator, on no device" in capsys.readouterr().out


def test_without_simulator_and_device_the_error_names_both(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(tmp_path / "none"))
    with Runtime() as runtime, pytest.raises(EngineAbsent) as caught:
        runtime.load(bundle)
    assert str(caught.value) == (
        f"{bundle}: graph 'plain': expected the package onnxruntime-qnn of a device, or the vendor's simulator in "
        f"{tmp_path / 'none/qnn'}, got neither; install one: `python build.py doctor --install qnn`"
    )


def test_a_provider_beside_the_runtime_is_asked_first(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr(qnn, "has_provider", lambda: True)
    monkeypatch.setattr(qnn, "QnnExecutor", lambda bundle, name, threads: opened.append((name, threads)))
    with read_bundle(bundle) as held:
        make_executor(held, "plain", 3)
    assert opened == [("plain", 3)]


def test_contexts_for_another_soc_than_the_plan_says_are_refused(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(here))
    with Runtime() as runtime, pytest.raises(BundleRefused, match=r"expected contexts for SoC 57, got those for '43'"):
        runtime.load(write_contexts(tmp_path / "stale", number=57))


def test_a_changed_byte_of_a_context_is_refused(bundle: Path) -> None:
    file = bundle / "engines/plain.batch1.frames2.onnx"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with Runtime() as runtime, pytest.raises(BundleRefused, match=r"plain\.batch1\.frames2\.onnx"):
        runtime.load(bundle).run(feeds())


@pytest.mark.parametrize("planted", ["no context", "other outputs"])
def test_a_file_that_is_no_context_of_the_graph_is_refused(planted: str, bundle: Path) -> None:
    file = bundle / "engines/plain.batch1.frames2.onnx"
    model = onnx.load(file)
    if planted == "no context":
        del model.metadata_props[:]
    else:
        model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 7
    content = model.SerializeToString()
    file.write_bytes(content)
    entry = entry_of(content)
    edit_manifest(
        bundle,
        lambda manifest: manifest["files"].update(
            {"engines/plain.batch1.frames2.onnx": {"bytes": entry.bytes, "sha256": entry.sha256}}
        ),
    )
    sentence = (
        "expected a context of Qualcomm's HTP" if planted == "no context" else "outputs as the manifest lists 'y'"
    )
    with Runtime() as runtime, pytest.raises(BundleRefused, match=sentence):
        runtime.load(bundle).run(feeds())


def test_a_provider_that_does_not_load_is_absent(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_QNN", "no devices")
    with Runtime() as runtime, pytest.raises(EngineAbsent, match="a device of the provider QNN, or its simulator"):
        runtime.load(bundle)
