"""Row 26: voices that must not break, on the virtual clock and in real time."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from benchmarks.mixed_traffic import FRAME, GAP, STEPS, Load, MixedTraffic, S, mixed_costs, real_costs
from benchmarks.scheduling import FULL_PER_S
from runtime_lite import Bundle, Model, Runtime
from runtime_lite.executors.executor import Executor, make_executor
from runtime_lite.format.arrays import Array
from runtime_lite.scheduling.clock import NS_PER_MS as MS
from runtime_lite.scheduling.clock import VirtualClock
from runtime_lite.scheduling.scheduler import Scheduler
from runtime_lite.scheduling.simulation import simulate
from runtime_lite.scheduling.task import FIRST_PACKET, STEP, Task, task_at
from tests.soak.adder import fed, is_sum
from tests.soak.lives import LIMIT_S, together
from tests.soak.puppet import adder
from tests.soak.row import Figures

CLIENTS = (1, 4, 8, 16, 32, 64)


def continuity(size: int, timed: bool) -> Figures:
    """Row 26: 1 to 64 voices of `size` frames that begin together, beside utterances that would fill the device."""
    found: dict[str, float] = {}
    first: dict[int, float] = {}
    for clients in CLIENTS:
        voices = _Voices(clients, size)
        costs, real = mixed_costs(), real_costs(mixed_costs())
        simulate(
            Scheduler(costs),
            voices,
            lambda run, real=real: real[run.key, run.rows],  # type: ignore[misc]
            (size + 20) * FRAME,
            VirtualClock(),
        )
        assert not any(voices.left.values())
        first[clients] = float(np.mean(voices.first_ms))
        found[f"gap-free of {clients}"] = 1 - len(voices.broken) / clients
    found |= {"first packet at 4 / at 1": first[4] / first[1], "first packet of 64 ms": first[64]}
    return found | (_in_real_time(size // 10) if timed else {})


class _Voices:
    """Voices that begin together; each asks for a frame when the one before begins to play."""

    def __init__(self, clients: int, frames: int) -> None:
        self.left = dict.fromkeys(range(clients), frames)
        self.broken: set[int] = set()
        self.first_ms: list[float] = []
        self._frames = frames

    def arrivals(self) -> Iterator[Task]:
        """All voices at once, and utterances beside them."""
        beside = MixedTraffic(Load(0, (FULL_PER_S,), self._frames * FRAME / S), 26)
        for voice in self.left:
            yield task_at(STEPS, FIRST_PACKET, 0, stream=voice, worth=0.08)
        yield from beside._utterances()

    def done(self, task: Task, now: int) -> Iterable[Task]:
        if task.stream is None:
            return ()
        is_first = task.service == FIRST_PACKET
        if is_first:
            self.first_ms.append((now - task.arrival) / MS)
        elif now - task.arrival > GAP:
            self.broken.add(task.stream)
        self.left[task.stream] -= 1
        plays = now if is_first else max(now, task.arrival + FRAME)
        return [task_at(STEPS, STEP, plays, stream=task.stream, worth=0.08)] if self.left[task.stream] else []

    def lost(self, task: Task, reason: str, now: int) -> Iterable[Task]:
        assert task.stream is None, "a voice lost a frame"
        return ()


class _Stepping:
    """An executor whose runs take as long as steps of a device beside the processor."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        time.sleep((8 + 0.08 * sizes["batch"]) / 1e3)
        self._inner.run(sizes, inputs, outputs)

    def close(self) -> None:
        self._inner.close()


def _stepping(bundle: Bundle, name: str, threads: int) -> Executor:
    return _Stepping(make_executor(bundle, name, threads))


BEGINS = 15
"""So often voices begin together for the mean of their first frames; the median of these is told."""


def _in_real_time(frames: int) -> dict[str, float]:
    """The same numbers of voices, each with a thread that waits while its frames play, and nothing beside them."""
    found: dict[str, float] = {}
    with Runtime(workers=1) as runtime:
        model = runtime.load(adder(), warm_up=True, executors=_stepping)
        for clients in CLIENTS:
            broken = sum(each.is_broken for each in _heard(model, clients, frames))
            found[f"gap-free of {clients} in real time"] = 1 - broken / clients
        one, four, most = (_first_ms(model, clients) for clients in (1, 4, 64))
    return found | {"first packet at 4 / at 1 in real time": four / one, "first packet of 64 in real time ms": most}


def _first_ms(model: Model, clients: int) -> float:
    return float(np.median([np.mean([each.first_ms for each in _heard(model, clients, 2)]) for _ in range(BEGINS)]))


def _heard(model: Model, clients: int, frames: int) -> "list[_Listener]":
    listeners = [_Listener(model, frames) for _ in range(clients)]
    begin = threading.Barrier(clients)
    assert together(clients, lambda number: listeners[number].hear(begin)) == 0
    return listeners


class _Listener:
    """Hears a voice in real time.

    Attributes:
        first_ms: until its first frame.
        is_broken: whether a frame came later than the gap that is heard, or was wrong.
    """

    def __init__(self, model: Model, frames: int) -> None:
        self._stream, self._frames = model.open_stream(service=STEP), frames
        self.first_ms, self.is_broken = 0.0, False

    def hear(self, begin: threading.Barrier) -> None:
        """Ask for a frame when the one before begins to play."""
        with self._stream as stream:
            begin.wait(LIMIT_S)
            asked = time.monotonic_ns()
            for frame in range(self._frames):
                right = is_sum(stream.push(fed(1)), frame + 1)
                now = time.monotonic_ns()
                if frame == 0:
                    self.first_ms = (now - asked) / MS
                    plays = now
                else:
                    self.is_broken |= now - asked > GAP
                    plays = max(now, asked + FRAME)
                self.is_broken |= not right
                time.sleep(max(plays - time.monotonic_ns(), 0) / S)
                asked = plays
