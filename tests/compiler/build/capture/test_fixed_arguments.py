"""fixed_arguments: a module is called with what is not fixed, in the order of its forward."""

from typing import Any

import numpy as np
import torch
from torch import nn

from compiler.build.capture.fixed_arguments import fix_arguments
from compiler.build.capture.module_call import called
from compiler.errors import Location


class Resampled(nn.Module):
    """Takes a rate as a number, a gain as a tensor, and a pair of states."""

    def forward(self, x: Any, rate: int, pair: Any, gain: Any) -> Any:
        """Branches on the rate."""
        scale = 2.0 if rate == 16000 else 1.0
        return x * scale * gain + pair[0], pair[1]


def test_constants_are_given_where_forward_takes_them() -> None:
    module, one = Resampled(), np.ones((1, 2), np.float32)
    names = ["x", "rate", "pair.0", "pair.1", "gain"]
    fix_arguments(module, names, {"rate": np.array(16000), "gain": np.array([3], np.float32)}, ("y", "left"), {})
    feed = {"x": one, "pair.0": one, "pair.1": 5 * one}
    y, left = called(module, feed, Location(), outputs=("y", "left"))
    assert y.tolist() == [[7.0, 7.0]] and left.tolist() == [[5.0, 5.0]]


def test_a_constant_is_a_tensor_where_no_number_is_asked_for() -> None:
    module = nn.Identity()
    fix_arguments(module, ["input"], {"input": np.array([1, 2])}, ("y",), {})
    assert torch.equal(module(), torch.tensor([1, 2]))


class Assigned(nn.Module):
    """Takes a rate as a number, and assigns to the places of its states."""

    def forward(self, x: Any, rate: int, pair: Any) -> Any:
        """Returns the scores alone."""
        pair[1] = pair[1] + x * rate
        return x


def test_what_is_written_beside_a_constant_is_a_state() -> None:
    module, one, outputs = Assigned(), np.ones((1, 2), np.float32), ("y", "first", "second")
    states = {"pair.0": "first", "pair.1": "second"}
    fix_arguments(module, ["x", "rate", "pair.0", "pair.1"], {"rate": np.array(3)}, outputs[::2], states)
    feed = {"x": one, "pair.0": one, "pair.1": 5 * one}
    assert [each[0, 0] for each in called(module, feed, Location(), outputs=outputs[::2], states=states)] == [1, 8]
