"""The heap is trimmed where the C library can, and nothing happens where it cannot."""

import pytest

from runtime_lite.executors import heap


def test_the_c_library_is_asked_for_all_it_can_give(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(heap, "_MALLOC_TRIM", asked.append)
    heap.trim_heap()
    assert asked == [0]


def test_without_it_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_MALLOC_TRIM", None)
    heap.trim_heap()
