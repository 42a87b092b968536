"""Chooses the runner for a graph: call by call with states, or whole sequences with a length per row."""

from collections.abc import Callable

from compiler.graph.runners.padded_rows import RowsRunner
from compiler.graph.runners.session import Session, session_of
from compiler.graph.runners.stream import CallRunner, Runner
from compiler.graph.stages import Lowered


def runner_of(lowered: Lowered, batch: int = 1, *, optimize: bool = False) -> CallRunner:
    """Return a runner of an intermediate graph; see `runners_of`."""
    return runners_of(lowered, batch, optimize=optimize)()


def runners_of(lowered: Lowered, batch: int = 1, *, optimize: bool = False) -> Callable[[], CallRunner]:
    """Return a function that returns runners, one per stream; all share one session.

    Args:
        lowered: the graph; while its first call is a graph of its own, that runs first.
        batch: rows of every call of a graph that carries states.
        optimize: whether the runtime may rewrite the graph; without it only our rewrites are measured.
    """
    session = session_of(lowered.model, optimize=optimize)
    first = None if lowered.first_call is None else session_of(lowered.first_call, optimize=optimize)
    return lambda: runner_on(session, lowered, first=first, batch=batch)


def runner_on(
    session: Session, lowered: Lowered, *, first: Session | None = None, batch: int = 1, fill: float = 0.0
) -> CallRunner:
    """Return a runner on open sessions.

    Args:
        session: session of the graph.
        lowered: the graph's record.
        first: session of the first call's graph, where there is one.
        batch: rows of every call of a graph that carries states.
        fill: number that pads rows with lengths of their own.
    """
    if lowered.has_utterances:
        return RowsRunner(lowered, session, fill=fill)
    return Runner(lowered, session, batch, first, fill=fill)
