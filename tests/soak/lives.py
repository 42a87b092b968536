"""Rows 3, 13, 14, 15, 16 and 23: executors, bundles and lanes that come and go while callers are served by threads.

What is promised holds in whatever order the threads run; a wait is for an event and fails loudly.
"""

import contextlib
import itertools
import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime
import pytest

from runtime_lite import Bundle, BundleRefused, Dropped, ExecutorFailed, Model, Overloaded, Runtime, in_child
from runtime_lite.executors.executor import Executor, make_executor
from runtime_lite.format.arrays import Array
from tests.soak.adder import ROWS, fed, is_sum
from tests.soak.faulty import ALLOCATE, HANG, KILL, faulty
from tests.soak.puppet import adder, puppet
from tests.soak.row import Figures

LIMIT_S = 600.0
"""What is waited for comes within this, or something is stuck."""


def together(count: int, work: Callable[[int], object]) -> int:
    """Let `count` threads work at once; return how many have not come back, or raised."""
    well: list[int] = []

    def begin(number: int) -> None:
        work(number)
        well.append(number)

    threads = [threading.Thread(target=begin, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    return count - len(well)


def executor_faults(size: int, timed: bool) -> Figures:
    """Row 3: executors in a child that crash and lack memory `size` times, and hang if time is measured."""
    kinds = {KILL: "crash", ALLOCATE: "memory"} | ({HANG: "hang"} if timed else {})
    found: dict[str, float] = {"lost tickets": 0, "wrong answers": 0, "misnamed": 0, "changed states": 0}
    detected: dict[str, list[float]] = {name: [] for name in kinds.values()}
    ready: dict[str, list[float]] = {name: [] for name in kinds.values()}
    with Runtime(workers=2) as runtime:
        model = runtime.load(adder(), executors=in_child(faulty, limit_s=1.0 if timed else LIMIT_S), warm_up=timed)
        with model.open_stream(credits=64) as stream, model.open_stream(credits=64) as other:
            total = 0
            for number, (fault, name) in itertools.product(range(size), kinds.items()):
                begin = time.perf_counter()
                bad, beside = stream.submit(fed(fault)), other.submit(fed(1))
                found["misnamed"] += _reason(bad) != name
                detected[name].append(time.perf_counter() - begin)
                total += not _reason(
                    beside
                )  # was it in the child at the same time, it is named, too, and did not count
                begin = time.perf_counter()
                again = model.submit(fed(number))
                while _reason(again):  # so is a run that came to the child as it went
                    again = model.submit(fed(number))
                ready[name].append(time.perf_counter() - begin)
                found["wrong answers"] += not is_sum(again.result(0), number)
                found["changed states"] += stream.sequence != 0 or other.sequence != total
            other.push(fed(1))
            found["wrong answers"] += not is_sum({"y": other.state.values["past"]}, total + 1)
        found["lost tickets"] = runtime.request_counts.live + (not runtime.request_counts.balanced)
    found["wrong probes"] = _wrong_probes()
    if timed:
        for name in kinds.values():
            found[f"{name} named after ms, median"] = 1e3 * statistics.median(detected[name])
            found[f"ready again after a {name} s, most"] = max(ready[name])
    return found


def _reason(ticket: Any) -> str:
    try:
        ticket.result(LIMIT_S)
    except ExecutorFailed as error:
        return error.reason
    return ""


def _wrong_probes() -> int:
    """Probes, one per second, that call a runtime healthy though a run of it hangs; the first 5 s are its patience."""
    wrong = 0
    with puppet() as place:
        ticket = place.model.submit(fed(1))

        def probe(_: object) -> None:
            nonlocal wrong
            for second in range(1, 61):
                place.pass_ms(1000)
                wrong += place.server.health().healthy is (second > 5)

        place.hook = probe
        place.release()
        wrong += not is_sum(ticket.result(0), 1) or not place.server.health().healthy
    return wrong


def hot_swap(size: int, timed: bool) -> Figures:
    """Row 13: `size` swaps between two bundles, every third of them to a broken one, while four callers go on."""
    found: dict[str, float] = {"failed": 0, "mixed versions": 0, "broken ones taken": 0, "streams moved": 0}
    stop, begun = threading.Event(), threading.Barrier(5)
    waits: list[list[float]] = [[] for _ in range(4)]
    with TemporaryDirectory() as scratch, Runtime(workers=2) as runtime:
        broken = _broken(Path(scratch, "broken"))
        model = runtime.load(adder(1), warm_up=True)

        def call(number: int) -> None:
            stream, factor, total = model.open_stream(), 0, 0
            begun.wait(LIMIT_S)
            for count in itertools.count(1):
                before = time.perf_counter()
                got = model.run(fed(number + 1))
                waits[number].append(time.perf_counter() - before)
                found["mixed versions"] += not (is_sum(got, number + 1) or is_sum(got, 2 * number + 2))
                outputs, total = stream.push(fed(1)), total + 1
                factor = factor or int(outputs["y"][0, 0])
                found["streams moved"] += not is_sum(outputs, factor * total)
                if count % 50 == 0:
                    stream.close()
                    stream, factor, total = model.open_stream(), 0, 0
                if stop.is_set():
                    return

        callers = threading.Thread(target=lambda: found.update(failed=together(4, call)))
        callers.start()
        begun.wait(LIMIT_S)
        for at in range(size):
            if at % 3 == 2:
                found["broken ones taken"] += _is_taken(runtime, model, broken)
            else:
                runtime.swap(model, adder(1 + at % 2))
            if timed:
                time.sleep(5)
        stop.set()
        callers.join(LIMIT_S)
        found["failed"] += runtime.request_counts.submitted - runtime.request_counts.count("done") + callers.is_alive()
    if timed:
        answers = [1e3 * wait for each in waits for wait in each]
        found |= {"wait p99 ms": float(np.percentile(answers, 99)), "longest wait ms": max(answers)}
    return found


def _broken(folder: Path) -> Path:
    shutil.copytree(adder(1), folder)
    path = folder / "graphs/adder.batch4.onnx"
    path.write_bytes(path.read_bytes()[:-1])
    return folder


def _is_taken(runtime: Runtime, model: Model, path: Path) -> bool:
    try:
        runtime.swap(model, path)
    except BundleRefused:
        return False
    return True


def drains(size: int, timed: bool) -> Figures:
    """Row 14: runtimes with `size` requests and streams in them are stopped, with time to finish and without."""
    found: dict[str, float] = {"unnamed": 0, "cut off with time": 0, "taken while draining": 0}
    took = 0.0
    for limit_s in (LIMIT_S, 0.0):
        with Runtime(workers=2) as runtime:
            model = runtime.load(adder(), warm_up=True, executors=sleeping if timed else make_executor)
            streams = [model.open_stream() for _ in range(8)]
            tickets: list[Any] = [model.submit(fed(number)) for number in range(size)]
            tickets += [stream.submit_all([fed(1)] * 4, room=4) for stream in streams]
            report = runtime.drain(limit_s)
            named = set(report.dropped)
            for ticket in tickets:
                is_done = _outcome(ticket) == "done"
                found["unnamed"] += is_done is (ticket.number in named)
            found["cut off with time"] += len(named) if limit_s else 0
            found["taken while draining"] += _is_served(model.run) + _is_served(streams[0].push)
            took = max(took, report.seconds if limit_s else 0.0)
    return found | ({"took s": took} if timed else {})


def _outcome(ticket: Any) -> str:
    try:
        ticket.result(LIMIT_S)
    except Dropped:
        return "dropped"
    return "done"


def _is_served(call: Callable[[Any], object]) -> bool:
    try:
        call(fed(1))
    except Overloaded:
        return False
    return True


def loads_and_unloads(size: int, timed: bool) -> Figures:
    """Row 15: 32 threads that load, serve and unload a bundle `size` times each."""
    adder(1), adder(2)
    with Runtime(workers=2) as runtime:
        runtime.load(adder()).run(fed(1))  # what is opened once
        files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
        wrong: list[int] = []

        def work(number: int) -> None:
            for at in range(size):
                model = runtime.load(adder(1 + at % 2))
                ticket, factor = model.submit(fed(number)), 1 + at % 2
                if not is_sum(model.run(fed(number)), factor * number):
                    wrong.append(number)
                model.close()
                if ticket.outcome not in ("done", "dropped"):
                    wrong.append(number)

        stuck = together(32 if timed else 8, work)
        after = len(os.listdir("/proc/self/fd"))
        counts = runtime.request_counts
        found: dict[str, float] = {
            "deadlocks": stuck,
            "wrong answers": len(wrong),
            "handles more": after - files,
            "threads more": max(threading.active_count() - threads - 3, 0),  # two workers and the timer stay
            "live requests": counts.live + (not counts.balanced),
        }
    return found


SLEEP_S = 0.004
"""A run of a device that has its own cores, where throughput is measured."""


class Sleeping:
    """An executor whose runs take as long as those of a device beside the processor."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        time.sleep(SLEEP_S)
        self._inner.run(sizes, inputs, outputs)

    def close(self) -> None:
        self._inner.close()


class Waiting:
    """An executor whose runs end when something has happened."""

    def __init__(self, inner: Executor, happened: threading.Event) -> None:
        self._inner, self._happened = inner, happened

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        assert self._happened.wait(LIMIT_S)
        self._inner.run(sizes, inputs, outputs)

    def close(self) -> None:
        self._inner.close()


def sleeping(bundle: Bundle, name: str, threads: int) -> Executor:
    return Sleeping(make_executor(bundle, name, threads))


@contextlib.contextmanager
def counted_sessions() -> Iterator[list[str]]:
    """The sessions that are opened inside, one entry for each."""
    opened: list[str] = []
    make = onnxruntime.InferenceSession

    def count(*arguments: Any, **named: Any) -> Any:
        opened.append("session")
        return make(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnxruntime, "InferenceSession", count)
        yield opened


def resizes(size: int, timed: bool) -> Figures:
    """Row 16: lanes go from 1 to 4 and back while eight streams push `size` chunks in each part."""
    found: dict[str, float] = {}
    with Runtime(workers=1) as runtime, contextlib.ExitStack() as streams_open:
        model = runtime.load(adder(), warm_up=True, executors=sleeping if timed else make_executor)
        streams = [streams_open.enter_context(model.open_stream()) for _ in range(8)]
        wrong: list[int] = []
        part_begins = threading.Barrier(9)

        def push(number: int) -> None:
            for part in range(3):
                part_begins.wait(LIMIT_S)
                for at in range(size):
                    if not is_sum(streams[number].push(fed(1)), part * size + at + 1):
                        wrong.append(number)

        with counted_sessions() as opened:
            callers = threading.Thread(target=lambda: found.update({"lost streams": together(8, push)}))
            callers.start()
            for lanes in (1, 4, 1):
                runtime.resize(lanes)
                part_begins.wait(LIMIT_S)
            callers.join(LIMIT_S)
            found["sessions opened"] = len(opened)
        found["wrong answers"] = len(wrong)
        found["live requests"] = runtime.request_counts.live
    return found | ({"throughput of 4 lanes / 1": _throughput(4, size) / _throughput(1, size)} if timed else {})


def _throughput(lanes: int, size: int) -> float:
    """Runs of a full bucket per second, on a device beside the processor; lanes were 1 before."""
    with Runtime(workers=1) as runtime:
        model = runtime.load(adder(), warm_up=True, executors=sleeping)
        runtime.resize(lanes)
        begin = time.perf_counter()
        tickets = [model.submit(fed(1, ROWS[-1])) for _ in range(size)]
        for ticket in tickets:
            ticket.result(LIMIT_S)
        return size / (time.perf_counter() - begin)


def clock_jumps(size: int, timed: bool) -> Figures:
    """Row 23: the wall clock jumps by an hour, forward and back, while each of `size` requests and chunks runs."""
    wrong, offset, jumped = 0, 0.0, threading.Event()

    def behind_the_jump(bundle: Bundle, name: str, threads: int) -> Executor:
        return Waiting(make_executor(bundle, name, threads), jumped)

    def jump(ticket: Any, expected: int) -> bool:
        nonlocal offset
        offset += next(jumps)
        jumped.set()
        is_right = is_sum(ticket.result(LIMIT_S), expected)
        jumped.clear()
        return is_right

    far_ms = 1_800_000.0  # half an hour: no slow machine reaches it, a jump would
    jumps = itertools.cycle((3600.0, -3600.0))
    now, now_ns = time.time, time.time_ns
    with pytest.MonkeyPatch.context() as patch, Runtime() as runtime:
        patch.setattr(time, "time", lambda: now() + offset)
        patch.setattr(time, "time_ns", lambda: now_ns() + int(offset * 1e9))
        model = runtime.load(adder(), executors=behind_the_jump)
        stream = model.open_stream(idle_s=far_ms / 1000)
        for number in range(size):
            wrong += not jump(model.submit(fed(number), deadline_ms=far_ms), number)
            wrong += not jump(stream.submit(fed(1), deadline_ms=far_ms), number + 1)
        stream.close()
        counts = runtime.request_counts
    return {"false drops": counts.submitted - counts.count("done"), "wrong answers": wrong}
