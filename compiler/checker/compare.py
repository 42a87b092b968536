"""Compares the result of a padded step with the result of each row alone, and one record's facts with another's."""

from collections.abc import Sequence

import numpy as np

from compiler.checker.graph import Array, Record, Rejected
from compiler.checker.slots import Layout
from compiler.checker.values import content_of, within, worst_of

TOLERANCE = 2e-4
"""Largest difference of a valid entry, relative to the largest of the step: sums may be taken in another order."""


class DiffersFromAlone(Rejected):
    """A row of the padded step holds other valid entries than the row alone.

    Args:
        message: names the value and its content.
        row: its number in the padded step.
    """

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


def require_no_better(fact: Record, known: Record, where: str, kind: int) -> None:
    """Require that a fact of an input is no stronger than the record of its producer.

    Args:
        fact: a record's fact of one of its inputs.
        known: the known fact of that value.
        where: the record, for messages.
        kind: element type of a graph input, as in `onnx.TensorProto`.

    Raises:
        Rejected: the fact is stronger, or another one.
    """
    if fact["axes"] != known["axes"]:
        raise Rejected(f"{where}: axes {fact['axes']} are not those of its producer, {known['axes']}")
    if bool(fact.get("number")) != bool(known.get("number")):
        raise Rejected(f"{where}: is a number for one record and data for another")
    if known.get("is_input"):
        limits = worst_of(kind)
        for region, low, high, nan in fact["contents"]:
            if float(low) > limits[0] or float(high) < limits[1] or (limits[2] and not nan):
                raise Rejected(f"{where}: a graph input may hold anything in region {region}, not [{low}, {high}]")
        return
    if fact is known:
        return
    for region, low, high, nan in fact["contents"]:
        was = content_of(known, frozenset(region))
        if float(low) > was[0] or float(high) < was[1] or (was[2] and not nan):
            raise Rejected(f"{where}: region {region} holds [{low}, {high}] here and {was} at its producer")
    if fact.get("index") != known.get("index"):
        raise Rejected(f"{where}: counts positions for one record and not for another")


def compare_output(where: str, layout: Layout, got: Array, references: Sequence[Array | None]) -> None:
    """Require that valid entries equal those of every row alone, and that the padding is as the record allows.

    Args:
        where: the record, for messages.
        layout: the layout of the output.
        got: the output of the padded step, with the shape of the layout.
        references: the output of the unpadded step, for every row; None where rounding dominates every number.

    Raises:
        DiffersFromAlone: a row holds other valid entries than its reference.
        Rejected: something else differs; the message names the row.
    """
    if list(got.shape) != list(layout.shape):
        raise Rejected(f"{where}: has shape {list(got.shape)}, the record says {list(layout.shape)}")
    got = got if got.dtype == np.float32 else got.astype(np.float64)  # weights are not copied
    for row, reference in enumerate(references):
        if reference is not None:
            _require_same(where, got[layout.chosen(row)] if got.ndim else got, reference, row)
        _require_positions(f"{where}: row {row}", layout, got, row)
        for region, places in layout.regions(row):
            content = layout.content(region)
            entries = got[places] if got.ndim else got
            if entries.size and not within(entries, content):
                raise Rejected(f"{where}: region {sorted(region)} of row {row} does not lie within {content}")


def _require_same(where: str, valid: Array, alone: Array, row: int) -> None:
    """Require that a row's valid entries equal those of the row alone, without copies of large arrays."""
    if valid.shape != alone.shape:
        raise Rejected(f"{where}: row {row} has {list(valid.shape)} valid entries, alone {list(alone.shape)}")
    if np.array_equal(valid, alone):
        return
    numbers, wanted = valid.astype(np.float64), alone.astype(np.float64)
    same = is_near(numbers, wanted)
    if not same.all():
        what = f"{numbers[~same][0]} instead of {wanted[~same][0]}"
        raise DiffersFromAlone(f"{where}: row {row} differs from the row alone: {what}", row)


def is_near(got: Array, wanted: Array) -> Array:
    """Return which entries are equal up to the order of sums, relative to the largest finite one, or to 1."""
    same = np.asarray(got == wanted)
    if same.all():
        return same
    with np.errstate(all="ignore"):
        scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
        near = same | (np.abs(got - wanted) <= TOLERANCE * scale)
        return np.asarray(near | (np.isnan(got) & np.isnan(wanted)))


def _require_positions(where: str, layout: Layout, numbers: Array, row: int) -> None:
    """Require that entries that a record calls positions count up, also through the padding of one segment."""
    index = layout.record.get("index")
    if index is None or not str(index["offset"]).lstrip("-").isdigit():
        return
    axis, offset = int(index["axis"]), int(index["offset"])
    lines = [layout.along(position, row) for position in range(len(layout.shape))]
    mine, valid = (np.flatnonzero(line) for line in lines[axis])
    if not valid.size:
        return
    is_one = len(layout.axes.get(axis, [{}])) == 1 and len(layout.axes.get(axis, [{}])[0].get("frames", [0])) == 1
    slots = mine if is_one else valid
    counted = slots - valid[0] if is_one else np.arange(valid.size)
    places = [np.flatnonzero(line[1]) for line in lines]
    places[axis] = slots
    computed = np.moveaxis(numbers[np.ix_(*places)], axis, -1)
    if not (computed == counted + offset).all():
        raise Rejected(f"{where}: does not count positions from {offset} along axis {axis}")
