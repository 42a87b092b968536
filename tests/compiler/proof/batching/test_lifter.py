"""lifter: every layout of a value holds the same rows."""

import itertools

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.proof.batching.form import INSERTED, RowLayout, in_place
from compiler.proof.batching.lifter import LiftedNode, Lifter
from tests.kit.graphs import BATCH, parse

LAYOUTS = [INSERTED, RowLayout(2, None), in_place(0), in_place(1), RowLayout(0, 1), RowLayout(2, 0)]
"""Of a value [1, 1, 3] of the original."""


def held(array: np.ndarray, layout: RowLayout) -> np.ndarray:
    """What a layout of the rows [rows, 1, 1, 3] holds."""
    if layout.dropped is not None:
        array = array.squeeze(layout.dropped + 1)
    return np.moveaxis(array, 0, layout.at)


@pytest.mark.parametrize(("source", "layout"), list(itertools.product(LAYOUTS, LAYOUTS)))
def test_every_form_becomes_every_other(source: RowLayout, layout: RowLayout) -> None:
    model = parse("(float[1,1,3] x) => (float[a,b,c] y) { y = Identity(x) }")
    (value,) = model.graph.inputs
    lifter = Lifter(model, BATCH, "stamp", {value: source})
    insert = graphs.Inserter(model, "stamp")
    tensor = lifter.convert(insert, value, layout)
    assert lifter.convert(insert, value, layout) is tensor
    assert lifter.layout_of(value) == source
    model.graph.outputs[0] = insert.op("Identity", [tensor], name="result")
    rows = np.random.default_rng(0).standard_normal((4, 1, 1, 3)).astype(np.float32)
    got = run_model(model, {"x": held(rows, source)})["result"]
    np.testing.assert_array_equal(got, held(rows, layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_all_rows_share_is_repeated(layout: RowLayout) -> None:
    model = parse("(float[1,1,3] x, float[1,1,3] w) => (float[a,b,c] y) { y = Identity(x) }", {"w": ARRAY})
    lifter = Lifter(model, BATCH, "stamp", {model.graph.inputs[0]: INSERTED})
    shared = model.graph.initializers["w"]
    assert not lifter.has_rows(shared)
    insert = graphs.Inserter(model, "stamp")
    model.graph.outputs[0] = insert.op("Identity", [lifter.convert(insert, shared, layout)], name="result")
    got = run_model(model, {"x": np.zeros((5, 1, 1, 3), np.float32)})["result"]
    np.testing.assert_array_equal(got, held(np.broadcast_to(ARRAY, (5, 1, 1, 3)), layout))


ARRAY = np.arange(3, dtype=np.float32).reshape(1, 1, 3)


def test_inputs_get_the_shape_of_their_form() -> None:
    model = parse("(float[4,1,time] x) => (float[a,b,c] y) { y = Identity(x) }")
    (value,) = model.graph.inputs
    lifter = Lifter(model, BATCH, "stamp", {value: RowLayout(0, 1)})
    assert graphs.dims_of(value) == (graphs.symbol(BATCH), 4, graphs.symbol("time"))
    assert lifter.dims_of(value) == (4, 1, graphs.symbol("time"))


def test_a_site_speaks_of_the_original() -> None:
    model = parse("(float[1,t,4] x, float[4] w) => (float[a,b,c] y) { y = Add(x, w) }", {"w": np.zeros(4, np.float32)})
    lifter = Lifter(model, BATCH, "stamp", {model.graph.inputs[0]: in_place(0)})
    lifted = LiftedNode(lifter, next(iter(model.graph)))
    assert (lifted.op, lifted.present, lifted.rows) == ("Add", [0, 1], [0])
    assert lifted.dims() == (1, graphs.symbol("t"), 4)
    assert (lifted.place(), lifted.rank(1)) == (0, 1)
    with pytest.raises(Refused, match="takes its shift from 'x', which differs from row to row"):
        lifted.require_shared(0, what="its shift")
    with pytest.raises(Refused, match="Add with computed sizes"):
        lifted.constants(1, "sizes")
