"""Engines without a device: what is asked of the builder, and every way in which its process may end."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.errors import Refused, ToolchainAbsent
from compiler.targets.tensorrt import trial
from compiler.targets.tensorrt.trial import CAPABILITIES, VERSION, builder_version, built_trial, stand_in
from compiler.targets.toolchain import Toolchain
from tests.kit.graphs import parse
from tests.kit.rtx_library import BEHAVIOUR, LAYERS, layer_line, layer_list, write_rtx

PLAN: dict[str, Any] = {
    "workspace_bytes": 2**20,
    "optimization_level": 3,
    "profiling_verbosity": "DETAILED",
    "hardware_compatibility": "NONE",
    "flags": [],
    "cleared_flags": ["TF32"],
    "parser_flags": ["NATIVE_INSTANCENORM"],
}

ENGINE = {"graph": "graphs/g.onnx", "engine": "engines/g.plan", "profiles": [{}]}


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to build from, on a machine that has the double of the library."""
    monkeypatch.syspath_prepend(str(write_rtx(tmp_path / "site")))
    (tmp_path / "layers").write_text(layer_list(layer_line("a_0", "gemm", ("a",), ("Half",), ("Half",), "Half")))
    monkeypatch.setenv(LAYERS, str(tmp_path / "layers"))
    (tmp_path / "bundle").mkdir()
    return tmp_path / "bundle"


def test_an_engine_is_built_for_every_capability_and_described(bundle: Path) -> None:
    engine, content = built_trial(bundle, PLAN, ENGINE, ["7.5", "8.6"], " as asked")
    assert content == b"engine for 2"
    assert (engine.builder, engine.device) == (f"TensorRT-RTX {VERSION}", "compute capability 7.5, 8.6 as asked")
    assert (engine.content_hash, engine.size_bytes) == (hashlib.sha256(content).hexdigest(), len(content))
    assert engine.words == f"built by TensorRT-RTX {VERSION} for compute capability 7.5, 8.6 as asked, not run"
    assert engine.layers is not None and engine.layers[0].nodes == {"a"}


LIMITS: dict[str, dict[str, float]] = {"hang": {"BUILD_S": 2.0}, "fill": {"BUILD_BYTES": 200_000_000}}


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("crash", "expected build_trial.py to end by itself, got a process ended by SIGSEGV"),
        ("hang", "expected build_trial.py to end within 2 s, got no end"),
        ("fill", "expected build_trial.py to hold at most 200,000,000 bytes of memory, got more"),
        ("refuse", "graphs/g.onnx: expected an engine, got CHECK(op->input_layouts().size() > idx) failed."),
    ],
)
def test_a_builder_that_does_not_end_well_is_a_refusal_with_the_file(
    behaviour: str, words: str, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BEHAVIOUR, behaviour)
    for name, limit in LIMITS.get(behaviour, {}).items():
        monkeypatch.setattr(trial, name, limit)
    with pytest.raises(Refused) as caught:
        built_trial(bundle, PLAN, ENGINE, ["8.6"])
    expected = f"graphs/g.onnx: expected an engine of TensorRT-RTX {VERSION} for compute capability 8.6: {words}"
    assert caught.value.message.startswith(expected)
    assert caught.value.cure == "change the graph"


def test_the_version_is_that_of_the_library_and_asked_once(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs: list[Path] = []
    real = Toolchain.run

    def noted(self: Toolchain, request: Any, out: Path) -> None:
        runs.append(out)
        assert json.dumps(request)
        real(self, request, out)

    monkeypatch.setattr(Toolchain, "run", noted)
    builder_version.cache_clear()
    assert (builder_version(), builder_version()) == ("1.7.1.116", "1.7.1.116")
    assert len(runs) == 1
    builder_version.cache_clear()


def test_a_library_that_is_not_there_is_absent(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "PACKAGE", "tensorrt_of_another_name")
    builder_version.cache_clear()
    with pytest.raises(ToolchainAbsent, match="No module named 'tensorrt_of_another_name'"):
        builder_version()


def product(kind: str) -> Any:
    weights = {"w": np.ones((2, 2), kind)}
    name = {"float32": "float", "float16": "float16"}[kind]
    return parse(f"({name}[1,2] x, {name}[2,2] w) => ({name}[1,2] y) {{ y = MatMul(x, w) }}", weights)


@pytest.mark.parametrize(
    ("capability", "kind", "built"),
    [
        ("7.5", "float16", "7.5"),
        ("7.5", "float32", "8.6"),
        ("8.9", "float32", "8.9"),
        ("8.7", "float16", "8.6"),
        ("9.0", "float16", "8.9"),
        ("10.0", "float16", "8.9"),
        ("13.0", "float16", "12.1"),
    ],
)
def test_what_it_does_not_build_for_has_a_stand_in_with_its_reason(capability: str, kind: str, built: str) -> None:
    got, why = stand_in(capability, product(kind))
    assert (got, bool(why)) == (built, built != capability)
    assert got in CAPABILITIES
    assert not why or f"in the place of {capability}" in why
