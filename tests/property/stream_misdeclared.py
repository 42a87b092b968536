"""Recipes that say of a graph what it is not: what is accepted of them must answer as its author's loop would.

That loop carries what the recipe says: states that trade places are fed back in each other's place, and a cache keeps
as many frames as its window has. Where it does not run with such a recipe, nothing is claimed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Inputs = dict[str, dict[str, Any]]
Axes = dict[str, dict[str, Any]]
Shape = tuple[int | str, ...]


def misdeclare(inputs: Inputs, axes: Axes, rng: np.random.Generator) -> None:
    """Change the inputs and axes of a recipe in one way, where there is anything to change."""
    (swapped, narrow, another_window, turned, unwindowed)[int(rng.integers(0, 5))](inputs, axes, rng)


def swapped(inputs: Inputs, axes: Axes, rng: np.random.Generator) -> None:
    """Two states are fed by the outputs of each other."""
    states = [each for each in inputs.values() if "state" in each]
    if len(states) > 1:
        one, other = (states[int(at)] for at in rng.permutation(len(states))[:2])
        one["state"], other["state"] = other["state"], one["state"]


def narrow(inputs: Inputs, axes: Axes, rng: np.random.Generator) -> None:
    """A window has a single slot, which most calls fill more than once."""
    for axis in _windows(axes)[:1]:
        axes[axis]["window"] = 1


def another_window(inputs: Inputs, axes: Axes, rng: np.random.Generator) -> None:
    """A window has some slots more than its author keeps, or fewer."""
    for axis in _windows(axes)[:1]:
        axes[axis]["window"] = max(axes[axis]["window"] + int(rng.choice([-2, -1, 1, 5])), 1)


def turned(inputs: Inputs, axes: Axes, rng: np.random.Generator) -> None:
    """A state has its frames where it has its channels."""
    _changed(inputs, axes, lambda shape, at: (*shape[:at], *shape[at:][::-1]))


def unwindowed(inputs: Inputs, axes: Axes, rng: np.random.Generator) -> None:
    """A cache that grows is called a state of one size."""
    sizes = {axis: axes[axis]["window"] for axis in _windows(axes)}
    _changed(inputs, axes, lambda shape, at: tuple(sizes.get(str(size), size) for size in shape))


def _windows(axes: Axes) -> list[str]:
    return [name for name, axis in axes.items() if "window" in axis]


def _changed(inputs: Inputs, axes: Axes, change: Callable[[Shape, int], Shape]) -> None:
    """The first state along a window, with its shape changed from its second axis on."""
    for given in inputs.values():
        if "state" in given and set(given["shape"]) & set(_windows(axes)):
            given["shape"] = change(tuple(given["shape"]), 1)
            if "original" in given:
                given["original"] = change(tuple(given["original"]), 0)
            return
