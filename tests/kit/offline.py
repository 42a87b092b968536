"""Graphs over whole utterances with per-row lengths: padded in one batch against every row alone."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.graph.stages import Array, Lowered, Outcome, PaddedAxis
from compiler.passes.pad_axes import PadAxes
from tests.kit.graphs import BATCH, OPSET, parse

POISONS = (0.0, np.nan, np.inf, -np.inf, 1e30, -1e30)

Edges: TypeAlias = Literal["none", "zeros", "ties", "huge", "infinities", "NaN"]
"""What valid entries hold besides ordinary numbers: nothing; zeros alone; zeros, ties, full scale, subnormal numbers;
numbers of which a sum may overflow; infinities; NaN."""


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
    """A padded row is not the row alone.

    Args:
        message: in what it differs.
        row: what the row alone was fed, where it is one row that differs.
    """

    def __init__(self, message: str, row: Mapping[str, Array] | None = None) -> None:
        super().__init__(message)
        self.row = row


class Runs(Protocol):
    """An opened model."""

    def run(self, output_names: None, input_feed: Mapping[str, Array], /) -> Sequence[Array]:
        """All outputs."""
        ...


def in_session(model: ir.Model) -> Runs:
    """A model in ONNX Runtime."""
    session: Runs = open_session(graphs.serialized(model))
    return session


def check_padded(
    origin: Lowered,
    outcome: Outcome,
    *,
    seed: int = 0,
    rows: int = 3,
    tolerance: float = 1e-5,
    shortest: int = 0,
    edges: Edges = "none",
    proved: Lowered | None = None,
    opened: Callable[[ir.Model], Runs] = in_session,
) -> float:
    """Compare all rows in one padded batch with every row alone, under every poison.

    Args:
        origin: the graph before padding.
        outcome: what `PadAxes` made of a copy.
        seed: of lengths and contents.
        rows: rows of the batch.
        tolerance: largest difference relative to the largest entry.
        shortest: no row is shorter; for graphs that are ill-conditioned there.
        edges: what lies in valid places besides ordinary numbers, in each row with some chance.
        proved: the graph of whose values the certificate speaks, where it is `origin` in another operator set.
        opened: what runs both programs.

    Returns:
        The largest relative difference.

    Raises:
        Differs: a valid entry differs, or changes with what lies in the padding.
    """
    rng = np.random.default_rng(seed)
    alone, together = opened(origin.model), opened(outcome.lowered.model)
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
    free = free_size(origin)
    singles = []
    shared: dict[str, Array] = {}
    for row in range(rows):
        feed = {}
        for name, dims, dtype in inputs:
            assert dtype is not None
            shape = _sizes(dims, {BATCH: 1} | {axis: given[row] for axis, given in lengths.items()}, free)
            kind = np.dtype(dtype.numpy())
            if BATCH in map(str, dims):
                feed[name] = _drawn(rng, shape, kind, edges)
                continue
            longest = _sizes(dims, {axis: max(given) for axis, given in lengths.items()}, free)
            whole = shared.setdefault(name, _drawn(rng, longest, kind, edges))
            feed[name] = whole[tuple(slice(0, size) for size in shape)]
        singles.append(feed)
    references = [alone.run(None, feed) for feed in singles]
    exempt = _exempt(proved or origin, outcome, singles) if edges != "none" else set()
    shapes = [list(value.shape or ()) for value in outcome.lowered.model.graph.outputs]
    of_rows = [bool(shape) and str(shape[0]) == BATCH for shape in shapes]
    worst, first = 0.0, None
    for poison in POISONS:
        feeds = {}
        for name, dims, dtype in inputs:
            assert dtype is not None
            kind = np.dtype(dtype.numpy())
            full = np.full(_sizes(dims, {BATCH: rows} | slots, free), poison if kind.kind == "f" else 0, kind)
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
                if row in exempt:
                    continue
                wanted = references[row][at]
                got = _valid(result, row, wanted.shape, is_row=of_rows[at])
                valid.append(got)
                difference = difference_of(got, wanted)
                if not difference <= tolerance:
                    told = f"output {at}, row {row} of lengths {lengths}: differs by {difference} ({poison=})"
                    raise Differs(told, singles[row])
                worst = max(worst, difference)
        if first is not None and not all(_same_bits(a, b) for a, b in zip(first, valid, strict=True)):
            raise Differs(f"bits change with {poison} in the padding")
        first = first if first is not None else valid
    return worst


FREE = (3, 4, 5, 6, 8, 12, 16, 32)
"""Entries of an axis that is neither padded nor the batch, as few of them as leave no axis empty."""


def free_size(origin: Lowered) -> int:
    """How long axes are that are neither padded nor the batch; some kernels end the process on none of their chunks."""
    padded = {graphs.symbol(name) for name in (BATCH, *(each.axis for each in origin.padded_axes))}
    free = {
        name for value in origin.model.graph.inputs for dim in _sizes_of(value) for name in dim.free_symbols
    } - padded
    if not free:
        return FREE[0]
    made = [dim for node in origin.model.graph for value in node.outputs for dim in _sizes_of(value)]
    chunks = {dim for dim in made if dim.free_symbols and dim.free_symbols <= free}
    return next((few for few in FREE if all(dim.subs(dict.fromkeys(free, few)) > 0 for dim in chunks)), FREE[0])


def _sizes_of(value: ir.Value) -> list[sympy.Expr]:
    return [sympy.sympify(dim) for dim in graphs.dims_of(value) or ()]


def _sizes(dims: Sequence[object], known: Mapping[str, int], free: int) -> list[int]:
    return [int(str(dim)) if str(dim).isdigit() else known.get(str(dim), free) for dim in dims]


def _drawn(rng: np.random.Generator, shape: Sequence[int], kind: np.dtype[Any], edges: Edges) -> Array:
    drawn = rng.integers(0, 5, shape) if kind.kind in "iu" else rng.standard_normal(shape)
    return with_edges(drawn, kind, rng, edges).astype(kind)


def _exempt(origin: Lowered, outcome: Outcome, singles: Sequence[Mapping[str, Array]]) -> set[int]:
    """The rows of which something does not hold alone that the certificate takes for granted of every row."""
    reads = {node.name: [value and str(value.name) for value in node.inputs] for node in origin.model.graph}
    granted = [
        (reads.get(step["node"], step["inputs"])[operand], what)  # what it read before anything was filled in
        for proof in outcome.records
        for step in proof["records"]
        for operand, what in step["assumes"]
    ]
    if not granted:
        return set()
    model = graphs.clone(origin.model)
    named = {str(value.name): value for node in model.graph for value in node.outputs}
    read = {name: named[name] for name, _ in granted if name in named}
    model.graph.outputs.extend(value for value in read.values() if not value.is_graph_output())
    session = open_session(graphs.serialized(model))
    rows = set()
    for row, feed in enumerate(singles):
        given = dict(zip(read, session.run(list(read), feed), strict=True)) if read else {}
        for name, what in granted:
            entries = given.get(name, feed.get(name))
            assert entries is not None
            if np.isnan(entries).any() or (what == "finite" and not np.isfinite(entries).all()):
                rows.add(row)
    return rows


def with_edges(drawn: Array, kind: np.dtype[Any], rng: np.random.Generator, edges: Edges) -> Array:
    """Ordinary numbers with some edges among them; of three rows one has none."""
    if edges == "none" or kind.kind not in "f" or rng.random() < 1 / 3:
        return drawn
    if edges == "zeros":
        return np.zeros_like(drawn)
    known: dict[str, list[float]] = {
        "infinities": [np.inf, -np.inf, np.inf, -np.inf, 0.0],
        "ties": [0.0, -0.0, 1.0, 1.0, -1.0, -1.0, 1e-40, -1e-40, float(np.finfo(np.float32).tiny)],
        "huge": [32768.0, 1e20, -1e20, float(np.finfo(np.float32).max), float(np.finfo(np.float32).min)],
        "NaN": [np.nan],
    }
    chance = rng.choice([0.05, 0.5, 1.0])
    return np.where(rng.random(drawn.shape) < chance, rng.choice(np.array(known[edges]), drawn.shape), drawn)


def difference_of(got: Array, wanted: Array) -> float:
    """The largest difference relative to the largest finite entry; NaN equals NaN, and infinities themselves."""
    if got.dtype.kind not in "f":
        return 0.0 if np.array_equal(got, wanted) else math.inf
    special = ~np.isfinite(wanted)
    if not np.array_equal(got[special], wanted[special], equal_nan=True):
        return math.inf
    got, wanted = (each[~special].astype(np.float64) for each in (got, wanted))
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    return float(np.abs(got / scale - wanted / scale).max(initial=0.0))


def _same_bits(a: Array, b: Array) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _valid(result: Array, row: int, shape: Sequence[int], *, is_row: bool) -> Array:
    """The entries of a padded result that one row gives alone, with the shape that they have there."""
    return result[_corner(row, shape[1:])][None] if is_row else result[_corner(0, shape)[1:]]


def _corner(row: int, sizes: Sequence[int]) -> tuple[int | slice, ...]:
    """The valid entries of one row."""
    return (row, *(slice(0, size) for size in sizes))


def verify_offline(
    lowered: Lowered, *, seeds: int = 3, tolerance: float = 1e-5, shortest: int = 0, edges: Sequence[Edges] = ("none",)
) -> Outcome:
    """Pad a copy and check it; what the pass did."""
    copy = Lowered(
        lowered.graph, graphs.clone(lowered.model), batch_axis=lowered.batch_axis, padded_axes=lowered.padded_axes
    )
    outcome = PadAxes().apply(copy)
    for seed, edge in itertools.product(range(seeds), edges):
        check_padded(lowered, outcome, seed=seed, tolerance=tolerance, shortest=shortest, edges=edge)
    return outcome
