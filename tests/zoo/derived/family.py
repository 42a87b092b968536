"""One decoder over whole sequences: how it is built, and the recipe that a user would write for it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from compiler.graph.stages import Array
from compiler.recipe.graph import Graph

BATCH, TIME = "batch", "time"
WINDOW = 520
"""Frames of the longest stream: a prompt and 500 steps."""

CHUNK = 8

LETTERS, MOST_LETTERS = "letters", 12
"""The axis of a text in front of the frames, of another length in every row, and its largest bucket."""


@dataclasses.dataclass(frozen=True)
class Given:
    """One input, as a recipe lists it, and what to feed.

    Attributes:
        shape: sizes and axis names; one that has no axis of time is the same in every call of a stream.
        dtype: element type.
        below: for indices, the exclusive upper bound.
    """

    shape: tuple[int | str, ...]
    dtype: str = "float32"
    below: int = 0

    def drawn(self, rng: np.random.Generator, frames: int) -> Array:
        """One row with `frames` frames."""
        named = {BATCH: 1, TIME: frames}
        if LETTERS in self.shape:
            named[LETTERS] = int(rng.integers(1, MOST_LETTERS + 1))
        sizes = [dim if isinstance(dim, int) else named[dim] for dim in self.shape]
        drawn = rng.integers(0, self.below, sizes) if self.below else rng.standard_normal(sizes)
        found: Array = drawn.astype(self.dtype)
        return found


@dataclasses.dataclass(frozen=True)
class WholeFamily:
    """One decoder over whole sequences in a tiny configuration, without a cache.

    Attributes:
        name: in the table.
        build: gives the `torch.nn.Module`.
        inputs: in the order of `forward`; the first one has the frames.
        positions: how it tells places apart, in a word.
        attention: what else is special about it.
        window: frames of the longest stream; where frames are forgotten, for which masks are evaluated.
        forgets: whether caches keep no more frames than masks show.
        groups: of heads that share keys and values already, for `merge_kv_heads` to find; None: it does not run.
    """

    name: str
    build: Callable[[], Any]
    inputs: Mapping[str, Given]
    positions: str = ""
    attention: str = ""
    window: int = WINDOW
    forgets: bool = False
    groups: int | None = None

    @property
    def spec(self) -> Graph:
        """The graph of the recipe: inputs, axes and the key that derives steps."""
        letters = {LETTERS: {"buckets": (8, MOST_LETTERS), "length_input": f"{LETTERS}_length"}}
        has_letters = any(LETTERS in each.shape for each in self.inputs.values())
        return Graph.model_validate(
            {
                "source": {"factory": "zoo:build"},
                "inputs": {name: {"shape": each.shape, "dtype": each.dtype} for name, each in self.inputs.items()},
                "outputs": ("scores",),
                "axes": {
                    BATCH: {"buckets": (1, 4)},
                    TIME: {"buckets": (1, CHUNK), "length_input": f"{TIME}_length"},
                    **(letters if has_letters else {}),
                },
                "derive_steps": {"along": TIME, "window": self.window, "forget": self.forgets},
            }
        )
