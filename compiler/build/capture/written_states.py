"""Collects the results of a module's call: return values, and states that the module writes into its arguments.

results  y                  caches[0] = new; return y            as   y, next_cache
         y, hidden          cache.copy_(new); return y, hidden   as   y, next_cache, hidden
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compiler.recipe.user_code.nested import called_with, leaves_in, leaves_of


@dataclasses.dataclass(frozen=True)
class Answer:
    """The result of one call of a module.

    Attributes:
        results: the returned values; a flat list where written states complete it.
        written: of the states, the inputs that it wrote into and did not return.
        grown: places that arguments have more behind the call than before it.
    """

    results: Any
    written: tuple[str, ...]
    grown: int


def answer_of(
    call: Callable[..., Any],
    names: Sequence[str],
    leaves: Callable[[], Sequence[Any]],
    outputs: Sequence[str],
    states: Mapping[str, str],
) -> Answer:
    """Call a module and collect its results and the states that it writes in place.

    Args:
        call: a module, or its forward.
        names: names of the inputs, one per leaf.
        leaves: returns the tensors of one call.
        outputs: the recipe's output names, for results and written states together.
        states: the output of each input that is fed back.

    Raises:
        Exception: whatever the module raises.
    """
    forward: Callable[..., Any] = getattr(call, "forward", call)
    versions: list[int] = []

    def noted() -> Sequence[Any]:
        tensors = leaves()
        tensors_before[:], versions[:] = tensors, [_version_of(tensor) for tensor in tensors]
        return tensors

    tensors_before: list[Any] = []
    arguments, results = called_with(call, forward, names, noted)
    returned, held = list(leaves_of(results)), leaves_in(forward, names, arguments)
    left = {
        name: after
        for name, after, before, version in zip(names, held, tensors_before, versions, strict=True)
        if name in states
        and after is not None
        and (after is not before or _version_of(before) != version)
        and not any(after is result for result in returned)
    }
    if len(returned) < len(outputs) == len(returned) + len(left):
        by_output, others = {states[name]: after for name, after in left.items()}, iter(returned)
        results = [by_output[name] if name in by_output else next(others) for name in outputs]
    return Answer(results, tuple(left), len(list(leaves_of(arguments))) - len(names))


def _version_of(leaf: Any) -> int:
    """Return a number that grows when a tensor is written to; 0 for Python numbers."""
    return getattr(leaf, "_version", 0)
