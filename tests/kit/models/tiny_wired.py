"""Two wired graphs: the streaming graph of `tiny_graph.py`, and a head that sums what it gives."""

import copy
from pathlib import Path
from typing import Any

import onnx_ir as ir
import yaml

HEAD = """
<ir_version: 10, opset_import: ["" : 20]>
head (float[batch,4,8] frames, float[batch,8] bias) => (float[batch,4,8] biased, float[batch,4] score)
<int64[1] one = {1}, int64[1] two = {2}>
{
    wide = Unsqueeze(bias, one)
    biased = Add(frames, wide)
    score = ReduceSum<keepdims = 0>(biased, two)
}
"""

DATA = """
import numpy as np

import tiny_data


def heads():
    for seed in range(9):
        random = np.random.default_rng(seed)
        yield [
            {
                "frames": random.standard_normal((1, 4, 8)).astype(np.float32),
                "bias": random.standard_normal((1, 8)).astype(np.float32),
            }
            for _ in range(2)
        ]


def together():
    for seed, stream in zip(range(9), tiny_data.verification()):
        random = np.random.default_rng(seed)
        yield [{**feed, "bias": random.standard_normal((1, 8)).astype(np.float32)} for feed in stream]
"""


def write_wired(folder: Path) -> Any:
    """`head.onnx`, `wired_data.py` and `wired.yaml` beside `stream.yaml`; the recipe."""
    ir.save(ir.from_onnx_text(HEAD), folder / "head.onnx")
    (folder / "wired_data.py").write_text(DATA)
    recipe = copy.deepcopy(yaml.safe_load((folder / "stream.yaml").read_text()))
    recipe["graphs"]["head"] = {
        "source": {"onnx": "head.onnx"},
        "inputs": {
            "frames": {"shape": ["batch", 4, 8], "dtype": "float32"},
            "bias": {"shape": ["batch", 8], "dtype": "float32"},
        },
        "outputs": ["biased", "score"],
        "axes": {"batch": {"buckets": [1, 2]}},
    }
    recipe["data"]["verification"]["feeds"] = {
        "net": recipe["data"]["verification"]["feeds"],
        "head": "wired_data:heads",
    }
    recipe["gates"]["parity"]["head"] = {"max_abs": 1.0e-5, "chained_steps": 2}
    recipe["gates"]["pipeline"] = {"feeds": "wired_data:together", "count": 3, "max_abs": 1.0e-5}
    recipe["wiring"] = [{"from_graph": "net", "output": "logits", "to_graph": "head", "input": "frames"}]
    (folder / "wired.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    return recipe
