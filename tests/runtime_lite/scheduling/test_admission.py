"""Who may come in."""

import pytest

from runtime_lite.scheduling.admission import FULL, Streams, ends_late, rate_of_streams
from runtime_lite.scheduling.cost_table import PACE_NS, WINDOW, CostTable, Spread
from runtime_lite.scheduling.queues import CREDITS, NO_CREDIT, OpenStream, TaskQueue
from runtime_lite.scheduling.scheduler import Scheduler
from runtime_lite.scheduling.task import CHUNK, UTTERANCE, ServiceClass, Task, task_at
from tests.runtime_lite.scheduling.traffic import CHUNKS, MS, table, utterances

PERIOD = 640 * MS


def chunk_queue() -> TaskQueue:
    return TaskQueue(CHUNK, CHUNKS, table().of(CHUNKS))


def test_streams_are_admitted_up_to_what_other_work_may_claim() -> None:
    for lanes in (1, 2):
        scheduler = Scheduler(table(), lanes)
        answers = [scheduler.open_stream(number, CHUNKS, CHUNK, PERIOD) for number in range(3000)]
        admitted = answers.index(FULL)
        assert set(answers[:admitted]) == {None} and set(answers[admitted:]) == {FULL}
        assert admitted == pytest.approx(0.88 * lanes * 640 / (26.4 / 64), rel=0.02), "64 rows cost 26.4 ms"
        scheduler.close_stream(0)
        assert scheduler.open_stream(5000, CHUNKS, CHUNK, PERIOD) is None
        assert scheduler.open_stream(5001, CHUNKS, CHUNK, PERIOD) == FULL


def test_few_streams_are_counted_at_the_small_batches_that_they_form() -> None:
    costs = table().of(CHUNKS)
    assert rate_of_streams(costs, 160 * MS, 1, PERIOD) == 4.35 * MS
    assert rate_of_streams(costs, 160 * MS, 10_000, PERIOD) == pytest.approx(26.4 * MS / 64)
    assert rate_of_streams(costs, MS, 10_000, PERIOD) == 4.35 * MS, "a target that none meets lets no batch gather"


def rate(made: CostTable) -> float:
    return rate_of_streams(made.of(CHUNKS), 320 * MS, 10_000, PERIOD)


def observe(made: CostTable, rows: int, ms: int, part: float) -> None:
    """Observe runs that together take a share `part` of the time over which the pace is averaged."""
    for _ in range(round(part * PACE_NS / (ms * MS))):
        made.observe(CHUNKS, rows, ms * MS)


def test_streams_are_counted_at_what_runs_take_on_the_average() -> None:
    """One run in ten takes 60 ms and the others 20: runs are started by the one, streams counted by both."""
    made = CostTable()
    made.add(CHUNKS, {1: Spread(20 * MS, 60 * MS, 60 * MS)})
    assert rate(made) == pytest.approx(24 * MS)
    for ms in ([20] * 9 + [60]) * 1000:
        made.observe(CHUNKS, 1, ms * MS)
    assert made.cost(CHUNKS, 1) == 60 * MS
    assert rate(made) == pytest.approx(24 * MS, rel=0.02)
    made.observe(CHUNKS, 1, 50_000 * MS)
    assert rate(made) == pytest.approx(24 * MS, rel=0.02), "held up once"


def test_fast_and_slow_times_of_a_machine_count_for_what_they_last() -> None:
    made = table({CHUNKS: {1: 20 * MS}})
    observe(made, 1, 40, 0.05)
    assert rate(made) == pytest.approx(20.5 * MS, rel=0.01), "as after a start"
    observe(made, 1, 40, 6)
    assert rate(made) == pytest.approx(40 * MS, rel=0.06)
    observe(made, 1, 10, 3)
    assert rate(made) == pytest.approx(10 * MS, rel=0.06)


def test_a_large_bucket_that_runs_in_slow_moments_only_turns_no_stream_away() -> None:
    """A tenth of the time is slow, and only then are there 16 rows to run: they say as little of other moments."""
    made = table({CHUNKS: {1: 5 * MS, 16: 56 * MS}})
    for _ in range(10):
        observe(made, 1, 5, 0.09)
        observe(made, 16, 90, 0.01)
    assert rate(made) < 1.06 * 56 * MS / 16


def test_a_bucket_that_does_not_run_is_as_much_slower_as_those_that_do() -> None:
    made = table({CHUNKS: {1: 5 * MS, 16: 56 * MS}})
    observe(made, 1, 10, 6)
    assert rate(made) == pytest.approx(2 * 56 * MS / 16, rel=0.06)


def test_what_nobody_measured_costs_what_its_first_runs_took_on_the_average() -> None:
    made = CostTable()
    made.add(CHUNKS, {1: None})
    made.observe(CHUNKS, 1, 20 * MS)
    assert rate(made) == 20 * MS
    for _ in range(WINDOW - 1):
        made.observe(CHUNKS, 1, 40 * MS)
    assert rate(made) == pytest.approx(39 * MS)


def test_a_closed_stream_is_forgotten_with_its_last_task() -> None:
    streams, queue = Streams(1), chunk_queue()
    streams.open(1, queue, PERIOD)
    assert (queue.streams, streams.utilisation() > 0) == (1, True)
    task = task_at(CHUNKS, CHUNK, 0, stream=1)
    assert isinstance(streams.enter(task, 1), OpenStream)
    for _ in range(2):
        streams.close(1)
    assert (queue.streams, streams.utilisation()) == (0, 0)
    assert streams.leave(task, 1) is None and not streams._open


def test_a_stream_that_nobody_announced_is_forgotten_when_it_is_idle() -> None:
    streams = Streams(1)
    tasks = [task_at(CHUNKS, CHUNK, 0, stream=7) for _ in range(CREDITS + 1)]
    assert [streams.enter(task, 7) == NO_CREDIT for task in tasks] == [False] * CREDITS + [True]
    assert [streams.leave(task, 7) for task in tasks[:CREDITS]] == [*tasks[1:CREDITS], None]
    assert not streams._open


def short(service: ServiceClass = UTTERANCE, soft: int = 10, hard: int = 20) -> Task:
    return Task(utterances(5), service, 0, soft * MS, hard * MS)


@pytest.mark.parametrize(
    ("queued", "own", "late"),
    [
        (UTTERANCE._replace(priority=-1, name="low"), UTTERANCE, False),
        (UTTERANCE._replace(name="equal"), UTTERANCE, True),
        (UTTERANCE._replace(priority=1, name="high"), UTTERANCE, True),
        (CHUNK._replace(priority=-1), UTTERANCE, True),
        (UTTERANCE._replace(priority=1, name="high"), CHUNK, False),
    ],
)
def test_work_of_the_same_or_a_higher_class_counts(queued: ServiceClass, own: ServiceClass, late: bool) -> None:
    queue = TaskQueue(queued, utterances(5), table({utterances(5): {1: 10 * MS}}).of(utterances(5)))
    queue.push(short(queued))
    assert ends_late(short(own, hard=15), 10 * MS, [queue], 1, 1.0, [], 0) is late


def test_what_waits_behind_a_task_of_its_own_class_does_not_count() -> None:
    queue = TaskQueue(UTTERANCE, utterances(5), table({utterances(5): {1: 10 * MS}}).of(utterances(5)))
    queue.push(short(soft=10))
    assert ends_late(short(soft=10, hard=15), 10 * MS, [queue], 1, 1.0, [], 0)
    assert not ends_late(short(soft=9, hard=15), 10 * MS, [queue], 1, 1.0, [], 0)


def of_class(seconds: int, count: int) -> TaskQueue:
    """Tasks of one class that come first, each 10 ms."""
    queue = TaskQueue(
        UTTERANCE, utterances(seconds), table({utterances(seconds): {1: 10 * MS}}).of(utterances(seconds))
    )
    for _ in range(count):
        queue.push(Task(utterances(seconds), UTTERANCE, 0, 5 * MS, 1000 * MS))
    return queue


@pytest.mark.parametrize(("own", "other", "least_ms"), [(0, 9, 10), (1, 0, 20), (1, 9, 45), (2, 9, 80), (3, 1, 65)])
def test_other_queues_of_the_class_count_as_much_as_what_is_before_it(own: int, other: int, least_ms: int) -> None:
    """Two and a half times, as they are filled up meanwhile; all that is queued there if that is less."""
    queues = [of_class(5, own), of_class(15, other)]
    filled = [queue for queue in queues if queue.rows]
    assert not ends_late(short(soft=10, hard=least_ms), 10 * MS, filled, 1, 1.0, [], 0)
    assert ends_late(short(soft=10, hard=least_ms - 1), 10 * MS, filled, 1, 1.0, [], 0)


def test_runs_in_flight_count_and_lanes_share_the_work() -> None:
    assert ends_late(short(), 10 * MS, [], 1, 1.0, [11 * MS], 0)
    assert not ends_late(short(), 10 * MS, [], 2, 1.0, [11 * MS], 0)
    assert not ends_late(short(), 20 * MS, [], 1, 1.0, [], 0)


def test_real_time_work_counts_once_and_efficient_work_has_what_is_left() -> None:
    """A full queue of chunks is part of what real-time work takes anyway; 10 ms at a quarter of a lane take 40 ms."""
    chunks = TaskQueue(CHUNK, CHUNKS, table({CHUNKS: {1: 10 * MS}}).of(CHUNKS))
    chunks.push(task_at(CHUNKS, CHUNK, 0))
    for queues, least_ms in (([chunks], 20), ([of_class(5, 1)], 50), ([chunks, of_class(5, 1)], 60)):
        assert not ends_late(short(soft=10, hard=least_ms), 10 * MS, queues, 1, 0.25, [], 0)
        assert ends_late(short(soft=10, hard=least_ms - 1), 10 * MS, queues, 1, 0.25, [], 0)
