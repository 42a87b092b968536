"""Attacks a padded graph: rows of random lengths together, rubbish in every free place, against each row alone.

The original runs on one row at its true lengths with masks of ones. The padded graph runs on all rows at once, in
more slots than any row needs. Nothing that is written into free slots or into the other rows may change one bit of a
row's valid answers, and these must be those of the original.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import onnxruntime

from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.graph.stages import Array, PaddedAxis
from tests.kit.numerics import relative_difference
from tests.zoo.family import BATCH, Given

Sizes = Mapping[str, int]
"""Size by axis name."""

POISONS = (0.0, float("nan"), float("inf"), float("-inf"), 1e30, -1e30)
"""What lies in free places of real-valued inputs in turn; the others are held against the first."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One batch.

    Attributes:
        slots: size by padded axis.
        lengths: true sizes, per row.
    """

    slots: Sizes
    lengths: tuple[Sizes, ...]


@dataclasses.dataclass(frozen=True)
class Measured:
    """What the attack found.

    Attributes:
        error: largest difference to the original on the row alone, relative to values above 1.
        together: the same between a row in a batch and the row alone, both through the padded graph.
        changed: valid entries of which some poison changed a bit.
        compared: valid entries that were compared.
    """

    error: float
    together: float
    changed: int
    compared: int

    @property
    def is_sound(self) -> bool:
        """Whether nothing of the padding and of other rows could be seen, and the numbers are those of float32."""
        return self.error <= 1e-4 and self.together <= 1e-4 and self.changed == 0


class WrongSize(AssertionError):
    """An output of the padded graph, or its formula, has another size than the original's."""


def runs(axes: Sequence[PaddedAxis], sizes: Sizes, rng: np.random.Generator, *, rows: int = 4) -> Iterator[Run]:
    """Batches in buckets that fit exactly, are a little larger, and much larger.

    Args:
        axes: the padded axes, with the limits that were proved.
        sizes: a typical size by axis.
        rng: chooses the lengths.
        rows: rows of each batch; a graph without a batch axis has one.
    """
    for factor in (1.0, 1.3, 2.2):
        slots = {each.axis: _limited(each, round(sizes[each.axis] * factor)) for each in axes}
        lengths = []
        for row in range(rows):
            drawn = {each.axis: int(rng.integers(each.minimum, slots[each.axis] + 1)) for each in axes}
            if row == 0:
                drawn = {each.axis: each.minimum for each in axes}
            elif row == 1 and factor == 1.0:
                drawn = dict(slots)
            lengths.append(drawn)
        yield Run(slots, tuple(lengths))


def _limited(axis: PaddedAxis, slots: int) -> int:
    most = slots if axis.maximum is None else min(slots, axis.maximum)
    return max(most, axis.minimum)


class Attack:
    """One padded graph and its original.

    Args:
        original: the dynamic graph.
        padded: the graph with length inputs; the dimensions of its outputs are the formulas of their true sizes.
        inputs: the original's.
        axes: the padded axes.
        seed: of contents.
    """

    def __init__(
        self,
        original: ir.Model,
        padded: ir.Model,
        inputs: Mapping[str, Given],
        axes: Sequence[PaddedAxis],
        seed: int = 0,
    ) -> None:
        self.inputs, self.axes, self.rng = inputs, axes, np.random.default_rng(seed)
        self.original, self.padded = (open_session(graphs.serialized(model)) for model in (original, padded))
        self.fed = frozenset(graphs.inputs_named(padded))
        self.formulas = {name: graphs.dims_of(value) for name, value in graphs.outputs_named(padded).items()}
        self.has_rows = any(BATCH in given.shape for given in inputs.values())

    def measure(self, batches: Sequence[Run]) -> Measured:
        """Attack all batches."""
        found = [self._attack(each) for each in batches]
        return Measured(
            error=max(each.error for each in found),
            together=max(each.together for each in found),
            changed=sum(each.changed for each in found),
            compared=sum(each.compared for each in found),
        )

    def _attack(self, run: Run) -> Measured:
        rows = [self._row(lengths) for lengths in run.lengths]
        expected = [self._run(self.original, row) for row in rows]
        clean = self._valid(self._padded(run, rows, POISONS[0]), run, expected)
        error, together, changed, compared = 0.0, 0.0, 0, 0
        for row, answers in enumerate(expected):
            alone = Run(run.lengths[row], (run.lengths[row],))
            single = self._valid(self._padded(alone, [rows[row]], POISONS[0]), alone, [answers])[0]
            for name, answer in answers.items():
                error = max(error, relative_difference(clean[row][name], answer))
                together = max(together, relative_difference(clean[row][name], single[name]))
                compared += answer.size
        for poison in POISONS[1:]:
            poisoned = self._valid(self._padded(run, rows, poison), run, expected)
            changed += sum(
                _bits_changed(clean[row][n], poisoned[row][n]) for row in range(len(rows)) for n in clean[row]
            )
        for row in range(len(rows)):
            others = [each if n == row else self._spoiled(each) for n, each in enumerate(rows)]
            spoiled = self._valid(self._padded(run, others, POISONS[0]), run, expected)
            changed += sum(_bits_changed(clean[row][name], spoiled[row][name]) for name in clean[row])
        return Measured(error, together, changed, compared)

    def _row(self, lengths: Sizes) -> dict[str, Array]:
        """One random row for the original: no padding, masks of ones."""
        row = {}
        for name, given in self.inputs.items():
            shape = [dim if isinstance(dim, int) else {BATCH: 1, **lengths}[dim] for dim in given.shape]
            if given.mask_of is not None:
                array: Array = np.ones(shape)
            elif given.length_of is not None:
                array = np.full(shape, lengths[given.length_of])
            else:
                array = self._content(given, shape)
            row[name] = array.astype(given.dtype)
        return row

    def _content(self, given: Given, shape: Sequence[int]) -> Array:
        if given.below is not None:
            return self.rng.integers(0, given.below, shape)
        return self.rng.standard_normal(shape)

    def _spoiled(self, row: Mapping[str, Array]) -> dict[str, Array]:
        """A row of the same lengths that holds nothing but rubbish."""
        return {
            name: self._content(self.inputs[name], array.shape).astype(array.dtype)
            if array.dtype.kind in "iu"
            else np.full_like(array, np.nan)
            for name, array in row.items()
        }

    def _padded(self, run: Run, rows: Sequence[Mapping[str, Array]], poison: float) -> dict[str, Array]:
        """The padded graph's outputs for these rows, with `poison` in every free place."""
        feeds = {}
        for name, given in self.inputs.items():
            if name in self.fed and given.mask_of is None and given.length_of is None:
                feeds[name] = self._joined(given, run, [row[name] for row in rows], poison)
        for each in self.axes:
            feeds[each.length_input] = np.array([lengths[each.axis] for lengths in run.lengths], np.int64)
        return self._run(self.padded, feeds)

    def _joined(self, given: Given, run: Run, rows: Sequence[Array], poison: float) -> Array:
        """The rows one below the other, each at the start of its slots."""
        if BATCH not in given.shape:
            return rows[0]
        sizes = {BATCH: len(rows), **run.slots}
        shape = [dim if isinstance(dim, int) else sizes[dim] for dim in given.shape]
        if given.below is None:
            joined = np.full(shape, poison, given.dtype)
        else:
            free = {0.0: np.zeros(shape), POISONS[1]: np.full(shape, given.below - 1)}
            joined = free.get(poison, self.rng.integers(0, given.below, shape)).astype(given.dtype)
        position = given.shape.index(BATCH)
        for number, row in enumerate(rows):
            place = [slice(size) for size in row.shape]
            place[position] = slice(number, number + 1)
            joined[tuple(place)] = row
        return joined

    def _run(self, session: onnxruntime.InferenceSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
        names = list(self.formulas)
        return dict(zip(names, session.run(names, dict(feeds)), strict=True))

    def _valid(
        self, outputs: Mapping[str, Array], run: Run, expected: Sequence[Mapping[str, Array]]
    ) -> list[dict[str, Array]]:
        """The valid part of every row, cut by the formulas of the padded graph.

        Raises:
            WrongSize: an output or its valid part has another size than it should.
        """
        found: list[dict[str, Array]] = [{} for _ in expected]
        for name, output in outputs.items():
            formula = self.formulas[name]
            assert formula is not None
            slots = _sizes(formula, {BATCH: len(expected), **run.slots})
            if slots != output.shape:
                raise WrongSize(f"{name} has shape {output.shape}, its formula {formula} says {slots}")
            for row, lengths in enumerate(run.lengths):
                sizes = _sizes(formula, {BATCH: 1, **lengths})
                if sizes != expected[row][name].shape:
                    raise WrongSize(
                        f"{name} of a row with {dict(lengths)} has shape {expected[row][name].shape} when alone, "
                        f"its formula {formula} says {sizes}"
                    )
                found[row][name] = output[
                    tuple(_place(dim, size, row) for dim, size in zip(formula, sizes, strict=True))
                ]
        return found


def _sizes(formula: Sequence[graphs.Dim], sizes: Sizes) -> tuple[int, ...]:
    """A shape at given sizes of the axes."""
    values = {graphs.symbol(name): size for name, size in sizes.items()}
    return tuple(dim if isinstance(dim, int) else int(dim.subs(values)) for dim in formula)


def _place(dim: graphs.Dim, size: int, row: int) -> slice:
    """Where the valid entries of a row lie along one dimension."""
    return slice(row * size, (row + 1) * size) if graphs.mentions(dim, BATCH) else slice(size)


def _bits_changed(one: Array, other: Array) -> int:
    """Entries that are not the same bit by bit."""
    one, other = np.ascontiguousarray(one), np.ascontiguousarray(other)
    width = one.dtype.itemsize
    flat = [array.reshape(-1).view(np.uint8).reshape(-1, width) for array in (one, other)]
    return int((flat[0] != flat[1]).any(axis=1).sum())
