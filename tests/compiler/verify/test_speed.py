"""How long a call takes: on every element type, with quiet windows; and beside another, round by round."""

import itertools
from pathlib import Path

import pytest

from compiler.verify.speed import measure_speed, time_ratio
from tests.kit.shipped import emitted


@pytest.mark.parametrize("dtype", ["float", "double", "float16", "int64", "int8", "bool"])
def test_speed_is_measured_on_every_type(dtype: str, tmp_path: Path) -> None:
    artefact = emitted(tmp_path, f"({dtype}[1,2] x) => ({dtype}[1,2] y) {{ y = Identity(x) }}", {"batch": 1})
    (row,) = measure_speed(tmp_path, [artefact], "net")
    assert (row.graph, row.sizes, row.threads) == ("net", "batch=1", 1)
    assert 0 < row.p50_ms <= row.p95_ms


class Clock:
    """Seconds that pass only in calls."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def lasting(self, seconds: itertools.cycle) -> object:  # type: ignore[type-arg]
        def call() -> None:
            self.now += next(seconds)

        return call


def test_ratios_are_taken_round_by_round() -> None:
    clock = Clock()
    fast, slow = clock.lasting(itertools.cycle([0.01])), clock.lasting(itertools.cycle([0.02]))
    found = time_ratio("batch1", fast, slow, clock=clock)  # type: ignore[arg-type]
    assert (found.median, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert str(found) == "batch1 0.50 (0.50..0.50)"


def test_a_slow_spell_falls_on_both() -> None:
    clock = Clock()
    spell = [0.02] * 40 + [0.2] * 40
    found = time_ratio(
        "batch1",
        clock.lasting(itertools.cycle([each / 2 for each in spell])),  # type: ignore[arg-type]
        clock.lasting(itertools.cycle(spell)),  # type: ignore[arg-type]
        clock=clock,
    )
    assert found.median == pytest.approx(0.5, rel=0.2)
