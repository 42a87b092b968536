"""Which executor a graph gets, and what is said where there is none."""

from pathlib import Path

import pytest

from runtime_lite import EngineAbsent, Runtime, read_bundle
from runtime_lite.__main__ import main
from runtime_lite.executors.executor import make_executor
from runtime_lite.executors.onnx import OnnxExecutor
from runtime_lite.executors.tensorrt import TensorrtExecutor
from runtime_lite.format.describe import describe_bundle
from tests.runtime_lite.bundles import edit_manifest, write_plain_bundle
from tests.runtime_lite.engines import REASON, use_doubles, write_engine_bundle


def test_the_engine_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_doubles(monkeypatch)
    with read_bundle(write_plain_bundle(tmp_path / "plain")) as bundle:
        assert isinstance(make_executor(bundle, "plain", 1), OnnxExecutor)
    with read_bundle(write_engine_bundle(tmp_path / "engine")) as bundle:
        assert isinstance(make_executor(bundle, "plain", 1), TensorrtExecutor)


def test_an_engine_that_is_not_built_is_one_sentence_with_its_cure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_engine_bundle(tmp_path / "b", built=False)
    expected = (
        f"{path}: graph 'plain': expected an engine, got none, {REASON}; "
        f"run `python build.py finish {path}` on the machine with the device"
    )
    with Runtime() as runtime, pytest.raises(EngineAbsent) as caught:
        runtime.load(path)
    assert str(caught.value) == expected
    assert main(["verify", str(path)]) == 5
    assert capsys.readouterr().err == f"error: {expected}\n"


def test_inspect_says_in_capitals_that_the_engine_is_missing(tmp_path: Path) -> None:
    with read_bundle(write_engine_bundle(tmp_path / "b", built=False)) as bundle:
        assert f"engine: NOT BUILT: {REASON}; plan tensorrt/plain.build_plan.json" in describe_bundle(bundle)
    with read_bundle(write_engine_bundle(tmp_path / "c")) as bundle:
        assert "engine: built with compute capability 7.5, device T4, tensorrt 10.99.0" in describe_bundle(bundle)


def test_engines_that_this_runtime_does_not_know_are_not_run(tmp_path: Path) -> None:
    path = write_engine_bundle(tmp_path / "b")
    edit_manifest(path, lambda manifest: manifest["graphs"]["plain"].update(target="abacus"))
    with (
        Runtime() as runtime,
        pytest.raises(EngineAbsent, match=r"this runtime runs \(ethos_u, qnn, tensorrt, tensorrt_rtx\), got those of"),
    ):
        runtime.load(path)
