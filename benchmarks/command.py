"""Runs a benchmark as a command: arguments are checked first, and a mistake in them is one sentence."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from compiler.errors import SlipwayError
from runtime_lite import read_bundle
from runtime_lite.ending import exit_code_of
from runtime_lite.errors import BadInput, RuntimeLiteError
from runtime_lite.format.manifest import Graph


class ContenderFailed(Exception):
    """A contender failed that a comparison needs: no table is printed, and the exit code is 1."""


@contextlib.contextmanager
def contender(name: str, but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Add the name of a contender to the errors that the block raises.

    Args:
        name: name of the contender.
        but: types of errors that are raised unchanged, such as that it is not installed.

    Raises:
        ContenderFailed: any other error was raised.
    """
    try:
        yield
    except but:
        raise
    except Exception as error:
        raise ContenderFailed(f"contender {name!r}: {type(error).__name__}: {error}") from error


def run(main: Callable[[], int | None]) -> NoReturn:
    """Run a benchmark and end the process with its exit code.

    The exit code is the result of `main`, or 0. A wrong argument or bundle ends in one sentence and the exit code that
    `build.py` has for it. Any other error is a bug and shows its traceback.
    """
    sys.exit(exit_code_of(main, "interrupted, no numbers were kept", (RuntimeLiteError, SlipwayError)))


def graph_of_bundle(folder: Path, name: str | None = None, *, streams: bool = False) -> Graph:
    """Check a bundle and return one of its graphs.

    Args:
        folder: folder of the bundle.
        name: name of the graph; by default the only one.
        streams: whether the graph needs states.

    Raises:
        BundleRefused: it cannot be trusted or read.
        BadInput: there is no folder, or it has no such graph.
    """
    with read_bundle(folder) as bundle:
        graphs = bundle.manifest.graphs
    if not folder.is_dir():
        raise BadInput(f"{folder}: expected the folder of a bundle, got a file; unpack it")
    if name is None and len(graphs) > 1:
        raise BadInput(f"{folder}: expected a bundle of one graph, got {', '.join(graphs)}; build them apart")
    chosen = name or next(iter(graphs))
    if chosen not in graphs:
        raise BadInput(f"{folder}: expected one of its graphs ({', '.join(graphs)}), got {chosen!r}; correct --graph")
    if streams and not graphs[chosen].states:
        raise BadInput(f"{folder}: expected states in {chosen!r}, got none; pass the bundle of a streaming model")
    return graphs[chosen]
