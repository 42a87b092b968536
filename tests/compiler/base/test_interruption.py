"""interruption: SIGTERM is Ctrl-C, nothing is cut in two, and clean-up is not interrupted."""

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable

import pytest
from rich.console import Console

from compiler.base.interruption import SIGNALS, shielded, signals_interrupt
from compiler.build.report.progress import Progress


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_interrupts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        send(number)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", SIGNALS)
def test_what_is_shielded_is_finished_first(number: signal.Signals) -> None:
    done = []

    def work() -> None:
        with shielded():
            with shielded():
                send(number)
                done.append("inner")
            done.append("outer")
        done.append("behind")

    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        work()
    assert done == ["inner", "outer"]


def test_a_second_signal_does_not_cut_the_clean_up() -> None:
    done = []

    def work() -> None:
        try:
            send(signal.SIGTERM)
        finally:
            send(signal.SIGTERM)
            send(signal.SIGINT)
            done.append("cleaned up")

    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        work()
    assert done == ["cleaned up"]


def swallow() -> None:
    """As code does that catches everything, and as Python does in finalizers."""
    with contextlib.suppress(BaseException):
        send(signal.SIGTERM)


class Dropping:
    """Sends a signal while it is finalized: Python drops what the signal raises there."""

    def __del__(self) -> None:
        send(signal.SIGINT)


def swallow_in_a_finalizer() -> None:
    Dropping()


def make_an_error_of_it() -> None:
    """As the exporter does."""
    try:
        send(signal.SIGTERM)
    except BaseException as error:
        raise RuntimeError("expected another graph") from error


@pytest.mark.parametrize("lose", [swallow, swallow_in_a_finalizer, make_an_error_of_it])
def test_a_signal_that_others_make_nothing_of_ends_the_stage(lose: Callable[[], None]) -> None:
    output, done = io.StringIO(), []

    def work() -> None:
        progress = Progress(Console(file=output))
        with progress.stage("net", "capture"):
            lose()
        done.append("the next stage")

    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        work()
    assert done == [] and output.getvalue().rstrip().endswith("interrupted")


@pytest.mark.parametrize("lose", [swallow, swallow_in_a_finalizer, make_an_error_of_it])
def test_a_signal_that_others_make_nothing_of_ends_a_command_without_stages(lose: Callable[[], None]) -> None:
    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        lose()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("another")])
def test_of_what_a_finalizer_drops_only_the_signal_is_hidden(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Raising:
        def __del__(self) -> None:
            raise error

    def work() -> None:
        Raising()  # no signal has come: nothing is hidden
        swallow_in_a_finalizer()
        Raising()

    told: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(dropped.exc_type))
    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        work()
    assert told == [type(error)] * (1 if isinstance(error, KeyboardInterrupt) else 2)
    Raising()
    assert told[-1] is type(error) and len(told) > 1


def test_errors_without_a_signal_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="plain"), signals_interrupt(), Progress(Console(quiet=True)).stage("", "a"):
        raise RuntimeError("plain")


def test_the_next_command_can_be_interrupted_again() -> None:
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), signals_interrupt():
            send(signal.SIGTERM)


def test_another_thread_leaves_signals_alone() -> None:
    seen = []

    def work() -> None:
        with signals_interrupt():
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
