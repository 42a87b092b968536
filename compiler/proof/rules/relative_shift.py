"""Proves how padding acts on a chain of movements as a whole, such as the shift of relative position scores (rule RS1).

    scores [H, T, 2T-1] -> pad a column -> [H, T, 2T] -> [H, 2T, T] -> drop a row -> [H, T, 2T-1] -> cut to [H, T, T]

Inside, entries lie across padded axes; at the end out[i, j] is score j - i + T - 1 again, for every T. The way back
puts weights [H, T, T] about the middle of [H, T, 2T-1], among zeros that the padding has to hold already. No syntax is
matched: the chain is executed on place numbers, for rows alone and for padded rows together. From some numbers of
frames a layout of the result is guessed. It is accepted if every valid entry comes from where the layout of the operand
says, derived in symbols for every number of frames (`compiler.proof.facts.index_map`,
`compiler.proof.facts.same_places`).
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph.model import dims_of, is_op
from compiler.graph.sizes.expressions import Dim, normal_form, symbol
from compiler.graph.sizes.growth import number
from compiler.proof.facts.case import Case
from compiler.proof.facts.executed_index_map import (
    STEPS,
    Array,
    Sizes,
    entry_positions,
    label,
    pad_value,
    run,
    uniform,
)
from compiler.proof.facts.facts import Fact, Region, Verdict, make_fact
from compiler.proof.facts.index_map import FRAMES, ROWS, derive
from compiler.proof.facts.interval import Interval, constant, hull
from compiler.proof.facts.layout import Axis, Frames, Plain, Rows, Segment, Side, joined, size_of, suffix
from compiler.proof.facts.same_places import holds
from compiler.proof.rules.length import is_known

LONGEST = 8
"""Nodes of the longest chain."""

TRIALS = 24
"""Numbers of frames that are tried without a gap."""

FAR = (31, 48)
"""Numbers of frames that are tried beyond."""

MORE = (0, 1, 2, 6, 7)
"""How many steps longer the padded axis is than the true one."""

FEWEST = 20
"""Trials with padding that have to run; lengths for which the unpadded chain fails do not count."""

ROOM = 4_000_000
"""Entries of the largest array that is tried."""


@dataclasses.dataclass(frozen=True)
class Chain:
    """A recognised chain.

    Attributes:
        nodes: its nodes in order; nothing else reads the values between them, but Shape.
        verdict: of the last node.
    """

    nodes: tuple[ir.Node, ...]
    verdict: Verdict


def match(case: Case) -> Chain | None:
    """Return the shortest chain of movements from a node on whose result has a plain layout; None for none.

    Args:
        case: the first node, with the facts of its operands.
    """
    moved = _moved(case)
    if moved is None:
        return None
    nodes: list[ir.Node] = []
    for node in followers(case.node):
        nodes.append(node)
        if len(nodes) < 2:
            continue
        trials = _Trials(case, moved, nodes)
        dims = [dim for dim in dims_of(node.outputs[0]) or () if is_known(case, dim)]
        axes = _plain_axes(moved, dims, trials.ran) if trials.ran else None
        if axes is not None and _holds(moved, axes, trials.ran) and _is_derived(moved, nodes, axes, trials):
            return Chain(tuple(nodes), _verdict(moved, nodes, axes))
    return None


@dataclasses.dataclass(frozen=True)
class Moved:
    """The operand whose entries a chain moves."""

    value: ir.Value
    fact: Fact
    dims: tuple[Dim, ...]


def _moved(case: Case) -> Moved | None:
    """Return the only operand of the first node that varies; None where there is not exactly one."""
    if not is_op(case.node, *STEPS):
        return None
    operands = [operand for operand in (case.present if case.op == "Concat" else [0]) if case.fact(operand).padded]
    operands = [operand for operand in operands if uniform(case.node.inputs[operand]) is None]
    value = case.node.inputs[operands[0]] if len(operands) == 1 else None
    if value is None:
        return None
    fact = case.fact(operands[0])
    dims = tuple(size_of(fact.axis(at) or (Plain(dim),)) for at, dim in enumerate(case.dims(operands[0])))
    return Moved(value, fact, dims) if all(is_known(case, dim) for dim in dims) else None


def followers(node: ir.Node) -> Iterator[ir.Node]:
    """Yield the node, and those behind it as long as a single movement reads the result."""
    for _ in range(LONGEST):
        yield node
        output = node.outputs[0]
        readers = [use.node for use in output.uses() if not is_op(use.node, "Shape")]
        if len(node.outputs) != 1 or output.is_graph_output() or len(readers) != 1 or not is_op(readers[0], *STEPS):
            return
        node = readers[0]


@dataclasses.dataclass(frozen=True)
class Trial:
    """A chain executed for one number of slots.

    Attributes:
        slots: values of the axis names in the padded program.
        rows: values of the axis names in the unpadded one, for every row.
        together: the padded program's result for the place numbers.
        alone: the unpadded program's results for the place numbers of every row.
    """

    slots: Sizes
    rows: tuple[Sizes, ...]
    together: Array
    alone: tuple[Array, ...]


class _Trials:
    """All trials of a chain that run."""

    def __init__(self, case: Case, moved: Moved, nodes: Sequence[ir.Node]) -> None:
        self.case, self.moved, self.nodes = case, moved, nodes
        self.batch = None if case.batch is None else symbol(case.batch)
        self.atoms = self._atoms(self._sizes())
        self.ran = [trial for lengths in self._lengths() if (trial := self._run(*lengths)) is not None]

    def _lengths(self) -> Iterator[tuple[Sizes, tuple[Sizes, ...]]]:
        """Yield numbers of frames to try: the number of slots, and the true lengths of two rows."""
        sizes = self._sizes()
        atoms = self._atoms(sizes)
        if len(atoms) != 1:
            return
        values = self._values(atoms[0], sizes)
        for position, true in enumerate(values):
            for more in MORE:
                if position + more < len(values):
                    slots = {atoms[0]: values[position + more]}
                    rows = [{atoms[0]: length} for length in (true, values[max(position - 2, 0)])]
                    if self.batch is not None:
                        slots |= {self.batch: len(rows)}
                        rows = [row | {self.batch: 1} for row in rows]
                    yield slots, tuple(rows if self.batch is not None else rows[:1])

    def _sizes(self) -> list[sympy.Expr]:
        """Return the sizes of the axes in the chain that are not fixed."""
        inner = [dim for node in self.nodes for dim in dims_of(node.outputs[0]) or () if is_known(self.case, dim)]
        return [dim for dim in dict.fromkeys([*self.moved.dims, *inner]) if not isinstance(dim, int)]

    def _atoms(self, sizes: Sequence[sympy.Expr]) -> list[sympy.Basic]:
        """Return the terms that sizes depend on: one quotient of a length where nothing else occurs, or lengths."""
        found = set().union(*(_leaves(size) for size in sizes)) - {self.batch}
        names = {name for each in found for name in each.free_symbols} - {self.batch}
        return list(found if len(found) == 1 else names)

    def _values(self, atom: sympy.Basic, sizes: Sequence[sympy.Expr]) -> list[int]:
        """Return values of a term at which the sizes change."""
        if not atom.is_Symbol:
            return [*range(1, TRIALS), *FAR]
        kept: dict[tuple[int, ...], int] = {}
        period = math.lcm(*(int(each.q) for size in sizes for each in size.atoms(sympy.Rational)))
        for value in range(1, period * TRIALS + 1):
            known = {atom: value} | ({} if self.batch is None else {self.batch: 1})
            found = tuple(number(size, known) for size in sizes)
            if min(found) >= 1:
                kept.setdefault(found, value)
        return [*kept.values(), *(period * far for far in FAR)]

    def _run(self, slots: Sizes, rows: tuple[Sizes, ...]) -> Trial | None:
        """Run the chain, padded and unpadded, for one choice of lengths; None where either does not run."""
        moved = self.moved
        try:
            shape = [number(dim, slots) for dim in moved.dims]
            if min(shape) < 1 or math.prod(shape) > ROOM:
                return None
            places = np.arange(math.prod(shape)).reshape(shape)
            _label_padding(places, moved, slots, rows)
            alone = []
            for row, true in enumerate(rows):
                row_entries = places[np.ix_(*entry_positions(moved.fact.tracked, moved.dims, row, slots, true))]
                if row_entries.size == 0:
                    return None
                alone.append(run(self.nodes, moved.value, row_entries, true))
            return Trial(slots, rows, run(self.nodes, moved.value, places, slots), tuple(alone))
        except (ValueError, IndexError):
            return None


def _label_padding(places: Array, moved: Moved, slots: Sizes, rows: Sequence[Sizes]) -> None:
    """Replace the labels of padding that holds a known constant by the label of that constant."""
    if any(len(axis) > 1 for axis_number, axis in moved.fact.axes if axis_number in moved.fact.padded):
        return
    for row, true in enumerate(rows):
        valid = entry_positions(moved.fact.tracked, moved.dims, row, slots, true)
        for region, content in moved.fact.contents:
            if region and content.is_constant:
                inside = [
                    np.setdiff1d(np.arange(places.shape[axis_number]), valid_entries)
                    if axis_number in region
                    else valid_entries
                    for axis_number, valid_entries in enumerate(valid)
                ]
                places[np.ix_(*inside)] = label(content.low)


def _leaves(size: Dim) -> set[sympy.Basic]:
    if isinstance(size, int):
        return set()
    if isinstance(size, sympy.floor) or size.is_Symbol:
        return {size}
    return set().union(*(_leaves(part) for part in size.args))


def _plain_axes(moved: Moved, dims: Sequence[Dim], trials: Sequence[Trial]) -> dict[int, Axis] | None:
    """Return the layout of a result of rows, frames and fixed axes that fits every trial; None for none.

    Args:
        moved: the operand.
        dims: the known sizes of the result.
        trials: results of the chain.
    """
    axes: dict[int, Axis] = {}
    for axis_number in range(trials[0].together.ndim):
        fitting = next((axis for axis in _candidates(moved, dims) if _fits(axis, axis_number, trials)), None)
        if fitting is not None:
            axes[axis_number] = fitting
        elif len({result.shape[axis_number] for trial in trials for result in (trial.together, *trial.alone)}) > 1:
            return None
    return axes


def _candidates(moved: Moved, dims: Sequence[Dim]) -> Iterator[Axis]:
    """Yield layouts that an axis of the result may have: rows, or frames of sizes in the operand or result.

    Frames at the end of their slots, as those of a cache, lie there again; other frames lie in front, or about the
    middle.
    """
    for _, axis in moved.fact.axes:
        yield from [axis] if any(isinstance(factor, Rows) for factor in axis) else []
    grown = [dim for dim in dims if isinstance(dim, sympy.Expr)]
    for _, axis in moved.fact.axes:
        for factor in axis:
            if isinstance(factor, Frames) and [segment.side for segment in factor.segments] == [Side.RIGHT]:
                yield from (joined([Segment(size, Side.RIGHT)]) for size in [factor.size, *grown])
            elif isinstance(factor, Frames):
                yield from (suffix(size) for size in [factor.size, *(segment.size for segment in factor.segments)])
                yield joined([Segment(factor.size, Side.RIGHT), Segment(normal_form(factor.size - 1))])


def _fits(axis: Axis, at: int, trials: Sequence[Trial]) -> bool:
    """Whether an axis has the size of a layout, in slots and in true lengths."""
    size = size_of(axis)
    return all(
        number(size, trial.slots) == trial.together.shape[at]
        and all(number(size, true) == own.shape[at] for true, own in zip(trial.rows, trial.alone, strict=True))
        for trial in trials
    )


def _holds(moved: Moved, axes: Mapping[int, Axis], trials: Sequence[Trial]) -> bool:
    """Whether every valid entry of the result equals that of the unpadded chain, in every trial."""
    for trial in trials:
        for row, (true, expected) in enumerate(zip(trial.rows, trial.alone, strict=True)):
            places = entry_positions(axes, trial.together.shape, row, trial.slots, true)
            if not np.array_equal(trial.together[np.ix_(*places)], expected):
                return False
    return sum(trial.slots != trial.rows[0] for trial in trials) >= FEWEST


def _is_derived(moved: Moved, nodes: Sequence[ir.Node], axes: Mapping[int, Axis], trials: "_Trials") -> bool:
    """Whether the result of the trials is proved for every number of frames."""
    known: dict[sympy.Basic, sympy.Expr] = {} if trials.batch is None else {trials.batch: ROWS}
    known |= {atom: _in_frames(atom, axes) for atom in trials.atoms}
    try:
        return holds(derive(nodes, moved.dims, known), moved.fact, axes, known)
    except ValueError:
        return False


def _in_frames(atom: sympy.Basic, axes: Mapping[int, Axis]) -> sympy.Expr:
    """Return the terms of sizes as a function of the number of frames, which is the size of the shortest axis."""
    gaps = [normal_form(size - atom) for size in _frame_sizes(axes) if not isinstance(size, int)]
    return FRAMES - min((gap for gap in gaps if isinstance(gap, int)), default=0)


def _frame_sizes(axes: Mapping[int, Axis]) -> list[Dim]:
    """Return the sizes of the padded axes, each of which the verdict requires to be at least 1."""
    return [axis[0].size for axis in axes.values() if isinstance(axis[0], Frames)]


def _verdict(moved: Moved, nodes: Sequence[ir.Node], axes: Mapping[int, Axis]) -> Verdict:
    """Return the verdict: valid positions hold valid entries; padding holds entries of the operand or constants."""
    added = [pad_value(node) for node in nodes if is_op(node, "Pad")]
    joined = [uniform(value) for node in nodes if is_op(node, "Concat") for value in node.inputs]
    numbers = [constant(each) for each in (*added, *joined) if each is not None]
    inside, outside = hull(moved.fact.valid, *numbers), hull(moved.fact.anywhere, *numbers)

    def content(region: Region) -> Interval:
        return outside if region else inside

    reason = f"{len(nodes)} movements, followed in symbols: every valid entry comes from its place"
    return Verdict("RS1", (make_fact(axes, content),), reason, at_least_one=tuple(dict.fromkeys(_frame_sizes(axes))))
