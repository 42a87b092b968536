"""Resize along padded frames, in every mode and way to count, under attack."""

import math

import numpy as np

from compiler.proof.facts.interval import ANYTHING, ZERO, Interval
from tests.kit.judged import attack
from tests.kit.soundness import Node, Operand, constant

COORDINATES = ("half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners")


def resized(rng: np.random.Generator) -> Node:
    """One Resize by constant scales; the batch and channels stay."""
    right = ["cache"] if rng.integers(0, 3) == 0 else []
    size = right[0] if right else str(rng.choice(["time", "2*time"]))
    mode = str(rng.choice(["nearest", "linear", "cubic"]))
    others = (2, 1) if mode == "cubic" else (2,)  # ONNX Runtime takes cubic interpolation in two dimensions only
    rows: str | int = "batch" if rng.integers(0, 6) else 1
    infinite = Interval(-math.inf, math.inf) if rng.integers(0, 8) == 0 else None
    frames = Operand((rows, *others, size), valid=infinite, padding=ANYTHING if rng.integers(0, 3) else ZERO)
    scale = float(rng.choice([0.5, 1.0, 1.5, 2.0, 3.0]))
    attributes = {"mode": mode, "coordinate_transformation_mode": str(rng.choice(COORDINATES))}
    if mode == "nearest":
        attributes["nearest_mode"] = str(rng.choice(["floor", "round_prefer_floor", "ceil", "round_prefer_ceil"]))
    operands = [
        frames,
        None,
        constant([1.0, 1.0 if mode == "cubic" else float(rng.integers(1, 3)), *(1.0 for _ in others[1:]), scale]),
    ]
    return Node("Resize", operands, attributes, right=right, least={"time": 2, "cache": 2})


def test_random_resizes_are_sound_or_refused() -> None:
    attack(resized, 60, 12, extremes=False, tolerance=1e-4)
