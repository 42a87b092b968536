"""Compares a graph with the original on edge feeds: NaN and infinities must be the same, finite values close.

What is finite keeps to the limits of the parity gate, too, until a pass rounds on purpose: 8-bit integers saturate at
full scale by design, and the lossy limits are about the recipe's data. That the original answers NaN or an infinity is
no error here; that a graph answers otherwise is one. Numbers that hang on rounding (`perturbed_rounding`) are not
compared where it decides whether they are finite, and may be off by as much as it moves them elsewhere.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.base.records.findings import Finding
from compiler.build.verify.differences import class_words, percent
from compiler.build.verify.edge_feeds import Range, edge_feeds
from compiler.build.verify.perturbed_rounding import COARSE, FINE, SIZE, perturbed
from compiler.calib.classes import Agreement, are_classes
from compiler.errors import GateFailed, Location
from compiler.graph.runners.ahead import on_all_cores
from compiler.graph.runners.choose import runners_of
from compiler.graph.runners.coded_states import states_in_numbers
from compiler.graph.runners.mapped_weights import map_weights, unload_weights
from compiler.graph.runners.stream import CallRunner, OriginalCall, Run, Stepper, expected_of
from compiler.graph.stages import Array, Feed, Lowered
from compiler.recipe.gates import EdgeKind, ParityGate, Tolerance

DRAWS = (FINE, COARSE, COARSE)
"""By how much roundings are off in the draws; the first says how far numbers move, all say which hang on rounding."""

PARTS = 2
"""Number of sessions that draw side by side, each for its share of the kinds; it does not depend on the cores."""

SLACK = 8.0
"""Multiple of the change that random rounding makes; one draw of it is not the worst."""

FINITE = Tolerance(max_abs=1e300, min_equal=0.0)
"""The limits once a pass has rounded on purpose: any number, but a finite one."""

EDGE_CURE = (
    "where the model is never fed so, declare the range of its inputs, or name the kinds that count under "
    "gates.parity.<graph>.edges"
)

TOLD = 160
"""Characters of an error of the user's code or of the runtime."""


@dataclasses.dataclass(frozen=True)
class EdgeCase:
    """The original's calls on feeds of one kind.

    Attributes:
        kind: of the feeds.
        steps: the calls, in order; none where the original does not answer.
        perturbed: the same calls of the captured graph with every rounding off, draw after draw; none where it does not
            run like that.
        unanswered: why the original does not answer, or empty.
    """

    kind: EdgeKind
    steps: tuple[OriginalCall, ...]
    perturbed: tuple[tuple[OriginalCall, ...], ...] = ()
    unanswered: str = ""

    def with_rows(self, rows: int) -> "EdgeCase":
        """Return the calls with `rows` equal rows."""
        steps, *draws = (tuple(step.repeated(rows) for step in steps) for steps in (self.steps, *self.perturbed))
        return EdgeCase(self.kind, steps, tuple(draws), self.unanswered)


@dataclasses.dataclass(frozen=True)
class Disagreement:
    """Where a graph answers an edge feed otherwise than the original.

    Attributes:
        case: the feeds and the original's answers.
        step: number of the call.
        tensor: output or state; empty where the graph does not run.
        expected: the original's value there, in words.
        got: what came.
    """

    case: EdgeCase
    step: int
    tensor: str
    expected: str
    got: str

    def failure(self, graph: str, stage: str, cure: str) -> GateFailed:
        """Return the gate's error for this disagreement."""
        what = self.tensor or "an answer"
        return GateFailed(
            f"expected {what} as the original's on the edge feed {self.case.kind!r} at chained step {self.step}, "
            f"{self.expected}, got {self.got}",
            cure=cure,
            place=Location(stage=stage, graph=graph, tensor=self.tensor),
            findings=[Finding("edges", graph, self.case.kind, holds=False, detail=self.got)],
        )


def edge_cases(
    kinds: Sequence[EdgeKind],
    feeds: Sequence[Feed],
    ranges: Mapping[str, Range],
    run: Run,
    captured: Lowered,
    alike: Collection[str] = (),
) -> list[EdgeCase]:
    """Run the original, and perturbed copies of the captured graph, on edge feeds.

    Args:
        kinds: kinds of edge feeds.
        feeds: feeds of the recipe's data, which give the shapes.
        ranges: ranges of inputs by name.
        run: runs the original.
        captured: the graph before any pass.
        alike: inputs that are the same in every call of a stream.
    """
    answered = [_answered(kind, edge_feeds(kind, feeds, ranges, alike), run) for kind in kinds]
    copy, by_kind = perturbed(captured), dict[EdgeKind, EdgeCase]()
    map_weights(*copy.models)
    unload_weights()
    for part in on_all_cores(lambda part: _with_draws(part, copy), [answered[first::PARTS] for first in range(PARTS)]):
        by_kind |= {case.kind: case for case in part}
    return [by_kind[kind] for kind in kinds]


def _answered(kind: EdgeKind, feeds: Sequence[Feed], run: Run) -> EdgeCase:
    try:
        return EdgeCase(
            kind, tuple(OriginalCall(feed, *answer) for feed, answer in zip(feeds, run(feeds), strict=True))
        )
    except Exception as error:  # noqa: BLE001  (whatever a model raises of feeds that its author never thought of)
        return EdgeCase(kind, (), unanswered=_told(error))


def _with_draws(cases: Sequence[EdgeCase], copy: Lowered) -> list[EdgeCase]:
    """Return the cases with perturbed runs of one session, as random draws depend on earlier calls alone."""
    if all(case.unanswered for case in cases):
        return list(cases)
    fresh = runners_of(copy)
    return [case if case.unanswered else _with_draws_of(case, fresh) for case in cases]


def _with_draws_of(case: EdgeCase, fresh: Callable[[], CallRunner]) -> EdgeCase:
    feeds = [step.feed for step in case.steps]
    try:
        return dataclasses.replace(case, perturbed=tuple(_drawn(fresh(), feeds, size) for size in DRAWS))
    except Exception:  # noqa: BLE001  (a size that hangs on rounding, say: then nothing is known to hang on it)
        return case


def _drawn(runner: CallRunner, feeds: Sequence[Feed], size: float) -> tuple[OriginalCall, ...]:
    by = {SIZE: np.array(size, np.float32)}
    return tuple(OriginalCall(feed, runner.step(feed, by), dict(runner.states)) for feed in feeds)


def _told(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:TOLD]


def limits_at_edges(gate: ParityGate, *, lossy: bool) -> Tolerance:
    """Return the tolerance of finite numbers on edge feeds."""
    return FINITE if lossy else gate


def first_disagreement(
    lowered: Lowered, fresh: Callable[[], Stepper], cases: Sequence[EdgeCase], limits: Tolerance
) -> Disagreement | None:
    """Return the first edge feed on which a graph's results differ from the original's; None where all agree.

    Args:
        lowered: the record of the graph.
        fresh: returns a runner; several run at once.
        cases: the original's answers.
        limits: tolerance of finite numbers.
    """
    disagreements = on_all_cores(lambda case: _disagreement(lowered, fresh(), case, limits), cases)
    return next((disagreement for disagreement in disagreements if disagreement is not None), None)


def _disagreement(lowered: Lowered, runner: Stepper, case: EdgeCase, limits: Tolerance) -> Disagreement | None:
    right = [expected_of(lowered, step) for step in case.steps]
    draws = [[expected_of(lowered, step) for step in draw] for draw in case.perturbed]
    names = dict.fromkeys(name for outputs in right for name in outputs)
    sizes = {name: max(_largest(outputs[name]) for outputs in right if name in outputs) for name in names}
    for number, step in enumerate(case.steps):
        try:
            got = {**runner.step(step.feed), **states_in_numbers(lowered, runner.states)}
        except Exception as error:  # noqa: BLE001  (a graph that does not run where the original does is a finding)
            return Disagreement(case, number, "", "which answers", _told(error))
        for name, expected in right[number].items():
            allowed = limits.model_copy(update={"max_abs": limits.max_abs * max(1.0, sizes[name])})
            moved = [draw[number][name] for draw in draws if name in draw[number]]
            words = None if name not in got else _difference(got[name], expected, moved, allowed)
            if words is not None:
                return Disagreement(case, number, name, *words)
    return None


def _difference(got: Array, expected: Array, moved: Sequence[Array], limits: Tolerance) -> tuple[str, str] | None:
    """Return expected and measured results as text where they disagree; rounding-dependent ones are ignored."""
    if any(perturbed.shape != expected.shape for perturbed in moved):
        return None  # rounding decides how many there are
    if got.shape != expected.shape:
        return f"of shape {list(expected.shape)}", f"{list(got.shape)}"
    if are_classes(expected):
        free = (
            np.any([perturbed != expected for perturbed in moved], axis=0) if moved else np.zeros(expected.shape, bool)
        )
        classes = Agreement().plus(np.where(free, expected, got), expected, 0)
        words = f"equal in {percent(limits.min_equal)} of its entries", class_words(classes, in_order=False)
        return None if classes.holds(limits.min_equal) else words
    wanted, came = _forms(expected), _forms(got)
    sure = (
        np.all([_forms(perturbed) == wanted for perturbed in moved], axis=0) if moved else np.ones(expected.shape, bool)
    )
    wrong = sure & (wanted != came)
    if np.any(wrong):
        where = tuple(map(int, np.argwhere(wrong)[0]))
        return f"{_word(expected[where])} at {list(where)}", f"{_word(got[where])}"
    finite = sure & (wanted == 0) & (came == 0)
    finite = ... if finite.all() else finite  # without copies
    exact = expected[finite].astype(np.float64)
    off = np.abs(got[finite].astype(np.float64) - exact)
    fine = moved[0][finite].astype(np.float64) if moved else exact
    limit = limits.max_abs + SLACK * float(np.max(np.abs(fine - exact), initial=0.0))
    worst = float(np.max(off, initial=0.0))
    return None if worst <= limit else (f"within {limit:.3g}", f"a difference of {worst:.3g}")


def _forms(array: Array) -> npt.NDArray[np.int8]:
    """Return 0 for a finite number, 2 for NaN, the sign of an infinity."""
    if array.dtype.kind in "iub":
        return np.zeros(array.shape, np.int8)
    wide = _wide(array)
    if np.all(np.isfinite(wide)):
        return np.zeros(array.shape, np.int8)
    found = np.where(np.isinf(wide), np.sign(wide), 0.0)
    return np.where(np.isnan(wide), 2.0, found).astype(np.int8)


def _largest(array: Array) -> float:
    wide = _wide(array)
    finite = np.isfinite(wide)
    return float(np.max(np.abs(wide if finite.all() else wide[finite]), initial=0.0))


def _wide(array: Array) -> Array:
    """Return floats that NumPy supports unchanged, and other numbers in double precision."""
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _word(number: Any) -> str:
    return f"{float(number):.6g}"


def agreement_words(cases: Sequence[EdgeCase]) -> str:
    """Return a report's text on the edge feeds that were compared."""
    answered = [case for case in cases if case.steps]
    calls = max((len(case.steps) for case in answered), default=0)
    said = f"edge feeds: {len(answered)} kinds x {calls} calls agree" if answered else "no edge feeds"
    silent = [f"{case.kind} is not answered by the original ({case.unanswered})" for case in cases if case.unanswered]
    return ", ".join((said, *silent))
