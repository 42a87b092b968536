"""Each rule is held by a test: the rule weakened, its test fails."""

from collections.abc import Callable, Sequence

import pytest

from runtime_lite.scheduling import scheduler as module
from runtime_lite.scheduling.admission import Streams
from runtime_lite.scheduling.choice import FOR_EVER, Chooser
from runtime_lite.scheduling.cost_table import WINDOW, BucketCost, RowCosts, Spread
from runtime_lite.scheduling.queues import TaskQueue
from runtime_lite.scheduling.scheduler import Scheduler
from runtime_lite.scheduling.shares import Shares
from runtime_lite.scheduling.task import Task
from tests.runtime_lite.scheduling import test_admission as admission
from tests.runtime_lite.scheduling import test_choice as choice
from tests.runtime_lite.scheduling import test_cost_table as costs
from tests.runtime_lite.scheduling import test_scheduler as rules


def shrinks(self: RowCosts, room: int, least: int, rows: int) -> tuple[int, int]:
    """The largest bucket that is still in time, and the smallest once none is."""
    fitting = [bucket for bucket in self.buckets if bucket.plan <= room]
    bucket = fitting[-1] if fitting else self.buckets[0]
    return bucket.rows, bucket.plan


def by_deadline(self: TaskQueue, task: Task) -> None:
    task.soft = task.soft if task.hard is None else task.hard
    original_push(self, task)


def goes_by_the_last_run(self: RowCosts, average: float, ns: int) -> None:
    self.pace = ns / average


original_follow = BucketCost.follow


def chosen_by_plan(self: BucketCost, others: Sequence[float]) -> bool:
    original_follow(self, others)
    self.usual = self.plan
    return True


original_push = TaskQueue.push

WEAKENED: dict[str, tuple[object, str, object, Callable[..., None]]] = {
    "late batches shrink": (RowCosts, "best_bucket_within", shrinks, choice.test_late_batches_never_shrink),
    "runs are small for heads that are nearly late, whatever comes": (
        Chooser,
        "_keeps_up",
        lambda self, queue, size, cost, now: True,
        rules.test_a_backlog_that_has_reached_the_soft_target_is_cleared_all_the_same,
    ),
    "the hard deadline orders": (
        TaskQueue,
        "push",
        by_deadline,
        rules.test_the_soft_target_orders_and_the_hard_deadline_only_drops,
    ),
    "never dropped": (
        Scheduler,
        "_drop",
        lambda self, now: [],
        rules.test_what_cannot_be_answered_in_time_is_dropped_at_its_latest_start,
    ),
    "no share": (
        Shares,
        "entitled_at",
        lambda self, service, cost, now: None,
        lambda: rules.test_a_low_class_gets_its_share_of_a_full_device(0.2),
    ),
    "offline work takes what it likes": (
        Chooser,
        "_slack",
        lambda self, urgent, now: (FOR_EVER, None),
        choice.test_offline_runs_are_no_longer_than_chunks_to_come_can_wait,
    ),
    "the smallest bucket that holds them": (
        RowCosts,
        "soonest_bucket",
        lambda self, least, rows, follows, lanes: self.bucket_for(rows),
        rules.test_the_bucket_is_padded_or_split_by_its_measured_cost,
    ),
    "free rows stay free": (
        Scheduler,
        "_fill_rows",
        lambda self, plan, free, tasks, now: free,
        rules.test_free_rows_are_filled_from_shorter_buckets_and_other_classes,
    ),
    "nothing is expected": (
        TaskQueue,
        "next_expected",
        lambda self, now: None,
        choice.test_waiting_on_purpose_ends_with_the_next_expected_chunk,
    ),
    "everybody comes in": (
        module,
        "ends_late",
        lambda *arguments: False,
        rules.test_what_cannot_be_answered_in_time_is_refused_when_it_comes,
    ),
    "every stream comes in": (
        Streams,
        "utilisation",
        lambda self: 0.0,
        admission.test_streams_are_admitted_up_to_what_other_work_may_claim,
    ),
    "streams are counted at the median": (
        Spread,
        "average",
        property(lambda self: self.p50),
        admission.test_streams_are_counted_at_what_runs_take_on_the_average,
    ),
    "streams are counted at the pace of the last run": (
        RowCosts,
        "_keep_pace",
        goes_by_the_last_run,
        admission.test_a_large_bucket_that_runs_in_slow_moments_only_turns_no_stream_away,
    ),
    "the pace of a machine is never learnt": (
        RowCosts,
        "_keep_pace",
        lambda self, average, ns: None,
        admission.test_a_bucket_that_does_not_run_is_as_much_slower_as_those_that_do,
    ),
    "one run teaches": (
        BucketCost,
        "teach",
        lambda self, ns: setattr(self, "taught", WINDOW),
        admission.test_what_nobody_measured_costs_what_its_first_runs_took_on_the_average,
    ),
    "a bucket is chosen by the cost that runs are started by": (
        BucketCost,
        "follow",
        chosen_by_plan,
        costs.test_a_bucket_that_was_held_up_is_the_choice_still,
    ),
    "every bucket drifts alone": (
        RowCosts,
        "_all_follow",
        lambda self: False,
        lambda: costs.test_buckets_drift_together(1),
    ),
    "nobody comes behind those that wait": (
        TaskQueue,
        "rows_per_ns",
        lambda self, now: 0.0,
        choice.test_the_more_chunks_come_the_more_of_them_share_a_run,
    ),
    "what is left of the device is nobody's": (
        Chooser,
        "_soonest",
        lambda self, queue, least, rows, now: queue.costs.soonest_bucket(least, rows, 0.0, self._lanes),
        choice.test_while_efficient_work_waits_chunks_take_the_least_of_the_device,
    ),
    "nobody is patient": (
        RowCosts,
        "widest_bucket",
        RowCosts.best_bucket,
        choice.test_patient_work_shares_one_run_though_nobody_waits_for_the_device,
    ),
    "rows run in the bucket that was the quickest of late": (
        BucketCost,
        "follow",
        chosen_by_plan,
        lambda: costs.test_slow_runs_of_a_bucket_make_no_other_the_choice(1),
    ),
    "nothing is learnt": (
        RowCosts,
        "observe",
        lambda self, rows, ns: None,
        lambda: costs.test_a_wrong_table_is_corrected_within_a_window(2.0),
    ),
}


@pytest.mark.parametrize("name", WEAKENED)
def test_a_weakened_rule_turns_its_test_red(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, weaker, test = WEAKENED[name]
    assert hasattr(owner, attribute)
    test()
    monkeypatch.setattr(owner, attribute, weaker)
    with pytest.raises((AssertionError, ValueError)):
        test()


def test_the_wall_clock_is_nowhere_asked() -> None:
    """Row 23: no module of scheduling imports a clock; time comes in as an argument."""
    import pathlib
    import re

    folder = pathlib.Path(module.__file__).parent
    asking = re.compile(r"^\s*(import|from) (time|datetime|threading|asyncio)\b", re.MULTILINE)
    assert [path.name for path in folder.glob("*.py") if asking.search(path.read_text())] == []
