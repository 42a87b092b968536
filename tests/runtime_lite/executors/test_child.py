"""An executor in a process of its own: whatever happens there is an error of one run, and nothing stays behind."""

import contextlib
import errno
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import (
    BadInput,
    BundleRefused,
    EngineAbsent,
    ExecutorFailed,
    InternalError,
    Model,
    Runtime,
    in_child,
)
from runtime_lite.format.arrays import Array
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import (
    edit_manifest,
    onnx_bytes,
    random_chunks,
    replace_graph,
    truth_of_plain,
    truth_of_stream,
    write_plain_bundle,
    write_streaming_bundle,
)
from tests.runtime_lite.executors import faulty
from tests.runtime_lite.executors.fresh_outputs import run_fresh

ROOT = Path(__file__).resolve().parents[3]


def feed(what: float = faulty.WELL, rows: int = 1) -> dict[str, Array]:
    return {"x": np.full((rows, 2, 2), what, np.float32), "shift": np.arange(rows)}


def children(pid: int) -> set[int]:
    """Processes that a process has started and not yet reaped."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for text in lists for child in text.read_text().split()}


def wait_until(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


def shared_memory(pid: int) -> set[str]:
    """Files of shared memory that a process has a name for; those of other processes are none of ours."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    named = {line.split(maxsplit=5)[-1] for line in lines if "/dev/shm/" in line}
    return named | {str(file) for file in Path(f"/proc/{pid}/fd").iterdir() if "/dev/shm/" in os.path.realpath(file)}


def open_files() -> int:
    gc.collect()  # what earlier failures still hold
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_plain_bundle(tmp_path_factory.mktemp("child") / "bundle")


@pytest.fixture(scope="module")
def shared(path: Path) -> Iterator[Model]:
    """One model for tests of single runs, each of which leaves it as it was."""
    with Runtime() as runtime:
        model = runtime.load(path, executors=in_child(faulty.faulty, limit_s=PATIENCE_S))
        model.run(feed())
        yield model


def check_well(model: Model) -> None:
    for rows in (1, 3):
        given = feed(rows=rows)
        np.testing.assert_allclose(model.run(given)["y"], truth_of_plain(given["x"], given["shift"]), atol=1e-6)


def test_results_are_those_of_this_process(path: Path) -> None:
    with Runtime() as runtime:
        here, there = runtime.load(path), runtime.load(path, executors=in_child())
        x = np.random.default_rng(0).standard_normal((3, 2, 2)).astype(np.float32)
        for rows in (1, 2, 3, 1):
            given: dict[str, Array] = {"x": x[:rows], "shift": np.arange(rows)}
            np.testing.assert_array_equal(there.run(given)["y"], here.run(given)["y"])


def test_results_belong_to_the_caller(shared: Model) -> None:
    first = shared.run(feed())["y"]
    kept = first.copy()
    shared.run(feed(7.0 + faulty.WRONG_SHAPE))
    np.testing.assert_array_equal(first, kept)
    first[:] = 0.0


@pytest.mark.parametrize(
    ("what", "reason", "message"),
    [
        (faulty.KILL, "crash", "got a process ended by SIGKILL; nothing has changed, run it again"),
        (faulty.HANG, "hang", "got no answer within 1 s"),
        (faulty.DEAF_HANG, "hang", "got no answer within 1 s"),
        (faulty.ALLOCATE, "memory", "got too little memory"),
        (faulty.LEAVE, "crash", "got a run that ended without an answer"),
    ],
)
def test_a_failed_run_is_named_and_the_next_one_is_served(
    shared: Model, what: float, reason: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_well(shared)
    with monkeypatch.context() as limited:
        if reason == "hang":  # only here: on a busy machine any other run may take as long
            limited.setattr(shared.runner().executor, "_limit_s", 1.0)
        with pytest.raises(ExecutorFailed, match=message) as caught:
            shared.run(feed(what))
    assert caught.value.reason == reason
    check_well(shared)


def test_errors_of_the_executor_cross_as_what_they_are(shared: Model) -> None:
    with pytest.raises(InternalError, match="ZeroDivisionError: 'by zero'"):
        shared.run(feed(faulty.RAISE))
    with pytest.raises(InternalError, match="could not broadcast"):
        shared.run(feed(faulty.WRONG_SHAPE))
    check_well(shared)


HUGE = """
<ir_version: 10, opset_import: ["" : 20]>
plain (float[1,2,2] x, int64[1] shift) => (float[1,2,2] y)
<float[2,2] weight = {0, 0, 0, 0}, int64[4] shape = {20000, 20000, 2, 2}, int64[2] axes = {0, 1}>
{
    huge = Expand(x, shape)
    most = ReduceMax<keepdims = 0>(huge, axes)
    added = Add(x, most)
    y = Add(added, weight)
}
"""


def test_a_backend_that_lacks_memory_is_named(tmp_path: Path) -> None:
    bundle = write_plain_bundle(tmp_path / "b")
    replace_graph(bundle, "graphs/plain.batch1.frames2.onnx", onnx_bytes(HUGE))
    with Runtime() as runtime:
        model = runtime.load(bundle, executors=in_child(faulty.scarce))
        with pytest.raises(ExecutorFailed, match="got too little memory") as caught:
            model.run(feed())
        assert caught.value.reason == "memory"
        assert model.run(feed(rows=3))["y"].shape == (3, 2, 2)


def test_a_stream_goes_on_from_the_last_push_that_returned(tmp_path: Path) -> None:
    chunks = random_chunks(4)
    wanted = [output for output, _ in truth_of_stream(chunks)]
    with Runtime() as runtime:
        model = runtime.load(write_streaming_bundle(tmp_path / "b"), executors=in_child(faulty.faulty))
        with model.open_stream() as stream:
            for number, (chunk, output) in enumerate(zip(chunks, wanted, strict=True)):
                if number % 2:
                    with pytest.raises(ExecutorFailed):
                        stream.push({"x": np.full_like(chunk, faulty.KILL)})
                np.testing.assert_allclose(stream.push({"x": chunk})["y"], output, atol=1e-5)


def run_alone(model: Model, what: float) -> Array:
    """A run of its own, past the queue: two of them lie beside each other."""
    runner = model.runner()
    return run_fresh(runner.executor, runner.graph, {"batch": 1, "frames": 2}, feed(what))["y"]


def test_runs_of_two_threads_are_in_the_child_at_once(path: Path) -> None:
    answers: list[Array] = []
    with Runtime() as runtime:
        model = runtime.load(path, executors=in_child(faulty.faulty, limit_s=PATIENCE_S))
        threads = [threading.Thread(target=lambda: answers.append(run_alone(model, faulty.MEET))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    np.testing.assert_array_equal(answers[0], answers[1])


def test_what_ends_the_child_is_told_to_the_run_beside_it(path: Path) -> None:
    told: list[ExecutorFailed] = []
    with Runtime() as runtime:
        model = runtime.load(path, executors=in_child(faulty.faulty, limit_s=PATIENCE_S))

        def hang() -> None:
            try:
                run_alone(model, faulty.MEET_AND_HANG)
            except ExecutorFailed as error:
                told.append(error)

        beside = threading.Thread(target=hang)
        beside.start()
        with pytest.raises(ExecutorFailed, match="SIGKILL"):
            run_alone(model, faulty.MEET_AND_KILL)
        beside.join(PATIENCE_S)
        assert [error.reason for error in told] == ["crash"]
        check_well(model)


def test_kill_from_outside_is_seen_while_a_run_waits_and_while_none_does(path: Path) -> None:
    before = children(os.getpid())
    with Runtime() as runtime:
        model = runtime.load(path, executors=in_child(faulty.faulty))
        for waits in (False, True):
            check_well(model)
            (child,) = children(os.getpid()) - before
            killer = threading.Timer(0.2 if waits else 0.0, os.kill, (child, signal.SIGKILL))
            killer.start()
            if not waits:
                killer.join()
            with pytest.raises(ExecutorFailed, match="SIGKILL"):
                model.run(feed(faulty.HANG if waits else faulty.WELL))
            killer.join()
        check_well(model)


def test_closing_leaves_no_process_no_file_and_no_shared_memory(path: Path) -> None:
    def cycle() -> None:
        with Runtime() as runtime:
            model = runtime.load(path, executors=in_child(faulty.faulty))
            check_well(model)
            assert set().union(*map(shared_memory, {os.getpid(), *children(os.getpid()) - others})) == set()
            with pytest.raises(ExecutorFailed):
                model.run(feed(faulty.KILL))
            check_well(model)

    others = children(os.getpid())
    cycle()
    before = children(os.getpid()), open_files()
    cycle()
    assert (children(os.getpid()), open_files()) == before


PARENT = """
import sys, threading, time
from pathlib import Path
from typing import Any
from runtime_lite import Runtime, in_child
from tests.runtime_lite.executors import faulty
from tests.runtime_lite.executors.test_child import feed

runtime = Runtime()
model = runtime.load(sys.argv[1], executors=in_child(faulty.faulty))
model.run(feed())
for what in sys.argv[2:]:
    threading.Thread(target=model.run, args=(feed(float(what)),), daemon=True).start()
time.sleep(0.3)
print("runs", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("what", [(), (faulty.HANG, faulty.DEAF_HANG)], ids=["idle", "hanging"])
def test_a_child_ends_with_its_parent(path: Path, what: tuple[float, ...]) -> None:
    command = [sys.executable, "-c", PARENT, str(path), *map(str, what)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"runs\n"
        (child,) = children(parent.pid)
        assert shared_memory(parent.pid) | shared_memory(child) == set()
        parent.kill()
    assert wait_until(lambda: not Path(f"/proc/{child}").exists() or _is_zombie(child))


def _is_zombie(pid: int) -> bool:
    """Whether it has ended, and only waits for somebody to ask how."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


FORKING = """
import os, sys, warnings
from runtime_lite import ExecutorFailed, Runtime, in_child
from tests.runtime_lite.executors import faulty
from tests.runtime_lite.executors.test_child import feed

warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
runtime = Runtime()
model = runtime.load(sys.argv[1], executors=in_child(faulty.faulty))
model.run(feed())
fork = os.fork()
if fork == 0:
    try:
        model.run(feed())
        print("answered in a fork", flush=True)
    except ExecutorFailed as error:
        print(error, flush=True)
    runtime.close()
    os.read(os.pipe()[0], 1)  # lives on
print("forked", fork, flush=True)
sys.stdin.read(1)
model.run(feed())
print("served", flush=True)
sys.stdin.read(1)
os._exit(0)
"""


def test_a_fork_leaves_the_child_alone_and_does_not_keep_it_alive(path: Path) -> None:
    command = [sys.executable, "-c", FORKING, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        told = [parent.stdout.readline().decode() for _ in range(2)]
        fork = int(next(line for line in told if line.startswith("forked ")).removeprefix("forked "))
        try:
            assert "answered in a fork\n" in told, "by a process of its own"
            (child,) = [pid for pid in children(parent.pid) if "child_main" in _command_of(pid)]
            parent.stdin.write(b".")
            parent.stdin.flush()
            assert parent.stdout.readline() == b"served\n"
            parent.kill()
            assert wait_until(lambda: _is_zombie(child)), "the fork, which lives on, keeps it alive"
        finally:
            os.kill(fork, signal.SIGKILL)


def _command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_an_executor_that_is_not_made_is_refused_when_it_is_loaded(path: Path) -> None:
    before = children(os.getpid()), open_files()
    with Runtime() as runtime:
        with pytest.raises(EngineAbsent, match="the abacus has no beads"):
            runtime.load(path, executors=in_child(faulty.absent))
        with pytest.raises(ExecutorFailed, match="a process ended by SIGSEGV"):
            runtime.load(path, executors=in_child(faulty.dead_at_birth))
        with pytest.raises(ExecutorFailed, match=r"none within 0\.5 s") as caught:
            runtime.load(path, executors=in_child(faulty.late, open_s=0.5))
        assert caught.value.reason == "hang"
    assert (children(os.getpid()), open_files()) == before


def test_a_new_child_runs_the_bundle_that_was_loaded_or_none(tmp_path: Path) -> None:
    bundle = write_plain_bundle(tmp_path / "b")
    with Runtime() as runtime:
        model = runtime.load(bundle, executors=in_child(faulty.faulty))
        edit_manifest(bundle, lambda plain: plain.update(name="other"))
        with pytest.raises(ExecutorFailed):
            model.run(feed(faulty.KILL))
        for _ in range(2):
            with pytest.raises(BundleRefused, match="got another one at its place"):
                model.run(feed())


def test_a_closed_executor_runs_nothing(path: Path) -> None:
    with Runtime() as runtime:
        model = runtime.load(path, executors=in_child(faulty.faulty))
        executor = model.runner().executor
        executor.close()
        with pytest.raises(ExecutorFailed, match="got a closed one"):
            run_fresh(executor, model.runner().graph, {"batch": 1, "frames": 2}, feed())


def test_what_a_child_cannot_import_is_refused() -> None:
    with pytest.raises(BadInput, match="a function at the top of a module"):
        in_child(lambda bundle, name, threads: faulty.faulty(bundle, name, threads))
    for limit in (0, -1.0, float("nan"), float("inf"), True, "1"):
        with pytest.raises(BadInput, match="limit_s as positive seconds"):
            in_child(limit_s=limit)  # type: ignore[arg-type]  # a caller without types


@pytest.mark.parametrize("call", ["socketpair", "memfd_create", "Popen"])
@pytest.mark.slow
def test_without_descriptors_or_processes_a_run_is_refused_by_name_and_the_next_one_runs(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    before = children(os.getpid()), open_files()

    def denied(*arguments: object, **options: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    def run() -> None:
        model.run(feed())

    with Runtime() as runtime:
        model = runtime.load(path, executors=in_child(faulty.faulty))
        run()
        (child,) = children(os.getpid()) - before[0]
        os.kill(child, signal.SIGKILL)
        owner: Any = {"socketpair": socket, "memfd_create": os, "Popen": subprocess}[call]
        with monkeypatch.context() as limited:
            limited.setattr(owner, call, denied)
            for _ in range(3):
                with pytest.raises(ExecutorFailed) as caught:
                    run()
        assert caught.value.reason == "limit"
        assert "got none, as the system gives no more: Too many open files" in str(caught.value)
        run()
    assert (children(os.getpid()), open_files()) == before


def test_a_time_out_of_the_callers_own_ends_his_wait_and_not_the_process(path: Path) -> None:
    """Alarms raise TimeoutError, too: that is no run that hangs."""

    def ring(number: int, frame: object) -> None:
        raise TimeoutError("mine")

    others, before = children(os.getpid()), signal.signal(signal.SIGALRM, ring)
    try:
        with Runtime() as runtime:
            model = runtime.load(path, executors=in_child(faulty.faulty, limit_s=PATIENCE_S))
            model.run(feed())
            (child,) = children(os.getpid()) - others
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(TimeoutError, match="mine"):
                model.run(feed(faulty.HANG))
            assert child in children(os.getpid())
            assert runtime.request_counts.count("failed") == 0
    finally:
        signal.signal(signal.SIGALRM, before)
