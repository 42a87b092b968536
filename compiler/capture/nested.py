"""Arguments and results in lists and tuples, as flat lists: how a module takes and gives its caches.

inputs   x, caches.0.0, caches.0.1, caches.1.0, caches.1.1     as   forward(x, ((a, b), (c, d)))
results  (y, [(a, b), (c, d)])                                 as   y, a, b, c, d
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any


def arguments_of(forward: Callable[..., Any], names: Sequence[str], leaves: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments in the order of the names: those called `parameter.place` are put together, by number or by key.

    Args:
        forward: what takes them; a name whose first part is none of its parameters is an argument by itself.
        names: one per leaf.
        leaves: tensors, or whatever else belongs to each name.
    """
    taken = inspect.signature(forward).parameters.values()
    parameters = {each.name for each in taken if each.kind is not each.VAR_POSITIONAL}
    tree: dict[str, Any] = {}
    for name, leaf in zip(names, leaves, strict=True):
        first, *rest = name.split(".")
        path = [first, *rest] if first in parameters else [name]
        at = tree
        for part in path[:-1]:
            at = at.setdefault(part, {})
        at[path[-1]] = _Leaf(leaf)
    return tuple(_built(each) for each in tree.values())


class _Leaf:
    """One of the leaves, which may be a dictionary itself."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _built(each: Any) -> Any:
    """Numbered places as a tuple, named ones as a dictionary."""
    if isinstance(each, _Leaf):
        return each.value
    if list(each) == [str(at) for at in range(len(each))]:
        return tuple(_built(part) for part in each.values())
    return {key: _built(part) for key, part in each.items()}


def leaves_of(results: Any) -> Iterator[Any]:
    """Everything in lists and tuples, in order."""
    if isinstance(results, tuple | list):
        for each in results:
            yield from leaves_of(each)
    else:
        yield results
