"""The model, the data and the recipe that build; every wrong recipe is these with one line changed."""

MODEL = """\
import torch
from torch import nn


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.positions = nn.Embedding(1000, 8)
        self.output = nn.Linear(8, 5)

    def forward(self, features, cache, offset):  # [batch, 4, 6], [batch, cached, 8], [batch]
        x = self.embed(features)
        x = x + self.positions(offset[:, None] + torch.arange(4))
        joined = torch.cat([cache, x], dim=1)
        x = x + torch.softmax(x @ joined.transpose(1, 2), dim=-1) @ joined
        return self.output(x), joined


def build():
    torch.manual_seed(0)
    return Recogniser()
"""

DATA = """\
import numpy as np


def streams():
    random = np.random.default_rng(0)
    for _ in range(2):
        yield [{"features": random.random((1, 4, 6), np.float32)} for _ in range(8)]
"""

RECIPE = """\
name: mine
graphs:
  recogniser:
    source: {factory: "model:build"}
    inputs:
      features: {shape: [batch, 4, 6], dtype: float32, range: [0.0, 1.0]}
      cache:    {shape: [batch, cached, 8], dtype: float32, state: next_cache}
      offset:   {shape: [batch], dtype: int64, counts: cached}
    outputs: [logits, next_cache]
    axes:
      batch:  {buckets: [1, 4]}
      cached: {window: 8}
    passes: [standard]
data:
  verification: {feeds: "data:streams", count: 2}
targets:
  - kind: onnx_static
gates:
  parity: {recogniser: {max_abs: 1.0e-5, chained_steps: 8}}
"""

FILES = {"model.py": MODEL, "data.py": DATA, "mine.yaml": RECIPE}
