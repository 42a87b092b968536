"""Callers of every kind at work in a process that then ends, is forked, or is given no more threads and descriptors.

    python -m tests.soak.at_work ends SEED FOLDER      one end of a script, with the exit code that it has by itself
    python -m tests.soak.at_work forks COUNT FOLDER    COUNT forks, whose children use what they have, or begin anew
    python -m tests.soak.at_work limits COUNT FOLDER   COUNT runtimes while the system gives no more

In the folder lies an adder bundle. The last line that `forks` and `limits` print is a JSON object of counts.
"""

import atexit
import contextlib
import ctypes
import json
import os
import random
import resource
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from runtime_lite import BULK, Cancelled, Dropped, Model, Overloaded, Runtime, in_child
from runtime_lite.executors.executor import ExecutorFactory, make_executor
from runtime_lite.serving.metrics import Metrics
from tests.soak.adder import fed, is_sum

LIMIT_S = 300.0
"""What a call waits for comes within this, or something is stuck."""

CHILD_S = 60
"""A forked child that is not done by then hangs."""


class Work:
    """A runtime, what it serves, and what its callers have noticed.

    Args:
        path: an adder bundle.

    Attributes:
        wrong: texts, one for each answer that is not right and each error without a name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = Metrics()
        self.runtime = Runtime(workers=2, observers=[self.metrics])
        self.model = self.runtime.load(path)
        self.apart: Model | None = None
        self.wrong: list[str] = []
        self.stopped = threading.Event()

    def check(self, is_right: bool, what: str) -> None:
        """Note an answer that is not right."""
        if not is_right:
            self.wrong.append(what)

    def call_until_stopped(self, kind: Callable[["Work", random.Random], None], seed: int, times: int) -> None:
        """One caller: makes calls of a kind until it is told to go, or so often; errors of ours are answers."""
        draw = random.Random(seed)
        for _ in range(times):
            if self.stopped.is_set():
                return
            try:
                kind(self, draw)
            except (Overloaded, Dropped, Cancelled):
                time.sleep(0.001)
            except Exception as error:  # noqa: BLE001 - what is counted
                self.wrong.append(f"{kind.__name__}: {type(error).__name__}: {error}")
                return


def requests(work: Work, draw: random.Random) -> None:
    """One request after the other, whose caller runs it."""
    number = draw.randrange(100)
    work.check(is_sum(work.model.run(fed(number)), number), "a request")


def queue(work: Work, draw: random.Random) -> None:
    """Many requests at once, some taken back, some with a deadline that is too near, some with somebody to tell."""
    tickets = [work.model.submit(fed(number), service=BULK) for number in range(20)]
    with contextlib.suppress(Overloaded, Dropped):
        late = work.model.submit(fed(1), deadline_ms=draw.choice((0.2, 1e5)))
        late.when_done(lambda: None)
        work.check(is_sum(late.result(LIMIT_S), 1), "a request with a deadline")
    for number, ticket in enumerate(tickets):
        if draw.random() < 0.2:
            ticket.cancel()
        else:
            work.check(is_sum(ticket.result(LIMIT_S), number), "a queued request")


def chunks(work: Work, draw: random.Random) -> None:
    """A stream chunk by chunk, and chunks that wait behind each other."""
    with work.model.open_stream(idle_s=60.0) as stream:
        for total in range(1, draw.randint(2, 9)):
            work.check(is_sum(stream.push(fed(1)), total), "a chunk")
        behind = [stream.submit(fed(1)) for _ in range(4)]
        for at, ticket in enumerate(behind):
            work.check(is_sum(ticket.result(LIMIT_S), total + at + 1), "a queued chunk")


def responses(work: Work, draw: random.Random) -> None:
    """Many chunks as one request, read to the end or left."""
    with work.model.open_stream() as stream:
        for at, outputs in enumerate(stream.submit_all([fed(1)] * 12, room=3), start=1):
            work.check(is_sum(outputs, at), "a response")
            if draw.random() < 0.05:
                return


def twins(work: Work, draw: random.Random) -> None:
    """Streams that go on from others, and from snapshots."""
    with work.model.open_stream() as stream:
        stream.push(fed(2))
        snapshot = stream.snapshot()
        with stream.fork() as other:
            work.check(is_sum(other.push(fed(1)), 3), "a forked stream")
        stream.push(fed(5))
        stream.restore(snapshot)
        work.check(is_sum(stream.push(fed(1)), 3), "a restored stream")


def loads(work: Work, draw: random.Random) -> None:
    """Bundles that come, serve and go, and those that others are swapped for."""
    model = work.runtime.load(work.path, warm_up=draw.random() < 0.5)
    try:
        work.check(is_sum(model.run(fed(7)), 7), "a request of a new model")
        work.runtime.swap(model, work.path)
        work.check(is_sum(model.run(fed(8)), 8), "a request behind a swap")
    finally:
        model.close()


def apart(work: Work, draw: random.Random) -> None:
    """Runs in a process of their own."""
    if work.apart is None:
        work.apart = work.runtime.load(work.path, executors=in_child(open_s=LIMIT_S, limit_s=LIMIT_S))
    work.check(is_sum(work.apart.run(fed(6)), 6), "a request in a child")


def looks(work: Work, draw: random.Random) -> None:
    """Health, request counts and metrics."""
    work.check(
        work.runtime.health().healthy and work.runtime.request_counts.balanced, "the request counts, or the health"
    )
    work.check(b"slipway" in work.metrics.page(), "the metrics")
    time.sleep(0.002)


KINDS = (requests, queue, chunks, responses, twins, loads, apart, looks)


def begin(work: Work, seed: int, kinds: tuple[Callable[[Work, random.Random], None], ...]) -> list[threading.Thread]:
    """Start a caller of each kind: most are daemons that never end, some are waited for by the process."""
    draw = random.Random(seed)
    threads = []
    for number, kind in enumerate(kinds):
        daemon = draw.random() < 0.7
        arguments = (kind, 1000 * seed + number, sys.maxsize if daemon else draw.randint(1, 30))
        threads.append(threading.Thread(target=work.call_until_stopped, args=arguments, daemon=daemon))
        threads[-1].start()
    return threads


# Ends


class Planned(Exception):
    """What a script raises that ends by an error of its own."""


def _falls_off(work: Work) -> None:
    """The script has nothing more to do."""


def _exits(work: Work) -> None:
    sys.exit(3)


def _raises(work: Work) -> None:
    raise Planned


def _is_told_to_go(work: Work) -> None:
    """SIGTERM comes while the main thread pushes, and its handler raises SystemExit."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    _push_under(work, signal.SIGTERM)


def _is_interrupted(work: Work) -> None:
    """Ctrl-C while the main thread pushes."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _push_under(work, signal.SIGINT)


def _push_under(work: Work, number: int) -> None:
    threading.Timer(0.02, lambda: os.kill(os.getpid(), number)).start()
    with work.model.open_stream() as stream:
        while True:
            stream.push(fed(1))


def _uses_it_at_exit(work: Work) -> None:
    """A function that runs at exit, before the runtime's own or behind it, asks it for more."""

    def ask() -> None:
        with contextlib.suppress(Overloaded):
            work.model.run(fed(1))

    atexit.register(ask)


ENDS: dict[Callable[[Work], None], tuple[int, str]] = {
    _falls_off: (0, ""),
    _exits: (3, ""),
    _raises: (1, "Planned"),
    _is_told_to_go: (5, ""),
    _is_interrupted: (-signal.SIGINT, "KeyboardInterrupt"),
    _uses_it_at_exit: (0, ""),
}
"""Ways to end a script: its exit code, and the last line that it writes to stderr."""


def end_of(seed: int) -> Callable[[Work], None]:
    """How the script of a seed ends; each way in turn."""
    return list(ENDS)[seed % len(ENDS)]


def end(seed: int, path: Path) -> None:
    """Be one script that closes nothing and ends with callers of some kinds at work."""
    draw = random.Random(seed)
    work = Work(path)
    kinds = draw.sample(KINDS, draw.randint(1, 5))
    begin(work, seed, tuple(kinds))
    time.sleep(draw.choice((0.0, 0.01, 0.1, 0.3)))
    streams = [work.model.open_stream(idle_s=60.0) for _ in range(4)]
    left = [stream.submit(fed(1), deadline_ms=1e5) for stream in streams for _ in range(4)]
    left += [work.model.submit(fed(1), service=BULK) for _ in range(100)]
    print("\n".join(["end", *work.wrong]), flush=True)
    end_of(seed)(work)


# Forks


def _fresh(work: Work) -> None:
    """A runtime that is opened behind the fork: the cure that a refusal names."""
    with Runtime() as runtime:
        work.check(is_sum(runtime.load(work.path).run(fed(4)), 4), "a request of a runtime of its own")


def _queued(work: Work) -> None:
    work.check(is_sum(work.model.submit(fed(5)).result(LIMIT_S), 5), "a queued request")


FIRST: tuple[Callable[[Work, random.Random], None], ...] = (
    requests,
    lambda work, draw: _queued(work),
    chunks,
    responses,
    twins,
    loads,
    apart,
    looks,
)
"""What a child does first with the runtime that it was born with."""


def forks(count: int, path: Path) -> dict[str, int]:
    """Fork so often while callers of every kind are at work; every third time for a runtime of the child's own."""
    warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
    work, found = Work(path), Counter[str]()
    apart(work, random.Random(0))
    own = work.model.open_stream()
    threads = begin(work, 1, tuple(kind for kind in KINDS for _ in range(2)))
    draw = random.Random(2)
    for number in range(count):
        time.sleep(draw.uniform(0, 0.01))
        own.push(fed(1))
        child = os.fork()
        if child == 0:
            _child(work, own, number)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found[CODES.get(code, "ended by a signal")] += 1
    work.stopped.set()
    for thread in threads:
        thread.join(LIMIT_S)
    work.check(is_sum(own.push(fed(1)), count + 1), "the stream of the parent")
    work.check(
        work.runtime.request_counts.balanced and not work.runtime.request_counts.live,
        "the request counts of the parent",
    )
    work.runtime.close()
    found["wrong answers"] += len(work.wrong)
    print(*work.wrong, sep="\n", end="", file=sys.stderr)
    return dict(found)


CODES = {0: "served", 10: "refused by name", 11: "wrong answers", 12: "of another name", -signal.SIGALRM: "hung"}
"""What the exit code of a child says."""


def _child(work: Work, own: Any, number: int) -> None:
    """In a fork: use one thing, close the runtime, and go; what nobody answers ends it by an alarm."""
    signal.alarm(CHILD_S)
    work.wrong.clear()
    code = 0
    try:
        try:
            if number % 3 == 0:
                _fresh(work)
            elif number % 3 == 1:
                FIRST[number // 3 % len(FIRST)](work, random.Random(number))
            else:
                work.check(is_sum(own.push(fed(1)), number + 2), "the stream that was open")
        except (Overloaded, Dropped) as error:
            code = 10 if error.reason == "forked at work" and number % 3 else 12
        work.runtime.close(CHILD_S)
        if work.wrong:
            code = 11
    except BaseException as error:  # noqa: BLE001 - told by the exit code
        work.wrong.append(f"{type(error).__name__}: {error}")
        code = 12
    if code > 10:
        print(f"fork {number}:", *work.wrong, file=sys.stderr, flush=True)
    os._exit(code)


# Limits

_CAPABILITIES = (21, 24)
"""CAP_SYS_ADMIN and CAP_SYS_RESOURCE: who has one is given threads beyond every limit."""


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def become_limited() -> None:
    """Have this process counted for itself, and refused what its limits say, be it root or not."""
    if os.geteuid():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in _CAPABILITIES:
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP: for the programs that it starts
    os.setresuid(1_000_000 + os.getpid(), 0, 0)
    header, sets = _Header(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc.capget(ctypes.byref(header), sets)
    for at in (0, 1):
        sets[at] &= ~sum(1 << capability for capability in _CAPABILITIES) & 0xFFFFFFFF
    assert libc.capset(ctypes.byref(header), sets) == 0, os.strerror(ctypes.get_errno())


@contextlib.contextmanager
def no_more(kind: int) -> Iterator[None]:
    """The system gives no more threads and processes, or no more descriptors."""
    soft, hard = resource.getrlimit(kind)
    least = 1 if kind == resource.RLIMIT_NPROC else _first_free()
    resource.setrlimit(kind, (least, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def _first_free() -> int:
    """The lowest number of a descriptor that is free: with this as the limit, none can be opened."""
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    return free


def limits(count: int, path: Path) -> dict[str, int]:
    """Make calls of a kind in each of `count` runtimes, new ones and such that have served, while there is no more."""
    become_limited()
    found: Counter[str] = Counter()
    fresh: ExecutorFactory = in_child(make_executor, open_s=LIMIT_S, limit_s=LIMIT_S)
    with Runtime() as runtime:
        runtime.load(path).run(fed(1))  # what is opened once
        runtime.load(path, executors=fresh).run(fed(1))
    before = _held()
    for number in range(count):
        limit = (resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE)[number % 2]
        kind, has_served = KINDS[(1 + number // 2) % len(KINDS)], number // (2 * len(KINDS)) % 2
        work = Work(path)
        draw = random.Random(number)
        if has_served:
            kind(work, draw)
        with no_more(limit):
            for _ in range(3):
                found[_outcome(work, kind, draw)] += 1
        found["not served again"] += _outcome(work, kind, draw) != "served"
        counts = work.runtime.request_counts
        found["lost"] += counts.live + (not counts.balanced)
        with no_more(limit):
            work.runtime.close(LIMIT_S)
        found["wrong answers"] += len(work.wrong)
        print(*(f"{kind.__name__}: {text}" for text in work.wrong), sep="\n", end="", file=sys.stderr)
    files, threads = (after - earlier for after, earlier in zip(_held(), before, strict=True))
    return dict(found) | {"files more": files, "threads more": threads}


def _held() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def _outcome(work: Work, kind: Callable[[Work, random.Random], object], draw: random.Random) -> str:
    try:
        kind(work, draw)
    except Exception as error:  # noqa: BLE001 - what is counted
        if getattr(error, "reason", "") == "limit" or "raise the limit" in str(error):
            return "refused by name"
        print(f"{kind.__name__}: {type(error).__name__}: {error}", file=sys.stderr)
        return "without a name"
    return "served"


def main() -> None:
    """Do what is asked for."""
    what, count, path = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    if what == "ends":
        end(count, path)
    else:
        print(json.dumps({"forks": forks, "limits": limits}[what](count, path)))


if __name__ == "__main__":
    main()
