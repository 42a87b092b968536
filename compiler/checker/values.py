"""Draws the most adverse values that a fact allows, and checks whether given values satisfy a fact."""

import math
from typing import Any

import numpy as np
from onnx import helper  # noqa: TID251 - nothing of the prover's vocabulary

from compiler.checker.graph import Array, Record
from compiler.checker.slots import Layout, Lengths

HUGE = (math.nan, math.inf, -math.inf, 1e30, -1e30)
"""What lies where anything may lie."""


EDGES = (math.nan, math.inf, -math.inf, 0.0, 1.0)
"""What valid entries are here and there: nothing whose sum depends on the order."""

RARE = 0.12
"""The share of valid entries that are edges."""


def worst_values(
    low: Array,
    high: Array,
    nan: Array,
    padding: Array,
    rng: np.random.Generator,
    dtype: np.dtype[Any],
    most: int,
    *,
    edges: bool = False,
) -> Array:
    """Return entries within bounds: small ones and some edge values where valid, the worst allowed in padding."""
    if dtype.kind in "iub":
        limits = (0.0, 1.0) if dtype.kind == "b" else (float(np.iinfo(dtype).min), float(np.iinfo(dtype).max))
        low, high = np.clip(low, *limits), np.clip(high, *limits)
        bottom, top = np.clip(0.0, low, high), np.clip(float(most), low, high)
        small = np.floor(rng.uniform(bottom, top + 0.999))
        ends = np.where(rng.random(low.shape) < 0.5, low, high)
        share = np.where(padding, 0.7, RARE if edges and most else 0.0)
        return np.clip(np.where(rng.random(low.shape) < share, ends, small), -(2.0**62), 2.0**62)
    drawn = np.clip(rng.standard_normal(low.shape), low, high)
    if not edges and not padding.any():
        return drawn
    worst = np.where(padding, rng.choice(np.array([*HUGE, 0.0]), low.shape), rng.choice(np.array(EDGES), low.shape))
    swept = _swept(worst, ~padding, rng) if edges else np.zeros(low.shape, bool)
    inside = np.where(np.isnan(worst), nan, (worst >= low) & (worst <= high))
    bound = np.where(rng.random(low.shape) < 0.5, low, high)
    bad = np.where(inside, worst, np.where(np.isfinite(bound) & (np.abs(bound) < 1e30), bound, drawn))
    share = np.where(padding, 0.7, RARE if edges else 0.0)
    return np.where((rng.random(low.shape) < share) | swept, bad, drawn)


def _swept(worst: Array, valid: Array, rng: np.random.Generator) -> Array:
    """Set the valid entries at one index of one axis to an edge value; return where."""
    swept = np.zeros(worst.shape, bool)
    if worst.ndim and worst.size:
        places = np.moveaxis(swept, int(rng.integers(worst.ndim)), 0)
        places[int(rng.integers(len(places)))] = True
        swept &= valid
        worst[swept] = rng.choice(np.array(EDGES))
    return swept


def count_positions(array: Array, layout: Layout, axis: int, offset: int, lengths: Lengths) -> None:
    """Write positions along an axis, counted from the first valid slot of each row."""
    view = np.moveaxis(array, axis, -1)
    for row in range(len(lengths.true)):
        mine, valid = layout.along(axis, row)
        slots, entries = np.flatnonzero(mine), np.flatnonzero(valid)
        first = int(entries[0]) if entries.size else int(slots[0]) if slots.size else 0
        view[..., slots] = slots - first + offset


def worst_of(kind: int) -> tuple[float, float, bool]:
    """Return bounds of an element type, and whether it holds NaN."""
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
    if dtype.kind == "b":
        return 0.0, 1.0, False
    if dtype.kind in "iu":
        return float(np.iinfo(dtype).min), float(np.iinfo(dtype).max), False
    return -math.inf, math.inf, True


def content_of(fact: Record, region: frozenset[int]) -> tuple[float, float, bool]:
    """Return the bounds of a fact in a region, given as the axes in whose padding it lies."""
    for axes, low, high, nan in fact["contents"]:
        if frozenset(axes) == region:
            return float(low), float(high), bool(nan)
    return -math.inf, math.inf, True


def paddings_of(fact: Record) -> list[Any]:
    """Return a fact's contents of every region but the valid one."""
    return [content for content in fact["contents"] if content[0]]


def within(numbers: Array, content: tuple[float, float, bool]) -> bool:
    """Whether all numbers lie within bounds, up to rounding."""
    low, high, nan = content
    if numbers.size and low <= float(numbers.min()) and float(numbers.max()) <= high:  # NaN is within no bounds
        return True
    numbers = numbers.astype(np.float64)
    bad = np.isnan(numbers)
    slack = 1e-5 * np.maximum(1.0, np.abs(numbers))
    with np.errstate(invalid="ignore"):  # infinities of both signs; those are compared as they are
        near = (numbers >= low - slack) & (numbers <= high + slack)
    inside = bad | near | (numbers == low) | (numbers == high)
    return bool(inside.all()) and (nan or not bad.any())
