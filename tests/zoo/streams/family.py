"""What the zoo knows about one step of a streaming model: how it is built, and the recipe that a user would write."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from compiler.graph.stages import Feed
from compiler.recipe.graph import Graph

BATCH = "batch"


@dataclasses.dataclass(frozen=True)
class Given:
    """One input, as a recipe lists it, and what to feed.

    Attributes:
        shape: sizes and axis names, wherever the batch lies.
        state: the output that is fed back, or None.
        initial: what it begins with, if not 0, as deep as the model takes it.
        dtype: element type.
        original: the shape of a model that is written for one row, or None.
        above: for indices, the inclusive lower bound; other than 0, the recipe declares the range.
        below: for indices, the exclusive upper bound.
        mask_of: the axis of whose valid entries it is a mask, or None.
        counts: whether it holds the places of its frames in the stream.
        counts_along: the axis whose frames the bundle counts in it, or None.
    """

    shape: tuple[int | str, ...]
    state: str | None = None
    dtype: str = "float32"
    original: tuple[int | str, ...] | None = None
    above: int = 0
    below: int | None = None
    counts: bool = False
    mask_of: str | None = None
    counts_along: str | None = None
    initial: Any = None

    @property
    def written(self) -> dict[str, Any]:
        """As in the recipe."""
        found: dict[str, Any] = {"shape": self.shape, "dtype": self.dtype}
        found |= {} if self.state is None else {"state": self.state}
        found |= {} if self.initial is None else {"initial": self.initial}
        found |= {} if self.mask_of is None else {"mask_of": self.mask_of}
        found |= {} if self.counts_along is None else {"counts": self.counts_along}
        if self.above and self.below is not None:
            found["range"] = (float(self.above), float(self.below - 1))
        return found | ({} if self.original is None else {"original": self.original})


def data(*shape: int | str, **more: Any) -> Given:
    """What callers feed."""
    return Given(shape, **more)


def state(output: str, *shape: int | str, **more: Any) -> Given:
    """What is fed back from an output."""
    return Given(shape, output, **more)


@dataclasses.dataclass(frozen=True)
class StepFamily:
    """One architecture in a tiny configuration.

    Attributes:
        name: in the table.
        build: gives the `torch.nn.Module`.
        inputs: in the order of `forward`.
        outputs: in the order of the results.
        windows: slots of each cache axis.
        padded: the buckets of each axis with a length, which is one for every stream.
        tries: recipes until it was built: 1 where the first plain one was right.
    """

    name: str
    build: Callable[[], Any]
    inputs: Mapping[str, Given]
    outputs: tuple[str, ...]
    windows: Mapping[str, int] = dataclasses.field(default_factory=dict)
    padded: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    tries: int = 1

    @property
    def spec(self) -> Graph:
        """The graph of the recipe: inputs, states and axes, and nothing else."""
        windows: dict[str, Any] = {
            axis: {"window": slots, "length_input": f"{axis}_length"} for axis, slots in self.windows.items()
        }
        windows |= {axis: {"buckets": sizes, "length_input": f"{axis}_length"} for axis, sizes in self.padded.items()}
        return Graph.model_validate(
            {
                "source": {"factory": "zoo:build"},
                "inputs": {name: given.written for name, given in self.inputs.items()},
                "outputs": self.outputs,
                "axes": {BATCH: {"buckets": (1, 4)}, **windows},
            }
        )

    def feeds(self, rng: np.random.Generator, calls: int) -> Iterator[Feed]:
        """A stream of one row, the batch in front."""
        lengths = {axis: int(rng.integers(1, sizes[-1] + 1)) for axis, sizes in self.padded.items()}
        for call in range(calls):
            feed = {}
            for name, given in self.inputs.items():
                if given.state is None and given.mask_of is None and given.counts_along is None:
                    dims = (lengths.get(str(dim), dim) for dim in given.shape)
                    sizes = [1, *(dim for dim in dims if isinstance(dim, int))]
                    feed[name] = _drawn(given, sizes, rng, call).astype(given.dtype)
            yield feed


def _drawn(given: Given, sizes: list[int], rng: np.random.Generator, call: int) -> np.ndarray:
    if given.counts:
        return (call * sizes[-1] + np.arange(sizes[-1])).reshape(sizes)
    return rng.standard_normal(sizes) if given.below is None else rng.integers(given.above, given.below, sizes)
