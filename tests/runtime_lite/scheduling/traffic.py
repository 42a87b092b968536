"""Costs and traffic for tests of the scheduler: affine costs, tasks at fixed times, and what became of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from runtime_lite.scheduling.clock import NS_PER_MS, VirtualClock
from runtime_lite.scheduling.cost_table import CostTable, Spread
from runtime_lite.scheduling.decision import Run
from runtime_lite.scheduling.scheduler import Scheduler
from runtime_lite.scheduling.simulation import Decides, simulate
from runtime_lite.scheduling.task import CHUNK, UTTERANCE, Key, Task, task_at

ROWS = (1, 2, 4, 8, 16, 32, 64)
MS = NS_PER_MS

CHUNKS = Key("asr", "encoder")
"""4 + 0.35 B ms."""


PLAIN = UTTERANCE._replace(name="plain", share=0.0)
"""Efficient work that claims no share."""


def utterances(seconds: int) -> Key:
    """6.2 + 0.25 B x seconds ms."""
    return Key("offline", "encoder", (("time", seconds),), ("time",))


def affine(fixed_ms: float, per_row_ms: float, rows: Sequence[int] = ROWS) -> dict[int, int | None]:
    """Costs of a run in proportion to its rows, and something for the run itself."""
    return {size: int((fixed_ms + per_row_ms * size) * MS) for size in rows}


def table(costs: Mapping[Key, Mapping[int, int | None]] | None = None) -> CostTable:
    """A table with chunks, and utterances of 2, 5 and 15 s, or with other costs."""
    made = CostTable()
    default = {CHUNKS: affine(4, 0.35), **{utterances(s): affine(6.2, 0.25 * s) for s in (2, 5, 15)}}
    for key, rows in (default if costs is None else costs).items():
        made.add(key, {size: None if ns is None else Spread.always(ns) for size, ns in rows.items()})
    return made


@dataclass
class Script:
    """Traffic of fixed tasks; notes the end of each."""

    tasks: Sequence[Task]
    answered: dict[Task, int] = field(default_factory=dict)
    ended: dict[Task, str] = field(default_factory=dict)
    ended_at: dict[Task, int] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)

    def arrivals(self) -> Iterator[Task]:
        """The tasks by arrival."""
        yield from sorted(self.tasks, key=lambda task: task.arrival)

    def done(self, task: Task, now: int) -> Iterable[Task]:
        """Note an answer."""
        assert task not in self.answered and task not in self.ended
        self.answered[task] = now
        return ()

    def lost(self, task: Task, reason: str, now: int) -> Iterable[Task]:
        """Note a refusal or a drop."""
        assert task not in self.answered and task not in self.ended
        self.ended[task] = reason
        self.ended_at[task] = now
        return ()

    def play(self, scheduler: Decides, costs: CostTable, factor: float = 1.0, end_ms: int = 10**7) -> "Script":
        """Run the tasks; a run takes what the table says, times a factor."""
        real = {
            (key, rows): int(costs.cost(key, rows) * factor)
            for key in {task.key for task in self.tasks}
            for rows in costs.row_buckets(key)
        }
        simulate(
            scheduler,
            self,
            lambda run: real[run.key, run.rows],
            end_ms * MS,
            VirtualClock(),
            lambda run, now: self.runs.append(run),
        )
        return self


def chunk(at_ms: float, stream: int | None = None, soft_ms: float = 160) -> Task:
    """A chunk that comes at some time."""
    return task_at(CHUNKS, CHUNK._replace(soft_ms=soft_ms), int(at_ms * MS), stream=stream)


def started(scheduler: Scheduler, now_ms: float) -> Run:
    """The run that is decided now."""
    run = scheduler.decide(int(now_ms * MS)).run
    assert run is not None
    return run
