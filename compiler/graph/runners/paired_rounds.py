"""Times several calls in alternating rounds, and computes confidence intervals for the ratios of their times.

What else the machine does falls on all calls of a round, so a ratio is taken within it. Where the median of all rounds
lies is known to be within a distribution-free interval: the interval leaves out as many of the smallest and largest
ratios as a sign test at a level of one in a hundred allows.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from compiler.base.records.timings import Comparison, Ratio

Call = Callable[[], object]
Clock = Callable[[], float]

ROUNDS = 15
"""Rounds after which a verdict is looked for; and again after as many more, or when the span ends between them."""

FEW_ROUNDS = 8
"""The fewest that say something of the median; and again after as many more."""

CLEAR = 0.01
"""So far from 1 is a ratio that few rounds are enough for."""

ROUND_S = 0.04
"""Time of one call in one round; several calls where one is shorter, behind one that is not timed: the caches of the
processor are full of what the others have read, and not of its weights, as in no service that runs one graph."""

DOUBT = 0.01
"""Chance that the median lies outside of its interval."""

SPAN_S = 10.0
"""A verdict that a busy spell of the machine could have turned is looked at for so long."""

MOST_S = 45.0
"""Then the median decides, however near to the limit it is."""

BUSY = 1.5
"""How far a busy machine moves the ratio of two graphs: integer code was seen to vary by this factor, float by 1.1."""


def ratio_of(ratios: Sequence[float], sizes: str = "") -> Ratio:
    """Return the figures of a ratio that was measured in at least two rounds."""
    tenths = statistics.quantiles(ratios, n=10, method="inclusive")
    return Ratio(sizes, statistics.median(ratios), tenths[0], tenths[-1], *median_interval(ratios), len(ratios))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return a confidence interval of the median; unbounded where there are too few values.

    Source: order statistics; the number of values below the median is that of heads in as many tosses.
    """
    count, outside, left_out = len(values), 0.0, 0
    while True:
        outside += math.comb(count, left_out) / 2**count
        if 2 * outside > DOUBT:
            break
        left_out += 1
    if not left_out:
        return 0.0, math.inf
    ordered = sorted(values)
    return ordered[left_out - 1], ordered[count - left_out]


class Rounds:
    """Runs calls in turns.

    Args:
        runs: each runs one call.
        clock: seconds; those that this process has spent computing, so that nothing is counted while another has the
            core; for calls that run on one thread, whichever that is.

    Attributes:
        times: of every round the seconds of one call of each.
    """

    def __init__(self, runs: Sequence[Call], clock: Clock = time.process_time) -> None:
        self.runs, self.clock = runs, clock
        slowest = max(self._timed(run, 2) for run in runs)
        self.calls = max(1, round(ROUND_S / max(slowest, 1e-6)))
        self.times: list[tuple[float, ...]] = []

    def more(self, rounds: int) -> None:
        """Run more rounds, in alternating order."""
        for _ in range(rounds):
            order = list(range(len(self.runs)))
            times = {which: self._timed(self.runs[which], self.calls) for which in order[:: self._direction]}
            self.times.append(tuple(times[which] for which in order))

    @property
    def _direction(self) -> int:
        return 1 if len(self.times) % 2 else -1

    def ratio(self, sizes: str = "", pair: tuple[int, int] = (0, 1)) -> Ratio:
        """Return the time of one call over that of another, by their indices."""
        of, to = pair
        return ratio_of([each[of] / each[to] for each in self.times], sizes)

    def _timed(self, run: Call, calls: int) -> float:
        if calls > 1:
            run()
        started = self.clock()
        for _ in range(calls):
            run()
        return (self.clock() - started) / calls


def time_ratio(
    sizes: str, graph: Call, other: Call, *, rounds: int = ROUNDS, clock: Clock = time.process_time
) -> Ratio:
    """Return the time of one call over that of another.

    Args:
        sizes: the bucket, for messages.
        graph: runs one call.
        other: runs one call of the graph to compare with.
        rounds: number of rounds.
        clock: returns seconds, as for `Rounds`.
    """
    both = Rounds((graph, other), clock)
    both.more(rounds)
    return both.ratio(sizes)


def judged_ratios(pairs: Mapping[str, Rounds], limit: float | None, wall: Clock = time.monotonic) -> list[Ratio]:
    """Return the ratio of every pair, measured until it is known on which side of a limit it lies.

    It is known when its interval lies on that side for a while, or by a wide margin: a busy spell of the machine,
    during which one of the two suffers more, then changes nothing. All pairs share the while.

    Args:
        pairs: two calls each, by bucket.
        limit: of every ratio; None where there is none.
        wall: returns seconds of real time.
    """
    ends = wall() + SPAN_S
    waiting = list(pairs)
    while waiting:
        _run_in_turns([pairs[sizes] for sizes in waiting], ends, wall)
        spent = wall() - (ends - SPAN_S)
        waiting = [
            sizes
            for sizes in waiting
            if limit is not None and spent < MOST_S and not _is_known(pairs[sizes].ratio(), limit, spent)
        ]
    return [rounds.ratio(sizes) for sizes, rounds in pairs.items()]


def _run_in_turns(pairs: Sequence[Rounds], ends: float, wall: Clock) -> None:
    """Run rounds for all pairs: at least `ROUNDS`, and no more once the span has ended."""
    for _ in range(ROUNDS):
        is_before, has_enough = wall() < ends, all(len(rounds.times) >= ROUNDS for rounds in pairs)
        for rounds in pairs:
            rounds.more(1)
        if is_before and has_enough and wall() >= ends:
            return  # a verdict that had to wait for it need not wait any longer


def _is_known(ratio: Ratio, limit: float, spent_s: float) -> bool:
    margin = BUSY if spent_s < SPAN_S else 1.0
    return ratio.most * margin <= limit or ratio.least > limit * margin


def compared(pairs: Mapping[str, Rounds], seconds: float, wall: Clock = time.monotonic) -> Comparison:
    """Compare two graphs in several buckets, round by round, until one is known to be faster or time is up.

    Args:
        pairs: both graphs' calls, by bucket.
        seconds: time that may be spent.
        wall: returns seconds of real time.
    """
    started = wall()
    while True:
        for rounds in pairs.values():
            rounds.more(FEW_ROUNDS)
        comparison = _comparison(pairs)
        if is_faster(comparison.together) is not None or wall() - started >= seconds:
            return comparison


def is_faster(ratio: Ratio) -> bool | None:
    """Whether the first of two graphs is faster; None where the spread does not decide.

    After few rounds only a clear margin decides, as repeated tests find an interval on one side eventually.
    """
    margin = CLEAR if ratio.rounds <= FEW_ROUNDS else 0.0
    if ratio.most < 1.0 - margin:
        return True
    return False if ratio.least > 1.0 + margin else None


def _comparison(pairs: Mapping[str, Rounds]) -> Comparison:
    by_round = zip(*(rounds.times for rounds in pairs.values()), strict=True)
    together = [statistics.geometric_mean(first / second for first, second in times) for times in by_round]
    saved = [1e3 * statistics.median(second - first for first, second in rounds.times) for rounds in pairs.values()]
    ratios = [rounds.ratio(sizes) for sizes, rounds in pairs.items()]
    return Comparison(tuple(ratios), ratio_of(together), tuple(saved))
