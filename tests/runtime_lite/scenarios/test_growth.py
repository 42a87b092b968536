"""A slope is told with what the samples leave open."""

import os
import random
import subprocess
import sys

import pytest

from tests.soak.growth import ALLOCATOR, slope_of, soak


def test_a_line_is_found_with_little_left_open() -> None:
    seconds = [float(at) for at in range(100)]
    slope = slope_of(seconds, [5 + 2 * at / 3600 for at in seconds])
    assert slope.per_hour == pytest.approx(2.0) and slope.spread < 1e-6 and not slope.is_noise


def test_noise_is_no_growth_and_neighbours_that_are_alike_leave_more_open() -> None:
    draw = random.Random(1)
    seconds = [float(at) for at in range(300)]
    apart = [draw.gauss(0, 1) for _ in seconds]
    alike = [sum(apart[max(0, at - 20) : at + 1]) for at in range(300)]
    assert slope_of(seconds, apart).is_noise
    assert slope_of(seconds, alike).spread > 5 * slope_of(seconds, apart).spread


def test_what_stays_the_same_does_not_grow() -> None:
    assert slope_of([0.0, 1.0, 2.0, 3.0], [7.0] * 4).is_noise


def test_a_soak_ends_with_all_answers_right() -> None:
    samples, wrong = soak(seconds=0.1, every_s=0.02)
    assert wrong == 0 and len(samples) and (samples > 0).all()


FREES = """
import sys
from tests.soak.growth import held_mb

before = held_mb()
texts = [str(number) * 9 for number in range(100_000)]
most = held_mb()
del texts[::2]
half = held_mb()
del texts
for of in (0, 1):
    print(most[of] - before[of], half[of] - before[of], held_mb()[of] - before[of])
"""


def test_memory_that_is_freed_is_seen_to_be_and_goes_back_before_a_look() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FREES], capture_output=True, text=True, check=True, env=os.environ | ALLOCATOR
    )
    used, resident = ([float(number) for number in line.split()] for line in done.stdout.splitlines())
    most, half, after = used
    assert most > 9 and 4 < half < 0.7 * most and after < 0.1
    most, half, after = resident
    assert most > 9 and half > 4 and after < 1
