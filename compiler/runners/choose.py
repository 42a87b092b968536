"""Which runner a graph needs: a stream that carries states, or whole rows with lengths of their own."""

from collections.abc import Callable

from compiler.runners.padded_rows import RowsRunner
from compiler.runners.session import session_of
from compiler.runners.stream import Runner, Stepper
from compiler.stages import Lowered


def runner_of(lowered: Lowered, batch: int = 1) -> Stepper:
    """A runner of an intermediate graph, with optimisation off so that only our rewrites are measured."""
    return runners_of(lowered, batch)()


def runners_of(lowered: Lowered, batch: int = 1) -> Callable[[], Stepper]:
    """Makes runners as `runner_of` does, one per stream; all share one session."""
    session = session_of(lowered.model)
    if lowered.padded_axes:
        return lambda: RowsRunner(lowered, session)
    first = None if lowered.first_call is None else session_of(lowered.first_call)
    return lambda: Runner(lowered, session, batch, first)
