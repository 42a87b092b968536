"""Defines the records of the work that the scheduler orders: service class, batching key and times, no tensors.

    soft target     when a good answer should be out; it orders work
    hard deadline   after it the answer is worthless; it only drops work

All times are monotonic nanoseconds (`clock.py`).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from runtime_lite.scheduling.clock import NS_PER_MS

NEW, WAITING, QUEUED, RUSHED, RUNNING, ENDED = "new", "waiting", "queued", "rushed", "running", "ended"
"""States of a task: `waiting` behind another task of its stream, `rushed` if only a small run can answer it in time."""


MOST_MS = 1e12
"""Upper bound of targets and deadlines of classes, in ms: 31 years."""


class ServiceClass(NamedTuple):
    """How urgent requests are, and what share of the device they are promised.

    Attributes:
        name: name in metrics and reasons; tasks are queued by class, so names must be unique.
        soft_ms: soft target after the arrival; requests may be delayed up to it to let others run.
        hard_ms: hard deadline after the arrival; None if every answer is worth something.
        real_time: whether its requests run in the order of their soft targets; other classes run in the time that these
            leave.
        share: part of the device's time, 0 to 1, that the class gets within each second while it has work queued.
        priority: the higher one runs first among efficient classes, and among real-time classes that are equally late.
        patient: whether an answer is worth no more before its soft target than at it. Real-time requests then share as
            few runs as possible; those of other real-time classes wait as little as possible.
    """

    name: str
    soft_ms: float
    hard_ms: float | None
    real_time: bool
    share: float = 0.0
    priority: int = 0
    patient: bool = False

    def fault(self) -> str | None:
        """Return the name of the first field with an invalid value, or None; callers may define classes."""
        soft, hard, share = self.soft_ms, self.hard_ms, self.share
        if type(self.name) is not str or not self.name.isprintable() or not self.name:
            return "name"
        if type(soft) not in (int, float) or not 0 <= soft < MOST_MS:
            return "soft_ms"
        if hard is not None and (type(hard) not in (int, float) or not 0 < hard < MOST_MS):
            return "hard_ms"
        switches: dict[str, object] = {"real_time": self.real_time, "patient": self.patient}
        if wrong := [name for name, switch in switches.items() if type(switch) is not bool]:
            return wrong[0]
        if type(share) not in (int, float) or not 0 <= share <= 1:
            return "share"
        return None if type(self.priority) is int else "priority"


FIRST_PACKET = ServiceClass("first_packet", soft_ms=80, hard_ms=None, real_time=True)
"""The first audio of a voice, for which somebody waits in silence."""

STEP = ServiceClass("step", soft_ms=80, hard_ms=None, real_time=True, patient=True)
"""One step of an autoregressive voice; the stream with the least audio in advance sets the target."""

CHUNK = ServiceClass("chunk", soft_ms=160, hard_ms=None, real_time=True)
"""One chunk of a live stream, without a hard deadline, as a dropped chunk would break the stream."""

INTERACTIVE = ServiceClass("interactive", soft_ms=160, hard_ms=None, real_time=True)
"""A short single request whose caller waits."""

UTTERANCE = ServiceClass("utterance", soft_ms=1000, hard_ms=2000, real_time=False, share=0.1)
"""A whole recording whose answer is expected within seconds."""

BULK = ServiceClass("bulk", soft_ms=60_000, hard_ms=None, real_time=False, share=0.02, priority=-1)
"""Work without time limits, such as a folder of recordings over night."""


class Key(NamedTuple):
    """The properties that tasks of one run share; tasks of shorter buckets may fill its free rows.

    Attributes:
        model: the model's name, unique on the device.
        graph: graph name.
        sizes: bucket of every axis but that of rows.
        padded: names of the axes of `sizes` that can be padded; along the others a feed must fill the bucket.
        alone: whether tasks never share a run, because their rows are not proved independent.
    """

    model: str
    graph: str
    sizes: tuple[tuple[str, int], ...] = ()
    padded: tuple[str, ...] = ()
    alone: bool = False

    def holds(self, other: "Key") -> bool:
        """Return whether tasks of another key may fill free rows of a run of this one, with their lengths padded."""
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
    """One unit of work: the rows of one request, or one chunk of a stream; compared by identity.

    Attributes:
        key: the key; tasks of equal keys may share a run.
        service: service class.
        arrival: time of arrival; latency counts from here.
        soft: soft target.
        hard: hard deadline; None if there is none.
        rows: number of its rows, at least 1.
        worth: number of its frames: its rows, times their true lengths if rows have lengths.
        stream: number of its stream, or None; tasks of one stream run one after the other, in the order of arrival.
        state: state in the scheduler, `NEW` to `ENDED`.
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
    """Return a task with the soft target and the deadline of its class."""
    hard = None if service.hard_ms is None else arrival + int(service.hard_ms * NS_PER_MS)
    soft = arrival + int(service.soft_ms * NS_PER_MS)
    return Task(key, service, arrival, soft, hard, rows, worth, stream)
