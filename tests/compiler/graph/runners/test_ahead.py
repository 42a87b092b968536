"""ahead: the same items in the same order, made in another thread, a bounded number of them."""

import threading
from collections.abc import Iterator

import pytest

from compiler.graph.runners.ahead import ahead, on_all_cores
from tests.kit.patience import PATIENCE_S


def test_items_come_in_order_and_all_of_them() -> None:
    assert list(ahead(range(50))) == list(range(50))
    assert list(ahead([])) == []
    assert list(ahead([None, None])) == [None, None]


def test_the_next_item_is_made_while_the_caller_works() -> None:
    made = [threading.Event() for _ in range(3)]

    def items() -> Iterator[int]:
        for index, event in enumerate(made):
            event.set()
            yield index

    for index in ahead(items()):
        assert all(event.wait(PATIENCE_S) for event in made[: index + 2])


def test_no_more_than_the_depth_is_made_ahead() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for index in range(100):
            made.append(index)
            yield index

    for index in ahead(items(), depth=2):
        assert len(made) <= index + 1 + 2


def test_an_error_comes_where_its_item_would_have_come() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no second item")

    found = ahead(items())
    assert next(found) == 1
    with pytest.raises(ValueError, match="no second item"):
        next(found)


def test_a_caller_that_stops_early_stops_the_maker() -> None:
    made: list[int] = []
    makers: set[threading.Thread] = set()

    def items() -> Iterator[int]:
        for index in range(1000):
            makers.add(threading.current_thread())
            made.append(index)
            yield index

    found = ahead(items(), depth=1)
    assert next(found) == 0
    found.close()  # type: ignore[attr-defined]
    assert makers and not any(maker.is_alive() for maker in makers)
    assert len(made) < 5


def test_jobs_answer_in_the_order_of_their_items() -> None:
    assert list(on_all_cores(lambda number: number * number, range(200))) == [number * number for number in range(200)]
    assert list(on_all_cores(str, [])) == []


def test_items_are_taken_a_few_ahead() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for index in range(10_000):
            taken.append(index)
            yield index

    answers = on_all_cores(str, items())
    assert next(answers) == "0"
    assert len(taken) < 1000
    answers.close()  # type: ignore[attr-defined]


def test_an_error_of_a_job_comes_in_its_place() -> None:
    answers = on_all_cores(lambda number: 1 // number, [1, 0, 1])
    assert next(answers) == 1
    with pytest.raises(ZeroDivisionError):
        next(answers)
