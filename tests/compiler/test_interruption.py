"""interruption: SIGTERM is Ctrl-C, nothing is cut in two, and clean-up is not interrupted."""

import os
import signal
import threading

import pytest

from compiler.interruption import SIGNALS, shielded, signals_interrupt


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
