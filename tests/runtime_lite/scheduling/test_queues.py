"""Queues: order, early leavers, row buckets."""

import math
import random

import pytest

from runtime_lite.scheduling.queues import RATE_NS, SWEEP_AT, TaskHeap, TaskQueue
from runtime_lite.scheduling.task import CHUNK, ENDED, QUEUED, RUNNING, Task, task_at
from tests.runtime_lite.scheduling.traffic import CHUNKS, MS, table


def queued(soft: int = 0, rows: int = 1) -> Task:
    task = Task(CHUNKS, CHUNK, 0, soft, None, rows)
    task.state = QUEUED
    return task


def queue_with(costs: dict[int, int | None]) -> TaskQueue:
    return TaskQueue(CHUNK, CHUNKS, table({CHUNKS: costs}).of(CHUNKS))


def test_tasks_come_out_in_the_order_of_their_soft_targets_then_as_they_came() -> None:
    queue, seed = queue_with({1: MS}), 3
    tasks = [Task(CHUNKS, CHUNK, number, random.Random(seed + number).randrange(5), None) for number in range(200)]
    for task in tasks:
        queue.push(task)
    assert (queue.rows, queue.worth) == (200, 200.0)
    out = [queue.take(queue.due, RUNNING) for _ in tasks if queue.due.first()]
    assert out == sorted(tasks, key=lambda task: (task.soft, task.arrival)), f"seed {seed}"
    assert (queue.rows, queue.worth, queue.due.first()) == (0, 0.0, None)


def test_who_leaves_early_is_skipped_and_swept_out() -> None:
    heap, count = TaskHeap(QUEUED), 100 * SWEEP_AT
    tasks = [queued() for _ in range(count)]
    for number, task in enumerate(tasks):
        heap.push(number, task)
    for task in tasks[:-1]:
        task.state = ENDED
        heap.left()
    assert heap.live == 1
    assert len(heap._entries) <= SWEEP_AT, "a task that has left is not kept, nor what it carries"
    assert heap.first() == (count - 1, count, tasks[-1])
    assert heap.pop() is tasks[-1] and heap.first() is None


def test_a_rushed_task_stays_in_its_queue() -> None:
    queue = queue_with({1: MS})
    first, second = task_at(CHUNKS, CHUNK, 0), task_at(CHUNKS, CHUNK, 1)
    for task in (first, second):
        queue.push(task)
    assert queue.due.first() is not None
    queue.rush()
    assert queue.rows == 2 and (found := queue.due.first()) is not None and found[2] is second
    queue.remove(first, ENDED)
    assert queue.rows == 1 and queue.rushed.first() is None


def test_overdue_chunks_are_no_longer_expected() -> None:
    queue = queue_with({1: MS})
    for time in (30, 10, 20):
        queue.expect(time)
    assert [queue.next_expected(now) for now in (0, 10, 25, 30)] == [10, 20, 30, None]


def test_the_rate_of_arrivals_follows_what_comes_and_is_forgotten() -> None:
    queue = queue_with({1: MS})
    for number in range(4000):
        queue.note_arrival(2, number * MS)
    assert queue.rows_per_ns(4000 * MS) * MS == pytest.approx(2, rel=0.01)
    assert queue.rows_per_ns(4000 * MS + RATE_NS) * MS == pytest.approx(2 / math.e, rel=0.01)
