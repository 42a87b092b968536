"""Resolves `package.module:callable` references of a recipe; their code runs with the user's rights."""

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from compiler.errors import RecipeError, SlipwayError, did_you_mean
from compiler.witness import WITNESS


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
    """The callable that a reference names.

    Args:
        reference: `package.module:callable`.
        folders: searched before the installed packages.
        where: start of error messages, e.g. `recipes/cpu.yaml:9: graphs.encoder.source.factory`.

    Raises:
        RecipeError: the module or the name does not exist, cannot be imported, or is not callable.
    """
    module_name, _, name = reference.partition(":")
    with importable(folders), WITNESS.watching():
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
                f"{where}: expected {module_name!r} to import, got {type(error).__name__}: {error}",
                cure=f"python -c 'import {module_name}' shows where it fails",
            ) from error
    found = getattr(module, name, None)
    if not callable(found):
        public = [key for key, value in vars(module).items() if callable(value) and _is_of(module_name, key, value)]
        got = f"nothing called {name!r}" if found is None else f"{type(found).__name__} {name!r}"
        raise RecipeError(f"{where}: expected a callable in {module_name}, got {got}", cure=did_you_mean(name, public))
    return found  # type: ignore[no-any-return]


def _is_of(module: str, name: str, value: object) -> bool:
    return not name.startswith("_") and getattr(value, "__module__", module) == module


def call(
    function: Callable[..., Any],
    where: str,
    kind: type[SlipwayError],
    *arguments: Any,
    named: Callable[..., Any] | None = None,
) -> Any:
    """Call the user's code; whatever it raises, `SystemExit` too, becomes one message of the given class.

    Args:
        function: what is called.
        where: start of the message.
        kind: class of the message.
        arguments: of the call.
        named: the user's callable, where `function` is ours and calls it.
    """
    try:
        with WITNESS.watching():
            return function(*arguments)
    except SlipwayError:
        raise
    except (Exception, SystemExit) as error:
        raise kind(
            f"{where}: expected {function_name(named or function)} to return, got {type(error).__name__}: {error}",
            cure=f"the exception came from {_last_line(error)}; mend it there",
        ) from error


def function_name(function: Callable[..., Any]) -> str:
    """`module:name` for messages."""
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', function)}"


def _last_line(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "unknown code"
    return f"{shown_path(Path(trace.tb_frame.f_code.co_filename))}:{trace.tb_lineno}"


def shown_path(path: Path) -> str:
    """A path relative to the current directory where it lies below it, else its last two parts."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return "/".join(path.parts[-2:])
