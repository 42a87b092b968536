"""Arguments and results in lists, tuples, dictionaries and records, as flat lists: how a module takes and gives caches.

inputs   x, caches.0.key, caches.0.value, caches.1.key, caches.1.value     as   forward(x, [Cache(a, b), Cache(c, d)])
results  (y, [{"key": a, "value": b}, (c, d)])                             as   y, a, b, c, d
"""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


def arguments_of(forward: Callable[..., Any], names: Sequence[str], leaves: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments in the order of the names: those called `parameter.place` are put together, by number or by key.

    Numbered places make a tuple, or a list where the parameter's annotation says one; named ones a dictionary, or the
    named tuple or dataclass of the annotation.

    Args:
        forward: what takes them; a name whose first part is none of its parameters is an argument by itself.
        names: one per leaf.
        leaves: tensors, or whatever else belongs to each name.

    Raises:
        TypeError: a record of the annotation has other fields.
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
    hints = _hints(forward)
    return tuple(_built(each, hints.get(name)) for name, each in tree.items())


class _Leaf:
    """One of the leaves, which may be a dictionary itself."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _hints(forward: Callable[..., Any]) -> dict[str, Any]:
    """Annotations by parameter; none where they name what cannot be found."""
    try:
        return typing.get_type_hints(forward)
    except (NameError, TypeError, AttributeError):
        return {}


def _built(each: Any, hint: Any) -> Any:
    """One argument, or a part of one, as its annotation says."""
    if isinstance(each, _Leaf):
        return each.value
    kinds = [kind for kind in _alternatives(hint) if kind is not type(None)]
    hint = kinds[0] if len(kinds) == 1 else None
    if list(each) == [str(at) for at in range(len(each))]:
        parts = [_built(part, _hint_of_part(hint, at)) for at, part in enumerate(each.values())]
        return parts if hint is list or typing.get_origin(hint) is list else tuple(parts)
    record = hint if _is_record(hint) else None
    fields = {} if record is None else _hints(record)
    found = {key: _built(part, fields.get(key, _hint_of_part(hint, -1))) for key, part in each.items()}
    return found if record is None else record(**found)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """Of a union its members."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _hint_of_part(hint: Any, at: int) -> Any:
    """What an annotation says of a part: `list[X]`, `tuple[X, ...]`, `dict[str, X]` of each, `tuple[X, Y]` of one."""
    given = [each for each in typing.get_args(hint) if each is not Ellipsis]
    if typing.get_origin(hint) is tuple and len(given) > 1:
        return given[at] if at < len(given) else None
    return given[-1] if given else None


def _is_record(hint: Any) -> bool:
    """Whether an annotation is a dataclass or a named tuple."""
    return inspect.isclass(hint) and (dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"))


def leaves_of(results: Any) -> Iterator[Any]:
    """Everything in lists, tuples, dictionaries and dataclasses, in order."""
    for _, leaf in named_leaves_of(results):
        yield leaf


def named_leaves_of(results: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in lists, tuples, dictionaries and dataclasses, in order, each with its key or field, or nothing."""
    if isinstance(results, Mapping):
        for key, each in results.items():
            yield from named_leaves_of(each, str(key))
    elif isinstance(results, tuple | list):
        keys = getattr(results, "_fields", ("",) * len(results))
        for key, each in zip(keys, results, strict=True):
            yield from named_leaves_of(each, key)
    elif dataclasses.is_dataclass(results) and not isinstance(results, type):
        for field in dataclasses.fields(results):
            yield from named_leaves_of(getattr(results, field.name), field.name)
    else:
        yield name, results
