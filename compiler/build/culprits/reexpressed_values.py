"""Finds values that keep their name but change their form in a pass, as when a scale moves from data into weights.

    before:  y = norm(x)      z = y W          after:  y = norm(x) / s      z = y (s W)

Such a value is no place to cut a graph at: what makes it seems wrong, and given its old form, what reads it does.
Suspected are values with a large local error from which every way leads to another one; they are confirmed where the
error behind them is gone once the graph is no longer cut at them.
"""

from collections.abc import Callable, Mapping, Sequence

from compiler.build.verify.explained_rounding import is_counted
from compiler.calib.noise import rms
from compiler.graph.runners.forced_values import TeacherForcedRun, read_by, section_of
from compiler.graph.stages import Lowered

LARGE = 0.05
"""A relative local error that another form makes at least; factors are rarely so close to one."""

REMAINING = 1 / 4
"""Largest share of the error behind such a value that remains without the cut; a defect beside it may stay."""

BLOCK = 16
"""Values between two errors, at most."""


def reexpressed(
    after: Lowered, names: Sequence[str], forced_run_of: Callable[[Sequence[str]], TeacherForcedRun | None]
) -> set[str]:
    """Return the values among `names` that the graph holds in another form.

    Args:
        after: the graph.
        names: values in both this graph and the one before.
        forced_run_of: returns a call with the graph cut at some of them; None without one.
    """
    forced_run = forced_run_of(names)
    if forced_run is None:
        return set()
    errors = {name: local_error(forced_run, name) for name in names}
    blocks = _blocks(_readers(after, names), errors, {str(value.name) for value in after.model.graph.outputs})
    dropped = set().union(*(block for block, _ in blocks))
    forced_run = forced_run_of([name for name in names if name not in dropped]) if dropped else None
    if forced_run is None:
        return set()
    left = {name: local_error(forced_run, name) for name in names if name not in dropped}
    confirmed = [block for block, ends in blocks if all(left.get(end, 0.0) <= REMAINING * errors[end] for end in ends)]
    return set().union(*confirmed)


def _readers(after: Lowered, names: Sequence[str]) -> dict[str, set[str]]:
    """Return, for each value, the values whose sections read it."""
    ends = set(names)
    readers: dict[str, set[str]] = {name: set() for name in names}
    for name in names:
        for value in read_by(section_of(after, name, ends - {name})):
            if str(value.name) in readers:
                readers[str(value.name)].add(name)
    return readers


def _blocks(
    readers: Mapping[str, set[str]], errors: Mapping[str, float], outputs: set[str]
) -> list[tuple[set[str], set[str]]]:
    """Return the values from one error up to the next, with the latter; without those that lead to outputs."""
    blocks = []
    for start in (name for name, error in errors.items() if error >= LARGE):
        block, ends, waiting = {start}, set[str](), [start]
        while waiting and len(block) <= BLOCK:
            name = waiting.pop()
            for reader in readers[name] - block:
                if errors[reader] >= LARGE:
                    ends.add(reader)
                else:
                    block.add(reader)
                    waiting.append(reader)
        if ends and not waiting and not block & outputs and all(readers[name] for name in block):
            blocks.append((block, ends))
    return blocks


def local_error(forced_run: TeacherForcedRun, name: str) -> float:
    """Return the error of a section on right inputs, relative to the signal; 0 where non-finite numbers differ."""
    expected, got = forced_run.expected(name), forced_run.got(name)
    counted = is_counted(expected)
    signal = rms(expected[counted])
    if not signal or not (is_counted(got) == counted).all():
        return 0.0
    return rms(got[counted] - expected[counted]) / signal
