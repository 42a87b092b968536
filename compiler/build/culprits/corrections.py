"""Removes the errors of chosen subgraphs while a graph runs, to measure the error that remains.

    v' = v + (right value - local error's value)        where that is finite; elsewhere the right value itself

Only a subgraph's own error goes: what it makes of wrong inputs stays as wrong as it was, so a value behind the culprit
does not cancel it. One graph takes all corrections as inputs; a correction that is not asked for is zero.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from compiler.build.verify.differences import Difference, compare, worst_of
from compiler.calib.noise import share_of
from compiler.graph.runners.choose import runners_of
from compiler.graph.runners.forced_values import TeacherForcedRun
from compiler.graph.runners.instrumented import ADDED, REPLACED, correctable
from compiler.graph.runners.stream import OriginalCall
from compiler.graph.stages import Array, Feed, Lowered
from compiler.recipe.gates import Tolerance


@dataclasses.dataclass(frozen=True)
class Correction:
    """What takes the local error of one value away in one call, in the shape of the graph.

    Attributes:
        added: to be added, where finite; elsewhere the right value.
        replaced: where it takes the place of the value.
        right: the right value, zero in padding.
        compared: where the right value is known.
    """

    added: Array
    replaced: Array
    right: Array
    compared: Array


def corrections(forced_run: TeacherForcedRun, names: Collection[str]) -> dict[str, Correction]:
    """Return the corrections of one call, by value."""
    by_value: dict[str, Correction] = {}
    for name in names:
        expected, got, place = forced_run.expected(name), forced_run.got(name), forced_run.places[name]
        with np.errstate(invalid="ignore", over="ignore"):
            error = expected - got
        broken, whole = ~np.isfinite(error), forced_run.local[name]
        added, right = np.zeros(whole.shape, whole.dtype), np.zeros(whole.shape, whole.dtype)
        replaced, compared = np.zeros(whole.shape, bool), np.zeros(whole.shape, bool)
        with np.errstate(over="ignore"):  # half precision has no room for what masks fill with
            added[place] = np.where(broken, expected, error).astype(whole.dtype)
            right[place] = expected.astype(whole.dtype)
        replaced[place], compared[place] = broken, True
        by_value[name] = Correction(added, replaced, right, compared)
    return by_value


@dataclasses.dataclass(frozen=True)
class Trial:
    """The remaining difference to the original.

    Attributes:
        used: share of the limits that the worst tensor uses; above 1 the gate fails.
        power: of the error of all compared tensors together, each relative to its signal.
    """

    used: float
    power: float


class Injection:
    """Runs a graph on recorded calls with the errors of chosen sections taken away.

    Args:
        after: the graph.
        names: values that may be corrected.
        steps: the original's calls, in order.
        forced_runs: of the same calls, by number.
        limits: of the gate.
        optimize: whether the runtime may rewrite the graph.
    """

    def __init__(
        self,
        after: Lowered,
        names: Sequence[str],
        steps: Sequence[OriginalCall],
        forced_runs: Mapping[int, Mapping[str, Correction]],
        limits: Tolerance,
        *,
        optimize: bool = False,
    ) -> None:
        self.lowered, self.names = correctable(after, names), tuple(names)
        self.steps, self.forced_runs, self.limits = steps, forced_runs, limits
        self.dtypes = {str(value.name): value.dtype for value in self.lowered.model.graph.inputs}
        self.fresh = runners_of(self.lowered, optimize=optimize)
        self.trials: dict[tuple[frozenset[str], bool], Trial] = {}

    def without(self, corrected: Collection[str], *, replace: bool = False) -> Trial:
        """Run all calls without the errors of these values; each set is run once.

        Args:
            corrected: the values.
            replace: whether they become right whatever they are computed from. Where numbers are rounded coarsely, a
                section that is fed a little otherwise makes another error than the one that is known of it.
        """
        key = frozenset(corrected), replace
        if key not in self.trials:
            differences = compare(self.lowered, _Corrected(self, *key), self.steps)
            worst = worst_of(differences, self.limits)
            self.trials[key] = Trial(worst.used(self.limits), sum(map(_power, differences)))
        return self.trials[key]

    def feed(self, number: int, corrected: Collection[str], *, replace: bool) -> dict[str, Array]:
        """Return the corrections of one call; neutral scalars where none is needed or known."""
        known = self.forced_runs.get(number, {})
        arrays: dict[str, Array] = {}
        for name in self.names:
            correction = known.get(name) if name in corrected else None
            dtype = self.dtypes[f"{ADDED}{name}"]
            assert dtype is not None
            if correction is None:
                values = np.zeros((), dtype.numpy()), np.zeros((), bool)
            else:
                values = (correction.right, correction.compared) if replace else (correction.added, correction.replaced)
            arrays[f"{ADDED}{name}"], arrays[f"{REPLACED}{name}"] = values
        return arrays


class _Corrected:
    """A stepper that feeds corrections with every call."""

    def __init__(self, injection: Injection, corrected: Collection[str], replace: bool) -> None:
        self.injection, self.corrected, self.replace, self.number = injection, corrected, replace, 0
        self.runner = injection.fresh()
        self.states = self.runner.states

    def step(self, feed: Feed) -> dict[str, Array]:
        more = self.injection.feed(self.number, self.corrected, replace=self.replace)
        self.number += 1
        return self.runner.step(feed, more)


def _power(difference: Difference) -> float:
    """Return noise relative to signal, infinite for non-finite numbers; for classes, the share that differs."""
    if difference.classes is not None:
        return 1.0 - difference.classes.equal
    if not np.isfinite(difference.max_abs):
        return float("inf")
    return 0.0 if difference.sqnr_db is None else share_of(difference.sqnr_db)
