"""A module and a graph of equal numbers hold them once; other numbers, small ones and buffers stay where they are."""

import numpy as np
import pytest
import torch
from torch import nn

from compiler.build.capture import shared_weights
from compiler.build.capture.shared_weights import share_weights
from tests.kit.graphs import parse

TEXT = "(float[2,16] x, float[16,16] v, float[16,16] w) => (float[2,16] y) { h = MatMul(x, v)  y = MatMul(h, w) }"


def test_equal_weights_are_held_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_weights, "LEAST_BYTES", 1024)
    layers = [nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16, bias=False)]
    module = nn.ModuleList(layers)
    module.register_buffer("kept", torch.randn(16, 16))
    first, third = (layers[at].weight.detach().numpy().copy() for at in (0, 2))
    kept = module.get_buffer("kept")
    model = parse(TEXT, {"v": first, "w": kept.numpy().copy()})
    x = torch.randn(3, 16)
    with torch.no_grad():
        expected = [layer(x) for layer in layers]
        assert share_weights(module, [model]) == 1
        assert all(map(torch.equal, (layer(x) for layer in layers), expected))
    assert np.shares_memory(layers[0].weight.detach().numpy(), first)
    assert np.array_equal(layers[2].weight.detach().numpy(), third)
    assert module.get_buffer("kept").data_ptr() == kept.data_ptr()
