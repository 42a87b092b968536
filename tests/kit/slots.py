"""Facts in figures: which slots of an array hold which entries of which row, and contents drawn within a fact."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.stages import Array
from compiler.proof.facts.facts import Fact, Index, Region
from compiler.proof.facts.interval import TRUTH, Interval
from compiler.proof.facts.layout import Axis, Factor, Frames, Plain, Rows, Segment, Side

EDGES = np.array([0.0, -0.0, 1.0, 1.0, 1e-40, math.inf, -math.inf, math.nan])
"""What valid entries are now and then; nothing of which a sum depends on the order of its terms."""

Lengths: TypeAlias = Mapping[str, int]
"""A length per axis name; the batch is one of them."""


class Unsound(AssertionError):
    """A verdict that does not hold: which invariant, of which node, with the figures drawn."""


def evaluated(size: Dim, lengths: Lengths) -> int:
    """A size at given lengths."""
    if isinstance(size, int):
        return size
    value = size.subs({graphs.symbol(name): length for name, length in lengths.items()})
    if not value.is_Integer:
        raise Unsound(f"(I2) the size {size} is {value} at {dict(lengths)}")
    return int(value)


@dataclasses.dataclass(frozen=True)
class Batch:
    """Drawn figures: slots per axis name, batch included, and the true lengths of every row."""

    slots: Lengths
    rows: Sequence[Lengths]

    def __str__(self) -> str:
        return f"slots {dict(self.slots)}, rows {[dict(row) for row in self.rows]}"


def _segment(segment: Segment, batch: Batch, row: int) -> tuple[int, int]:
    """Slots and entries of a segment."""
    slots, count = (evaluated(segment.size, lengths) for lengths in (batch.slots, batch.rows[row]))
    if not 0 <= count <= slots:
        raise Unsound(f"(I2) a segment of {segment.size} has {count} entries in {slots} slots; {batch}")
    return slots, count


def marks_of_factor(factor: Factor, batch: Batch, row: int) -> np.ndarray:
    """Of every slot of a factor: 1 where it is a valid entry of the row, 2 where it is its padding, 0 of other rows."""
    if isinstance(factor, Rows):
        marks = np.zeros(evaluated(factor.size, batch.slots), np.int64)
        marks[row] = 1
        return marks
    if isinstance(factor, Plain):
        return np.ones(evaluated(factor.size, batch.slots), np.int64)
    parts = []
    for segment in factor.segments:
        slots, count = _segment(segment, batch, row)
        before = np.arange(slots) if segment.side is Side.LEFT else np.arange(slots)[::-1]
        parts.append(np.where(before < count, 1, 2))
    return np.concatenate(parts)


def marks_of_axis(axis: Axis | None, slots: int, batch: Batch, row: int) -> np.ndarray:
    """Marks of the slots of an axis; of a merged axis a slot is padding when any of its factors is."""
    if axis is None:
        return np.ones(slots, np.int64)
    merged = np.ones(1, np.int64)
    for factor in axis:
        marks = marks_of_factor(factor, batch, row)
        both = np.maximum(merged[:, None], marks[None, :]) * ((merged[:, None] * marks[None, :]) > 0)
        merged = both.reshape(-1)
    return merged


def places_of(fact: Fact, shape: Sequence[int], batch: Batch, row: int, region: Region) -> tuple[np.ndarray, ...]:
    """Index of the entries of one row in one region, for `array[places]`."""
    wanted = [
        np.flatnonzero(marks_of_axis(fact.axis(at), slots, batch, row) == (2 if at in region else 1))
        for at, slots in enumerate(shape)
    ]
    return np.ix_(*wanted)


def clipped_to(dtype: ir.DataType, content: Interval) -> Interval:
    """An interval without what a type cannot hold."""
    if dtype == ir.DataType.BOOL:
        limits = TRUTH
    elif dtype.is_integer():
        info = np.iinfo(dtype.numpy())
        limits = Interval(float(info.min), float(info.max))
    elif dtype == ir.DataType.FLOAT16:
        top = 65504.0
        low, high = (max(min(end, top), -top) if math.isfinite(end) else end for end in (content.low, content.high))
        return Interval(low, high, content.nan)
    else:
        return content
    return Interval(max(content.low, limits.low), min(content.high, limits.high))


def drawn_within(
    low: np.ndarray, high: np.ndarray, nan: np.ndarray, dtype: ir.DataType, rng: np.random.Generator, extremes: bool
) -> np.ndarray:
    """Entries within bounds given per place: moderate ones, and with `extremes` the ends, infinities and NaN.

    Of every second draw some entries are edges in any case: zeros, ties, subnormal numbers, infinities, NaN.
    """
    normal = rng.standard_normal(low.shape) * rng.choice([0.5, 2.0, 30.0])
    with np.errstate(invalid="ignore"):
        between = (low + high) / 2
    middle = np.clip(np.where(np.isfinite(between), between, 0.0), low, high)
    choices = [np.clip(normal, low, high), np.clip(np.round(normal), low, high), np.clip(middle + normal, low, high)]
    if extremes:
        choices += [low, high, np.clip(0.0, low, high), np.clip(1e30 * normal, low, high), np.where(nan, np.nan, low)]
    picked = rng.integers(0, len(choices), low.shape)
    drawn = np.choose(picked, choices)
    edges = rng.choice(EDGES, low.shape)
    allowed = np.where(np.isnan(edges), nan, (low <= edges) & (edges <= high))
    drawn = np.where(allowed & (rng.random(low.shape) < rng.choice([0.0, 0.3])), edges, drawn)
    kind = dtype.numpy()
    if dtype == ir.DataType.BOOL:
        return np.asarray(drawn > 0.5)
    if not dtype.is_integer():
        with np.errstate(over="ignore"):
            return np.asarray(drawn).astype(kind)
    whole = np.clip(np.round(drawn), np.ceil(low), np.floor(high))
    info = np.iinfo(kind)
    top = whole >= float(info.max)  # 2^63 - 1 is no float
    return np.where(top, info.max, np.where(top, 0, whole).astype(kind)).astype(kind)


def contents_of(
    fact: Fact, dtype: ir.DataType, shape: Sequence[int], batch: Batch, rng: np.random.Generator, extremes: bool
) -> Array | None:
    """Entries within the intervals of all regions of all rows; None when rows that share a value contradict."""
    low, high = np.full(shape, -math.inf), np.full(shape, math.inf)
    nan, valid = np.ones(shape, np.bool_), np.zeros(shape, np.bool_)
    for row, region in itertools.product(range(len(batch.rows)), fact.regions):
        places = places_of(fact, shape, batch, row, region)
        content = fact.content(region)
        low[places] = np.maximum(low[places], content.low)
        high[places] = np.minimum(high[places], content.high)
        nan[places] &= content.nan
        valid[places] |= not region
    if np.any(low > high):
        return None
    calm = drawn_within(low, high, nan, dtype, rng, extremes)
    wild = drawn_within(low, high, nan, dtype, rng, True)
    return np.where(valid, calm, wild).astype(calm.dtype)


def positions_of(index: Index, fact: Fact, dtype: ir.DataType, shape: Sequence[int], batch: Batch) -> Array | None:
    """Positions counted along an axis; None when rows that share the value have them at different slots."""
    axis = fact.axis(index.axis)
    array = np.zeros(shape, dtype.numpy())
    for row in range(len(batch.rows)):
        offset = evaluated(index.offset, batch.rows[row])
        if axis is None:
            counted = np.arange(shape[index.axis])
        else:
            (frames,) = axis
            assert isinstance(frames, Frames)
            counted = _counted(frames, batch, row)
        line = (offset + counted).reshape([-1 if at == index.axis else 1 for at in range(len(shape))])
        own = [slice(None)] * len(shape)
        if fact.rows_axis is not None:
            own[fact.rows_axis] = slice(row, row + 1)
        elif row and not np.array_equal(array, np.broadcast_to(line, shape)):
            return None
        array[tuple(own)] = line
    return array


def _counted(frames: Frames, batch: Batch, row: int) -> np.ndarray:
    """The number of entries before each slot; from a segment's entries on into its padding in the same steps."""
    parts, before = [], 0
    for segment in frames.segments:
        slots, count = _segment(segment, batch, row)
        parts.append(before + np.arange(slots) - (slots - count if segment.side is Side.RIGHT else 0))
        before += count
    return np.concatenate(parts)


def agree(got: Array, wanted: Array, tolerance: float) -> bool:
    """Equal, for floating-point types up to a tolerance relative to the largest entry; NaN equals NaN."""
    if got.dtype.kind not in "f":
        return bool(np.array_equal(got, wanted)) if got.dtype.kind in "biu" else got.tobytes() == wanted.tobytes()
    finite = np.isfinite(wanted)
    scale = max(1.0, float(np.abs(wanted[finite]).max(initial=0.0)))
    return bool(np.allclose(got / scale, wanted / scale, rtol=0.0, atol=tolerance, equal_nan=True))


def outside(entries: Array, content: Interval) -> float | None:
    """An entry that lies beyond an interval, rounding aside, or None."""
    if entries.size == 0:
        return None
    numbers = entries.astype(np.float64).reshape(-1)
    if np.isnan(numbers).any():
        if not content.nan:
            return math.nan
        numbers = numbers[~np.isnan(numbers)]
    ends = [abs(end) for end in (content.low, content.high) if math.isfinite(end)]
    room = 0.0 if content.is_constant else 1e-5 * max(ends, default=0.0)
    low = content.low - (room if content.low != 0.0 else 0.0)
    high = content.high + (room if content.high != 0.0 else 0.0)
    beyond = numbers[(numbers < low) | (numbers > high)]
    return float(beyond[0]) if beyond.size else None
