"""Random interleavings of everything that may happen to the scheduler, on a virtual clock; every promise is checked.

    python -m tests.property.serving --interleavings 1000000 [--seed 0]

An interleaving is a short life of a device: tasks of several keys, classes, deadlines and streams come, are cancelled,
run, fail and end, streams open and close, at few distinct times, so that much coincides. Then it is left alone until
all is done. Checked by a bookkeeping of its own:

    every task ends exactly once: answered, dropped, cancelled or refused; none is lost, none appears twice
    a run holds tasks of its key and of shorter buckets only, no more rows than its bucket, one task if rows are bound
    no run is expected to end after the hard deadline of a task in it; a task is dropped only if it cannot be answered
    one chunk of a stream is in flight, and chunks start in the order in which they came
    no more runs than lanes; `wake` lies ahead; work that may run does; nothing stays behind when all has ended
"""

import argparse
import random
import sys
import time
from collections import deque

from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.cost_table import CostTable, Spread
from runtime_lite.scheduling.decision import Policy, Run
from runtime_lite.scheduling.scheduler import Scheduler
from runtime_lite.scheduling.task import BULK, CHUNK, INTERACTIVE, UTTERANCE, Key, Task, task_at

MS = NS_PER_MS
STREAMING = Key("a", "step")
SHORT, LONG = (Key("b", "whole", (("bands", 8), ("time", time)), ("time",)) for time in (4, 8))
OTHER_BANDS = Key("b", "whole", (("bands", 4), ("time", 4)), ("time",))
BOUND = Key("c", "whole", alone=True)
COSTS = {
    STREAMING: {1: 4 * MS, 4: 6 * MS},
    SHORT: {1: 2 * MS, 2: 3 * MS, 4: 5 * MS},
    LONG: {1: 3 * MS, 4: 9 * MS},
    OTHER_BANDS: {2: 3 * MS},
    BOUND: {1: 3 * MS, 2: 5 * MS},
}
KEYS = tuple(COSTS)
SERVICES = (
    CHUNK._replace(soft_ms=8),
    INTERACTIVE._replace(soft_ms=5, hard_ms=12, priority=1),
    UTTERANCE._replace(soft_ms=10, hard_ms=20),
    BULK._replace(soft_ms=40),
)
POLICIES = (Policy(), Policy(wait=True), Policy(ripe=0.0, floor_always=True), Policy(cap=False, bucket_share=0.3))
STEPS_NS = (0, 0, MS, 2 * MS, 5 * MS, 11 * MS)


class BrokenPromise(AssertionError):
    """An interleaving in which a promise does not hold; the message begins with its seed."""


class Life:
    """One interleaving.

    Args:
        seed: of all its choices.
    """

    def __init__(self, seed: int) -> None:
        """Make a device."""
        self.seed = seed
        self.draw = random.Random(seed)
        self.now = 0
        self.lanes = self.draw.choice((1, 1, 2, 3))
        costs = CostTable()
        for key, rows in COSTS.items():
            costs.add(key, {size: None if ns is None else Spread.always(ns) for size, ns in rows.items()})
        self.costs = costs
        self.scheduler = Scheduler(costs, self.lanes, self.draw.choice(POLICIES))
        self.live: dict[Task, None] = {}
        self.running: dict[Run, None] = {}
        self.streams: dict[int, deque[Task]] = {}
        self.ended = self.submitted = 0
        self.wake: int | None = None

    def play(self) -> None:
        """Let things happen, then let all end."""
        actions = (
            self.submit,
            self.submit,
            self.submit,
            self.cancel,
            self.finish,
            self.decide,
            self.stream,
            self.pass_time,
        )
        for _ in range(self.draw.randrange(4, 24)):
            self.draw.choice(actions)()
        self.end_all()

    def check(self, holds: bool, what: str) -> None:
        """Raise what does not hold."""
        if not holds:
            raise BrokenPromise(f"seed {self.seed} at {self.now / MS:g} ms: {what}")

    def submit(self) -> None:
        """A task comes."""
        key, service = self.draw.choice(KEYS), self.draw.choice(SERVICES)
        stream = self.draw.randrange(3) if key is STREAMING else None
        rows = min(self.draw.choice((1, 1, 1, 2, 3, 9)), 9 if self.draw.random() < 0.2 else 2)
        task = task_at(key, service, self.now, rows=rows, stream=stream)
        self.submitted += 1
        if self.scheduler.submit(task, self.now) is not None:
            self.ended += 1
            return
        self.check(task.rows <= max(COSTS[key]), "a task came in that no bucket holds")
        self.live[task] = None
        if stream is not None:
            self.streams.setdefault(stream, deque()).append(task)

    def cancel(self) -> None:
        """A caller gives up; perhaps one whose task is long gone."""
        if self.live:
            task = self.draw.choice(list(self.live))
            in_flight = any(task in run.tasks for run in self.running)
            gone = self.scheduler.cancel(task)
            self.check(gone is not in_flight, "what waits can be cancelled, what runs cannot")
            if gone:
                self.end(task)
                self.check(not self.scheduler.cancel(task), "a task was cancelled twice")

    def finish(self) -> None:
        """A run ends, well or not."""
        if self.running:
            run = self.draw.choice(list(self.running))
            del self.running[run]
            self.scheduler.finished(run, self.now, failed=self.draw.random() < 0.1)
            for task in run.tasks:
                self.end(task)

    def stream(self) -> None:
        """A stream is announced or closed."""
        number = self.draw.randrange(3)
        if self.draw.random() < 0.5:
            self.scheduler.close_stream(number)
        elif number not in self.streams and number not in self.scheduler._streams._open:
            self.scheduler.open_stream(number, STREAMING, SERVICES[0], 20 * MS)

    def pass_time(self) -> None:
        """Time goes by."""
        self.now += self.draw.choice(STEPS_NS)

    def decide(self) -> None:
        """The owner asks until nothing more is to be done."""
        while True:
            run, dropped, self.wake = self.scheduler.decide(self.now)
            for task, _ in dropped:
                self.check(not any(task in run.tasks for run in self.running), "a task was dropped that runs")
                least = self.costs.of(task.key).bucket_for(task.rows)[1]
                self.check(task.hard is not None and self.now + least > task.hard, "dropped, but can be answered")
                self.end(task)
            if run is None:
                break
            self.check_run(run)
            self.running[run] = None
        self.check(self.wake is None or self.wake > self.now, "to be asked again at once is polling")
        self.check(len(self.running) <= self.lanes, "more runs than lanes")

    def check_run(self, run: Run) -> None:
        """What a run must be."""
        self.check(run.rows in COSTS[run.key], "a row bucket that was not compiled")
        self.check(0 < sum(task.rows for task in run.tasks) <= run.rows, "rows that do not fit")
        self.check(len(set(run.tasks)) == len(run.tasks), "a task twice in a run")
        self.check(not (run.key is BOUND and len(run.tasks) > 1), "bound rows shared a run")
        others = {LONG: {LONG, SHORT}}.get(run.key, {run.key})
        for task in run.tasks:
            self.check(task in self.live, "a task ran that had ended")
            self.check(not any(task in other.tasks for other in self.running), "a task ran twice")
            self.check(task.key in others, "a task ran under a key that does not hold it")
            self.check(task.hard is None or self.now + run.expected_ns <= task.hard, "ran to end after its deadline")
            if task.stream is not None:
                self.check(self.streams[task.stream][0] is task, "a chunk overtook another, or two are in flight")

    def end(self, task: Task) -> None:
        """Note the one end of a task."""
        self.check(task in self.live, "a task ended twice, or never came")
        del self.live[task]
        self.ended += 1
        if task.stream is not None:
            self.streams[task.stream].remove(task)
            if not self.streams[task.stream]:
                del self.streams[task.stream]

    def end_all(self) -> None:
        """Nothing more comes: every task ends by runs, drops and wakes alone."""
        for _ in range(400):
            self.decide()
            if not self.live:
                break
            ends = [run.started + run.expected_ns for run in self.running]
            times = ends + ([self.wake] if self.wake is not None else [])
            self.check(bool(times), f"{len(self.live)} tasks wait for nothing")
            self.now = max(self.now, min(times))
            for run in [run for run in self.running if run.started + run.expected_ns <= self.now]:
                del self.running[run]
                self.scheduler.finished(run, self.now)
                for task in run.tasks:
                    self.end(task)
        self.check(not self.live, f"{len(self.live)} tasks never end")
        self.check(self.ended == self.submitted, "the counts do not balance")
        for number in range(3):
            self.scheduler.close_stream(number)
        left = self.scheduler._filled or self.scheduler._timers.live or self.scheduler._streams._open
        self.check(not left, "something stays behind when all has ended")


def main() -> int:
    """Play interleavings; say the seed of the first that breaks a promise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interleavings", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others count on")
    options = parser.parse_args()
    begin = time.monotonic()
    for seed in range(options.seed, options.seed + options.interleavings):
        try:
            Life(seed).play()
        except BrokenPromise as broken:
            print(broken, file=sys.stderr)
            return 1
    last = options.seed + options.interleavings - 1
    print(f"seeds {options.seed} to {last}: no promise broken, {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
