"""Graphs over whole utterances with per-row lengths: padded in one batch against every row alone."""

from collections.abc import Mapping, Sequence

import numpy as np

from compiler import ir as house
from compiler.evaluate import open_session
from compiler.passes.pad_axes import PadAxes
from compiler.stages import Array, Lowered, Outcome, PaddedAxis
from tests.kit.graphs import BATCH, OPSET, parse

POISONS = (0.0, np.nan, np.inf, -np.inf, 1e30, -1e30)


def offline(
    text: str, weights: Mapping[str, Array] | None = None, axes: Sequence[str] = ("time",), opset: int = OPSET
) -> Lowered:
    """A graph in ONNX text whose axes `axes` are padded behind.

    Args:
        text: as for `tests.kit.graphs.parse`.
        weights: initializers by input name.
        axes: names of padded axes.
        opset: of the standard operators.
    """
    padded = tuple(PaddedAxis(axis, f"{axis}_length") for axis in axes)
    return Lowered("tiny", parse(text, dict(weights or {}), opset), batch_axis=BATCH, padded_axes=padded)


class Differs(AssertionError):
    """A padded row is not the row alone."""


def check_padded(
    origin: Lowered, outcome: Outcome, *, seed: int = 0, rows: int = 3, tolerance: float = 1e-5, shortest: int = 0
) -> float:
    """Compare all rows in one padded batch with every row alone, under every poison.

    Args:
        origin: the graph before padding.
        outcome: what `PadAxes` made of a copy.
        seed: of lengths and contents.
        rows: rows of the batch.
        tolerance: largest difference relative to the largest entry.
        shortest: no row is shorter; for graphs that are ill-conditioned there.

    Returns:
        The largest relative difference.

    Raises:
        Differs: a valid entry differs, or changes with what lies in the padding.
    """
    rng = np.random.default_rng(seed)
    alone = open_session(house.serialized(origin.model))
    together = open_session(house.serialized(outcome.lowered.model))
    axes = {each.axis: each for each in outcome.lowered.padded_axes}
    least = {name: max(each.minimum, shortest) for name, each in axes.items()}
    lengths = {name: [least[name] + int(rng.integers(0, 6)) for _ in range(rows)] for name in axes}
    lengths = {name: [least[name], *given[1:]] for name, given in lengths.items()}
    slots = {name: max(given) + int(rng.integers(0, 4)) for name, given in lengths.items()}
    for name, each in axes.items():
        if each.maximum is not None:
            slots[name] = min(slots[name], each.maximum)
            lengths[name] = [min(length, slots[name]) for length in lengths[name]]
    inputs = [(str(value.name), list(value.shape or ()), value.dtype) for value in origin.model.graph.inputs]
    singles = []
    shared: dict[str, Array] = {}
    for row in range(rows):
        feed = {}
        for name, dims, dtype in inputs:
            assert dtype is not None
            shape = _sizes(dims, {BATCH: 1} | {axis: given[row] for axis, given in lengths.items()})
            kind = np.dtype(dtype.numpy())
            if BATCH in map(str, dims):
                feed[name] = _drawn(rng, shape, kind)
                continue
            longest = _sizes(dims, {axis: max(given) for axis, given in lengths.items()})
            whole = shared.setdefault(name, _drawn(rng, longest, kind))
            feed[name] = whole[tuple(slice(0, size) for size in shape)]
        singles.append(feed)
    references = [alone.run(None, feed) for feed in singles]
    shapes = [list(value.shape or ()) for value in outcome.lowered.model.graph.outputs]
    of_rows = [bool(shape) and str(shape[0]) == BATCH for shape in shapes]
    worst, first = 0.0, None
    for poison in POISONS:
        feeds = {}
        for name, dims, dtype in inputs:
            assert dtype is not None
            kind = np.dtype(dtype.numpy())
            full = np.full(_sizes(dims, {BATCH: rows} | slots), poison if kind.kind == "f" else 0, kind)
            if name in shared:
                full[tuple(slice(0, size) for size in shared[name].shape)] = shared[name]
            for row, feed in enumerate(singles if name not in shared else ()):
                full[_corner(row, feed[name].shape[1:])] = feed[name][0]
            feeds[name] = full
        for name, each in axes.items():
            feeds[each.length_input] = np.array(lengths[name], np.int64)
        results = together.run(None, feeds)
        valid = []
        for at, result in enumerate(results):
            for row in range(rows):
                wanted = references[row][at][0] if of_rows[at] else references[row][at]
                got = result[_corner(row, wanted.shape)] if of_rows[at] else result[_corner(0, wanted.shape)[1:]]
                valid.append(got)
                scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
                difference = float(np.abs(got - wanted).max(initial=0.0)) / scale
                if not difference <= tolerance:
                    raise Differs(f"output {at}, row {row} of lengths {lengths}: differs by {difference} ({poison=})")
                worst = max(worst, difference)
        if first is not None and not all(np.array_equal(a, b) for a, b in zip(first, valid, strict=True)):
            raise Differs(f"bits change with {poison} in the padding")
        first = first if first is not None else valid
    return worst


FREE = 3
"""Entries of an axis that is neither padded nor the batch."""


def _sizes(dims: Sequence[object], known: Mapping[str, int]) -> list[int]:
    return [int(str(dim)) if str(dim).isdigit() else known.get(str(dim), FREE) for dim in dims]


def _drawn(rng: np.random.Generator, shape: Sequence[int], kind: np.dtype) -> Array:
    drawn = rng.integers(0, 5, shape) if kind.kind in "iu" else rng.standard_normal(shape)
    return drawn.astype(kind)


def _corner(row: int, sizes: Sequence[int]) -> tuple[int | slice, ...]:
    """The valid entries of one row."""
    return (row, *(slice(0, size) for size in sizes))


def verify_offline(lowered: Lowered, *, seeds: int = 3, tolerance: float = 1e-5, shortest: int = 0) -> Outcome:
    """Pad a copy and check it; what the pass did."""
    copy = Lowered(
        lowered.graph, house.clone(lowered.model), batch_axis=lowered.batch_axis, padded_axes=lowered.padded_axes
    )
    outcome = PadAxes().apply(copy)
    for seed in range(seeds):
        check_padded(lowered, outcome, seed=seed, tolerance=tolerance, shortest=shortest)
    return outcome
