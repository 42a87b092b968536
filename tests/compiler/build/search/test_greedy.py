"""greedy: what is kept follows from what candidates save together, on a bench whose truth is known."""

import dataclasses
import math
from collections.abc import Sequence

import pytest

from compiler.base.records.timings import Comparison
from compiler.build.search.greedy import KEPT, LATE, NOISY, NOTHING, SLOWER, USUAL, WITHIN, Candidate, Plan, search_plan
from compiler.graph.runners.paired_rounds import ratio_of


@dataclasses.dataclass
class Truth:
    """A bench that knows what each candidate does to the time, alone and where others are on.

    Attributes:
        factors: of the time, by candidate.
        together: of the time, where all of these are on, besides.
        needs: candidates that change nothing without another.
        powers: of the noise that candidates add; those that have one round.
        spread: of every ratio.
        costs_s: seconds that a comparison takes.
        usual: what is on where nobody searches.
    """

    factors: dict[str, float]
    together: dict[frozenset[str], float] = dataclasses.field(default_factory=dict)
    needs: dict[str, str] = dataclasses.field(default_factory=dict)
    powers: dict[str, float] = dataclasses.field(default_factory=dict)
    spread: float = 0.01
    costs_s: float = 1.0
    usual: Plan = ()
    now: float = 0.0
    asked: list[tuple[Plan, Plan, float]] = dataclasses.field(default_factory=list)

    @property
    def candidates(self) -> Sequence[Candidate]:
        return [Candidate(name, name in self.powers) for name in self.factors]

    def changes(self, plan: Plan, name: str) -> bool:
        return name not in self.needs or self.needs[name] in plan

    def time(self, plan: Plan) -> float:
        on = {name for name in plan if self.changes(plan, name)}
        besides = math.prod(factor for names, factor in self.together.items() if names <= on)
        return math.prod(self.factors[name] for name in on) * besides

    def compare(self, plan: Plan, other: Plan, seconds: float) -> Comparison:
        self.asked.append((plan, other, seconds))
        self.now += self.costs_s
        ratio = self.time(plan) / self.time(other)
        found = ratio_of([ratio * (1.0 + self.spread * place) for place in range(-5, 6)], "batch=1")
        return Comparison((found,), dataclasses.replace(found, sizes=""), (10.0 * (1.0 - ratio),))

    def noise(self, plan: Plan) -> float:
        return 1e-6 + sum(self.powers.get(name, 0.0) for name in plan)


def verdicts(
    bench: Truth, seconds: float = 1e6, most_noise: float = math.inf
) -> tuple[Plan, list[tuple[str, Plan, str]]]:
    found = search_plan(bench, seconds, most_noise=most_noise, wall=lambda: bench.now)
    return found.plan, [(each.candidate, each.plan, each.verdict) for each in found.trials]


def test_what_is_faster_beyond_the_spread_is_kept_the_best_first() -> None:
    plan, trials = verdicts(Truth({"good": 0.9, "slow": 1.2, "nothing": 0.99, "best": 0.5}))
    assert plan == ("best", "good")
    assert [(name, verdict) for name, on, verdict in trials if not on] == [
        ("good", KEPT), ("slow", SLOWER), ("nothing", WITHIN), ("best", KEPT),
    ]  # fmt: skip
    assert [(name, verdict) for name, on, verdict in trials if on] == [
        ("good", KEPT), ("nothing", WITHIN), ("slow", SLOWER),
    ]  # fmt: skip
    assert all(on in (("best",), ("best", "good")) for _, on, _ in trials if on)


def test_what_does_the_same_work_twice_is_kept_once() -> None:
    plan, _ = verdicts(Truth({"one": 0.7, "other": 0.75}, {frozenset({"one", "other"}): 1.4}))
    assert plan == ("one",)


def test_what_is_good_only_behind_another_is_found() -> None:
    plan, trials = verdicts(Truth({"second": 0.8, "first": 0.9}, needs={"second": "first"}))
    assert plan == ("first", "second")
    assert trials[0] == ("second", (), NOTHING)
    plan, _ = verdicts(Truth({"slow alone": 1.1, "first": 0.9}, {frozenset({"slow alone", "first"}): 0.5}))
    assert plan == ("first", "slow alone")


def test_what_rounds_comes_last_the_most_saved_for_its_noise_first() -> None:
    powers = {"cheap": 1e-5, "dear": 1e-3}
    bench = Truth({"dear": 0.5, "cheap": 0.8, "exact": 0.95}, powers=powers)
    assert verdicts(bench)[0] == ("exact", "cheap", "dear")
    plan, trials = verdicts(bench, most_noise=5e-4)
    assert plan == ("exact", "cheap")
    assert ("dear", (), NOISY) in trials
    found = search_plan(bench, 1e6, wall=lambda: bench.now)
    (noise,) = {each.noise_db for each in found.trials if each.candidate == "dear" and not each.plan}
    assert noise == pytest.approx(-10 * math.log10(1e-3 + 1e-6))


def test_noise_adds_up_to_what_is_allowed() -> None:
    bench = Truth({"a": 0.8, "b": 0.8}, powers={"a": 6e-4, "b": 6e-4})
    plan, trials = verdicts(bench, most_noise=1e-3)
    assert plan == ("a",)
    assert trials[-1] == ("b", ("a",), NOISY)


def test_the_plan_is_compared_with_none_at_the_end_and_nothing_is_measured_twice() -> None:
    bench = Truth({"a": 0.8, "b": 0.5})
    found = search_plan(bench, 1e6, wall=lambda: bench.now)
    assert [(plan, other) for plan, other, _ in bench.asked] == [
        (("a",), ()), (("b",), ()), (("b", "a"), ("b",)), (("b", "a"), ()),
    ]  # fmt: skip
    assert found.total is not None
    assert found.total.together.median == pytest.approx(0.4)


def test_time_is_shared_out_and_what_has_none_left_is_not_kept() -> None:
    bench = Truth({"a": 0.8, "b": 0.5, "c": 0.6}, costs_s=4.0)
    found = search_plan(bench, 10.0, wall=lambda: bench.now)
    assert [(each.candidate, each.verdict) for each in found.trials if not each.plan] == [
        ("a", KEPT), ("b", KEPT), ("c", KEPT),
    ]  # fmt: skip
    assert found.plan == ("b",)
    assert [each.verdict for each in found.trials if each.plan] == [LATE, LATE]
    assert [seconds for *_, seconds in bench.asked] == pytest.approx([10 / 7, 6 / 6, 2 / 5, -2 / 1])
    assert bench.asked[-1][:2] == (("b",), ()), "what the plan saves is always told"


def test_what_is_not_known_while_nothing_is_kept_is_measured_again() -> None:
    bench = Truth({"a": 0.99, "b": 0.995})
    assert verdicts(bench)[0] == ()
    assert [plan for plan, _, _ in bench.asked] == [("a",), ("b",), ("a",), ("b",)]


def test_the_usual_plan_takes_the_place_of_one_that_is_not_faster() -> None:
    small = {"a": 0.99, "b": 0.99, "c": 0.5}
    bench = Truth(small, {frozenset({"a", "b"}): 0.7}, usual=("a", "b", "c"))
    plan, trials = verdicts(bench)
    assert plan == ("a", "b", "c")
    assert trials[-1] == (USUAL, ("c",), KEPT)
    assert bench.asked[-1][:2] == (("a", "b", "c"), ()), "the total is that of what is taken"
    plan, trials = verdicts(Truth(small, {frozenset({"a", "b"}): 1.4}, usual=("a", "b", "c")))
    assert (plan, trials[-1]) == (("c",), (USUAL, ("c",), SLOWER))
    plan, trials = verdicts(Truth(small, usual=("a", "c")))
    assert (plan, trials[-1]) == (("a", "c"), (USUAL, ("c",), KEPT)), "nobody knows which is faster"


def test_the_usual_plan_is_measured_when_time_is_up_and_not_where_it_was_found() -> None:
    bench = Truth({"a": 0.8, "b": 0.5}, costs_s=10.0, usual=("a", "b"))
    assert verdicts(bench, seconds=1.0)[0] == ("a", "b")
    _, trials = verdicts(Truth({"a": 0.8, "b": 0.5}, usual=("a", "b")))
    assert USUAL not in [name for name, _, _ in trials]


def test_a_usual_plan_that_is_too_noisy_is_not_taken() -> None:
    bench = Truth({"a": 0.99, "b": 0.9}, {frozenset({"a", "b"}): 0.5}, powers={"a": 1e-3}, usual=("a", "b"))
    plan, trials = verdicts(bench, most_noise=1e-4)
    assert (plan, trials[-1]) == (("b",), (USUAL, ("b",), NOISY))


def test_progress_ends_at_its_total() -> None:
    seen: list[tuple[int, int]] = []
    search_plan(Truth({"a": 0.8, "b": 1.5}), 10.0, advance=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 5), (2, 5), (3, 5), (4, 5)]


def test_without_candidates_nothing_is_measured() -> None:
    bench = Truth({})
    assert verdicts(bench) == ((), [])
    assert bench.asked == []
