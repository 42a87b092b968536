"""Streams on a real Ray Serve: replicas are killed, stopped, added, removed and replaced, and every answer is compared.

Runs in the environment of Ray, which has numpy, a backend and runtime_lite alone:

python -m tests.runtime_lite.hosting.real_ray APPLICATION TRUTH.npz OUT.json WHO

APPLICATION is a folder that `write_application` has written, with `snapshot_every` as its name says. WHO is `ours`, for
that application; `rule`, for its replicas behind Ray's own router without a gateway; or `naive`, for an application
that keeps states by session behind Ray's router by session.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from runtime_lite import RuntimeLiteError, StreamLost
from runtime_lite.format.arrays import Array
from runtime_lite.hosting.ray_replica import RayOptions
from tests.runtime_lite.hosting import naive_sessions

PATIENCE_S = 120.0
CPUS = 2


def same(got: Array, expected: Array) -> bool:
    """Whether answers are equal but for the rounding of another bucket."""
    return bool(np.allclose(got, expected, rtol=1e-6, atol=2e-6))


class Streams:
    """Streams that push the same chunks as those whose answers are known."""

    def __init__(self, chunks: Array, truth: Array, opened: Callable[[int], Any], push: Callable[..., Any]) -> None:
        self._chunks, self._truth, self._opened, self._push = chunks, truth, opened, push
        self.addresses: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        self.right = self.wrong = self.lost = self.refused = self.unnamed = self.silently_restarted = 0
        self.losses: list[int | None] = []

    def open(self, count: int) -> None:
        """Open further streams."""
        for index in range(len(self.addresses), len(self.addresses) + count):
            self.addresses[index], self.numbers[index] = self._opened(index), 0

    def round(self, times: int = 1) -> float:
        """Push the next chunk of every stream at one time; return the longest that an answer took, in seconds."""
        longest = 0.0
        for _ in range(times):
            begin = time.monotonic()
            calls = {index: self._sent(index) for index in self.numbers}
            for index, call in calls.items():
                self._answered(index, call)
            longest = max(longest, time.monotonic() - begin)
        return longest

    def _sent(self, index: int) -> Any:
        number = self.numbers[index]
        return self._push(self.addresses[index], number, self._chunks[index % len(self._chunks), number])

    def _answered(self, index: int, call: Any) -> None:
        number = self.numbers[index]
        try:
            got = call.result(timeout_s=PATIENCE_S)
        except StreamLost as error:
            self.lost += 1
            self.losses.append(error.last_counted)
            del self.numbers[index]
        except RuntimeLiteError as error:
            self.refused += 1
            print(f"  {type(error).__name__}: {str(error).strip().splitlines()[-1]}", flush=True)
        except Exception as error:  # noqa: BLE001 - what a server says that has no word for it
            print(f"  {type(error).__name__}", flush=True)
            self.unnamed += 1
            del self.numbers[index]
        else:
            is_right = same(got, self._truth[index % len(self._truth), number])
            self.right, self.wrong = self.right + is_right, self.wrong + (not is_right)
            if is_right:
                self.numbers[index] = number + 1
            else:
                del self.numbers[index]

    def counts(self) -> dict[str, Any]:
        """What came of all chunks."""
        return {
            "streams": len(self.addresses),
            "right": self.right,
            "wrong": self.wrong,
            "lost": self.lost,
            "lost_without_number": sum(last is None for last in self.losses),
            "refused": self.refused,
            "unnamed": self.unnamed,
        }


def processes(application: str) -> list[int]:
    """Return the processes of the replicas of an application of this driver."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                if folder.joinpath("cmdline").read_bytes().startswith(f"ray::ServeReplica:{application}".encode()):
                    found.append(int(folder.name))
    return sorted(found)


def wait_for(holds: Callable[[], bool], what: str) -> float:
    """Wait until something holds; return the seconds that it took."""
    begin = time.monotonic()
    while not holds():
        assert time.monotonic() - begin < PATIENCE_S, what
        time.sleep(0.1)
    return time.monotonic() - begin


def events(streams: Streams, replicas: str, scale: Callable[[int], None]) -> Iterator[tuple[str, float]]:
    """Do what happens to servers, between rounds of chunks; yield the names and the longest wait for an answer."""
    streams.open(24)
    yield "steady", streams.round(4)
    before = processes(replicas)
    os.kill(before[0], signal.SIGKILL)
    yield "kill -9", streams.round(3)
    wait_for(lambda: len(processes(replicas)) >= 2, "a killed replica is replaced")
    time.sleep(3.0)
    yield "its replacement", streams.round(3)
    mute = processes(replicas)[0]
    os.kill(mute, signal.SIGSTOP)
    longest = streams.round(1)
    with contextlib.suppress(ProcessLookupError):  # Ray may have killed it for its silence
        os.kill(mute, signal.SIGCONT)
    yield "SIGSTOP", longest
    yield "SIGCONT", streams.round(3)
    streams.open(24 - len(streams.numbers))  # in place of those that were lost
    for count in (3, 2):
        scale(count)
        yield f"scale to {count}", streams.round(3)


def main(folder: str, truth_file: str, out: str, who: str) -> None:
    """Start Ray, run the events and write what came of them."""
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, str(Path(__file__).parents[3])])
    import ray
    from ray import serve

    known = np.load(truth_file)
    name = f"{who}{os.getpid()}"
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ray") as scratch:
        ray.init(
            num_cpus=CPUS,
            include_dashboard=False,
            _temp_dir=scratch,
            log_to_driver=False,
            logging_level="error",
            object_store_memory=200 * 2**20,
        )
        try:
            found = RUNS[who](serve, name, folder, known["chunks"], known["truth"])
        finally:
            serve.shutdown()
            ray.shutdown()
    Path(out).write_text(json.dumps(found, indent=1), encoding="utf-8")


def run_ours(serve: Any, name: str, folder: str, chunks: Array, truth: Array) -> dict[str, Any]:
    """The application as it is written: pinned streams, and as many replicas as streams need."""
    application = importlib.import_module("app").app
    serve.run(application, name=name, route_prefix="/")
    gateway = serve.get_deployment_handle("Gateway", name)
    extra: list[Any] = []

    def push(address: Any, number: int, chunk: Array) -> Any:
        call = gateway.push.remote(address[0], address[1], number, {"x": chunk})
        return Named(call, lambda outputs: outputs["y"])

    def scale(count: int) -> None:
        """Let so many streams come, or go, that there are more or fewer replicas."""
        if count == 3:
            extra.extend(gateway.open.remote().result() for _ in range(16))
        else:
            for address in extra:
                gateway.close.remote(address[0], address[1]).result()
        wait_for(lambda: len(processes(f"{name}:Streams")) == count, f"{count} replicas")
        time.sleep(2.0)

    streams = Streams(chunks, truth, lambda index: gateway.open.remote().result(), push)
    found: dict[str, Any] = {"events": {}}
    for event, longest in events(streams, f"{name}:Streams", scale):
        found["events"][event] = round(longest, 3)
        print(f"  {event}: {longest:.2f} s, {streams.counts()}", flush=True)
    before = processes(f"{name}:Streams")
    serve.run(_changed(folder), name=name, route_prefix="/")
    wait_for(lambda: not set(before) & set(processes(f"{name}:Streams")), "all replicas are replaced")
    found["events"]["redeploy"] = round(streams.round(3), 3)
    print(f"  redeploy: {streams.counts()}", flush=True)
    found["repeated"] = _repeated(gateway, chunks[-1], truth[-1])
    found["counts"] = streams.counts()
    ledger = gateway.counts.remote().result()
    found["ledger"] = ledger._asdict()
    found["balanced"] = ledger.opened == ledger.closed + ledger.lost + ledger.idle + ledger.live
    [crashed] = processes(f"{name}:Gateway")
    os.kill(crashed, signal.SIGKILL)
    wait_for(lambda: processes(f"{name}:Gateway") not in ([], [crashed]), "the gateway is replaced")
    time.sleep(5.0)
    streams.round(2)
    found["after_a_crash_of_the_gateway"] = streams.counts()
    found["latency"] = _latencies(gateway, folder, chunks)
    return found


def _changed(folder: str) -> Any:
    """Return the application with a place more at each replica, so that Ray replaces all of them."""
    from runtime_lite.hosting.ray_application import application

    options: RayOptions = importlib.import_module("app").OPTIONS
    return application(Path(folder, "bundle"), dataclasses.replace(options, max_streams=options.max_streams + 1))


def _repeated(gateway: Any, chunks: Array, truth: Array) -> dict[str, Any]:
    """Chunks sent twelve times at once, swapped and missing: each counts once, or is refused with the number."""
    stream, generation, _ = gateway.open.remote().result()

    def push(number: int, chunk: Array) -> Any:
        return gateway.push.remote(stream, generation, number, {"x": chunk})

    answers = [push(0, chunks[0]) for _ in range(12)]
    right = sum(same(each.result()["y"], truth[0]) for each in answers)
    refused = 0
    for number in (2, 7, 10**9, -1):
        try:
            push(number, chunks[1]).result()
        except RuntimeLiteError as error:
            refused += "expected chunk 1 of the stream" in str(error)
    younger = gateway.resume.remote(stream, generation).result()
    heard_old = 0
    try:
        push(1, chunks[1]).result()
    except StreamLost:
        heard_old = 1
    return {"answered_alike": right, "refused_with_the_number": refused, "resumed_at": younger[2], "fenced": heard_old}


def _latencies(gateway: Any, folder: str, chunks: Array) -> dict[str, float]:
    """Medians in ms of one call after the other, in turns: in this process, and through the application."""
    from runtime_lite import Runtime

    times: dict[str, list[float]] = {"direct": [], "ray": []}
    with Runtime() as runtime, runtime.load(Path(folder, "bundle")).open_stream() as stream:
        address = gateway.open.remote().result()
        for number in range(220):
            feeds = {"x": chunks[0, number % len(chunks[0])]}
            begin = time.perf_counter()
            stream.push(feeds)
            between = time.perf_counter()
            gateway.push.remote(address[0], address[1], number, feeds).result()
            times["direct"].append(between - begin)
            times["ray"].append(time.perf_counter() - between)
    return {who: round(float(np.median(each[20:])) * 1e3, 3) for who, each in times.items()} | {
        "ray p99": round(float(np.percentile(times["ray"][20:], 99)) * 1e3, 3)
    }


class Named:
    """A call whose answer is a part of what comes back."""

    def __init__(self, call: Any, part: Callable[[Any], Any]) -> None:
        self._call, self._part = call, part

    def result(self, timeout_s: float) -> Any:
        """Wait for it."""
        return self._part(self._call.result(timeout_s=timeout_s))


def run_rule(serve: Any, name: str, folder: str, chunks: Array, truth: Array) -> dict[str, Any]:
    """Our replicas behind Ray's own router: a chunk that reaches the wrong one is refused, and nothing else."""
    serve.run(naive_sessions.unpinned(serve, Path(folder, "bundle"), RayOptions()), name=name, route_prefix=None)
    handle = serve.get_deployment_handle("Unpinned", name)
    right = wrong = lost = 0
    for index in range(12):
        handle.place.remote(f"s{index}", 1, b"", 1).result()
        number = 0
        for _ in range(12):  # a chunk that was refused is sent again, and reaches either replica
            try:
                got = handle.push.remote(f"s{index}", 1, number, {"x": chunks[index, number]}).result()[0]["y"]
            except StreamLost:
                lost += 1
                continue
            right, wrong = right + same(got, truth[index, number]), wrong + (not same(got, truth[index, number]))
            number += 1
    return {"counts": {"right": right, "wrong": wrong, "lost": lost}}


def run_naive(serve: Any, name: str, folder: str, chunks: Array, truth: Array) -> dict[str, Any]:
    """States by session in the replicas, Ray's router by session, and the events of `run_ours`."""
    bundle = Path(folder, "bundle")
    naive_sessions.scale(serve, name, bundle, 2)
    handle = serve.get_deployment_handle("Naive", name)

    def push(session: str, number: int, chunk: Array) -> Any:
        return handle.options(session_id=session).push.remote(session, chunk)

    def scale(count: int) -> None:
        naive_sessions.scale(serve, name, bundle, count)
        wait_for(lambda: len(processes(f"{name}:Naive")) == count, f"{count} replicas")
        time.sleep(2.0)

    streams = Streams(chunks, truth, lambda index: f"session {index}", push)
    happened = {}
    for event, longest in events(streams, f"{name}:Naive", scale):
        happened[event] = {"longest_s": longest, "silently_wrong": streams.wrong, "unnamed": streams.unnamed}
        for index in range(len(streams.addresses)):  # who was answered wrongly begins again, to count what comes next
            if index not in streams.numbers:
                streams.addresses[index], streams.numbers[index] = f"{streams.addresses[index]}+", 0
    return {"events": happened, "counts": streams.counts()}


RUNS = {"ours": run_ours, "rule": run_rule, "naive": run_naive}

if __name__ == "__main__":
    main(*sys.argv[1:])
