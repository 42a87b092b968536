"""Guaranteed shares."""

import random

import pytest

from runtime_lite.scheduling.queues import TaskQueue
from runtime_lite.scheduling.shares import LEAST_LEFT, WINDOW_NS, Shares
from runtime_lite.scheduling.task import CHUNK, UTTERANCE, task_at
from tests.runtime_lite.scheduling.traffic import MS, table, utterances

LOW = UTTERANCE._replace(share=0.1)


def queue(seconds: int = 5) -> TaskQueue:
    return TaskQueue(LOW, utterances(seconds), table().of(utterances(seconds)))


def test_a_class_without_a_share_is_never_entitled() -> None:
    assert Shares(1, 0.5).entitled_at(LOW._replace(share=0), MS, 0) is None


@pytest.mark.parametrize("lanes", [1, 3])
def test_claims_come_to_the_share(lanes: int) -> None:
    shares, low, now, used, seed = Shares(lanes, 0.5), queue(), 0, 0, 17
    costs = random.Random(seed)
    while now < 60 * WINDOW_NS:
        cost = costs.randrange(MS, 90 * MS)
        at = shares.entitled_at(LOW, cost, now)
        assert at is not None
        now = at
        assert shares.entitled_at(LOW, cost, now) == now
        shares.spend(low, cost, True, [low])
        used += cost
    assert used == pytest.approx(0.1 * lanes * now, rel=0.03), f"seed {seed}"


def test_a_run_longer_than_the_account_waits_for_it_to_be_full_and_then_to_be_paid_off() -> None:
    shares, low = Shares(1, 0.5), queue()
    assert shares.entitled_at(LOW, 500 * MS, 0) == 0
    shares.spend(low, 500 * MS, True, [low])
    assert shares.entitled_at(LOW, 500 * MS, 0) == 5 * WINDOW_NS


def test_what_runs_in_slack_makes_no_debt() -> None:
    shares, low = Shares(1, 0.5), queue()
    shares.entitled_at(LOW, MS, 0)
    shares.spend(low, 5000 * MS, False, [low])
    assert shares.entitled_at(LOW, MS, 0) == 10 * MS


def test_a_bucket_that_others_outrun_is_owed_its_part() -> None:
    shares, short, long = Shares(1, 0.5), queue(2), queue(15)
    for each in (short, long):
        each.push(task_at(each.key, LOW, 0))
    other = TaskQueue(LOW._replace(name="other"), utterances(5), table().of(utterances(5)))
    shares.spend(long, 100 * MS, False, [short, long, other])
    assert (short.owed, long.owed, other.owed) == (25 * MS, 0, 0)
    shares.spend(short, 10 * MS, False, [short, long])
    assert short.owed == pytest.approx(17.5 * MS), "paid, as it was owed as much"
    shares.spend(short, 100 * MS, False, [short, long])
    assert short.owed == 0, "what it was not owed makes no debt"


def test_efficient_work_has_the_lanes_that_real_time_work_leaves_as_well_as_it_uses_them() -> None:
    shares = Shares(2, 0.5)
    assert (shares.left_for(CHUNK, 0), shares.left_for(UTTERANCE, 0)) == (1, 1)
    shares.real_time_ns += 500 * MS
    assert shares.left_for(UTTERANCE, 0) == pytest.approx(0.75), "half of one of two lanes is taken"
    for _ in range(200):
        shares.note_efficiency(30.0, 40)
    assert shares.left_for(UTTERANCE, 0) == pytest.approx(0.75 * 0.75, rel=1e-3)
    assert shares.left_for(CHUNK, 0) == 1
    shares.real_time_ns += 9000 * MS
    assert shares.left_for(UTTERANCE, 0) == LEAST_LEFT, "never nothing"
