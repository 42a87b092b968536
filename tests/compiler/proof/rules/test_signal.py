"""Frames of signals and their transforms, under attack."""

import numpy as np
import pytest

from compiler.proof.facts.interval import ANYTHING, ZERO, Interval, bounded
from tests.kit.attacked import Node, Operand, constant
from tests.kit.judged import attack, check, check_refused

ROWS = "0: rows(batch)"
SIGNAL = Operand(("batch", "samples", 1), valid=bounded(3.0))
STEP, LENGTH = constant(4, np.int64), constant(8, np.int64)
WINDOW = constant(np.hanning(8))
LONG = {"samples": 17}


def stft(*operands: Operand | None, onesided: int = 1) -> Node:
    return Node("STFT", list(operands), {"onesided": onesided}, least={"samples": 8}, most=LONG, opset=17)


@pytest.mark.parametrize("onesided", [0, 1])
def test_frames_read_no_padding(onesided: int) -> None:
    node = stft(SIGNAL, STEP, WINDOW, LENGTH, onesided=onesided)
    verdict = check(node, "SG1", f"{ROWS}, 1: [floor(samples/4) - 1, left]")
    assert not verdict.needs


def test_frames_without_a_window_have_the_stated_length() -> None:
    check(stft(SIGNAL, STEP, None, LENGTH), "SG1", f"{ROWS}, 1: [floor(samples/4) - 1, left]")


def test_frames_as_long_as_the_signal_are_refused() -> None:
    check_refused(stft(SIGNAL, STEP, None), "STFT of frames of samples samples")
    least, most = {"samples": 8, "late": 4}, {"samples": 17, "late": 8}
    windowed = Node("STFT", [SIGNAL, STEP, Operand(("late",))], least=least, most=most, opset=17)
    check_refused(windowed, "window that follows from lengths")


def dft(operand: Operand, length: int | None, axis: int) -> Node:
    given = None if length is None else constant(length, np.int64)
    return Node("DFT", [operand, given, constant(axis, np.int64)], most=LONG, opset=20)


def test_a_transform_of_another_axis_needs_nothing() -> None:
    verdict = check(dft(Operand(("batch", "samples", 6, 1)), None, 2), "SG2", f"{ROWS}, 1: [samples, left]")
    assert not verdict.needs and verdict.pointwise


def test_a_transform_of_the_padded_axis_is_refused_without_a_length() -> None:
    check_refused(dft(SIGNAL, None, 1), "every frequency depends on how long the axis is")


def test_a_transform_of_a_stated_length_takes_zeros_behind_the_entries() -> None:
    assert check(dft(SIGNAL, 32, 1), "SG3", ROWS).needs


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows_as_long_as_an_axis_are_refused(op: str) -> None:
    check_refused(Node(op, [Operand(number="samples")]), "its entries depend on how long it is")


def drawn(rng: np.random.Generator) -> Node:
    """A spectrum with random frames, steps and window."""
    length, step = int(rng.integers(2, 9)), int(rng.integers(1, 7))
    window = constant(rng.standard_normal(length)) if rng.integers(0, 2) else None
    operands = [SIGNAL, constant(step, np.int64), window, constant(length, np.int64)]
    least = {"samples": length}
    return Node("STFT", operands, {"onesided": int(rng.integers(0, 2))}, least=least, most={"samples": 24}, opset=17)


def test_random_spectra() -> None:
    attack(drawn, 20, 12, tolerance=1e-4)


def transformed(rng: np.random.Generator) -> Node:
    """A DFT along any axis, of any length, forwards or backwards, with the axis as attribute or operand."""
    parts = int(rng.integers(1, 3))
    shapes: list[tuple[int | str, ...]] = [("batch", "samples", 6), ("batch", 6, "samples"), ("samples", 3)]
    shape = (*shapes[rng.integers(3)], parts)
    held = Interval(-3.0, 5.0)
    operand = Operand(shape, valid=held, padding=[ANYTHING, ZERO, held][rng.integers(3)])
    axis = int(rng.integers(0 if shape[0] == "samples" else 1, len(shape) - 1))
    length = constant(int(rng.choice([4, 24])), np.int64) if rng.integers(0, 2) else None
    inverse = int(parts == 2 and rng.integers(0, 2))
    signs = {"inverse": inverse, "onesided": int(not inverse and parts == 1 and rng.integers(0, 2))}
    if rng.integers(0, 2):
        return Node("DFT", [operand, length], {"axis": axis, **signs}, most=LONG, opset=17)
    given = [constant(axis - (len(shape) if rng.integers(0, 2) else 0), np.int64)]
    return Node("DFT", [operand, length, *given], signs, most=LONG, opset=20)


def test_random_transforms() -> None:
    attack(transformed, 40, 12, tolerance=1e-4)
