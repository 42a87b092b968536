"""Handlers wait for sections of the main thread, are called in windows, and never twice or not at all."""

import contextlib
import gc
import random
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from runtime_lite import Runtime
from runtime_lite.serving.shield import Shield, Window, close_window, shielded
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import random_chunks, write_double_bundle, write_streaming_bundle
from tests.runtime_lite.serving.served import feed, in_thread, serve, wait_until


class Alarm(Exception):
    """What the handler of a test raises."""


@pytest.fixture
def calls() -> Iterator[list[int]]:
    """Numbers of the signals whose handler was called, which raises each time."""
    called: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        called.append(number)
        raise Alarm(number)

    before = {number: signal.signal(number, handler) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    yield called
    for number, old in before.items():
        assert signal.signal(number, old) is handler


def test_what_a_handler_raises_is_freed_without_a_collector(calls: list[int]) -> None:
    class Held:
        """What a frame of the caller holds."""

    def section() -> None:
        held = Held()
        seen.append(weakref.ref(held))
        with Shield():
            body([], signal.SIGUSR1)

    seen: list[weakref.ref[Held]] = []
    gc.disable()
    try:
        with contextlib.suppress(Alarm):
            section()
        assert seen[0]() is None
    finally:
        gc.enable()


def body(steps: list[str], *numbers: int) -> None:
    """Steps with signals between them."""
    for number in numbers:
        steps.append("before")
        signal.raise_signal(number)
        steps.append("behind")


def test_a_handler_waits_for_the_end_of_a_section(calls: list[int]) -> None:
    steps: list[str] = []

    @shielded
    def section() -> None:
        with Shield():
            body(steps, signal.SIGUSR1)
        steps.append("outer")
        assert calls == []

    with pytest.raises(Alarm):
        section()
    assert (steps, calls) == (["before", "behind", "outer"], [signal.SIGUSR1])


def test_several_signals_are_all_handled_and_the_first_is_raised(calls: list[int]) -> None:
    with pytest.raises(Alarm, match=str(int(signal.SIGUSR2))), Shield():
        body([], signal.SIGUSR2, signal.SIGUSR1)
    assert calls == [signal.SIGUSR2, signal.SIGUSR1]


def test_what_a_section_returns_is_not_there_when_a_handler_raises_behind_it(calls: list[int]) -> None:
    done: list[str] = []

    @shielded
    def section() -> None:
        body(done, signal.SIGUSR1)

    with pytest.raises(Alarm):
        section()
    assert done == ["before", "behind"]


def test_a_window_lets_handlers_raise_and_the_section_behind_it_is_whole(calls: list[int]) -> None:
    steps: list[str] = []

    def section() -> None:
        with Shield():
            try:
                with Window():
                    body(steps, signal.SIGUSR1)
            finally:
                body(steps, signal.SIGUSR2)

    with pytest.raises(Alarm, match=str(int(signal.SIGUSR2))):
        section()
    assert (steps, calls) == (["before", "before", "behind"], [signal.SIGUSR1, signal.SIGUSR2])


def test_what_came_before_a_window_is_called_as_it_opens(calls: list[int]) -> None:
    steps: list[str] = []

    def section() -> None:
        with Shield():
            body(steps, signal.SIGUSR1)
            with Window():
                steps.append("in the window")

    with pytest.raises(Alarm):
        section()
    assert steps == ["before", "behind"]


def test_a_window_that_a_second_signal_left_open_can_be_closed(calls: list[int]) -> None:
    steps: list[str] = []

    def section() -> None:
        with Shield():
            window = Window()
            window.__enter__()
            close_window()
            body(steps, signal.SIGUSR1)
            window.__exit__(None, None, None)
            steps.append("end")

    with pytest.raises(Alarm):
        section()
    assert steps == ["before", "behind", "end"]


def test_another_thread_shields_nothing() -> None:
    handler = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def section() -> None:
        with Shield(), Window(), Shield():
            seen.append(signal.getsignal(signal.SIGINT))
        close_window()

    in_thread(section).join(PATIENCE_S)
    assert seen == [handler] == [signal.getsignal(signal.SIGINT)]


@contextlib.contextmanager
def alarms() -> Iterator[Callable[[], None]]:
    """A function after which an alarm is raised within milliseconds, wherever the main thread is then.

    The collector waits: what is raised in finalizers is dropped, as in those of what other tests have left, and what an
    interrupt leaves open is let go of without it.
    """
    armed = False

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise Alarm

    def arm() -> None:
        nonlocal armed
        armed = True
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-4, 2e-3))

    draw, before = random.Random(7), signal.signal(signal.SIGALRM, handler)
    gc.collect()
    gc.disable()
    try:
        yield arm
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def interrupted(path: Path, times: int) -> None:
    """Interrupt a caller of everything that streams and models do, then find nothing missing."""
    chunk = {"x": random_chunks(1)[0]}
    with Runtime(workers=2, max_streams=16) as runtime, alarms() as arm:
        model = runtime.load(path, warm_up=True)
        done = 0
        while done < times:
            try:
                arm()
                until = time.monotonic() + PATIENCE_S
                while time.monotonic() < until:
                    with model.open_stream() as stream:
                        stream.push(chunk)
                        stream.submit(chunk).result()
                        list(stream.submit_all([chunk, chunk]))
                        stream.fork().push(chunk)
                    model.run(chunk)
                raise AssertionError("the alarm was lost")
            except Alarm:
                done += 1
        model.run(chunk)
        wait_until(lambda: runtime.health().running == 0)
        streams = [model.open_stream() for _ in range(16)]  # all slots are there
        assert runtime.health().healthy
        assert runtime.request_counts.balanced and not runtime.request_counts.live
        assert len(streams) == runtime.health().streams
        runtime.drain(PATIENCE_S)
        assert runtime.health().running == 0
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("runtime_lite")]


def test_alarms_in_the_middle_of_anything_leave_nothing_behind(tmp_path: Path) -> None:
    interrupted(write_streaming_bundle(tmp_path / "bundle"), 150)


@pytest.mark.slow
def test_ten_thousand_alarms_leave_nothing_behind(tmp_path: Path) -> None:
    interrupted(write_streaming_bundle(tmp_path / "bundle"), 10_000)


class Overtime(TimeoutError):
    """What a time-out of a task queue raises: no KeyboardInterrupt, but an error like any other."""


def test_a_handler_that_raises_in_a_run_fails_nobodys_request(tmp_path: Path) -> None:
    """Its error is the main thread's; rows of others, which that thread runs beside its own, run again."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise Overtime

    def once(*_: object) -> None:
        place.hook = lambda *_: None
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with serve(write_double_bundle(tmp_path / "bundle")) as place:
            place.scheduler.held = True
            other = place.model.submit(feed(1), "plain")
            place.hook, place.scheduler.held = once, False
            with pytest.raises(Overtime) as raised:
                place.model.run(feed(2), "plain")
            assert raised.value.__context__ is None
            assert other.result(PATIENCE_S)
            assert place.server.request_counts().count("failed") == 0
    finally:
        signal.signal(signal.SIGUSR1, before)
