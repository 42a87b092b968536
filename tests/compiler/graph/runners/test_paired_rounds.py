"""paired_rounds: ratios round by round and how sure they are; what else the machine does turns no verdict."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest

from compiler.base.records.timings import Ratio
from compiler.graph.runners import paired_rounds
from compiler.graph.runners.paired_rounds import (
    BUSY,
    FEW_ROUNDS,
    MOST_S,
    ROUNDS,
    SPAN_S,
    Rounds,
    compared,
    is_faster,
    judged_ratios,
    median_interval,
    ratio_of,
    time_ratio,
)

LIMIT = 0.5


class Clock:
    """Seconds that pass only in calls."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def lasting(self, seconds: Iterable[float]) -> Callable[[], None]:
        """A call that takes the next of these seconds."""
        left = iter(seconds)

        def call() -> None:
            self.now += next(left)

        return call

    def slower(self, seconds: float, busy: Callable[[float], float]) -> Callable[[], None]:
        """A call that takes so long, times what the machine does to it at that time."""

        def call() -> None:
            self.now += seconds * busy(self.now)

        return call


def test_ratios_are_taken_round_by_round() -> None:
    clock = Clock()
    fast, slow = clock.lasting(itertools.cycle([0.01])), clock.lasting(itertools.cycle([0.02]))
    found = time_ratio("batch1", fast, slow, clock=clock)
    assert (found.median, found.low, found.high, found.least, found.most) == pytest.approx((0.5,) * 5)
    assert (str(found), found.rounds) == ("batch1 0.50 (0.50..0.50)", ROUNDS)
    assert found.certainty == "median of 15 rounds within 0.500..0.500"


def test_a_slow_spell_falls_on_both() -> None:
    clock = Clock()
    spell = [0.02] * 40 + [0.2] * 40
    halves = clock.lasting(itertools.cycle([each / 2 for each in spell]))
    found = time_ratio("batch1", halves, clock.lasting(itertools.cycle(spell)), clock=clock)
    assert found.median == pytest.approx(0.5, rel=0.2)


def test_three_calls_share_their_rounds_and_each_has_a_ratio_to_each() -> None:
    clock, order = Clock(), list[int]()

    def run(which: int) -> None:
        order.append(which)
        clock.now += 0.05 * (which + 1)

    rounds = Rounds([lambda which=which: run(which) for which in range(3)], clock)  # type: ignore[misc]
    order.clear()
    rounds.more(4)
    assert (rounds.calls, len(rounds.times)) == (1, 4)
    assert order == [2, 1, 0, 0, 1, 2] * 2, "none is always behind the same other"
    assert [rounds.ratio(pair=(of, 0)).median for of in range(3)] == pytest.approx([1, 2, 3])


def test_short_calls_are_run_more_often_per_round() -> None:
    clock = Clock()
    rounds = Rounds([clock.lasting(itertools.repeat(0.001)), clock.lasting(itertools.repeat(0.004))], clock)
    assert rounds.calls == 10
    rounds.more(1)
    assert rounds.times[0] == pytest.approx((0.001, 0.004))


def test_what_others_have_left_in_the_caches_of_the_processor_is_not_timed() -> None:
    clock, last = Clock(), [""]

    def call(name: str, seconds: float) -> None:
        clock.now += seconds if last[0] == name else 3 * seconds
        last[0] = name

    rounds = Rounds([lambda: call("a", 0.005), lambda: call("b", 0.010)], clock)
    rounds.more(4)
    assert [round(time, 6) for turn in rounds.times for time in turn] == [0.005, 0.01] * 4


@pytest.mark.parametrize("count", range(2, 8))
def test_few_rounds_say_nothing_of_the_median(count: int) -> None:
    assert median_interval([1.0] * count) == (0.0, math.inf)


def test_the_interval_of_the_median_is_that_of_the_sign_test() -> None:
    assert median_interval(list(map(float, range(8)))) == (0, 7)
    assert median_interval(list(map(float, range(15)))) == (2, 12)
    assert median_interval(list(map(float, range(100)))) == (36, 63)


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    drawn = np.random.default_rng(0).exponential(size=(400, 15))
    held = [least <= math.log(2) <= most for least, most in map(median_interval, drawn.tolist())]
    assert np.mean(held) >= 0.97


def test_the_order_of_values_is_nothing_to_the_figures() -> None:
    values = list(np.random.default_rng(1).random(31))
    assert ratio_of(values) == ratio_of(sorted(values))


def judged(ratio: float, first: Callable[[float], float], second: Callable[[float], float]) -> tuple[Ratio, float]:
    """The verdict on a ratio, while the machine makes the calls slower; and the time that was spent."""
    clock = Clock()
    rounds = Rounds([clock.slower(0.1 * ratio, first), clock.slower(0.1, second)], clock)
    started = clock.now
    (found,) = judged_ratios({"batch=1": rounds}, LIMIT, clock)
    return found, clock.now - started


def quiet(now: float) -> float:
    return 1.0


def noise(seed: int, share: float) -> Callable[[float], float]:
    numbers: Iterator[float] = iter(np.random.default_rng(seed).normal(1.0, share, 100_000))
    return lambda now: max(0.1, next(numbers))


@pytest.mark.parametrize("ratio", [0.1, LIMIT / BUSY * 0.99, LIMIT * BUSY * 1.01, 3.0])
def test_what_is_far_from_the_limit_is_known_after_a_few_rounds(ratio: float) -> None:
    found, spent = judged(ratio, quiet, quiet)
    assert found.median == pytest.approx(ratio)
    assert (found.rounds, spent < SPAN_S) == (ROUNDS, True)


SPELLS = [
    pytest.param(lambda now: 9.0 if now < 3.0 else 1.0, lambda now: 9.0 if now < 3.0 else 1.0, id="both, at the start"),
    pytest.param(lambda now: BUSY if now < 4.0 else 1.0, quiet, id="the first alone, at the start"),
    pytest.param(quiet, lambda now: BUSY if now < 4.0 else 1.0, id="the second alone, at the start"),
    pytest.param(lambda now: BUSY if now % 5 < 2 else 1.0, quiet, id="the first, now and then"),
    pytest.param(quiet, lambda now: 3.0 if now % 5 < 2 else 1.0, id="the second, now and then"),
    pytest.param(noise(1, 0.1), noise(2, 0.1), id="noise"),
]


@pytest.mark.parametrize(("first", "second"), SPELLS)
@pytest.mark.parametrize("ratio", [0.44, 0.56])
def test_a_busy_spell_changes_no_verdict(
    ratio: float, first: Callable[[float], float], second: Callable[[float], float]
) -> None:
    found, spent = judged(ratio, first, second)
    assert (found.median <= LIMIT) == (ratio <= LIMIT)
    assert spent <= MOST_S + 10.0


def test_what_lies_at_the_limit_is_measured_until_the_time_is_up_and_the_median_decides() -> None:
    found, spent = judged(LIMIT, noise(3, 0.05), noise(4, 0.05))
    assert found.least <= LIMIT <= found.most
    assert spent >= MOST_S


@pytest.mark.parametrize("ratio", [LIMIT / BUSY * 1.01, LIMIT / 1.1, LIMIT * 1.1])
def test_a_verdict_that_waits_for_the_end_of_the_span_comes_with_it(ratio: float) -> None:
    found, spent = judged(ratio, quiet, quiet)
    assert found.median == pytest.approx(ratio)
    assert SPAN_S <= spent < SPAN_S + 2 * 0.1 * (1 + ratio)


def test_nothing_is_said_of_fewer_rounds_however_long_they_take() -> None:
    clock = Clock()
    slow = Rounds([clock.slower(2.0, quiet), clock.slower(9.0, quiet)], clock)
    (found,) = judged_ratios({"batch=1": slow}, LIMIT, clock)
    assert found.rounds == ROUNDS


def test_the_end_of_the_span_is_one_look_more_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = list[int]()
    monkeypatch.setattr(paired_rounds, "_is_known", lambda ratio, *_: looks.append(ratio.rounds))
    judged(LIMIT, quiet, quiet)
    gaps = sorted(later - earlier for earlier, later in itertools.pairwise([0, *looks]))
    assert 0 < gaps[0] < ROUNDS
    assert set(gaps[1:]) == {ROUNDS}


def test_without_a_limit_there_is_nothing_to_wait_for_and_each_pair_is_judged_alone() -> None:
    clock = Clock()

    def pair(ratio: float) -> Rounds:
        return Rounds([clock.lasting(itertools.repeat(0.1 * ratio)), clock.lasting(itertools.repeat(0.1))], clock)

    found = judged_ratios({"a": pair(0.49), "b": pair(0.1)}, None, clock)
    assert [(each.sizes, each.rounds) for each in found] == [("a", ROUNDS), ("b", ROUNDS)]
    near, far = judged_ratios({"a": pair(0.49), "b": pair(0.1)}, LIMIT, clock)
    assert near.rounds > far.rounds == ROUNDS


def lasting(clock: Clock, ratio: float, rounding: Callable[[float], float] = quiet) -> Rounds:
    return Rounds([clock.slower(0.1 * ratio, rounding), clock.slower(0.1, quiet)], clock)


@pytest.mark.parametrize("ratio", [0.9, 1.1])
def test_what_is_known_to_be_faster_or_slower_is_not_measured_on(ratio: float) -> None:
    clock = Clock()
    found = compared({"batch=1": lasting(clock, ratio), "batch=4": lasting(clock, ratio**2)}, 60.0, clock)
    assert [each.rounds for each in (*found.buckets, found.together)] == [FEW_ROUNDS] * 3
    assert [each.sizes for each in (*found.buckets, found.together)] == ["batch=1", "batch=4", ""]
    assert found.together.median == pytest.approx(ratio**1.5), "buckets weigh alike, however long they take"
    assert found.saved_ms == pytest.approx((100 * (1 - ratio), 100 * (1 - ratio**2)))


def test_what_is_neither_is_measured_until_time_is_up() -> None:
    clock = Clock()
    found = compared({"batch=1": lasting(clock, 1.0, noise(5, 0.01))}, 6.0, clock)
    assert found.together.least < 1.0 < found.together.most
    assert found.together.rounds > FEW_ROUNDS
    assert 6.0 <= clock.now < 9.0


@pytest.mark.parametrize(
    ("least", "most", "rounds", "expected"),
    [
        (0.90, 0.999, 16, True),
        (0.90, 0.999, 8, None),
        (0.90, 0.989, 8, True),
        (0.99, 1.0, 16, None),
        (1.001, 1.1, 16, False),
        (1.001, 1.1, 8, None),
        (1.011, 1.1, 8, False),
    ],
)
def test_after_few_rounds_only_what_is_clear_is_said(
    least: float, most: float, rounds: int, expected: bool | None
) -> None:
    assert is_faster(Ratio("", 1.0, 1.0, 1.0, least, most, rounds)) is expected


def test_two_equal_graphs_are_seldom_told_apart_however_often_one_looks() -> None:
    told = 0
    for seed in range(40):
        clock = Clock()
        rounds = Rounds([clock.slower(0.1, noise(seed, 0.03)), clock.slower(0.1, noise(seed + 1000, 0.03))], clock)
        told += is_faster(compared({"batch=1": rounds}, 10.0, clock).together) is not None
    assert told <= 3
