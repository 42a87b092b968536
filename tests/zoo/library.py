"""Architectures of the transformers package in configurations small enough to export in seconds."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

Forward = Callable[..., Any]
"""From the module and the inputs to the result."""


class Call(torch.nn.Module):
    """A module called in a way of ours.

    Args:
        module: the model.
        forward: what is done with it.
    """

    def __init__(self, module: torch.nn.Module, forward: Forward) -> None:
        super().__init__()
        self.module = module
        self.call = forward

    def forward(self, *arguments: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The result of the call."""
        found: torch.Tensor | tuple[torch.Tensor, ...] = self.call(self.module, *arguments)
        return found


def pretrained(
    model: str, config: str, options: Mapping[str, Any], forward: Forward, *, eager: bool = False
) -> Callable[[], Call]:
    """A model with random weights.

    Args:
        model: class name in the package.
        config: class name of its configuration.
        options: of the configuration.
        forward: how it is called.
        eager: whether attention is spelled out; otherwise as scaled dot product attention where the model has it.
    """

    def build() -> Call:
        library = importlib.import_module("transformers")
        library.logging.set_verbosity_error()
        made = getattr(library, config)(**options)
        made._attn_implementation = "eager" if eager else "sdpa"
        try:
            module = getattr(library, model)(made)
        except ValueError:  # no scaled dot product attention in this one
            made._attn_implementation = "eager"
            module = getattr(library, model)(made)
        return Call(module, forward)

    return build


def own(module: Callable[[], torch.nn.Module], forward: Forward) -> Callable[[], Call]:
    """An architecture that is written down in the zoo itself."""
    return lambda: Call(module(), forward)
