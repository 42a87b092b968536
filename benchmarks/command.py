"""How a benchmark runs as a command: what it is given is looked at first, and a mistake in it is a message."""

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
    """A contender raised what a comparison cannot go on without: no table stands for it, and the exit code is 1."""


@contextlib.contextmanager
def contender(name: str, but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Name the contender in what is raised inside of the block.

    Args:
        name: of the contender.
        but: what comes through as it is, as that it is not installed.

    Raises:
        ContenderFailed: something else was raised.
    """
    try:
        yield
    except but:
        raise
    except Exception as error:
        raise ContenderFailed(f"contender {name!r}: {type(error).__name__}: {error}") from error


def run(main: Callable[[], int | None]) -> NoReturn:
    """End the process as a benchmark ends.

    The exit code is what `main` returns, or 0. Where what it was given is wrong, one sentence says so, with the exit
    code that `build.py` has for it. What else is raised is a bug, in a contender or around it, and keeps its traceback.
    """
    sys.exit(exit_code_of(main, "interrupted, no numbers were kept", (RuntimeLiteError, SlipwayError)))


def graph_of_bundle(folder: Path, name: str | None = None, *, streams: bool = False) -> Graph:
    """Return a graph of a bundle, all of which has been checked.

    Args:
        folder: of the bundle.
        name: of the graph; without one the bundle has one graph.
        streams: whether the graph needs states.

    Raises:
        BundleRefused: it is not there, or cannot be trusted.
        BadInput: it is no folder, or has no such graph.
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
