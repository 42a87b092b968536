"""Takes the errors of chosen regions away from a graph, to see what is left without them.

    v' = v + (right value - local error's value)        where that is finite; elsewhere the right value itself

Only a region's own error goes: what it makes of wrong inputs stays as wrong as it was, so a value behind the culprit
does not heal it. One graph takes all corrections as inputs; a correction that is not asked for is zero.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.recipe import Limits
from compiler.stages import Array, Feed, Lowered
from compiler.teacher_forcing import Lesson, Sessions
from compiler.verify import Difference, Step, compare, worst_of

ADDED, REPLACED = "added.", "replaced."
"""Prefixes of the inputs of a correction: what is added, and where it takes the place of the value."""


def correctable(lowered: Lowered, names: Sequence[str]) -> Lowered:
    """A copy in which every one of these values can be corrected by two further inputs."""
    model = house.clone(lowered.model)
    wanted = set(names)
    for node in house.nodes_of(model):
        for value in node.outputs:
            if str(value.name) in wanted:
                _make_correctable(model, node, value)
    return dataclasses.replace(lowered, model=model)


def _make_correctable(model: ir.Model, node: ir.Node, value: ir.Value) -> None:
    name = str(value.name)
    added = ir.Value(name=f"{ADDED}{name}", type=value.type)
    replaced = ir.Value(name=f"{REPLACED}{name}", type=ir.TensorType(ir.DataType.BOOL))
    model.graph.inputs.extend((added, replaced))
    insert = house.Inserter(model, "correction", after=node)
    total = insert.op("Add", [value, added], name=f"{name}_corrected_all", shape=value.shape, dtype=value.dtype)
    chosen = insert.op(
        "Where", [replaced, added, total], name=f"{name}_corrected", shape=value.shape, dtype=value.dtype
    )
    house.take_over(model, value, chosen, except_in=[each for each in (total.producer(),) if each is not None])


def corrections(lesson: Lesson, names: Collection[str]) -> dict[str, Array]:
    """What the inputs of `correctable` are fed with, to take the local errors of one call away."""
    found: dict[str, Array] = {}
    for name in names:
        expected, got = lesson.expected(name), lesson.got(name)
        with np.errstate(invalid="ignore", over="ignore"):
            error = expected - got
        broken = ~np.isfinite(error)
        whole = lesson.local[name]
        added, replaced = np.zeros(whole.shape, whole.dtype), np.zeros(whole.shape, bool)
        with np.errstate(over="ignore"):
            added[lesson.places[name]] = np.where(broken, expected, error).astype(whole.dtype)
        replaced[lesson.places[name]] = broken
        found[f"{ADDED}{name}"], found[f"{REPLACED}{name}"] = added, replaced
    return found


@dataclasses.dataclass(frozen=True)
class Trial:
    """What is left of the difference to the original.

    Attributes:
        used: share of the limits that the worst tensor uses; above 1 the gate fails.
        power: of the error of all compared tensors together, each relative to its signal.
    """

    used: float
    power: float


class Injection:
    """Runs a graph on recorded calls with the errors of chosen regions taken away.

    Args:
        after: the graph.
        names: values that may be corrected.
        steps: the original's calls, in order.
        lessons: of the same calls, by number.
        limits: of the gate.
        optimize: whether the runtime may rewrite the graph.
    """

    def __init__(
        self,
        after: Lowered,
        names: Sequence[str],
        steps: Sequence[Step],
        lessons: Mapping[int, Mapping[str, Array]],
        limits: Limits,
        *,
        optimize: bool = False,
    ) -> None:
        self.lowered, self.names = correctable(after, names), tuple(names)
        self.steps, self.lessons, self.limits = steps, lessons, limits
        self.dtypes = {str(value.name): value.dtype for value in self.lowered.model.graph.inputs}
        self.sessions = Sessions.of(self.lowered, optimize=optimize)
        self.trials: dict[frozenset[str], Trial] = {}

    def without(self, corrected: Collection[str]) -> Trial:
        """Run all calls with these values corrected; each set is run once."""
        key = frozenset(corrected)
        if key not in self.trials:
            differences = compare(self.lowered, _Corrected(self, key), self.steps)
            worst = worst_of(differences, self.limits)
            self.trials[key] = Trial(worst.used(self.limits), sum(map(_power, differences)))
        return self.trials[key]

    def feed(self, number: int, corrected: Collection[str]) -> dict[str, Array]:
        """The corrections of one call; scalars of nothing where none is wanted or known."""
        known = self.lessons.get(number, {})
        found: dict[str, Array] = {}
        for name in self.names:
            for prefix in (ADDED, REPLACED):
                dtype = self.dtypes[f"{prefix}{name}"]
                assert dtype is not None
                nothing = np.zeros((), dtype.numpy())
                found[f"{prefix}{name}"] = known.get(f"{prefix}{name}", nothing) if name in corrected else nothing
        return found


class _Corrected:
    """A stepper that feeds corrections with every call."""

    def __init__(self, injection: Injection, corrected: Collection[str]) -> None:
        self.injection, self.corrected, self.number = injection, corrected, 0
        self.runner = injection.sessions.runner(injection.lowered)
        self.states = self.runner.states

    def step(self, feed: Feed) -> dict[str, Array]:
        more = self.injection.feed(self.number, self.corrected)
        self.number += 1
        return self.runner.step(feed, more)


def _power(difference: Difference) -> float:
    """Noise relative to signal; infinite where a number is not finite."""
    if not np.isfinite(difference.max_abs):
        return float("inf")
    return 0.0 if difference.sqnr_db is None else float(10.0 ** (-difference.sqnr_db / 10.0))
