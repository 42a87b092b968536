"""channels: the parameters that projections of a graph are made of."""

import numpy as np
import pytest

from compiler.compression.channels import bias_beside, channels_in
from compiler.errors import Refused
from compiler.graph.stages import Array

RANDOM = np.random.default_rng(0)
QUERY, KEY = RANDOM.standard_normal((2, 6, 4)).astype(np.float32)
"""Channels by what they read."""


def exported(weights: Array) -> Array:
    """As a graph gives them: computed, so that the last bits differ."""
    return weights.astype(np.float64) + 1e-8


INTERLEAVED = np.stack([QUERY, KEY], axis=1).reshape(12, 4)


@pytest.mark.parametrize(
    ("parameter", "axis", "index"),
    [
        (KEY, 0, [0, 1, 2, 3, 4, 5]),
        (KEY.T, 1, [0, 1, 2, 3, 4, 5]),
        (np.concatenate([QUERY, KEY]), 0, [6, 7, 8, 9, 10, 11]),
        (INTERLEAVED, 0, [1, 3, 5, 7, 9, 11]),
        (KEY[::-1], 0, [5, 4, 3, 2, 1, 0]),
    ],
    ids=["rows", "columns", "one behind the other", "in turn", "backwards"],
)
def test_channels_are_found_wherever_they_lie(parameter: Array, axis: int, index: list[int]) -> None:
    parameters = {"other.weight": RANDOM.standard_normal((6, 4)), "part.weight": parameter.copy()}
    found = channels_in(parameters, exported(KEY), "the keys")
    assert (found.parameter, found.axis, found.index.tolist()) == ("part.weight", axis, index)
    np.testing.assert_array_equal(found.of(parameter), KEY)
    found.put(parameters["part.weight"], 2 * KEY)
    np.testing.assert_array_equal(found.of(parameters["part.weight"]), 2 * KEY)


@pytest.mark.parametrize(
    ("parameters", "got"),
    [
        ({"part.weight": QUERY}, "none"),
        ({"one.weight": KEY, "two.weight": KEY}, "one.weight, two.weight"),
        ({"part.weight": np.concatenate([KEY[:5], KEY[:1]])}, "none"),
        ({"part.weight": KEY[:, :3]}, "none"),
    ],
)
def test_weights_that_are_not_found_once_are_refused(parameters: dict[str, Array], got: str) -> None:
    with pytest.raises(Refused, match=f"the weights of the keys, got {got}; ") as caught:
        channels_in(parameters, exported(KEY), "the keys")
    assert "parameter" in str(caught.value.cure)


def test_biases_lie_in_the_same_module() -> None:
    bias = np.arange(6.0)
    parameters = {"part.weight": KEY, "part.bias": bias, "other.bias": bias}
    channels = channels_in(parameters, exported(KEY), "the keys")
    assert bias_beside(parameters, channels, bias + 1e-8) == "part.bias"
    assert bias_beside({"part.weight": KEY}, channels, np.zeros(6)) is None
    with pytest.raises(Refused, match=r"expected one parameter beside part\.weight with its bias, got none"):
        bias_beside({"part.weight": KEY}, channels, bias)
