"""Converts between flat arrays and the nested containers in which modules take and return caches.

inputs   x, caches.0.key, caches.0.value, caches.1.key, caches.1.value     as   forward(x, [Cache(a, b), Cache(c, d)])
results  (y, [{"key": a, "value": b}, (c, d)])                             as   y, a, b, c, d
"""

import dataclasses
import inspect
import types
import typing
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

_TAKE_LISTS: weakref.WeakSet[Callable[..., Any]] = weakref.WeakSet()
"""Functions that answered when they were given lists, and did not when they were given tuples."""


def called_with(
    call: Callable[..., Any], forward: Callable[..., Any], names: Sequence[str], leaves: Callable[[], Sequence[Any]]
) -> tuple[tuple[Any, ...], Any]:
    """Build the arguments, call a module, and return arguments and answer.

    A function that fails with tuples, because it assigns to their items, is called with lists from then on.

    Args:
        call: the module, or its forward.
        forward: the function with the signature.
        names: one name per leaf.
        leaves: makes the leaves of one call, since a call that fails may have written into them.

    Raises:
        Exception: the error of the call; where lists fail too, the error with tuples.
    """
    arguments = arguments_of(forward, names, leaves())
    try:
        return arguments, call(*arguments)
    except Exception:
        function = getattr(forward, "__func__", forward)
        if function in _TAKE_LISTS or not any(part.isdigit() for name in names for part in name.split(".")[1:]):
            raise
        _TAKE_LISTS.add(function)
        arguments = arguments_of(forward, names, leaves())
        try:
            return arguments, call(*arguments)
        except Exception:  # noqa: BLE001  (the first failure is the one to tell)
            _TAKE_LISTS.discard(function)
        raise


def arguments_of(forward: Callable[..., Any], names: Sequence[str], leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments in the order of the names; those called `parameter.place` are combined, by number or key.

    Numbered places make a tuple, or a list where the parameter's annotation says so or the function takes lists alone
    (`called_with`); named ones a dictionary, or the named tuple or dataclass of the annotation. Keys are numbers where
    the annotation is a dictionary by numbers.

    Args:
        forward: the function; a name whose first part is no parameter is an argument by itself.
        names: one name per leaf.
        leaves: tensors, or other values, one per name.

    Raises:
        TypeError: a record of the annotation has other fields.
    """
    tree: dict[str, Any] = {}
    for path, leaf in zip(_paths(forward, names), leaves, strict=True):
        subtree = tree
        for part in path[:-1]:
            subtree = subtree.setdefault(part, {})
        subtree[path[-1]] = _Leaf(leaf)
    hints = _hints(forward)
    plain = list if getattr(forward, "__func__", forward) in _TAKE_LISTS else tuple
    return tuple(_built(argument_tree, hints.get(name), plain) for name, argument_tree in tree.items())


def _paths(forward: Callable[..., Any], names: Sequence[str]) -> list[list[str]]:
    """Return the path of each name: its parameter, and its keys inside."""
    taken = inspect.signature(forward).parameters.values()
    parameters = {each.name for each in taken if each.kind is not each.VAR_POSITIONAL}
    return [name.split(".") if name.split(".")[0] in parameters else [name] for name in names]


def leaves_in(forward: Callable[..., Any], names: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
    """Return the leaves of arguments at the paths of names; None where a leaf is missing."""
    paths = _paths(forward, names)
    by_name = dict(zip(dict.fromkeys(path[0] for path in paths), arguments, strict=True))
    return [_held(by_name[path[0]], path[1:]) for path in paths]


def _held(part: Any, path: Sequence[str]) -> Any:
    for key in path:
        if isinstance(part, Mapping):
            part = part.get(key, part.get(int(key)) if key.isdigit() else None)
        elif isinstance(part, tuple | list) and key.isdigit():
            part = part[int(key)] if int(key) < len(part) else None
        else:
            part = getattr(part, key, None)
    return part


class _Leaf:
    """One of the leaves, which may be a dictionary itself."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _hints(forward: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of each parameter; empty if one cannot be resolved."""
    try:
        return typing.get_type_hints(forward)
    except (NameError, TypeError, AttributeError):
        return {}


def _built(each: Any, hint: Any, plain: type[list[Any]] | type[tuple[Any, ...]]) -> Any:
    """Build one argument, or a part of one, in the container of its annotation, or a plain one without annotation."""
    if isinstance(each, _Leaf):
        return each.value
    kinds = [kind for kind in _alternatives(hint) if kind is not type(None)]
    hint = kinds[0] if len(kinds) == 1 else None
    origin = typing.get_origin(hint) or hint
    if _is_numbered(hint):
        return {int(key): _built(part, _hint_of_part(hint, -1), plain) for key, part in each.items()}
    if list(each) == [str(number) for number in range(len(each))]:
        parts = [_built(part, _hint_of_part(hint, number), plain) for number, part in enumerate(each.values())]
        return origin(parts) if origin in (list, tuple) else plain(parts)
    record = hint if _is_record(hint) else None
    fields = {} if record is None else _hints(record)
    parts_by_key = {key: _built(part, fields.get(key, _hint_of_part(hint, -1)), plain) for key, part in each.items()}
    return parts_by_key if record is None else record(**parts_by_key)


def _is_numbered(hint: Any) -> bool:
    """Whether an annotation is a dictionary with integer keys."""
    origin = typing.get_origin(hint)
    return inspect.isclass(origin) and issubclass(origin, Mapping) and typing.get_args(hint)[:1] == (int,)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the annotation itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _hint_of_part(hint: Any, at: int) -> Any:
    """Return the annotation of a part: X of `list[X]`, `tuple[X, ...]` or `dict[str, X]`, one of `tuple[X, Y]`."""
    given = [each for each in typing.get_args(hint) if each is not Ellipsis]
    if typing.get_origin(hint) is tuple and len(given) > 1:
        return given[at] if at < len(given) else None
    return given[-1] if given else None


def _is_record(hint: Any) -> bool:
    """Whether an annotation is a dataclass or a named tuple."""
    return inspect.isclass(hint) and (dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"))


def leaves_of(results: Any) -> Iterator[Any]:
    """Yield the leaves of lists, tuples, dictionaries and dataclasses, in order."""
    for _, leaf in named_leaves_of(results):
        yield leaf


def named_leaves_of(results: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of lists, tuples, dictionaries and dataclasses, in order, each with its key or field name."""
    if isinstance(results, Mapping):
        for key, entry in results.items():
            yield from named_leaves_of(entry, str(key))
    elif isinstance(results, tuple | list):
        keys = getattr(results, "_fields", ("",) * len(results))
        for key, entry in zip(keys, results, strict=True):
            yield from named_leaves_of(entry, key)
    elif dataclasses.is_dataclass(results) and not isinstance(results, type):
        for field in dataclasses.fields(results):
            yield from named_leaves_of(getattr(results, field.name), field.name)
    else:
        yield name, results
