"""One vocoder or decoder of a codec: how it is built, and the recipe that a user would write for it."""

import dataclasses
from collections.abc import Callable, Mapping

from torch import nn

from compiler.recipe.graph import Graph
from tests.zoo.derived.family import BATCH, TIME, Given

WHOLE = 31
"""Frames of a whole sequence, and the largest bucket."""


@dataclasses.dataclass(frozen=True)
class Vocoder:
    """One architecture in a tiny configuration, over whole sequences of frames.

    Attributes:
        name: in the table.
        layers: what it is made of, in a few words.
        build: gives the module.
        inputs: in the order of `forward`.
    """

    name: str
    layers: str
    build: Callable[[], nn.Module]
    inputs: Mapping[str, Given]

    @property
    def spec(self) -> Graph:
        """The graph of the recipe: inputs, axes and the key that derives steps."""
        return Graph.model_validate(
            {
                "source": {"factory": "zoo:build"},
                "inputs": {name: {"shape": each.shape, "dtype": each.dtype} for name, each in self.inputs.items()},
                "outputs": ("waveform",),
                "axes": {
                    BATCH: {"buckets": (1, 4)},
                    TIME: {"buckets": (1, 8, WHOLE), "length_input": f"{TIME}_length"},
                },
                "derive_steps": {"along": TIME, "window": 2 * WHOLE, "forget": True},
            }
        )
