"""module_contents: two modules hold the same, or it is said what differs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from compiler.build.capture.module_contents import contents_of, digest_of_module


class Made(nn.Module):
    """Something of everything that a module may hold."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        nn.init.ones_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.act: object = torch.relu
        self.scale = 2
        self.sizes = [1, {"a": (2, 3)}]
        self.table = np.ones(2, np.float32)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("hidden", torch.zeros(2), persistent=False)


CHANGES: dict[str, Callable[[Any], object]] = {
    "weight": lambda m: m.linear.weight.data.mul_(2),
    "type of a weight": lambda m: m.linear.half(),
    "buffer": lambda m: m.mean.add_(1),
    "buffer that is not saved": lambda m: m.hidden.add_(1),
    "number": lambda m: setattr(m, "scale", 3),
    "type of a number": lambda m: setattr(m, "scale", 2.0),
    "nested number": lambda m: m.sizes[1].update(a=(2, 4)),
    "array": lambda m: m.table.fill(2),
    "another attribute": lambda m: setattr(m, "more", None),
    "function": lambda m: setattr(m, "act", torch.sigmoid),
    "kind of a part": lambda m: setattr(m, "linear", nn.Identity()),
    "mode": lambda m: m.train(False),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_a_factory_makes_otherwise_has_another_digest(change: Callable[[Any], object]) -> None:
    made, other = Made(), Made()
    assert digest_of_module(made) == digest_of_module(other)
    change(other)
    assert digest_of_module(made) != digest_of_module(other)


def test_what_differs_is_named_as_users_name_it() -> None:
    made, other = Made(), Made()
    other.linear.weight.data.mul_(2)
    other.get_buffer("mean").add_(1)
    other.scale = 3
    before, after = contents_of(made), contents_of(other)
    assert {name for name in before if before[name] != after[name]} == {"linear.weight", "mean", "scale"}
