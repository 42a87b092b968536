"""The bad items of a run are found with few runs, and their neighbours have their answers."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from runtime_lite.errors import BundleRefused
from runtime_lite.serving.request import Answered
from runtime_lite.serving.runs import run_parts


def search(count: int, bad: set[int]) -> tuple[list[tuple[Any, Answered]], int]:
    runs = 0

    def run(parts: Sequence[Any]) -> list[Answered]:
        nonlocal runs
        runs += 1
        if bad & set(parts):
            raise ValueError("bad")
        return [([{}], []) for _ in parts]

    answers = run_parts(list(range(count)), run)  # type: ignore[arg-type]
    return answers, runs


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 16, 31, 64])
def test_one_bad_item_costs_at_most_two_runs_per_halving(count: int) -> None:
    for bad in range(count):
        answers, runs = search(count, {bad})
        assert [part for part, _ in answers] == list(range(count))
        assert [part for part, answer in answers if isinstance(answer, Exception)] == [bad]
        assert runs - 1 <= 2 * math.ceil(math.log2(count))


def test_any_bad_items_are_found_and_no_other() -> None:
    order = random.Random(5)
    for _ in range(200):
        count = order.randint(1, 20)
        bad = {item for item in range(count) if order.random() < 0.3}
        answers, _ = search(count, bad)
        assert [part for part, _ in answers] == list(range(count))
        assert {part for part, answer in answers if isinstance(answer, Exception)} == bad


def test_a_fault_that_passes_fails_nobody() -> None:
    runs = 0

    def run(parts: Sequence[Any]) -> list[Answered]:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise MemoryError
        return [([{}], []) for _ in parts]

    answers = run_parts(list(range(8)), run)  # type: ignore[arg-type]
    assert not any(isinstance(answer, Exception) for _, answer in answers)


def test_a_refused_bundle_is_not_searched() -> None:
    runs = 0

    def run(parts: Sequence[Any]) -> list[Answered]:
        nonlocal runs
        runs += 1
        raise BundleRefused("truncated")

    answers = run_parts(list(range(8)), run)  # type: ignore[arg-type]
    assert runs == 1 and all(isinstance(answer, BundleRefused) for _, answer in answers)


def test_an_interrupt_is_nobodys_fault() -> None:
    def run(parts: Sequence[Any]) -> list[Answered]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_parts([1, 2], run)  # type: ignore[list-item]
