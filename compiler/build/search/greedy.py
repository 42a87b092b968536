"""Selects the candidates that make a graph faster, by timing each one alone and then on top of those selected.

1. Alone: every candidate beside none. A candidate that changes nothing is not measured.
2. In the order of what they save alone, those that round behind all others and by what they save for the noise that
   they add: each on top of what was kept so far, as candidates interact. It stays if it is faster beyond the spread.
   While nothing is kept, only unmeasured plans are measured, with the remaining time.
3. The usual plan beside what was kept: gains that are too small to be seen one by one add up. It takes the place of
   what was kept unless it is slower beyond the spread, so that a search on a busy machine ends where it began.

Only the bench knows the kind of a candidate: a variant, a variant with other options, another way to run a pass.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from compiler.base.records.searches import Trial
from compiler.base.records.timings import Comparison
from compiler.graph.runners.paired_rounds import is_faster

KEPT = "kept"
NOTHING = "changes nothing"
SLOWER = "slower"
WITHIN = "no gain beyond the spread"
NOISY = "too much noise"
LATE = "not measured: time was up"

USUAL = "the standard plan, in its place"

Plan = tuple[str, ...]
Advance = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One thing that may be on.

    Attributes:
        name: in plans.
        rounds: whether it rounds on purpose.
    """

    name: str
    rounds: bool = False


class Bench(Protocol):
    """Measures graphs with a chosen set of candidates switched on."""

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All candidates, most promising first, since the time limit may cut the search short."""
        ...

    @property
    def usual(self) -> Plan:
        """The plan that is used without a search."""
        ...

    def changes(self, plan: Plan, name: str) -> bool:
        """Whether a candidate changes the graph when it is added to a plan."""
        ...

    def compare(self, plan: Plan, other: Plan, seconds: float) -> Comparison:
        """Return the ratio of the times of two plans, measured in at most `seconds` seconds."""
        ...

    def noise(self, plan: Plan) -> float:
        """Return the noise-to-signal power ratio of the noisiest tensor under a plan."""
        ...


@dataclasses.dataclass(frozen=True)
class Found:
    """What a search has come to: what is on, all trials, and the plan to none unless it is none."""

    plan: Plan
    trials: tuple[Trial, ...]
    total: Comparison | None


def search_plan(
    bench: Bench,
    seconds: float,
    *,
    most_noise: float = math.inf,
    wall: Callable[[], float] = time.monotonic,
    advance: Advance = lambda done, total: None,
) -> Found:
    """Search the plan of least time: measure each candidate alone, then add them greedily.

    Args:
        bench: measures plans.
        seconds: time limit of the search; a measurement that has begun is completed, and whole plans are measured last.
        most_noise: greatest noise-to-signal power ratio allowed for candidates that round.
        wall: returns the time in seconds.
        advance: called with the number of completed trials and of all trials.
    """
    return _Search(bench, wall() + seconds, most_noise, wall, advance).run()


class _Search:
    def __init__(
        self, bench: Bench, deadline_s: float, most_noise: float, wall: Callable[[], float], advance: Advance
    ) -> None:
        self.bench, self.deadline_s, self.most_noise, self.wall, self.advance = (
            bench, deadline_s, most_noise, wall, advance,
        )  # fmt: skip
        self.trials: list[Trial] = []
        self.left = 2 * len(bench.candidates) + 1 + bool(bench.usual)
        self.all = self.left

    def run(self) -> Found:
        plan: Plan = ()
        alone = {each.name: self._trial((), each) for each in self.bench.candidates}
        for candidate in self._by_promise(alone):
            known = alone[candidate.name]
            trial = self._trial(plan, candidate) if plan or known.verdict == WITHIN else self._again(known)
            if trial.verdict == KEPT:
                plan = (*plan, candidate.name)
        plan = self._or_usual(plan)
        total = self.bench.compare(plan, (), self._share()) if plan else None
        return Found(plan, tuple(self.trials), total)

    def _or_usual(self, plan: Plan) -> Plan:
        """Return the usual plan unless it is measured to be slower than `plan`; measured even past the time limit."""
        usual = self.bench.usual
        if set(usual) <= set(plan):
            self.left -= bool(usual)  # its share of the time is free
            return plan
        rounds = any(candidate.rounds for candidate in self.bench.candidates if candidate.name in usual)
        trial = self._compared(USUAL, plan, usual, rounds)
        if trial.verdict == WITHIN:
            trial = dataclasses.replace(trial, verdict=KEPT)
        self.trials.append(trial)
        self._count()
        return usual if trial.verdict == KEPT else plan

    def _trial(self, plan: Plan, candidate: Candidate) -> Trial:
        trial = self._measured(plan, candidate)
        self.trials.append(trial)
        self._count()
        return trial

    def _again(self, alone: Trial) -> Trial:
        """Return the measurement of a candidate alone once more, counted as another step."""
        self._count()
        return alone

    def _count(self) -> None:
        self.left -= 1
        self.advance(self.all - self.left, self.all)

    def _measured(self, plan: Plan, candidate: Candidate) -> Trial:
        if not self._has_time():
            return Trial(candidate.name, plan, LATE)
        if not self.bench.changes(plan, candidate.name):
            return Trial(candidate.name, plan, NOTHING)
        return self._compared(candidate.name, plan, (*plan, candidate.name), candidate.rounds)

    def _compared(self, name: str, plan: Plan, other: Plan, rounds: bool) -> Trial:
        """Compare a plan with one that would replace it, without timing it where it is too noisy."""
        noise = self.bench.noise(other) if rounds else 0.0
        noise_db = -10.0 * math.log10(noise) if noise else None
        if noise > self.most_noise:
            return Trial(name, plan, NOISY, noise_db=noise_db)
        compared = self.bench.compare(other, plan, self._share())
        verdict = {True: KEPT, False: SLOWER, None: WITHIN}[is_faster(compared.together)]
        return Trial(name, plan, verdict, compared, noise_db)

    def _by_promise(self, alone: dict[str, Trial]) -> list[Candidate]:
        """Return the candidates by time saved; those that round come last, by time saved per added noise."""
        quiet = self._noise_of_none() if any(candidate.rounds for candidate in self.bench.candidates) else 0.0

        def promise(candidate: Candidate) -> tuple[bool, float]:
            trial = alone[candidate.name]
            saved = 0.0 if trial.compared is None else 1.0 - trial.compared.together.median
            if not candidate.rounds:
                return False, -saved
            added = (0.0 if trial.noise_db is None else 10.0 ** (-trial.noise_db / 10.0)) - quiet
            return True, -saved / added if added > 0.0 else -math.inf

        return sorted(self.bench.candidates, key=promise)

    def _noise_of_none(self) -> float:
        return self.bench.noise(()) if self._has_time() else 0.0

    def _has_time(self) -> bool:
        return self.wall() < self.deadline_s

    def _share(self) -> float:
        return (self.deadline_s - self.wall()) / max(self.left, 1)
