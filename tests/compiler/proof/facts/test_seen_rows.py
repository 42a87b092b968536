"""Which constants may hide a score by -inf, and at which lengths it is asked whether a row sees something."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph.stages import Array, Lowered
from compiler.proof.facts.seen_rows import SeenRows, infinite_constants
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.graphs import node_named, parse

CONSTANTS: dict[str, Array] = {
    "inf": np.array(-np.inf, np.float32), "low": np.array(-1e9, np.float32), "bias": np.array([0, -np.inf], np.float32),
    "shape": np.array([2, 2]), "zero": np.array(0.0, np.float32),
}  # fmt: skip
DECLARED = "float[2,2] x, bool[2,2] m, float inf, float low, float[2] bias, int64[2] shape, float zero"

REACHED = {
    "y = Where(m, x, inf)": ["inf"],
    "y = Add(x, bias)": ["bias"],
    "a = Expand(inf, shape)  b = Where(m, zero, a)  c = Add(x, b)  y = Div(c, low)": ["inf"],
    "a = ConstantOfShape(shape)  y = Where(m, x, a)": ["a"],
    "y = Where(m, x, low)": [],
    "a = Where(m, x, inf)  y = Max(a, low)": [],
    "a = Where(m, x, inf)  y = Clip(a, low)": [],
    "a = Where(m, x, inf)  y = Max(a, inf)": ["inf"],
    "a = Add(x, bias)  y = Softmax(a)": [],
}
"""By graph: the constants from which -inf may reach y."""


@pytest.mark.parametrize("body", REACHED)
def test_constants_that_reach_a_value(body: str) -> None:
    model = parse(f"({DECLARED}) => (float[2,2] y) {{ {body} }}", CONSTANTS)
    for node in model.graph:
        if node.op_type == "ConstantOfShape":
            node.attributes["value"] = ir.AttrTensor("value", ir.tensor(np.array([-np.inf], np.float32)))
    found = infinite_constants(node_named(model, "y").outputs[0])
    assert [value.name for value in found] == REACHED[body]


def asked(slots: int, step: int = 1) -> str:
    """What is said of a softmax whose only new place is hidden when half of the slots hold a frame."""
    keys = slots + step
    text = """(float[2,KEYS] x, int64[2] length, float inf, int64[KEYS] places, int64 half) => (float[2,KEYS] y) {
        ages = Unsqueeze(length, one)  valid = Less(places, ages)  empty = Equal(ages, half)  new = Equal(places, last)
        full = Not(empty)  kept = And(new, full)  seen = Or(valid, kept)  none = And(seen, full)
        hidden = Where(none, x, inf)  y = Softmax(hidden) }""".replace("KEYS", str(keys))
    given: dict[str, Array] = {
        "inf": np.array(-np.inf, np.float32), "places": np.arange(keys), "half": np.array(slots // 2),
        "one": np.array([1]), "last": np.array(keys - 1),
    }  # fmt: skip
    model = parse(text.replace("int64 half", "int64 half, int64[1] one, int64 last"), given)
    cache = CacheAxis("cache", slots, step, "length", None)
    return SeenRows(Lowered("tiny", model, caches=(cache,), is_padded=True), model, {}).why_not(node_named(model, "y"))


@pytest.mark.parametrize("slots", [4, 100])
def test_every_length_is_tried(slots: int) -> None:
    assert asked(slots) == f"row [0, 0] sees nothing at cache {slots // 2}"
