"""A runtime at rest serves in its process and in forks of that, one at work in its process alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]

BEGIN = """
import os, sys, threading, warnings
from runtime_lite import Dropped, Overloaded, Runtime
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import random_chunks
from tests.runtime_lite.serving.served import feed, gate, serve

warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads

def forked(call):
    child = os.fork()
    if child == 0:
        try:
            call()
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0

def is_refused(call):
    try:
        call()
    except Overloaded as error:
        assert error.reason == "forked at work" and "open a Runtime behind the fork" in str(error), error
    else:
        raise AssertionError("served")
"""

AT_REST = """
with Runtime(workers=2) as runtime:
    model = runtime.load(sys.argv[1])
    tickets = [model.submit(feed(seed), "plain", deadline_ms=60_000) for seed in range(4)]
    expected = [ticket.result(PATIENCE_S)["y"].tolist() for ticket in tickets]
    stream = model.open_stream("streaming", idle_s=3600)
    chunks = random_chunks(3)
    stream.push({"x": chunks[0]})
    threads = threading.active_count()
    assert threads > 1

    def go_on():
        assert threading.active_count() == 1
        tickets = [model.submit(feed(seed), "plain", deadline_ms=60_000) for seed in range(4)]
        assert [ticket.result(PATIENCE_S)["y"].tolist() for ticket in tickets] == expected
        os.write(told, stream.submit({"x": chunks[1]}).result(PATIENCE_S)["y"].tobytes())
        with model.open_stream("streaming") as other:
            other.push({"x": chunks[0]})
        assert runtime.health().healthy and runtime.request_counts.balanced
        runtime.close()

    hears, told = os.pipe()
    forked(go_on)
    assert os.read(hears, 65536) == stream.push({"x": chunks[1]})["y"].tobytes()
"""

AT_WORK = """
with serve(sys.argv[1]) as place:
    held = place.hook = gate()
    stream = place.model.open_stream("streaming")
    running = stream.submit({"x": random_chunks(1)[0]})
    assert held.inside.wait(PATIENCE_S)
    queued = place.model.submit(feed(1), "plain")
    heard = []
    running.when_done(lambda: heard.append(os.getpid()))

    def look():
        for ticket in (running, queued):
            try:
                ticket.result(PATIENCE_S)
            except Dropped as error:
                assert error.reason == "forked at work"
            else:
                raise AssertionError("answered")
        is_refused(lambda: place.model.run(feed(1), "plain"))
        is_refused(lambda: place.model.submit(feed(1), "plain"))
        is_refused(lambda: place.model.open_stream("streaming"))
        is_refused(lambda: stream.push({"x": random_chunks(1)[0]}))
        assert not heard, "those who wait are in the parent"
        balance = place.server.request_counts()
        assert balance.balanced and balance.live == 0
        place.model.close()
        place.server.close("test", [], PATIENCE_S)

    forked(look)
    held.leave.set()
    place.hook = lambda *_: None
    running.result(PATIENCE_S), queued.result(PATIENCE_S)
    assert heard == [os.getpid()]
"""

OF_MANY_THREADS = """
with Runtime(threads=2) as runtime:
    model = runtime.load(sys.argv[1])
    model.run(feed(1), "plain")
    forked(lambda: is_refused(lambda: model.run(feed(1), "plain")))
    model.run(feed(1), "plain")
"""

HELD = """
from runtime_lite.executors.executor import make_executor

class Held:
    def __init__(self, inner):
        self.inner, self.lock, self.inside, self.leave = inner, threading.Lock(), threading.Event(), threading.Event()

    def run(self, *arguments):
        with self.lock:
            self.inside.set()
            assert self.leave.wait(PATIENCE_S)
            self.inner.run(*arguments)

    def close(self):
        self.inside.set()
        with self.lock:
            self.inner.close()

def held(bundle, name, threads):
    made.append(Held(make_executor(bundle, name, threads)))
    return made[-1]

made = []
with Runtime(workers=2) as runtime:
    model = runtime.load(sys.argv[1], executors=held)
"""

RUNNING = f"""{HELD}
    ticket = model.submit(feed(1), "plain")
    assert any(each.inside.wait(PATIENCE_S) for each in made if each.inner._graph.states == ())
    forked(lambda: runtime.close(PATIENCE_S))
    for each in made:
        each.leave.set()
    ticket.result(PATIENCE_S)
"""

CLOSING = f"""{HELD}
    for each in made:
        each.lock.acquire()
    closing = threading.Thread(target=model.close)
    closing.start()
    assert made[0].inside.wait(PATIENCE_S)
    forked(lambda: runtime.close(PATIENCE_S))
    for each in made:
        each.lock.release()
    closing.join(PATIENCE_S)
"""

TELLING = """
from runtime_lite.serving.events import Observer

class Slow(Observer):
    def __init__(self):
        self.lock, self.inside, self.leave = threading.Lock(), threading.Event(), threading.Event()

    def model_changed(self, *told):
        with self.lock:
            self.inside.set()
            self.leave.wait(leave_s)

FAULT = "the process was forked while observers were told: they hear nothing here"
observer = Slow()
with Runtime(observers=[observer]) as runtime:
    for leave_s, fault in ((0.1, ""), (PATIENCE_S, FAULT)):
        observer.inside.clear(), observer.leave.clear()
        loading = threading.Thread(target=runtime.load, args=sys.argv[1:])
        loading.start()
        assert observer.inside.wait(PATIENCE_S)

        def go_on():
            assert runtime.health().observer_fault == fault, runtime.health()
            runtime.load(sys.argv[1]).run(feed(1), "plain")
            runtime.close()

        forked(go_on)
        observer.leave.set()
        loading.join(PATIENCE_S)
"""

FROM_A_THREAD = """
import signal
from runtime_lite.serving.shield import Shield

def look():
    before = signal.getsignal(signal.SIGINT)
    with Shield():
        assert signal.getsignal(signal.SIGINT) is not before, "the thread that forked is the main one here"
    assert signal.getsignal(signal.SIGINT) is before

def fork():
    forked(look)
    done.append(True)

done = []
thread = threading.Thread(target=fork)
thread.start()
thread.join(PATIENCE_S)
assert done
"""

SCRIPTS = {
    "at rest": AT_REST,
    "at work": AT_WORK,
    "of many threads": OF_MANY_THREADS,
    "while a lock of an executor is held": RUNNING,
    "while a bundle is closed": CLOSING,
    "while an observer is told": TELLING,
    "from a thread": FROM_A_THREAD,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_fork(script: str, bundle: Path) -> None:
    command = [sys.executable, "-c", BEGIN + script, str(bundle)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
