"""Row 12: memory over time. A slope with its spread, and a leak on purpose that has to be seen.

The short form counts blocks of memory that Python holds, which says the same on every machine; the long one serves
streams and requests by threads for minutes and watches the bytes that the process has allocated and not freed, of
Python and of native code. Resident memory is told besides: it also holds free places between blocks in use, of which
chance makes a few pages more in an hour.
"""

import contextlib
import ctypes
import gc
import math
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from runtime_lite import Bundle, Cancelled, Dropped, InternalError, Overloaded, Runtime
from runtime_lite.executors.executor import Executor, ExecutorFactory, make_executor
from runtime_lite.format.arrays import Array
from tests.soak.adder import fed, is_sum
from tests.soak.items import MARK, fail_on_mark
from tests.soak.lives import LIMIT_S
from tests.soak.puppet import Hook, Puppet, adder, puppet
from tests.soak.row import Bar, Figures, none


def memory_growth(size: int, timed: bool) -> Figures:
    """Row 12, short: blocks that `size` rounds of streams, requests, cancels, drops and failures leave behind each."""
    leak: list[Array] = []
    return {
        "blocks per round": _blocks_per_round(size, fail_on_mark),
        "blocks per round of a planted leak": _blocks_per_round(size, lambda feeds: leak.append(feeds["x"].copy())),
    }


def _blocks_per_round(size: int, hook: Hook) -> float:
    with puppet() as place:
        place.hook = hook
        for _ in range(
            200
        ):  # what is kept on purpose is there: the last costs of every bucket, say, and ends not swept out
            _round(place)
        before = _blocks(place)
        for _ in range(size):
            _round(place)
        return (_blocks(place) - before) / size


def _blocks(place: Puppet) -> int:
    """What is in use, without the memory that is kept for the next runs: how much that is depends on the collector."""
    gc.collect()
    for runner in place.version.runners.values():
        runner.trim()
    return sys.getallocatedblocks()


def _round(place: Puppet) -> None:
    """The same each time, with every way to end in it."""
    place.scheduler.held = True
    with place.model.open_stream() as stream, place.model.open_stream(idle_s=0.5) as idle:
        tickets: list[Any] = [place.model.submit(fed(number)) for number in (1, 2, MARK)]
        tickets += [stream.submit(fed(1)), stream.submit_all([fed(1)] * 3), idle.submit(fed(1))]
        tickets += [place.model.submit(fed(1), deadline_ms=12.0), place.model.submit(fed(1))]
        tickets[-1].cancel()
        place.clock.advance_to(place.clock() + 20_000_000)
        place.release()
        for ticket in tickets:
            with contextlib.suppress(InternalError, Dropped, Cancelled):
                ticket.result(0)
        snapshot = stream.snapshot()
        with stream.fork() as other:
            other.restore(snapshot)
        place.pass_ms(600)


class Slope(NamedTuple):
    """Growth per hour, and what the samples leave open: 1.96 standard errors."""

    per_hour: float
    spread: float

    @property
    def is_noise(self) -> bool:
        """Whether nothing says that it grows."""
        return self.per_hour <= self.spread


def slope_of(seconds: Sequence[float] | Array, values: Sequence[float] | Array) -> Slope:
    """Fit a line; neighbouring samples are alike, so the spread is that of as many samples as there is news in them."""
    hours = np.asarray(seconds) / 3600
    hours = hours - hours.mean()
    line = float(hours @ np.asarray(values) / (hours @ hours))
    rest = np.asarray(values) - np.mean(values) - line * hours
    power = float(rest @ rest)
    alike = min(max(float(rest[1:] @ rest[:-1]) / power, 0.0), 0.99) if power else 0.0
    news = max(len(rest) * (1 - alike) / (1 + alike) - 2, 1.0)
    return Slope(line, 1.96 * math.sqrt(power / news / (hours @ hours)))


LEAK_BYTES_PER_S = 400_000

ALLOCATOR = {
    "PYTHONMALLOC": "malloc",
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
}
"""Environment in which the heap's own count is what is in use: one heap, which `malloc_trim` returns the free pages of,
no pools of Python's own and no lists of freed blocks per thread, which count as used."""

CALLERS, CROWD = 4, 12
"""Threads that call all the time, and besides them for the first tenth of it."""


def leaking(kept: list[Array]) -> ExecutorFactory:
    """Return what makes executors that keep something for ever, as fast as time goes by: the planted leak."""

    class Leaking:
        def __init__(self, inner: Executor) -> None:
            self._inner, self._since = inner, time.monotonic()

        def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
            now = time.monotonic()
            lost = int((now - self._since) * LEAK_BYTES_PER_S)
            if lost > 4096:
                self._since = now
                kept.append(np.ones(lost, np.uint8))
            self._inner.run(sizes, inputs, outputs)

        def close(self) -> None:
            self._inner.close()

    def make(bundle: Bundle, name: str, threads: int) -> Executor:
        return Leaking(make_executor(bundle, name, threads))

    return make


def soak(seconds: float, every_s: float, executors: ExecutorFactory = make_executor) -> tuple[Array, int]:
    """Serve streams and requests by threads for some time; return what the process held, and wrong answers.

    What is kept for as many as were ever here at once grows with every rarer coincidence, by a page in minutes, and is
    no leak: so a crowd comes first, larger than any coincidence among those who stay.

    Args:
        seconds: how long.
        every_s: between two looks.
        executors: of the bundle that is served.

    Returns:
        Looks at the process `[looks, 4]`: seconds since the start, megabytes in use and resident, objects that the
        collector tracks; and wrong answers. There is room for all looks beforehand, and its pages are touched, so that
        looking does not grow: zeros alone would be given their memory one by one, as they are written.
    """
    stop, crowd_leaves, wrong = threading.Event(), threading.Event(), list[int]()
    samples: Array = np.full((math.ceil(seconds / every_s) + 1, 4), np.nan)
    with Runtime(workers=2, check_finite=False) as runtime:
        model = runtime.load(adder(), executors=executors, warm_up=True)
        callers = [
            threading.Thread(target=_call, args=(model, seed, leave, wrong), daemon=True)
            for seed, leave in enumerate([stop] * CALLERS + [crowd_leaves] * CROWD)
        ]
        for caller in callers:
            caller.start()
        begin = time.monotonic()
        looks = 0
        while looks < len(samples) and (not looks or time.monotonic() - begin < seconds):
            stop.wait(max(0.0, begin + (looks + 1) * every_s - time.monotonic()))
            samples[looks] = time.monotonic() - begin, *held_mb(), len(gc.get_objects())
            looks += 1
            if looks * 10 >= len(samples):
                crowd_leaves.set()
        stop.set()
        for caller in callers:
            caller.join(LIMIT_S)
        if (
            any(caller.is_alive() for caller in callers)
            or runtime.request_counts.live
            or not runtime.request_counts.balanced
        ):
            wrong.append(-1)
    return samples[:looks], len(wrong)


def _call(model: Any, seed: int, stop: threading.Event, wrong: list[int]) -> None:
    """One caller: streams of random length, requests, cancels, drops; some hundred calls per second."""
    draw = random.Random(seed)
    while not stop.wait(0.01):
        with contextlib.suppress(Overloaded, Dropped, Cancelled), model.open_stream(credits=64) as stream:
            for total in range(1, draw.randint(2, 13)):
                if not is_sum(stream.push(fed(1)), total):
                    wrong.append(seed)
            model.submit(fed(2)).cancel()
            if not is_sum(model.submit(fed(3), deadline_ms=draw.choice((0.5, 1e6))).result(LIMIT_S), 3):
                wrong.append(seed)
            list(stream.submit_all([fed(1)] * 4, room=4))


class _Heap(ctypes.Structure):
    """`struct mallinfo2` of glibc, 2.33 and later."""

    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def held_mb() -> tuple[float, float]:
    """Megabytes allocated and not freed, and resident ones, when garbage, interpreter's caches and free pages are gone.

    CPython keeps the names of attributes that were looked up by type, 4096 at most. Native code makes a new string for
    each look-up, so these places fill up over an hour, with 70 bytes each.
    """
    gc.collect()
    sys._clear_type_cache()
    libc = ctypes.CDLL(None)
    libc.malloc_trim(0)
    libc.mallinfo2.restype = _Heap
    heap = libc.mallinfo2()
    with open("/proc/self/statm", encoding="ascii") as file:
        return (heap.uordblks + heap.hblkhd) / 1e6, int(file.read().split()[1]) * 4096 / 1e6


GROWTH_BARS = (
    *none("growth seen", "wrong answers", "wrong answers of a planted leak"),
    Bar("growth seen of a planted leak", least=1),
)


def judge(minutes: float, say: Callable[[str], object]) -> dict[str, float]:
    """The long form: `minutes` minutes, and a fifth of it with the planted leak; what follows when the crowd has gone.

    To be called in the environment of `ALLOCATOR`.
    """
    found: dict[str, float] = {}
    kept: list[Array] = []
    for name, length, executors in (("", minutes, make_executor), (" of a planted leak", minutes / 5, leaking(kept))):
        samples, wrong = soak(60 * length, max(60 * length / 600, 0.2), executors)
        seconds, *columns = samples[math.ceil(len(samples) * 0.15) :].T
        used, resident, objects = (slope_of(seconds, column) for column in columns)
        say(
            f"{length:g} minutes{name}: in use {used.per_hour:.3f} +- {used.spread:.3f} MB/h, resident "
            f"{resident.per_hour:.3f} +- {resident.spread:.3f} MB/h, {objects.per_hour:.1f} +- {objects.spread:.1f} "
            f"objects/h, {wrong} wrong answers"
        )
        found |= {
            f"slope{name} MB/h": used.per_hour,
            f"spread of the slope{name} MB/h": used.spread,
            f"growth seen{name}": not used.is_noise,
            f"slope of resident memory{name} MB/h": resident.per_hour,
            f"spread of the slope of resident memory{name} MB/h": resident.spread,
            f"objects{name} per h": objects.per_hour,
            f"spread of objects{name} per h": objects.spread,
            f"wrong answers{name}": wrong,
        }
    return found
