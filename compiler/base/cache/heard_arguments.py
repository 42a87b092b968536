"""Reports when code reads `sys.argv`, for which Python raises no audit event."""

import sys
from collections.abc import Callable
from typing import Any

ASKING = (
    "__add__", "__contains__", "__eq__", "__ge__", "__gt__", "__iter__", "__le__", "__len__", "__lt__", "__mul__",
    "__ne__", "__repr__", "__reversed__", "__rmul__", "copy", "count", "index", "pop", "sort",
)  # fmt: skip
"""Methods of a list that tell what is in it."""


def listening_to_arguments(see: Callable[[], None]) -> Callable[[], None]:
    """Report reads of `sys.argv`, except of the program's name, which parsers print.

    Args:
        see: called when arguments are read.

    Returns:
        A function that ends this; changes of the arguments are kept.
    """
    arguments = sys.argv
    heard = _listening(arguments, see)
    sys.argv = heard

    def restore() -> None:
        if sys.argv is heard:
            arguments[:] = list.__getitem__(heard, slice(None))
            sys.argv = arguments

    return restore


def _listening(raw: list[str], see: Callable[[], None]) -> list[str]:
    """Return a copy of the arguments that reports reads."""

    def heard(name: str) -> Callable[..., Any]:
        method = getattr(list, name)

        def ask(arguments: list[str], *asked: Any) -> Any:
            see()
            return method(arguments, *asked)

        return ask

    class Listening(list[str]):
        def __getitem__(self, place: Any) -> Any:
            if place != 0:
                see()
            return super().__getitem__(place)

        def __radd__(self, front: list[Any]) -> list[Any]:
            return [*front, *self]

        def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
            return list, ([*self],)  # processes that are spawned are given the arguments

    for name in ASKING:
        setattr(Listening, name, heard(name))
    return Listening(raw)
