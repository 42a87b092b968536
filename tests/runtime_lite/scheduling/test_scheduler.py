"""The rule of the scheduler, step by step, on a virtual clock."""

import itertools
import random

import pytest

from runtime_lite.scheduling.admission import TOO_LARGE, TOO_LATE
from runtime_lite.scheduling.clock import VirtualClock
from runtime_lite.scheduling.decision import Run
from runtime_lite.scheduling.queues import CREDITS, NO_CREDIT
from runtime_lite.scheduling.scheduler import EXPIRED, Scheduler
from runtime_lite.scheduling.simulation import simulate
from runtime_lite.scheduling.task import BULK, INTERACTIVE, UTTERANCE, Key, ServiceClass, Task, task_at
from tests.runtime_lite.scheduling.traffic import CHUNKS, MS, Script, affine, chunk, started, table, utterances


def test_a_task_that_is_alone_runs_at_once_in_the_smallest_bucket() -> None:
    scheduler = Scheduler(table())
    task = chunk(0)
    assert scheduler.submit(task, 0) is None
    run = started(scheduler, 0)
    assert (run.key, run.rows, run.tasks, run.started) == (CHUNKS, 1, [task], 0)
    assert run.expected_ns == int(4.35 * MS)
    assert scheduler.decide(1) == (None, [], None)
    scheduler.finished(run, 5 * MS)
    assert scheduler.decide(5 * MS) == (None, [], None)


def test_tasks_of_one_key_share_a_run_and_others_do_not() -> None:
    scheduler = Scheduler(table())
    tasks = [chunk(0) for _ in range(4)] + [task_at(utterances(5), INTERACTIVE, 0)]
    for task in tasks:
        scheduler.submit(task, 0)
    first = started(scheduler, 0)
    scheduler.finished(first, 10 * MS)
    second = started(scheduler, 10)
    assert {len(first.tasks), len(second.tasks)} == {4, 1}
    assert all({task.key for task in run.tasks} == {run.key} for run in (first, second))


def test_the_bucket_is_padded_or_split_by_its_measured_cost() -> None:
    """Five rows: padded to eight where that is cheap; run as four and one where eight rows cost twice four."""
    cheap, dear = Key("cheap", "g"), Key("dear", "g")
    costs = table({cheap: {1: 4 * MS, 4: 5 * MS, 8: 6 * MS}, dear: {1: 2 * MS, 4: 4 * MS, 8: 9 * MS}})
    for key, sizes in ((cheap, [8]), (dear, [4, 1])):
        scheduler, now, rows = Scheduler(costs), 0, []
        for _ in range(5):
            scheduler.submit(task_at(key, INTERACTIVE, 0), 0)
        while (run := scheduler.decide(now).run) is not None:
            now += run.expected_ns
            scheduler.finished(run, now)
            rows.append(run.rows)
        assert rows == sizes


def test_a_load_that_the_device_can_carry_recovers_from_a_pause() -> None:
    """After a pause of 2 s, 600 streams (at 64 rows 40 % of the device) are in time again within 2 s."""
    tasks = [chunk(2000 + offset) for offset in range(10_000)]
    late_start = [chunk(0) for _ in range(2000)]
    costs = table()
    script = Script([*late_start, *tasks]).play(Scheduler(costs), costs)
    late = [t.arrival for t, at in script.answered.items() if at > t.soft and t.arrival >= 4000 * MS]
    assert late == [] and len(script.answered) == 12_000


def test_a_backlog_that_has_reached_the_soft_target_is_cleared_all_the_same() -> None:
    """At 92 % of the device: runs that are made small for heads that are nearly late would keep it there."""
    per_ms, costs = 0.92 * 64 / 26.4, table()
    tasks = [chunk(number / per_ms) for number in range(int(4000 * per_ms))]
    script = Script([*(chunk(0) for _ in range(600)), *tasks]).play(Scheduler(costs), costs)
    waits = [script.answered[task] - task.arrival for task in tasks if task.arrival >= 3500 * MS]
    assert max(waits) < 80 * MS


def test_the_soft_target_orders_and_the_hard_deadline_only_drops() -> None:
    scheduler = Scheduler(table())
    urgent, patient = Key("a", "g"), Key("b", "g")
    costs = table({urgent: affine(5, 1), patient: affine(5, 1)})
    scheduler = Scheduler(costs)
    one = task_at(urgent, INTERACTIVE._replace(soft_ms=50, hard_ms=None), 0)
    other = task_at(patient, INTERACTIVE._replace(name="other", soft_ms=100, hard_ms=20), 0)
    for task in (other, one):
        assert scheduler.submit(task, 0) is None
    assert started(scheduler, 0).tasks == [one]


def test_what_cannot_be_answered_in_time_is_dropped_at_its_latest_start() -> None:
    scheduler = Scheduler(table({CHUNKS: {1: 10 * MS}}))
    blocking, task = chunk(0), task_at(CHUNKS, UTTERANCE._replace(hard_ms=30), 0)
    scheduler.submit(blocking, 0)
    run = started(scheduler, 0)
    assert scheduler.submit(task, 0) is None
    assert scheduler.decide(0) == (None, [], 20 * MS + 1)
    assert scheduler.decide(20 * MS) == (None, [], 20 * MS + 1)
    assert scheduler.decide(20 * MS + 1) == (None, [(task, EXPIRED)], None)
    scheduler.finished(run, 25 * MS)
    assert scheduler.decide(25 * MS) == (None, [], None)


def test_at_its_latest_start_it_still_runs() -> None:
    scheduler = Scheduler(table({CHUNKS: {1: 10 * MS}}))
    task = task_at(CHUNKS, UTTERANCE._replace(hard_ms=30), 0)
    scheduler.submit(task, 0)
    assert started(scheduler, 20).tasks == [task]


def test_a_task_that_a_full_batch_would_answer_too_late_runs_in_a_smaller_one() -> None:
    costs = table({CHUNKS: {1: 10 * MS, 4: 20 * MS}})
    scheduler = Scheduler(costs)
    tight = task_at(CHUNKS, UTTERANCE._replace(name="tight", soft_ms=10, hard_ms=15), 0)
    scheduler.submit(tight, 0)
    others = [task_at(CHUNKS, UTTERANCE, 0) for _ in range(3)]
    for task in others:
        scheduler.submit(task, 0)
    run = started(scheduler, 0)
    assert all(task.hard is None or run.expected_ns <= task.hard for task in run.tasks)


def test_free_rows_are_filled_from_shorter_buckets_and_other_classes() -> None:
    scheduler = Scheduler(table({utterances(15): {4: 20 * MS}, utterances(5): {1: 10 * MS}, CHUNKS: {1: MS}}))
    long = [task_at(utterances(15), UTTERANCE, 0, worth=50) for _ in range(2)]
    short, bulk = task_at(utterances(5), UTTERANCE, 0, worth=0.1), task_at(utterances(15), BULK, 0)
    other = task_at(CHUNKS, BULK, 0)
    for task in (*long, other, short, bulk):
        scheduler.submit(task, 0)
    run = started(scheduler, 0)
    assert run.key == utterances(15) and set(run.tasks) == {*long, short, bulk}


def test_tasks_whose_rows_depend_on_each_other_run_alone() -> None:
    alone = CHUNKS._replace(alone=True)
    scheduler = Scheduler(table({alone: {1: MS, 4: 2 * MS}}))
    for _ in range(3):
        scheduler.submit(task_at(alone, INTERACTIVE, 0), 0)
    assert [len(started(scheduler, 0).tasks)] == [1]


def test_a_task_of_several_rows_takes_as_many() -> None:
    scheduler = Scheduler(table({CHUNKS: {1: MS, 4: 2 * MS}}))
    tasks = [task_at(CHUNKS, INTERACTIVE, 0, rows=rows) for rows in (3, 2, 1)]
    for task in tasks:
        assert scheduler.submit(task, 0) is None
    first = started(scheduler, 0)
    assert first.rows == 4 and first.tasks == [tasks[0]]
    assert scheduler.submit(task_at(CHUNKS, INTERACTIVE, 0, rows=5), 0) == TOO_LARGE


def test_one_chunk_of_a_stream_is_in_flight() -> None:
    scheduler = Scheduler(table(), lanes=4)
    chunks = [chunk(0, stream=1) for _ in range(CREDITS + 1)]
    assert [scheduler.submit(task, 0) for task in chunks] == [None] * CREDITS + [NO_CREDIT]
    for expected in chunks[:CREDITS]:
        run = started(scheduler, 0)
        assert run.tasks == [expected]
        assert scheduler.decide(0).run is None
        scheduler.finished(run, 0)
    assert scheduler.decide(0).run is None


def test_a_cancelled_chunk_lets_the_next_go() -> None:
    scheduler = Scheduler(table())
    first, second, third = (chunk(0, stream=1) for _ in range(3))
    for task in (first, second, third):
        scheduler.submit(task, 0)
    assert scheduler.cancel(first) and scheduler.cancel(second)
    assert not scheduler.cancel(first)
    run = started(scheduler, 0)
    assert run.tasks == [third]
    assert not scheduler.cancel(third)


def test_what_cannot_be_answered_in_time_is_refused_when_it_comes() -> None:
    scheduler = Scheduler(table({CHUNKS: {1: 10 * MS}}))
    short = UTTERANCE._replace(hard_ms=25)
    foretold, answers = [], []
    for _ in range(4):
        task = task_at(CHUNKS, short, 0)
        foretold += [scheduler.refusal(task, 0) for _ in range(2)]
        answers.append(scheduler.submit(task, 0))
    assert answers == [None, None, TOO_LATE, TOO_LATE] and foretold == [each for each in answers for _ in range(2)]
    assert scheduler.refusal(task_at(CHUNKS, short, 0, rows=2), 0) == TOO_LARGE


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_a_low_class_gets_its_share_of_a_full_device(share: float) -> None:
    """Row 17: a device that real-time chunks alone would fill twice; a trickle of a low class is not starved."""
    low = ServiceClass("low", soft_ms=1000, hard_ms=None, real_time=False, share=share, priority=-5)
    costs = table()
    chunks = [chunk(at / 4) for at in range(4 * 5000)]
    trickle = [task_at(utterances(5), low, at * MS) for at in range(0, 5000, 4)]
    script = Script([*chunks, *trickle]).play(Scheduler(costs), costs, end_ms=5000)
    low_runs = [run for run in script.runs if run.key == utterances(5)]
    used = sum(run.expected_ns for run in low_runs)
    assert used >= 0.9 * share * 5000 * MS
    gaps = [b.started - a.started for a, b in itertools.pairwise(low_runs)]
    assert max(gaps) <= 1000 * MS


def test_an_overload_is_over_with_its_traffic() -> None:
    """Three times what the device carries for 4 s, then 0.7 times; what was let in is answered, and then is gone."""
    draw, seconds = random.Random(11), (2, 5, 15)
    arrivals = [(at / 200, draw.choice(seconds)) for at in range(4 * 200)]
    arrivals += [(4 + at / 47, draw.choice(seconds)) for at in range(4 * 47)]
    costs = table({utterances(length): affine(6.2, 2 * length, (1, 4, 16)) for length in seconds})
    tasks = [task_at(utterances(length), UTTERANCE, int(at * 1000 * MS)) for at, length in arrivals]
    script = Script(tasks).play(Scheduler(costs), costs)
    last_missed = max(task.arrival for task in script.ended)
    assert 3900 * MS < last_missed < 5000 * MS
    dropped = sum(reason == EXPIRED for reason in script.ended.values())
    assert dropped < 0.15 * len(script.ended), "what cannot be answered is refused, not kept and dropped"


def test_three_times_too_much_is_answered_as_fast_as_the_lanes_can_though_costs_vary() -> None:
    """One run in ten takes twice its cost, one in a hundred four times: what is learnt is not what is usual."""
    draw, seconds, lanes = random.Random(5), 6, 2
    real = {1: 5 * MS, 4: 14 * MS, 16: 50 * MS}
    per_s = lanes * 1000 / (50 / 16) / (0.9 * 1 + 0.09 * 2 + 0.01 * 4)
    tasks = [task_at(CHUNKS, UTTERANCE, int(at / (3 * per_s) * 1e9)) for at in range(int(3 * per_s * seconds))]
    script = Script(tasks)

    def took(run: Run) -> int:
        chance = draw.random()
        return real[run.rows] * (4 if chance < 0.01 else 2 if chance < 0.1 else 1)

    simulate(Scheduler(table({CHUNKS: real}), lanes), script, took, seconds * 1000 * MS, VirtualClock())
    in_time = sum(1000 * MS <= at <= (task.hard or 0) for task, at in script.answered.items())
    assert in_time / (seconds - 1) > 0.93 * per_s, "of the mean cost; what is drawn differs by 2 %"


def test_nothing_expires_twice_and_a_storm_of_deadlines_is_swept_in_order() -> None:
    """Row 6: all tasks expire together; every one ends once, dropped at its latest start, whatever else happens."""
    seed, count = 6, 20_000
    order = random.Random(seed)
    short = UTTERANCE._replace(hard_ms=None, name="short")
    costs = table({CHUNKS: {1: MS}, utterances(5): {1: 50 * MS}})
    scheduler = Scheduler(costs)
    scheduler.submit(task_at(utterances(5), INTERACTIVE, 0), 0)
    run = started(scheduler, 0)
    queue = scheduler._queue(short, CHUNKS)
    tasks = [Task(CHUNKS, short, 0, order.randrange(100 * MS), None) for _ in range(count)]
    for task in tasks:
        task.hard = 30 * MS
        task.soft = 10 * MS - task.soft
        scheduler._enqueue(queue, task)
        scheduler._timers.push(29 * MS, task)
    assert scheduler.decide(29 * MS).dropped == []
    dropped = scheduler.decide(29 * MS + 1).dropped
    assert len(dropped) == len({task for task, _ in dropped}) == count, f"seed {seed}"
    scheduler.finished(run, 50 * MS)
    assert scheduler.decide(50 * MS) == (None, [], None)


def test_a_smaller_bucket_that_has_become_dearer_makes_no_answer_late() -> None:
    """Costs that are learnt may not grow with the rows; the run is then the cheaper, larger bucket."""
    costs = table({CHUNKS: {1: 10 * MS, 4: 6 * MS}})
    scheduler = Scheduler(costs)
    task = task_at(CHUNKS, UTTERANCE._replace(soft_ms=5, hard_ms=8), 0)
    assert scheduler.submit(task, 0) is None
    run = started(scheduler, 0)
    assert (run.rows, run.expected_ns, run.tasks) == (4, 6 * MS, [task])
