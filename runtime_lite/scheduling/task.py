"""Records what the scheduler knows of work: its class, its key, its times, and nothing of its tensors.

    soft target     when a good answer should be out; it orders work
    hard deadline   after it the answer is worthless; it only drops work

All times are monotonic nanoseconds (`clock.py`).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from runtime_lite.scheduling.clock import NS_PER_MS

NEW, WAITING, QUEUED, RUSHED, RUNNING, ENDED = "new", "waiting", "queued", "rushed", "running", "ended"
"""Where a task is: `waiting` behind another of its stream, `rushed` when only a small run can answer it in time."""


MOST_MS = 1e12
"""Targets and deadlines of classes lie below: 31 years."""


class ServiceClass(NamedTuple):
    """What callers of a kind are promised.

    Attributes:
        name: for metrics and reasons; tasks are queued per class, so two classes never have one name.
        soft_ms: soft target after the arrival. The one real knob: latency is spent up to it where that lets others run.
        hard_ms: hard deadline after the arrival; None if every answer is worth something.
        real_time: orders the device by its soft target; other classes run in the slack that real-time work leaves.
        share: part of the device's time, 0 to 1, that the class gets within a second while it has work queued.
        priority: the higher goes first among efficient classes, and among real-time classes that are late alike.
    """

    name: str
    soft_ms: float
    hard_ms: float | None
    real_time: bool
    share: float = 0.0
    priority: int = 0

    def fault(self) -> str | None:
        """Return the name of the first field that can mean nothing, or None; callers make classes of their own."""
        soft, hard, share = self.soft_ms, self.hard_ms, self.share
        switch: object = self.real_time
        if type(self.name) is not str or not self.name.isprintable() or not self.name:
            return "name"
        if type(soft) not in (int, float) or not 0 <= soft < MOST_MS:
            return "soft_ms"
        if hard is not None and (type(hard) not in (int, float) or not 0 < hard < MOST_MS):
            return "hard_ms"
        if type(switch) is not bool:
            return "real_time"
        if type(share) not in (int, float) or not 0 <= share <= 1:
            return "share"
        return None if type(self.priority) is int else "priority"


FIRST_PACKET = ServiceClass("first_packet", soft_ms=80, hard_ms=None, real_time=True)
"""The first answer of a voice: somebody waits in silence."""

STEP = ServiceClass("step", soft_ms=80, hard_ms=None, real_time=True)
"""One step of an autoregressive voice: the playback lead of the poorest stream is its target."""

CHUNK = ServiceClass("chunk", soft_ms=160, hard_ms=None, real_time=True)
"""One chunk of a live stream. It has no hard deadline: a chunk that is left out would break its stream."""

INTERACTIVE = ServiceClass("interactive", soft_ms=160, hard_ms=None, real_time=True)
"""A short single request whose caller waits."""

UTTERANCE = ServiceClass("utterance", soft_ms=1000, hard_ms=2000, real_time=False, share=0.1)
"""A whole recording whose answer is expected within seconds."""

BULK = ServiceClass("bulk", soft_ms=60_000, hard_ms=None, real_time=False, share=0.02, priority=-1)
"""Work without a clock: a folder of recordings over night."""


class Key(NamedTuple):
    """What may share a run: tasks of one key; shorter buckets of the same family may fill its free rows.

    Attributes:
        model: the model's name, unique on the device.
        graph: graph name.
        sizes: bucket of every axis but that of rows.
        padded: names of the axes among them whose places may be padded; the others need exactly their bucket.
        alone: tasks never share a run, as it is not proved that their rows are independent.
    """

    model: str
    graph: str
    sizes: tuple[tuple[str, int], ...] = ()
    padded: tuple[str, ...] = ()
    alone: bool = False

    def holds(self, other: "Key") -> bool:
        """Whether tasks of another key may fill free rows of a run of this one: padding their lengths is enough."""
        return (
            not (self.alone or other.alone)
            and (self.model, self.graph, self.padded) == (other.model, other.graph, other.padded)
            and len(self.sizes) == len(other.sizes)
            and all(
                mine[0] == theirs[0] and (mine[1] == theirs[1] or (theirs[1] < mine[1] and mine[0] in self.padded))
                for mine, theirs in zip(self.sizes, other.sizes, strict=True)
            )
        )


@dataclass(slots=True, eq=False)
class Task:
    """One unit of work: the rows of one request, or one chunk of a stream. Its identity is the object.

    Attributes:
        key: what it may share a run with.
        service: its class.
        arrival: when it came; latency counts from here.
        soft: soft target.
        hard: hard deadline; None if there is none.
        rows: rows that it takes of a run, at least 1.
        worth: what an answer in time is worth: its rows, times their true lengths where these differ.
        stream: number of the stream it belongs to; tasks of one stream run one after the other, in the order they came.
        state: the scheduler's: where the task is, `NEW` to `ENDED`.
    """

    key: Key
    service: ServiceClass
    arrival: int
    soft: int
    hard: int | None
    rows: int = 1
    worth: float = 1.0
    stream: int | None = None
    state: str = field(default=NEW, init=False)


def task_at(
    key: Key,
    service: ServiceClass,
    arrival: int,
    *,
    rows: int = 1,
    worth: float = 1.0,
    stream: int | None = None,
) -> Task:
    """Return a task with the targets of its class."""
    hard = None if service.hard_ms is None else arrival + int(service.hard_ms * NS_PER_MS)
    soft = arrival + int(service.soft_ms * NS_PER_MS)
    return Task(key, service, arrival, soft, hard, rows, worth, stream)
