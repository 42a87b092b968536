"""The target for PCs: what it writes, refuses, builds here, and says of a machine without the device."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.base.pieces import write_files
from compiler.errors import RecipeError, Refused
from compiler.graph.stages import Lowered
from compiler.targets.base import Part, TrialEngine
from compiler.targets.tensorrt import trial
from compiler.targets.tensorrt.rtx_target import TensorrtRtx
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors.cuda import Device
from tests.kit.graphs import parse


@pytest.fixture(autouse=True)
def without_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Device:
        raise EngineAbsent("CUDA: expected a CUDA device, got none; buy one")

    monkeypatch.setattr("runtime_lite.executors.cuda.probe", refuse)
    monkeypatch.setitem(sys.modules, trial.PACKAGE, None)


def lowered(kind: str = "float16") -> Lowered:
    name = {"float16": "float16", "float32": "float"}[kind]
    text = f"({name}[batch,4] x, {name}[4,4] w) => ({name}[batch,4] y) {{ y = MatMul(x, w) }}"
    return Lowered("net", parse(text, {"w": np.ones((4, 4), kind)}), batch_axis="batch")


def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The builder is here, and builds."""

    def part(*, is_needed: bool) -> Part:
        return Part("TensorRT-RTX builder", trial.VERSION, is_needed=is_needed)

    def built(
        bundle: Path, plan: Mapping[str, Any], engine: Mapping[str, Any], capabilities: Sequence[str]
    ) -> tuple[TrialEngine, bytes]:
        assert (bundle / engine["graph"]).is_file()
        content = f"{engine['graph']} for {' '.join(capabilities)}".encode()
        return TrialEngine("RTX", "a PC", "0" * 64, len(content), ()), content

    for module in ("parts", "rtx_target"):
        monkeypatch.setattr(f"compiler.targets.tensorrt.{module}.trial_part", part)
    monkeypatch.setattr(trial, "built_trial", built)


def test_graphs_and_a_plan_are_written_and_no_engine_without_the_builder() -> None:
    built = TensorrtRtx().emit(lowered(), {"batch": (1, 4)})
    assert built.engine is not None
    assert (built.engine.status, built.engine.reason) == ("not built", "no package tensorrt_rtx")
    plan = json.loads(bytes(built.files["tensorrt_rtx/net.build_plan.json"]))
    assert plan["compute_capabilities"] == ["8.6", "8.9", "12.0"]
    assert [engine["engine"] for engine in plan["engines"]] == ["engines/net.batch1.plan", "engines/net.batch4.plan"]
    assert (plan["builder"]["flags"], plan["builder"]["cleared_flags"]) == ([], ["TF32"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"compute_capabilities": ()}, "expected some of 7.5, 8.0, .*, each once, got none"),
        ({"compute_capabilities": ("9.0",)}, "got 9.0"),
        ({"compute_capabilities": ("8.6", "8.6")}, "got 8.6, 8.6"),
        ({"opset": 5}, "opset: expected from 9 to 25, got 5"),
        ({"optimization_level": 7}, "optimization_level: expected from 0 to 5, got 7"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        TensorrtRtx(**options)


def test_products_in_float32_are_refused_for_turing_alone() -> None:
    TensorrtRtx().emit(lowered("float32"), {"batch": (1,)})
    with pytest.raises(Refused, match=r"no product in float32 for compute capability 7.5, .* got MatMul") as caught:
        TensorrtRtx(compute_capabilities=("7.5", "8.6")).emit(lowered("float32"), {"batch": (1,)})
    assert caught.value.place.node == "y_matmul"
    TensorrtRtx(compute_capabilities=("7.5",)).emit(lowered(), {"batch": (1,)})


def test_engines_are_built_without_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    target = TensorrtRtx(compute_capabilities=("8.6", "8.9"))
    write_files(tmp_path / "bundle", target.emit(lowered(), {"batch": (1, 4)}).files)
    assert target.absent() is None
    (compiled,) = target.compile(tmp_path / "bundle", tmp_path / "out", tmp_path).items()
    assert compiled[0] == "tensorrt_rtx/net.build_plan.json"
    assert compiled[1].built_with == {"tensorrt_rtx": trial.VERSION, "compute capabilities": "8.6, 8.9"}
    for graph, engine in compiled[1].files.items():
        assert (tmp_path / "out" / engine).read_text() == f"{graph} for 8.6 8.9"


def test_what_this_machine_does_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = TensorrtRtx()
    assert target.engine_outlook() == (
        "graphs are linted, engines are not built (no package tensorrt_rtx; pip install tensorrt-rtx-cu13==1.7.1.116)"
    )
    assert target.trial_builder(tmp_path) is None
    assert [part.is_needed for part in target.parts()] == [True, False, False]
    installed(monkeypatch)
    assert target.trial_builder(tmp_path) is not None
    assert target.engine_outlook() == (
        "graphs are linted, engines are built here for 8.6, 8.9, 12.0, and not run (CUDA: expected a CUDA device, got "
        "none)"
    )
    monkeypatch.setattr("runtime_lite.executors.cuda.probe", lambda: Device("T4", "7.5", "13.0"))
    assert target.cannot_run() == "expected a device of compute capability 8.6, 8.9, 12.0, got T4 of 7.5"
    monkeypatch.setattr("runtime_lite.executors.cuda.probe", lambda: Device("RTX 4060", "8.9", "13.0"))
    assert target.cannot_run() is None
    assert target.engine_outlook().endswith("and run here")
