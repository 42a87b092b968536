"""Reports when code reads environment variables, for which Python raises no audit event."""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any


def listening_to_variables(see: Callable[[object], None], see_all: Callable[[], None]) -> Callable[[], None]:
    """Report reads of `os.environ`, `os.environb` and the dictionary behind both.

    Args:
        see: called with the name of a variable that is read.
        see_all: called when the names of all variables are read.

    Returns:
        A function that ends this.
    """
    environ: Any = type(os.environ)
    read, names = environ.__getitem__, environ.__iter__

    def variable(mapping: Any, name: Any) -> Any:
        see(name)
        return read(mapping, name)

    def all_names(mapping: Any) -> Iterator[Any]:
        see_all()
        iterator: Iterator[Any] = names(mapping)
        return iterator

    environ.__getitem__, environ.__iter__ = variable, all_names
    system = sys.modules.get(os.name)
    raw = getattr(system, "environ", None)
    if raw is not None:
        vars(system)["environ"] = _listening(raw, see, see_all)

    def restore() -> None:
        environ.__getitem__, environ.__iter__ = read, names
        if raw is not None:
            vars(system)["environ"] = raw

    return restore


def _listening(raw: dict[Any, Any], see: Callable[[object], None], see_all: Callable[[], None]) -> dict[Any, Any]:
    """Return a copy of the dictionary of environment variables that reports reads."""

    class Listening(dict[Any, Any]):
        def __getitem__(self, name: Any) -> Any:
            see(name)
            return super().__getitem__(name)

        def __contains__(self, name: object) -> bool:
            see(name)
            return super().__contains__(name)

        def get(self, name: Any, default: Any = None) -> Any:
            see(name)
            return super().get(name, default)

        def __iter__(self) -> Iterator[Any]:
            see_all()
            return super().__iter__()

        def keys(self) -> Any:
            see_all()
            return super().keys()

        def values(self) -> Any:
            see_all()
            return super().values()

        def items(self) -> Any:
            see_all()
            return super().items()

        def copy(self) -> dict[Any, Any]:
            see_all()
            return super().copy()

    return Listening(raw)
