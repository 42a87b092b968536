"""Observers hear everything in order, and one that fails hurts nobody."""

import threading

from runtime_lite.serving.events import EventBus


class Ear:
    def __init__(self) -> None:
        self.heard: list[int] = []

    def executed(self, number: int) -> None:
        self.heard.append(number)


class Deaf:
    def executed(self, number: int) -> None:
        raise RuntimeError("no")


def test_events_are_told_once_and_in_order_by_any_thread() -> None:
    ear, lock = Ear(), threading.Lock()
    bus = EventBus([ear])  # type: ignore[list-item]
    told = 0

    def work() -> None:
        nonlocal told
        for _ in range(200):
            with lock:
                bus.note("executed", told)
                told += 1
            bus.spread()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bus.spread()
    assert ear.heard == list(range(800))


def test_an_observer_that_raises_is_not_asked_again() -> None:
    ear = Ear()
    bus = EventBus([Deaf(), ear])  # type: ignore[list-item]
    for number in (1, 2):
        bus.note("executed", number)
        bus.spread()
    assert ear.heard == [1, 2] and bus.wanted
    assert bus.fault == "Deaf.executed: RuntimeError: no"
