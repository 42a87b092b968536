"""The heap is trimmed, and keeps no large block, where the C library can; nothing happens where it cannot."""

import pytest

from runtime_lite.executors import heap


def test_the_c_library_is_asked_for_all_it_can_give(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(heap, "_MALLOC_TRIM", asked.append)
    heap.trim_heap()
    assert asked == [0]


def test_without_it_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_MALLOC_TRIM", None)
    monkeypatch.setattr(heap, "_MALLOPT", None)
    heap.trim_heap()
    heap.return_large_blocks()


def test_large_blocks_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(heap, "_MALLOPT", lambda *given: asked.append(given))
    heap.return_large_blocks()
    assert asked == [(-3, heap.LARGE_BLOCK_BYTES)]
