"""Grids of 8-bit numbers."""

import numpy as np
import pytest

from compiler.calib.grid import grid_of, quantize_weights
from compiler.graph.runners.session import run_model
from tests.kit.graphs import parse


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("low", "high"), [(-0.3, 4.0), (0.5, 2.0), (-3.0, -1.0), (0.0, 0.0)])
def test_a_grid_rounds_as_the_runtime_does(signed: bool, low: float, high: float) -> None:
    grid = grid_of(low, high, signed=signed)
    model = parse(
        f"(float[64] x, float s, {grid.type} z) => (float[64] y) "
        "{ q = QuantizeLinear(x, s, z)  y = DequantizeLinear(q, s, z) }",
        {"s": np.array(grid.scale, np.float32), "z": np.array(grid.zero_point, grid.type)},
    )
    x = np.linspace(low, high, 64).astype(np.float32)
    assert np.array_equal(grid.rounded(x), run_model(model, {"x": x})["y"])
    assert np.abs(grid.rounded(x) - x).max() <= grid.scale * 0.51
    assert grid.low <= low + grid.scale and grid.high >= high - grid.scale


def test_a_grid_of_sixteen_bits_has_as_many_codes() -> None:
    grid = grid_of(-1.0, 3.0, signed=False, bits=16)
    assert (grid.type, grid.high_code, grid.zero_point) == ("uint16", 65535, 16384)
    assert grid.scale == pytest.approx(4 / 65535) and grid.rounded(np.zeros(1, np.float32))[0] == 0.0


def test_zero_is_on_every_grid() -> None:
    for low, high in ((1.0, 2.0), (-2.0, -1.0), (-0.1, 7.3)):
        for signed in (False, True):
            grid = grid_of(low, high, signed=signed)
            assert grid.rounded(np.zeros(1, np.float32))[0] == 0.0
            assert grid.low <= 0.0 <= grid.high


def test_weights_have_a_scale_per_output_channel() -> None:
    weights = np.array([[1.0, 100.0], [-0.5, 30.0], [0.25, -100.0]], np.float32)
    quantized = quantize_weights(weights, 1)
    assert quantized.codes.dtype == np.int8 and np.abs(quantized.codes).max() <= 127
    assert np.all(np.abs(quantized.rounded - weights).max(axis=0) <= quantized.scales * 0.51)


def test_a_lone_large_weight_is_clipped_when_the_others_matter_more() -> None:
    generator = np.random.default_rng(0)
    weights = generator.standard_normal((20000, 1)).astype(np.float32)
    weights[0] = 8.0
    importance = np.ones((20000, 1))
    importance[0] = 1e-3
    clipped = quantize_weights(weights, 1, importance).rounded
    whole = quantize_weights(weights, 1, np.where(importance < 1, 1e9, 1.0)).rounded
    assert clipped[0, 0] < 8.0 == whole[0, 0]
    assert np.mean((clipped - weights)[1:] ** 2) < np.mean((whole - weights)[1:] ** 2)


def test_a_channel_of_zeros() -> None:
    quantized = quantize_weights(np.zeros((3, 2), np.float32), 0)
    assert not quantized.codes.any() and np.all(quantized.scales > 0)
