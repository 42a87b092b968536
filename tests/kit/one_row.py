"""Graphs written for one row: what they answer for every row alone against what one batch of all rows answers."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.graph.stages import Array, Lowered, Outcome, RowAxis
from compiler.passes.add_batch_axis import AddBatchAxis
from compiler.passes.pad_axes import PadAxes
from tests.kit.contract import check_form, check_honesty, check_idempotence, check_stamps, content_of
from tests.kit.graphs import BATCH, OPSET, copy_of, parse


def one_row(
    text: str, places: Mapping[str, int | None], weights: Mapping[str, Array] | None = None, opset: int = OPSET
) -> Lowered:
    """A graph in ONNX text for one row.

    Args:
        text: as for `tests.kit.graphs.parse`.
        places: for every input and output, the axis with a 1 for the batch, or None where there is none.
        weights: initializers by input name.
        opset: of the standard operators.
    """
    model = parse(text, dict(weights or {}), opset)
    return Lowered(
        "tiny", model, batch_axis=BATCH, row_axes=tuple(RowAxis(name, axis) for name, axis in places.items())
    )


class Differs(AssertionError):
    """A row of the batch is not the row alone."""


def check_rows(
    lowered: Lowered, *, rows: int = 3, seed: int = 0, sizes: Mapping[str, int] | None = None, proved: bool = True
) -> Outcome:
    """Apply the pass to a copy, compare every row of a batch with that row alone, and prove the rows independent.

    Args:
        lowered: the graph for one row.
        rows: of the batch.
        seed: of the contents.
        sizes: of dynamic axes by name, 4 by default.
        proved: whether pad_axes must prove the rows of the result independent.

    Raises:
        Differs: an output of a row differs.
    """
    before = content_of(lowered)
    outcome = AddBatchAxis().apply(copy_of(lowered))
    check_form(outcome.lowered)
    check_stamps(AddBatchAxis.name, lowered.model, outcome.lowered.model)
    check_honesty(outcome, before)
    check_idempotence(AddBatchAxis(), outcome.lowered)
    places = {each.tensor: each for each in lowered.row_axes}
    given = dict(sizes or {})
    rng = np.random.default_rng(seed)
    singles = []
    for _ in range(rows):
        feed = {}
        for value in lowered.model.graph.inputs:
            assert value.dtype is not None
            shape = [dim if isinstance(dim, int) else given.get(str(dim), 4) for dim in value.shape or ()]
            kind = np.dtype(value.dtype.numpy())
            drawn = rng.integers(0, 2, shape) if kind.kind in "iub" else rng.standard_normal(shape)
            feed[str(value.name)] = np.asarray(drawn).astype(kind)
        singles.append(feed)
    together = {name: np.concatenate([places[name].to_caller(feed[name]) for feed in singles]) for name in singles[0]}
    alone, batched = (open_session(graphs.serialized(each.model)) for each in (lowered, outcome.lowered))
    expected = [alone.run(None, feed) for feed in singles]
    got = batched.run(None, together)
    for index, output in enumerate(lowered.model.graph.outputs):
        name = str(output.name)
        wanted = np.concatenate([places[name].to_caller(row[index]) for row in expected])
        if got[index].shape != wanted.shape or got[index].dtype != wanted.dtype:
            raise Differs(f"{name}: expected {wanted.dtype} {wanted.shape}, got {got[index].dtype} {got[index].shape}")
        if not np.allclose(got[index], wanted, rtol=1e-5, atol=1e-5, equal_nan=True):
            raise Differs(f"{name}: differs by {np.nanmax(np.abs(got[index] - wanted))}")
        dims = graphs.dims_of(outcome.lowered.model.graph.outputs[index])
        assert dims is not None
        assert dims[0] == graphs.symbol(BATCH)
    if proved:
        padded = PadAxes().apply(copy_of(dataclasses.replace(outcome.lowered)))
        assert padded.lowered.rows_independent
    return outcome
