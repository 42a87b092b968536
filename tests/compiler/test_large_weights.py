"""Weights are written apart from capture to bundle: nothing of a build holds all of them in one protobuf.

What a protobuf may hold is lowered to less than one weight has.
"""

from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import yaml

from compiler.runners import session, structure
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
