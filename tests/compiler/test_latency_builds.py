"""A model at two chunk sizes is one bundle: weights once, each latency proved, streams of both side by side."""

from pathlib import Path

import numpy as np
import pytest
import yaml

import runtime_lite
from tests.kit.models.project import Project
from tests.runtime_lite.bundles import edit_manifest

MODEL = """
import torch
from torch import nn


class Recogniser(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.embed, self.value = nn.Linear(8, 16), nn.Linear(16, 16)

    def forward(self, features, cache):  # [batch, frames, 8], [batch, cached, 16]
        x = self.embed(features)
        joined = torch.cat([cache, x], dim=1)
        weights = torch.softmax(x @ joined.transpose(1, 2) / self.scale, dim=-1)
        return weights @ self.value(joined), joined


def build(scale):
    torch.manual_seed(0)
    return Recogniser(scale).eval()
"""

DATA = """
import numpy as np


def streams(frames):
    random = np.random.default_rng(0)
    return [[{"features": random.standard_normal((1, frames, 8), dtype=np.float32)} for _ in range(12)]]


def fast():
    return streams(2)


def exact():
    return streams(6)
"""

RECIPE = {
    "name": "mine",
    "graphs": {
        "net": {
            "source": {"factory": "my_model:build"},
            "inputs": {
                "features": {"shape": ["batch", "frames", 8], "dtype": "float32"},
                "cache": {"shape": ["batch", "cached", 16], "dtype": "float32", "state": "next"},
            },
            "outputs": ["answer", "next"],
            "axes": {"batch": {"buckets": [1, 2]}, "frames": {"fixed": 2}, "cached": {"window": 8}},
            "latencies": {
                "fast": {"source": {"arguments": {"scale": 4.0}}},
                "exact": {"source": {"arguments": {"scale": 2.0}}, "axes": {"frames": {"fixed": 6}}},
            },
        }
    },
    "data": {"verification": {"feeds": {"net_fast": "my_data:fast", "net_exact": "my_data:exact"}, "count": 1}},
    "targets": [{"kind": "onnx_static"}],
    "gates": {"parity": {"net": {"max_abs": 1.0e-5, "chained_steps": 12}}},
}


@pytest.mark.slow
def test_a_model_at_two_latencies_is_one_bundle(tmp_path: Path) -> None:
    project = Project(tmp_path, tmp_path / "cache")
    project.write("my_model.py", MODEL)
    project.write("my_data.py", DATA)
    project.write("mine.yaml", yaml.safe_dump(RECIPE, sort_keys=False))
    ended = project.build(recipe="mine.yaml")
    assert ended.code == 0, ended.err
    assert [path.name for path in (tmp_path / "bundle" / "graphs").glob("*.weights")] == ["net.weights"]
    assert project.run("verify", "bundle").code == 0
    rng = np.random.default_rng(1)
    with runtime_lite.Runtime() as runtime:
        model, answers = runtime.load(tmp_path / "bundle"), {}
        for latency, frames in (("fast", 2), ("exact", 6)):
            with model.open_stream(latency=latency) as stream:
                answers[latency] = stream.push({"features": rng.standard_normal((1, frames, 8), dtype=np.float32)})
        assert [found["answer"].shape for found in answers.values()] == [(1, 2, 16), (1, 6, 16)]
    edit_manifest(tmp_path / "bundle", lambda manifest: manifest["graphs"]["net_fast"].pop("latency"))
    assert "graphs/net.weights as it follows from the graph" in project.run("verify", "bundle").err
