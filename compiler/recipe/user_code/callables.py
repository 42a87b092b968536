"""Resolves and calls `package.module:callable` references of a recipe; the code runs with the user's rights."""

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import runtime_lite
from compiler.base.cache.read_tracer import READ_TRACER
from compiler.base.did_you_mean import did_you_mean
from compiler.errors import RecipeError, SlipwayError


@contextlib.contextmanager
def importable(folders: Sequence[Path]) -> Iterator[None]:
    """Put folders in front of the import path while the body runs."""
    added = [str(folder) for folder in folders if str(folder) not in sys.path]
    sys.path[:0] = added
    try:
        yield
    finally:
        for folder in added:
            with contextlib.suppress(ValueError):
                sys.path.remove(folder)


def resolve(reference: str, folders: Sequence[Path], where: str) -> Callable[..., Any]:
    """Return the callable that a reference names.

    Args:
        reference: `package.module:callable`.
        folders: searched before the installed packages.
        where: start of error messages, e.g. `recipes/cpu.yaml:9: graphs.encoder.source.factory`.

    Raises:
        RecipeError: the module or the name does not exist, cannot be imported, or is not callable.
    """
    module_name, _, name = reference.partition(":")
    with importable(folders), READ_TRACER.watching():
        try:
            module = importlib.import_module(module_name)
        except SlipwayError:
            raise
        except ModuleNotFoundError as error:
            raise RecipeError(
                f"{where}: expected an importable module, got {module_name!r} ({error})",
                cure=f"check the name, or run from the folder that holds it; searched {[str(f) for f in folders]}",
            ) from error
        except (Exception, SystemExit) as error:
            raise RecipeError(
                f"{where}: expected {module_name!r} to import, got {type(error).__name__}: {error}"
                + (f" at {line}" if (line := users_line(error)) else ""),
                cure=f"python -c 'import {module_name}' shows where it fails",
            ) from error
    target = getattr(module, name, None)
    if not callable(target):
        public = [key for key, value in vars(module).items() if callable(value) and _is_of(module_name, key, value)]
        got = f"nothing called {name!r}" if target is None else f"{type(target).__name__} {name!r}"
        raise RecipeError(f"{where}: expected a callable in {module_name}, got {got}", cure=did_you_mean(name, public))
    return target  # type: ignore[no-any-return]


def _is_of(module: str, name: str, value: object) -> bool:
    return not name.startswith("_") and getattr(value, "__module__", module) == module


def call(
    function: Callable[..., Any],
    where: str,
    kind: type[SlipwayError],
    *arguments: Any,
    named: Callable[..., Any] | None = None,
    keywords: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Call the user's code; any exception, `SystemExit` too, becomes one message of the given class.

    Args:
        function: the function to call.
        where: start of the message.
        kind: class of the message.
        arguments: arguments of the call.
        named: the user's callable, where `function` is a wrapper of it.
        keywords: arguments by name, as a recipe writes them; sequences arrive as lists.
    """
    try:
        with READ_TRACER.watching():
            return function(*arguments, **{name: _as_written(value) for name, value in keywords.items()})
    except SlipwayError:
        raise
    except (Exception, SystemExit) as error:
        line = users_line(error)
        cure = f"the exception came from {line or 'code that is not yours'}; mend it there"
        if not line and isinstance(error, TypeError):
            words = "nothing" if named is not None or not arguments else f"{len(arguments)} arguments"
            if keywords:
                words = f"the arguments {', '.join(keywords)}"
            cure = f"it is called with {words}: name a function that takes that, and calls this one with what it needs"
        raise kind(
            f"{where}: expected {function_name(named or function)} to return, got {type(error).__name__}: {error}",
            cure=cure,
        ) from error


def _as_written(value: Any) -> Any:
    """Return a value of a recipe with lists in place of tuples."""
    if isinstance(value, tuple | list):
        return [_as_written(item) for item in value]
    return {key: _as_written(item) for key, item in value.items()} if isinstance(value, dict) else value


def function_name(function: Callable[..., Any]) -> str:
    """Return `module:name` of a function, for messages."""
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', function)}"


def users_line(error: BaseException) -> str:
    """Return the deepest line of the user's code in an error's traceback or causes: `file.py:12 in forward: x = ...`.

    Empty where no line of the user's is in it.

    Empty where no line of theirs is on the way.
    """
    if isinstance(error, SyntaxError) and error.filename and is_users(error.filename):
        return f"{shown_path(Path(error.filename))}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    if frames:
        last = frames[-1]
        line = f": {last.line}" if last.line else ""
        return f"{shown_path(Path(last.filename))}:{last.lineno} in {last.name}{line}"
    cause = error.__cause__ or error.__context__
    return "" if cause is None else users_line(cause)


def running_line() -> str:
    """Return the innermost running line of the user's code: `file.py:12 in forward: x = ...`; empty without one."""
    for frame in reversed(traceback.extract_stack()):
        if is_users(frame.filename):
            return f"{shown_path(Path(frame.filename))}:{frame.lineno} in {frame.name}: {frame.line}"
    return ""


_FOREIGN = tuple(
    f"{Path(folder).resolve()}{os.sep}"
    for folder in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(__file__).parents[2]),
        str(Path(runtime_lite.__file__).parent),
    }
)
"""Folders of Python, of installed packages and of Slipway."""


def is_users(file: str) -> bool:
    """Whether a source file is the user's own."""
    return not file.startswith("<") and not str(Path(file).resolve()).startswith(_FOREIGN)


@functools.lru_cache(maxsize=1024)
def portable_source(file: str) -> str:
    """Return a source file as bundles name it, by its module: `package/module.py`, independent of its location."""
    name = next((name for name, module in list(sys.modules.items()) if getattr(module, "__file__", None) == file), "")
    path = Path(file)
    parts = len(name.split(".")) + (path.stem == "__init__")
    return "/".join(path.parts[-parts:])


def shown_path(path: Path) -> str:
    """Return a path relative to the current directory where it is below it, else its last two parts."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return "/".join(path.parts[-2:])
