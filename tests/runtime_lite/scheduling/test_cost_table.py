"""Costs: from the bundle, guessed, corrected while running."""

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_lite.format.costs import Cost
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.cost_table import (
    ALIKE,
    DELAYS,
    FORGET,
    LEVELS,
    SEVERAL,
    STEP,
    UNKNOWN_NS,
    WINDOW,
    CostTable,
    RowCosts,
    Spread,
    costs_of_graph,
    key_of,
)
from runtime_lite.scheduling.task import Key
from tests.runtime_lite.bundles import ragged_graph, streaming_graph

KEY = Key("m", "g")


def spreads(costs: Mapping[int, int | None]) -> dict[int, Spread | None]:
    return {rows: None if ns is None else Spread.always(ns) for rows, ns in costs.items()}


def table(**costs: int | None) -> CostTable:
    made = CostTable()
    made.add(KEY, spreads({int(rows[1:]): cost for rows, cost in costs.items()}))
    return made


def test_plans_with_the_table_until_runs_take_longer() -> None:
    costs = table(b1=1000, b4=2000)
    assert costs.row_buckets(KEY) == (1, 4)
    assert [costs.of(KEY).bucket_for(rows) for rows in (1, 2, 4, 9)] == [(1, 1000), (4, 2000), (4, 2000), (4, 2000)]
    assert costs.cost(KEY, 4) == 2000
    costs.observe(KEY, 4, 1500)
    assert costs.cost(KEY, 4) == 2000
    for _ in range(WINDOW):
        costs.observe(KEY, 4, 4000)
    assert costs.cost(KEY, 4) == 4000
    assert costs.cost(KEY, 1) == 2000  # the machine is slow, as far as anybody knows


@pytest.mark.parametrize("factor", [0.7, 1.5, 2.0])
def test_a_wrong_table_is_corrected_within_a_window(factor: float) -> None:
    """Row 29: the plan is the true cost (never below the table) after at most one window of runs, and back again."""
    seed = 29
    noise, costs = random.Random(seed), table(b1=1_000_000)
    for _ in range(WINDOW):
        costs.observe(KEY, 1, int(1_000_000 * factor * noise.uniform(0.97, 1.03)))
    assert costs.cost(KEY, 1) == pytest.approx(1_000_000 * max(1.0, factor), rel=0.05), f"seed {seed}"
    for _ in range(WINDOW):
        costs.observe(KEY, 1, 900_000)
    assert costs.cost(KEY, 1) == 1_000_000


def test_one_slow_run_of_a_window_does_not_change_the_plan_for_long() -> None:
    costs = table(b1=1000)
    for _ in range(WINDOW):
        costs.observe(KEY, 1, 990)
    costs.observe(KEY, 1, 50_000)
    assert costs.cost(KEY, 1) == 1000


def test_a_bucket_that_was_dear_for_a_while_is_tried_again() -> None:
    """Four rows in one run are cheaper by the table; slow ones make four runs the choice, but not for ever."""
    costs = table(b1=1000, b4=2000)
    assert costs.of(KEY).best_bucket(1, 4) == (4, 2000)
    for _ in range(WINDOW):
        costs.observe(KEY, 4, 9000)
        costs.observe(KEY, 1, 1000)
    for _ in range(FORGET - 1):
        assert costs.of(KEY).best_bucket(1, 4)[0] == 1
        costs.observe(KEY, 1, 1000)
    costs.observe(KEY, 1, 1000)
    assert costs.of(KEY).best_bucket(1, 4) == (4, 2000)
    assert costs.cost(KEY, 1) == 1000


def test_a_bucket_that_is_dear_by_the_table_alone_is_tried() -> None:
    """A table measured beside other work may say that batches gain nothing; what full runs take says otherwise."""
    costs = table(b1=1000, b4=5000)
    for _ in range(FORGET):
        assert costs.of(KEY).best_bucket(1, 4)[0] == 1
        costs.observe(KEY, 1, 1000)
    for _ in range(SEVERAL):
        assert costs.of(KEY).best_bucket(1, 4)[0] == 4
        assert costs.of(KEY).best_bucket(1, 3)[0] == 1, "its rows are not there"
        costs.observe(KEY, 4, 3000)
    assert costs.of(KEY).best_bucket(1, 4)[0] == 4


def test_a_trial_ends_with_what_it_shows() -> None:
    costs = table(b1=1000, b4=5000)
    for _ in range(FORGET):
        costs.observe(KEY, 1, 1000)
    for _ in range(SEVERAL):
        assert costs.of(KEY).best_bucket(1, 4)[0] == 4
        costs.observe(KEY, 4, 5000)
    for _ in range(FORGET - 1):
        assert costs.of(KEY).best_bucket(1, 4)[0] == 1
        costs.observe(KEY, 1, 1000)


@pytest.mark.parametrize("slow", [1, 4])
def test_slow_runs_of_a_bucket_make_no_other_the_choice(slow: int) -> None:
    """One or two say nothing of their bucket alone: rows run in the one that holds them, a queue in what clears it."""
    costs = table(b1=1000, b4=2500)
    for _ in range(WINDOW // 2):
        costs.observe(KEY, 1, 1000)
        costs.observe(KEY, 4, 2500)
    for _ in range(2):
        costs.observe(KEY, slow, 50_000)
    assert [costs.of(KEY).bucket_for(rows)[0] for rows in (1, 2, 4)] == [1, 4, 4]
    assert [costs.of(KEY).best_bucket(1, rows)[0] for rows in (1, 4)] == [1, 4]


def test_what_holds_runs_up_again_and_again_makes_fewer_of_them() -> None:
    costs = table(b1=1000, b4=5000)
    for _ in range(WINDOW):
        costs.observe(KEY, 1, 1000)
        costs.observe(KEY, 4, 5000)
    assert costs.of(KEY).best_bucket(1, 4)[0] == 1
    for _ in range(DELAYS // 10):
        for _ in range(9):
            costs.observe(KEY, 1, 1000)
        costs.observe(KEY, 1, 50_000)
    assert costs.of(KEY).best_bucket(1, 4)[0] == 4
    assert costs.of(KEY).best_bucket(1, 1)[0] == 1


@pytest.mark.parametrize("ran", [1, 4])
def test_buckets_drift_together(ran: int) -> None:
    """A machine that is slow for all is no reason to run other buckets than on a fast one."""
    costs = table(b1=1000, b4=2500)
    for _ in range(WINDOW):
        costs.observe(KEY, ran, 3 * {1: 1000, 4: 2500}[ran])
    assert {rows: costs.cost(KEY, rows) for rows in (1, 4)} == {1: 3000, 4: 7500}
    assert [costs.of(KEY).best_bucket(1, rows) for rows in (1, 2, 4)] == [(1, 3000), (1, 3000), (4, 7500)]


def test_a_bucket_that_was_held_up_is_the_choice_still() -> None:
    """It is started in time for another such run, but clears a queue as cheaply as its usual runs do."""
    costs = table(b1=1000, b4=2000)
    for took in (*[2000] * SEVERAL, 9000, 9000):
        costs.observe(KEY, 4, took)
        costs.observe(KEY, 1, 1000)
    assert costs.of(KEY).best_bucket(1, 4) == (4, 9000) and costs.of(KEY).best_bucket_within(8999, 1, 4) == (1, 1000)
    assert costs.of(KEY).best_bucket_within(9000, 1, 4) == (4, 9000)


def test_a_bucket_that_ran_on_a_fast_machine_does_not_beat_one_that_has_not_run_there() -> None:
    costs = table(b1=1000, b4=2000)
    for _ in range(2 * FORGET):
        costs.observe(KEY, 1, 100)
        assert costs.of(KEY).best_bucket(1, 4) == (4, 2000)
    assert costs.of(KEY).best_bucket_within(2000, 1, 4) == (4, 2000)


def test_the_plan_is_the_recent_percentile_whatever_the_order() -> None:
    seed = 7
    random_ns, costs, seen = random.Random(seed), table(b1=500), []
    for _ in range(400):
        seen.append(random_ns.randrange(100, 3000))
        costs.observe(KEY, 1, seen[-1])
        recent = sorted(seen[-WINDOW:])
        expected = max(500, recent[(len(recent) - 1) * 19 // 20])
        assert costs.cost(KEY, 1) == pytest.approx(expected, rel=STEP / (1 - STEP)), f"seed {seed}"


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ({"b1": None, "b4": None}, {1: UNKNOWN_NS, 4: 4 * UNKNOWN_NS}),
        ({"b1": 100, "b4": None}, {1: 100, 4: 400}),
        ({"b1": None, "b4": 300, "b8": 900}, {1: 300, 4: 300, 8: 900}),
    ],
)
def test_what_nobody_measured_is_guessed_from_its_neighbours(
    costs: dict[str, int | None], expected: dict[int, int]
) -> None:
    made = table(**costs)
    assert {rows: made.cost(KEY, rows) for rows in expected} == expected


def test_the_first_run_replaces_a_guess() -> None:
    costs = table(b1=None)
    costs.observe(KEY, 1, 70)
    assert costs.cost(KEY, 1) == 70


@pytest.mark.parametrize(("ns", "alarms"), [(690, 1), (710, 0), (1490, 0), (1510, 1)])
def test_alarms_when_the_table_is_wrong_for_this_machine(ns: int, alarms: int) -> None:
    costs = table(b1=1000, b2=2000)
    assert costs.alarms() == []
    for _ in range(5):
        costs.observe(KEY, 1, ns)
    assert costs.alarms() == [(KEY, 1, ns / 1000)] * alarms


def test_a_model_that_left_is_forgotten() -> None:
    costs = table(b1=1)
    costs.add(Key("other", "g"), spreads({1: 5}))
    costs.remove_model("m")
    assert costs.cost(Key("other", "g"), 1) == 5
    with pytest.raises(KeyError):
        costs.row_buckets(KEY)


def test_a_graph_has_a_key_per_bucket_of_the_axes_that_are_not_rows() -> None:
    graph = ragged_graph()
    costs = {"batch=1,time=4": Cost(1, 0.5, 0.6, 0.8), "batch=4,time=4": Cost(2, 1.5, 1.6)}
    found = costs_of_graph("m", "ragged", graph, costs, threads=1)
    short, long = (Key("m", "ragged", (("time", size),), ("time",)) for size in (4, 8))
    assert found == {
        short: {1: Spread(NS_PER_MS // 2, NS_PER_MS * 6 // 10, NS_PER_MS * 8 // 10), 4: None},
        long: {1: None, 4: None},
    }
    assert key_of("m", "ragged", graph, {"batch": 4, "time": 8}) == long
    assert long.holds(short)


def test_a_graph_of_one_size_has_one_key() -> None:
    assert list(costs_of_graph("m", "streaming", streaming_graph(), {}, 1, alone=True)) == [
        Key("m", "streaming", alone=True)
    ]


@pytest.mark.parametrize(
    ("costs", "least", "rows", "size"),
    [
        ({1: 4, 4: 5, 8: 6}, 1, 5, 8),  # padding three rows is cheaper than a second run
        ({1: 2, 4: 4, 8: 9}, 1, 5, 4),  # a second run is cheaper
        ({1: 1, 4: 4, 8: 8}, 1, 8, 1),  # nothing is gained by batches: answer sooner
        ({1: 4, 4: 5, 8: 6}, 1, 1, 1),
        ({1: 4, 4: 5, 8: 6}, 3, 3, 4),  # a task of three rows
        ({1: 4, 4: 5, 8: 6}, 1, 1000, 8),
        ({1: 4, 4: 5, 8: 11}, 1, 1000, 4),  # the largest is not the most efficient
        ({1: 400, 4: 500, 8: 1025}, 1, 1000, 8),  # it is nearly so, and more rows wait than it holds
        ({1: 400, 4: 500, 8: 1025}, 1, 8, 4),  # it is nearly so, and others may answer sooner
    ],
)
def test_pads_or_splits_by_cost(costs: dict[int, int | None], least: int, rows: int, size: int) -> None:
    assert RowCosts(spreads(costs)).best_bucket(least, rows) == (size, costs[size])


STEPS = {1: 70, 2: 110, 4: 170, 8: 280}


@pytest.mark.parametrize(
    ("costs", "least", "rows", "size"),
    [
        pytest.param(STEPS, 1, 5, 8, id="little dearer than four and one"),
        pytest.param(STEPS, 1, 3, 4, id="cheaper than two and one"),
        pytest.param(STEPS, 1, 8, 8, id="all"),
        pytest.param(STEPS, 1, 1, 1, id="one"),
        pytest.param(STEPS, 1, 11, 8, id="more than the largest"),
        pytest.param(STEPS, 1, 1000, 8, id="a backlog"),
        pytest.param({1: 60, 2: 120, 4: 240, 8: 480}, 1, 5, 1, id="a row more costs as much as the first"),
        pytest.param({1: 60, 8: 480}, 1, 5, 1, id="much dearer"),
        pytest.param({1: 60, 8: None}, 1, 5, 1, id="guessed"),
        pytest.param(STEPS, 2, 3, 4, id="a task of two rows"),
    ],
)
def test_the_widest_run_takes_all_rows_unless_several_cost_much_less(
    costs: dict[int, int | None], least: int, rows: int, size: int
) -> None:
    assert RowCosts(spreads(costs)).widest_bucket(least, rows) == (size, costs[size])


def test_the_widest_run_is_not_split_to_try_a_bucket_again() -> None:
    costs = RowCosts(spreads(STEPS))
    for _ in range(FORGET + WINDOW):
        costs.observe(8, STEPS[8])
    assert costs.best_bucket(1, 5)[0] != 8  # others are on trial
    assert costs.widest_bucket(1, 5)[0] == 8


def test_a_widest_run_that_was_dear_is_tried_again() -> None:
    costs = RowCosts(spreads({1: 60, 8: 480}))
    for _ in range(FORGET):
        assert costs.widest_bucket(1, 5)[0] == 1
        costs.observe(1, 60)
    for _ in range(WINDOW):
        assert costs.widest_bucket(1, 5)[0] == 8
        costs.observe(8, 90)
    assert costs.widest_bucket(1, 5)[0] == 8


def test_within_some_room_the_least_cost_per_row_counts() -> None:
    costs = RowCosts(spreads({1: 4, 4: 5, 8: 6, 16: 20}))
    assert costs.best_bucket_within(5, 1, 100) == (4, 5)
    assert costs.best_bucket_within(100, 1, 100) == (8, 6)
    assert costs.best_bucket_within(3, 1, 100) is None
    assert costs.best_bucket_within(5, 5, 100) is None
    assert costs.best_rate == 0.75


def test_the_best_bucket_follows_what_is_learnt() -> None:
    costs = RowCosts(spreads({1: 10, 8: 20}))
    assert costs.best_bucket(1, 5) == (8, 20)
    for _ in range(WINDOW):
        costs.observe(8, 60)
        costs.observe(1, 10)
    assert costs.best_bucket(1, 5)[0] == 1


def test_a_guess_is_never_a_reason_to_take_more_rows_than_are_needed() -> None:
    costs = RowCosts({1: None, 4: None})
    costs.observe(1, 900 * NS_PER_MS)  # dearer than what was guessed for four rows
    assert costs.bucket_for(1) == (1, 900 * NS_PER_MS)
    assert costs.best_bucket(1, 1) == (1, 900 * NS_PER_MS)
    assert costs.bucket_for(2)[0] == 4


@given(
    st.integers(1, 12).flatmap(lambda most: st.lists(st.integers(1, 1000), min_size=most, max_size=most)),
    st.integers(1, 20),
    st.floats(0, 0.1),
)
def test_no_choice_of_rows_lets_them_wait_much_less(took: list[int], rows: int, follows: float) -> None:
    """Beside a plain loop over the ends of runs on one lane; what the choice allows is `ALIKE`, and half a level."""
    costs = RowCosts(spreads({size + 1: ns for size, ns in enumerate(took)}))

    def waits(size: int) -> float:
        sizes = [size] * (rows // size)
        if rest := rows % size:
            sizes += cheapest(rest)
        ends = list(itertools.accumulate(took[each - 1] for each in sizes))
        of_full, of_rest = size * sum(ends[: rows // size]), rows % size * ends[-1]
        return of_full + of_rest + follows * ends[-1] ** 2 / 2

    def cheapest(count: int) -> list[int]:
        return min(
            ([first, *cheapest(count - first)] for first in range(1, len(took) + 1) if count > 0),
            key=lambda sizes: sum(took[each - 1] for each in sizes),
            default=[],
        )

    rows = min(rows, len(took) + 3, 8)
    size, plan = costs.soonest_bucket(1, rows, follows, 1)
    least = min(waits(min(each, rows)) for each in range(1, min(rows, len(took)) + 1))
    assert plan == took[size - 1] and size <= rows
    assert waits(size) <= ALIKE * 2 ** (1 / LEVELS) * least * 1.05


def test_rows_between_buckets_cost_what_lies_between() -> None:
    graph = streaming_graph()
    artifacts = tuple(replace(each, file="rows are open") for each in graph.artifacts)
    graph = replace(graph, artifacts=artifacts)
    costs = {"batch=1": Cost(1, 1.0, 2.0, 3.0), "batch=4": Cost(1, 4.0, 8.0, 6.0)}
    (of_key,) = costs_of_graph("m", "streaming", graph, costs, threads=1).values()
    in_ms = {rows: [ns / NS_PER_MS for ns in cost] for rows, cost in of_key.items() if cost is not None}
    assert in_ms == {1: [1, 2, 3], 2: [2, 4, 4], 3: [3, 6, 5], 4: [4, 8, 6]}
    (of_key,) = costs_of_graph("m", "streaming", graph, {"batch=4": costs["batch=4"]}, threads=1).values()
    assert [rows for rows, cost in sorted(of_key.items()) if cost is None] == [1, 2, 3]
