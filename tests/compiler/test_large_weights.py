"""Weights are written apart from capture to bundle: no protobuf holds all of them, and memory few copies.

What a protobuf may hold is lowered to less than one weight has; what sessions may copy, to less than a model has.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import yaml

from compiler.graph.runners import session, structure
from tests.kit.models.project import Project

LARGEST = 60_000
"""Bytes of the largest protobuf here; a weight of the model has 65 536."""

MODEL = """
import torch
from torch import nn


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(3))

    def forward(self, x, past):
        joined = torch.cat([past, x], dim=1)
        y = joined[:, -2:] + joined.mean(dim=1, keepdim=True)
        for layer in self.layers:
            y = torch.tanh(layer(y))
        return y, joined


def build():
    torch.manual_seed(0)
    return Stack().eval()
"""

DATA = """
import numpy as np


def streams():
    random = np.random.default_rng(0)
    return [[{"x": random.standard_normal((1, 2, 128), dtype=np.float32)} for _ in range(6)]]


def calibration():
    return [[{"x": 2 * feed["x"]} for feed in stream] for stream in streams()]
"""

RECIPE: dict[str, Any] = {
    "name": "mine",
    "graphs": {
        "net": {
            "source": {"factory": "my_model:build"},
            "inputs": {
                "x": {"shape": ["batch", 2, 128], "dtype": "float32"},
                "past": {"shape": ["batch", "cached", 128], "dtype": "float32", "state": "next_past"},
            },
            "outputs": ["y", "next_past"],
            "axes": {"batch": {"buckets": [1]}, "cached": {"window": 8}},
        }
    },
    "data": {"verification": {"feeds": "my_data:streams", "count": 1}},
    "targets": [{"kind": "onnx_static"}],
    "gates": {"parity": {"net": {"max_abs": 1.0e-4, "chained_steps": 6}}},
}


@pytest.fixture
def _small_protobufs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No protobuf of more bytes is written, or opened from memory."""
    serialize, opened = ir.serde.serialize_model, onnxruntime.InferenceSession

    def serialize_model(model: ir.Model) -> onnx.ModelProto:
        proto: onnx.ModelProto = serialize(model)
        assert proto.ByteSize() <= LARGEST, "all weights are in one protobuf"
        return proto

    def open_session(model: bytes | str, *rest: Any, **more: Any) -> onnxruntime.InferenceSession:
        assert len(model) <= LARGEST
        return opened(model, *rest, **more)

    monkeypatch.setattr(ir.serde, "serialize_model", serialize_model)
    monkeypatch.setattr(onnxruntime, "InferenceSession", open_session)
    monkeypatch.setattr(structure, "LARGEST_PROTOBUF", LARGEST)
    monkeypatch.setattr(session, "MOST_PACKED_BYTES", LARGEST)


def built(folder: Path, recipe: dict[str, Any]) -> Project:
    project = Project(folder, folder / "cache")
    project.write("my_model.py", MODEL)
    project.write("my_data.py", DATA)
    project.write("mine.yaml", yaml.safe_dump(recipe, sort_keys=False))
    ended = project.build(recipe="mine.yaml")
    assert ended.code == 0, ended.err
    return project


@pytest.mark.slow
@pytest.mark.usefixtures("_small_protobufs")
@pytest.mark.parametrize("rounding", [None, "quantize_dynamic", "quantize_static", "lower_precision"])
def test_a_build_writes_weights_apart(tmp_path: Path, rounding: str | None) -> None:
    recipe = RECIPE
    if rounding is not None:
        net = {**RECIPE["graphs"]["net"], "passes": ["standard", rounding]}
        limits = {"max_abs": 1.0e-4, "chained_steps": 6, "lossy": {"max_abs": 0.5}}
        data = {**RECIPE["data"], "calibration": {"feeds": "my_data:calibration", "count": 1}}
        recipe = {**RECIPE, "graphs": {"net": net}, "data": data, "gates": {"parity": {"net": limits}}}
    project = built(tmp_path, recipe)
    assert project.run("verify", "bundle").code == 0
    again = project.build(recipe="mine.yaml")
    assert again.code == 0, again.err


LAYERS_MODEL = """
import torch
from torch import nn

WIDTH, LAYERS = {width}, {layers}


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.mix = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.recurrent = nn.LSTM(WIDTH, WIDTH // 2, batch_first=True)

    def forward(self, x, past, h, c):
        joined = torch.cat([past, x], dim=1)
        y = x + joined.mean(dim=1, keepdim=True)
        for layer in self.layers:
            y = torch.tanh(layer(y))
        y = torch.tanh(self.mix(y.transpose(1, 2))).transpose(1, 2)
        y, (h, c) = self.recurrent(y, (h, c))
        return y, joined, h, c


def build():
    torch.manual_seed(0)
    return Layers().eval()
"""

LAYERS_DATA = """
import numpy as np


def streams():
    random = np.random.default_rng(0)
    return [[{{"x": random.standard_normal((1, 2, {width}), dtype=np.float32)}} for _ in range(6)]]
"""

BUILD = """
import sys
from compiler.graph.runners import session
session.MOST_PACKED_BYTES = 10**8
import build
sys.exit(build.main(sys.argv[1:]))
"""
"""The front door, where 100 MB of weights are too large to be copied."""

MOST_COPIES = 2.6
"""Of the weights, at once, beside what a build of a small model takes: 2.4 where this was written, in what the runtime
reads, copies and packs as it opens the bundle."""


def largest_memory(folder: Path, width: int, layers: int) -> tuple[int, int]:
    """The most memory that a build had at once, and its weights file, both in bytes."""
    folder.mkdir()
    states = {name: {"shape": [1, "batch", width // 2], "dtype": "float32", "state": f"next_{name}"} for name in "hc"}
    inputs = {
        "x": {"shape": ["batch", 2, width], "dtype": "float32"},
        "past": {"shape": ["batch", "cached", width], "dtype": "float32", "state": "next_past"},
        **states,
    }
    net = {**RECIPE["graphs"]["net"], "inputs": inputs, "outputs": ["y", "next_past", "next_h", "next_c"]}
    (folder / "my_model.py").write_text(LAYERS_MODEL.format(width=width, layers=layers))
    (folder / "my_data.py").write_text(LAYERS_DATA.format(width=width))
    (folder / "mine.yaml").write_text(yaml.safe_dump({**RECIPE, "graphs": {"net": net}}, sort_keys=False))
    root = str(Path(__file__).parents[2])
    build = [sys.executable, "-c", BUILD, "--recipe", "mine.yaml", "--out", "bundle"]
    with (folder / "said").open("w") as said:
        started = subprocess.Popen(
            build, cwd=folder, env={**os.environ, "PYTHONPATH": root}, stdout=said, stderr=subprocess.STDOUT
        )
        _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    assert started.returncode == 0, (folder / "said").read_text()
    return used.ru_maxrss * 1024, (folder / "bundle/graphs/net.weights").stat().st_size


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does")
def test_a_build_holds_few_copies_of_the_weights(tmp_path: Path) -> None:
    base, _ = largest_memory(tmp_path / "small", width=64, layers=2)
    most, weights = largest_memory(tmp_path / "large", width=1536, layers=24)
    assert weights > 2.5e8
    assert (most - base) / weights <= MOST_COPIES, f"{most} bytes with {weights} of weights, {base} without"
