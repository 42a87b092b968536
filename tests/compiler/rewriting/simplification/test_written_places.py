"""written_places: indices of a ScatterND as places along every axis, and None where a place may be written twice."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.rewriting.simplification.written_places import WHOLE, Known, Places, Run, written_places
from tests.kit.graphs import parse

COUNTED = "s = Shape(x)  n = Gather(s, nought)  count = Range(nought, n, single)"
READ: dict[str, tuple[str, list[Places] | None]] = {
    "all": ("i = Unsqueeze(count, last)", [WHOLE]),
    "a run": ("a = Slice(count, one, end)  i = Unsqueeze(a, last)", [Run(1, 4)]),
    "a run with other axes": ("a = Slice(count, one, end, zero, one)  i = Unsqueeze(a, last)", [Run(1, 4)]),
    "to the last": ("a = Slice(count, one, far)  i = Unsqueeze(a, last)", [Run(1, None)]),
    "up to one that is in front of the first": ("a = Slice(count, end, one)  i = Unsqueeze(a, last)", None),
    "from the end to a place from the front": ("a = Slice(count, last, end)  i = Unsqueeze(a, last)", None),
    "in steps": ("a = Slice(count, one, end, zero, two)  i = Unsqueeze(a, last)", None),
    "as many as something else has": ("c = Range(nought, three, single)  i = Unsqueeze(c, last)", None),
    "from one on": ("c = Range(single, n, single)  i = Unsqueeze(c, last)", None),
    "the first, again and again": ("e = Expand(zero, s0)  i = Unsqueeze(e, last)", None),
    "what is fed": ("i = Identity(given)", None),
}


@pytest.mark.parametrize("name", READ)
def test_counted_places(name: str) -> None:
    body, wanted = READ[name]
    text = f"""(float[n,2] x, int64[k,1] given) => (int64[o] i) <int64 nought = {{0}}, int64 single = {{1}},
    int64 three = {{3}}, int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] last = {{-1}},
    int64[1] end = {{4}}, int64[1] far = {{9223372036854775807}}, int64[1] s0 = {{5}}> {{ {COUNTED}  {body} }}"""
    model = parse(text)
    graphs.infer_shapes(model)
    indices = model.graph.outputs[0]
    assert written_places(indices, (graphs.symbol("n"), 2)) == wanted


KNOWN = {
    "in a row": ([[0], [1]], [[0, 1]]),
    "from the end": ([[-1], [0]], [[4, 0]]),
    "twice": ([[1], [-4]], None),
    "beyond the end": ([[7]], None),
    "a block": ([[[0, 1], [0, 2]], [[3, 1], [3, 2]]], [[0, 3], [1, 2]]),
    "no block": ([[[0, 1], [0, 2]], [[3, 1], [3, 0]]], None),
    "pairs": ([[0, 1], [1, 2]], None),
}


@pytest.mark.parametrize("name", KNOWN)
def test_places_that_are_numbers(name: str) -> None:
    array, wanted = KNOWN[name]
    model = parse("(float[5,5] x, int64[o] i) => (int64[o] y) { y = Identity(i) }", {"i": np.array(array, np.int64)})
    value = model.graph.initializers["i"]
    graphs.infer_shapes(model)
    found = written_places(value, (5, 5))
    assert (found is None) == (wanted is None)
    assert [each.places.tolist() for each in found or [] if isinstance(each, Known)] == (wanted or [])
