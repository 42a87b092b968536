"""fed_numbers: what a recipe says of whole numbers, held to the tables of the captured graph."""

import numpy as np
import pytest

from compiler.build.capture.fed_numbers import ranges_of_lookups
from compiler.errors import Refused
from compiler.graph.stages import State
from compiler.recipe.graph import Graph
from tests.kit.graphs import parse

MODEL = """(int64[batch,1] token, int64[batch,1] context, float[12,4] table) => (float[batch,2,4] y, int64[batch,1] n)
    <int64 zero = {0}> { both = Concat<axis = 1>(context, token) p = Max(both, zero) y = Gather(table, p)
    n = Identity(token) }"""
STATES = (State("context", "n", None, initial=-1),)


def _spec(**more: object) -> Graph:
    token = {"shape": ("batch", 1), "dtype": "int64", **more}
    context = {"shape": ("batch", 1), "dtype": "int64", "state": "n"}
    return Graph.model_validate(
        {"source": {"onnx": "x.onnx"}, "inputs": {"token": token, "context": context}, "outputs": ("y", "n"),
         "axes": {"batch": {"buckets": (1, 4)}}}
    )  # fmt: skip


def test_what_is_not_declared_is_what_the_table_has() -> None:
    model = parse(MODEL, {"table": np.zeros((12, 4), np.float32)})
    assert ranges_of_lookups(model, _spec(), STATES) == {"token": (0, 11)}


def test_what_is_declared_is_held_to_the_table() -> None:
    model = parse(MODEL, {"table": np.zeros((12, 4), np.float32)})
    assert ranges_of_lookups(model, _spec(range=(-1.0, 11.0)), STATES) == {"token": (-1, 11)}
    with pytest.raises(Refused, match="got 0 to 12"):
        ranges_of_lookups(model, _spec(range=(0.0, 12.0)), STATES)
