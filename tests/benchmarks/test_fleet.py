"""The fleet in virtual time, against limits that are computed by hand."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import fleet
from benchmarks.fleet import BURST_AT, Counts, Fleet, Line, late_by, picture, simulate
from runtime_lite.scheduling.capacity import Machine
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.cost_table import Spread
from runtime_lite.scheduling.task import Key
from tests.runtime_lite.bundles import write_streaming_bundle

CALM = Fleet(streams=1000, carried=100, workers=20, opens_per_s=10**6, burst=0.0)


def never_late(counts: Counts) -> NDArray[np.float64]:
    return np.zeros(len(counts))


def erlang_b(offered: float, places: int) -> float:
    """Return the share of calls that are blocked, whatever the distribution of their lengths is."""
    blocked = 1.0
    for place in range(1, places + 1):
        blocked = offered * blocked / (place + offered * blocked)
    return blocked


def test_without_events_the_number_of_streams_stays_and_nothing_is_refused_or_late() -> None:
    found = simulate(CALM, never_late)
    assert (found.refused, found.late, found.moved, found.gap_max_s) == (0.0, 0.0, 0, 0.0)
    assert found.worker_hours == pytest.approx(20.0)
    assert 950 <= found.most_live <= 1150


def test_a_worker_that_is_too_small_refuses_what_erlang_s_formula_says() -> None:
    """Lengths have a heavy tail, on which the formula does not depend."""
    one = Fleet(streams=200, carried=210, workers=1, opens_per_s=10**6, burst=0.0)
    refused = np.mean([simulate(replace(one, seed=seed), never_late).refused for seed in range(30)])
    assert 0.8 <= refused / erlang_b(200.0, 210) <= 1.25


def test_the_streams_of_lost_workers_wait_as_long_as_the_others_need_to_open_them() -> None:
    lossy = Fleet(1000, 1000, 10, opens_per_s=10, lost_at=100, lost=5, start_s=10**6, burst=0.0)
    found = simulate(lossy, never_late, 300)
    assert 0.8 <= found.moved / 500 <= 1.25
    assert 0.8 <= found.gap_max_s / (found.moved / (5 * 10)) <= 1.25
    assert found.refused <= 0.04  # new ones, while the lost ones are placed
    assert found.worker_hours == pytest.approx((10 * 100 + 5 * 200) / 3600)
    assert found.late > 0.0  # who waits has no captions


def test_a_worker_that_is_overloaded_has_late_chunks_as_its_curve_says() -> None:
    curve = late_by([(50, 0.0), (100, 0.0), (120, 0.2)])
    np.testing.assert_allclose(curve(np.array([0, 75, 100, 110, 120, 200])), [0, 0, 0, 0.1, 0.2, 0.5])
    full = Fleet(1200, 100, 10, opens_per_s=10**6, burst=0.0)  # all were there before anybody was refused
    assert simulate(full, curve, 1).late == pytest.approx(0.2, rel=0.1)


def test_two_choices_stay_even_where_a_ring_and_old_counts_of_the_least_loaded_do_not() -> None:
    fullest = {
        (placement, stale): simulate(
            Fleet(20_000, 10**6, 50, placement, stale, 10**6, burst=0.0), never_late, 1
        ).fullest
        for placement, stale in (("two", 1), ("two", 60), ("ring", 1), ("least", 1), ("least", 300))
    }
    assert fullest["two", 1] <= 1.05 and fullest["two", 60] <= 1.2
    assert fullest["ring", 1] >= 1.15
    assert fullest["least", 300] >= 1.5


def test_workers_that_start_late_do_not_help_in_a_burst() -> None:
    def refused(start_s: int) -> float:
        scaled = Fleet(2000, 100, math.ceil(20 / 0.9), opens_per_s=10**6, target=0.9, start_s=start_s)
        return simulate(scaled, never_late, BURST_AT + 300).refused

    assert refused(60) > 2 * refused(0)
    assert refused(600) > 2 * refused(0)


def test_the_command_prints_its_tables_and_writes_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, written = write_streaming_bundle(tmp_path / "bundle"), tmp_path / "fleet.svg"
    monkeypatch.setattr(fleet, "spreads_of", lambda *_: {})
    monkeypatch.setattr(fleet, "worker_curve", lambda *_: (20, [(10, 0.0), (20, 0.0), (40, 0.5)]))
    words = [str(bundle), "--graph", "streaming", "--streams", "400", "--seconds", "5", "--write", str(written)]
    monkeypatch.setattr(sys, "argv", ["fleet", *words])
    fleet.main()
    printed = capsys.readouterr().out
    for title in ("one worker", "placement", "a fixed fleet", "started when 0.9", "how fast lost streams"):
        assert title in printed
    assert written.read_text().count("<polyline") == 5


def test_a_worker_is_simulated_by_the_scheduler_itself() -> None:
    key = Key("tiny", "encoder")
    costs = {key: {rows: Spread.always((1 + rows) * NS_PER_MS) for rows in (1, 4)}}
    carried, curve = fleet.worker_curve(Machine(costs, 1), 100.0, 5.0)
    assert 80 <= carried <= 95  # four rows take 5 ms, of which 20 begin in a period; a backlog may grow for 2 s
    assert [late for streams, late in curve if streams <= carried] == [0.0, 0.0, 0.0]
    assert curve[-1][1] > 0.2


def test_the_picture_has_a_line_per_curve() -> None:
    text = picture([("a <b>", "x", "y", [Line("one", [(0, 1), (1, 2)]), Line("two", [(0, 0), (1, 0)])])])
    assert text.count("<polyline") == 2 and "a &lt;b&gt;" in text
