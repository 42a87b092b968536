"""Benchmarks run here to see that they run: rates of the machine are measured in no time."""

import pytest

from benchmarks import floor


@pytest.fixture(autouse=True)
def _quick_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "SIDES", (64,))
    monkeypatch.setattr(floor, "LEAST_BUFFER", 2**20)
    monkeypatch.setattr(floor, "CACHES", 0)
