"""Which run a free lane takes, as the scheduler's decisions show it."""

from runtime_lite.scheduling.decision import Policy
from runtime_lite.scheduling.scheduler import Scheduler
from runtime_lite.scheduling.task import CHUNK, STEP, ServiceClass, Task, task_at
from tests.runtime_lite.scheduling.traffic import CHUNKS, MS, PLAIN, affine, chunk, started, table, utterances


def test_a_batch_is_no_larger_than_lets_its_head_meet_the_soft_target() -> None:
    scheduler = Scheduler(table())
    for _ in range(64):
        scheduler.submit(chunk(0, soft_ms=10), 0)
    assert started(scheduler, 0).rows == 16


def test_late_batches_never_shrink() -> None:
    """The regression of drain mode: when no size can meet the soft target, the efficient one runs."""
    scheduler = Scheduler(table())
    for _ in range(64):
        scheduler.submit(chunk(0), 0)
    assert len(started(scheduler, 1000).tasks) == 64


def rows_after(rate_per_s: float, queued: int, beside: Task | None = None, service: ServiceClass = CHUNK) -> int:
    """Rows of a run of two lanes, one of them busy, when chunks have come at some rate for seconds."""
    scheduler = Scheduler(table({CHUNKS: {1: 3 * MS, 2: 5 * MS, 4: 9 * MS}, utterances(5): {1: 40 * MS}}), lanes=2)
    comes = [int(number / rate_per_s * 1000 * MS) for number in range(int(4 * rate_per_s))]
    for now in comes:
        scheduler.submit(task_at(CHUNKS, CHUNK, now), now)
        while (run := scheduler.decide(now).run) is not None:
            scheduler.finished(run, now, failed=True)  # no cost is learnt
    now = 4000 * MS
    scheduler.submit(task_at(CHUNKS, CHUNK, now), now)
    assert scheduler.decide(now).run is not None  # a lane is taken
    for task in [task_at(CHUNKS, service, now) for _ in range(queued)] + ([] if beside is None else [beside]):
        scheduler.submit(task, now)
    run = scheduler.decide(now).run
    assert run is not None and run.key == CHUNKS
    return run.rows


def test_the_more_chunks_come_the_more_of_them_share_a_run() -> None:
    """Two chunks that wait run one by one on a device that has time, and together on one that is nearly full."""
    assert [rows_after(rate, queued=2) for rate in (10, 800)] == [1, 2]


def test_while_efficient_work_waits_chunks_take_the_least_of_the_device() -> None:
    waits = task_at(utterances(5), PLAIN, 4000 * MS)
    assert [rows_after(10, queued=2, beside=beside) for beside in (None, waits)] == [1, 2]


def test_patient_work_shares_one_run_though_nobody_waits_for_the_device() -> None:
    """Steps of voices that are not due are as few as possible; a late one changes nothing."""
    eager = STEP._replace(patient=False)
    assert [rows_after(10, queued=3, service=service) for service in (eager, STEP)] == [1, 4]
    scheduler = Scheduler(table({CHUNKS: {1: 3 * MS, 2: 5 * MS, 4: 9 * MS}}))
    for _ in range(3):
        scheduler.submit(task_at(CHUNKS, STEP, 0), 0)
    assert started(scheduler, 1000).rows == 4


def test_steps_leave_first_calls_the_time_that_a_device_has() -> None:
    """Steps come as fast as they are answered: that is no reason to let all first calls wait for the last."""
    first = CHUNKS._replace(graph="first")
    scheduler = Scheduler(table({CHUNKS: {1: 1 * MS, 8: 3 * MS}, first: {1: 10 * MS, 8: 80 * MS}}))
    now = 0
    for _ in range(1000):
        scheduler.submit(task_at(CHUNKS, STEP, now), now)
        run = scheduler.decide(now).run
        assert run is not None
        now += 1 * MS
        scheduler.finished(run, now)
    for _ in range(8):
        scheduler.submit(task_at(first, STEP._replace(patient=False), now), now)
    assert started(scheduler, now / MS).rows == 1


def test_offline_work_runs_in_the_slack_that_real_time_work_leaves() -> None:
    """Chunks that gain by waiting let an utterance go first, as long as they still start in time."""
    costs = table()
    scheduler = Scheduler(costs)
    waiting, utterance = chunk(0), task_at(utterances(5), PLAIN, 0)
    scheduler.submit(waiting, 0)
    scheduler.submit(utterance, 0)
    assert started(scheduler, 0).tasks == [utterance]
    tight = Scheduler(costs)
    tight.submit(chunk(0, soft_ms=8), 0)
    tight.submit(task_at(utterances(5), PLAIN, 0), 0)
    assert started(tight, 0).key == CHUNKS


def test_a_real_time_batch_that_gains_nothing_by_waiting_goes_first() -> None:
    scheduler = Scheduler(table({CHUNKS: affine(0, 1), utterances(5): affine(6.2, 1.25)}))
    scheduler.submit(task_at(utterances(5), PLAIN, 0), 0)
    scheduler.submit(chunk(0), 0)
    assert started(scheduler, 0).key == CHUNKS


def test_offline_runs_are_no_longer_than_chunks_to_come_can_wait() -> None:
    """A full batch of 15 s utterances takes 246 ms; with live chunks of a soft target of 160 ms it is made smaller."""
    costs = table()
    for stream, most in ((None, 64), (1, 32)):
        scheduler = Scheduler(costs)
        if stream is not None:
            scheduler.submit(chunk(0), 0)
            scheduler.finished(started(scheduler, 0), 5 * MS)
        for _ in range(64):
            scheduler.submit(task_at(utterances(15), PLAIN, 5 * MS), 5 * MS)
        assert started(scheduler, 5).rows == most


def test_the_period_of_streams_tells_how_long_a_run_may_be() -> None:
    """One announced stream that has just sent leaves most of its period to a run longer than its soft target."""
    costs = table({CHUNKS: {1: 5 * MS}, utterances(15): {1: 500 * MS}})
    scheduler = Scheduler(costs)
    assert scheduler.open_stream(1, CHUNKS, CHUNK, 640 * MS) is None
    scheduler.submit(chunk(0, stream=1), 0)
    scheduler.finished(started(scheduler, 0), 5 * MS)
    scheduler.submit(task_at(utterances(15), PLAIN, 5 * MS), 5 * MS)
    assert started(scheduler, 5).key == utterances(15)


def test_several_lanes_run_at_once() -> None:
    scheduler = Scheduler(table({CHUNKS: {1: 10 * MS}, utterances(5): {1: 500 * MS}}), lanes=2)
    scheduler.submit(chunk(0), 0)
    scheduler.submit(task_at(utterances(5), PLAIN, 0), 0)
    scheduler.submit(task_at(utterances(5), PLAIN, 0), 0)
    keys = [started(scheduler, 0).key, started(scheduler, 0).key]
    assert set(keys) == {CHUNKS, utterances(5)}, "the other lane is free for chunks, so a long run may take one"
    assert scheduler.decide(0).run is None


def test_waiting_on_purpose_ends_with_the_next_expected_chunk() -> None:
    scheduler = Scheduler(table(), policy=Policy(wait=True))
    for stream in (1, 2):
        scheduler.open_stream(stream, CHUNKS, CHUNK, 640 * MS)
    for stream, at in ((1, 0), (2, 50)):
        scheduler.submit(chunk(at, stream=stream), at * MS)
        scheduler.finished(started(scheduler, at), (at + 5) * MS)
    scheduler.submit(chunk(640, stream=1), 640 * MS)
    assert scheduler.decide(640 * MS) == (None, [], 690 * MS)
    scheduler.submit(chunk(690, stream=2), 690 * MS)
    assert len(started(scheduler, 690).tasks) == 2
