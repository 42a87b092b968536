"""fold_mask_inputs: masks of padding leave the graph, all other masks stay."""

import dataclasses

import numpy as np
import pytest

from compiler import ir as house
from compiler.errors import Refused
from compiler.evaluate import run_model
from compiler.passes.fold_mask_inputs import FoldMaskInputs
from compiler.stages import Lowered, PaddedAxis
from tests.kit.graphs import ops_of, parse

HEAD = """(float[batch,time,time] s, {dtype}[batch,time] mask) => (float[batch,time,time] y)
<float low = {{-1e9}}, float one = {{1.0}}, int64[1] first = {{1}}, float[1] zero = {{0.0}}>"""
BODIES = {
    "added": ("float", "i = Sub(one, mask)  m = Mul(i, low)  u = Unsqueeze(m, first)  y = Add(s, u)", []),
    "selected": ("int64", "b = Cast<to = 9>(mask)  u = Unsqueeze(b, first)  y = Where(u, s, low)", []),
    "multiplied": ("float", "u = Unsqueeze(mask, first)  y = Mul(s, u)", []),
    "joined with a causal mask": (
        "int64",
        "b = Cast<to = 9>(mask)  u = Unsqueeze(b, first)  c = Greater(s, zero)  v = And(c, u)  y = Where(v, s, low)",
        ["Greater", "Where"],
    ),
    "counted": (
        "int64",
        "n = CumSum(mask, axis)  f = Cast<to = 1>(n)  u = Unsqueeze(f, first)  y = Mul(s, u)",
        ["CumSum", "Cast", "Unsqueeze", "Mul"],
    ),
}


def masked(name: str) -> Lowered:
    """A graph with a mask input."""
    dtype, body, _ = BODIES[name]
    head = HEAD.replace("<float low", "<int64 axis = {{1}}, float low").format(dtype=dtype)
    model = parse(f"{head} {{ {body.replace('y =', 'z =')}  y = Identity(z) }}")
    axis = PaddedAxis("time", "time_length", ("mask",))
    return Lowered("tiny", model, batch_axis="batch", padded_axes=(axis,))


@pytest.mark.parametrize("name", BODIES)
def test_the_graph_without_the_mask_is_the_graph_fed_with_ones(name: str) -> None:
    lowered = masked(name)
    s = np.random.default_rng(0).standard_normal((2, 5, 5)).astype(np.float32)
    kind = np.float32 if BODIES[name][0] == "float" else np.int64
    expected = run_model(lowered.model, {"s": s, "mask": np.ones((2, 5), kind)})
    outcome = FoldMaskInputs().apply(lowered)
    assert [str(value.name) for value in outcome.lowered.model.graph.inputs] == ["s"]
    np.testing.assert_array_equal(run_model(outcome.lowered.model, {"s": s})["y"], expected["y"])
    left = [op for op in ops_of(outcome.lowered.model) if op not in ("Identity", "Shape", "Concat", "Expand")]
    assert left == BODIES[name][2]


def test_a_mask_that_alone_has_its_axis_is_refused() -> None:
    model = parse("(float[batch,4] x, float[batch,time] mask) => (float[batch,time] y) { y = Relu(mask) }")
    lowered = Lowered("tiny", model, padded_axes=(PaddedAxis("time", "time_length", ("mask",)),))
    with pytest.raises(Refused, match="only input with an axis of time"):
        FoldMaskInputs().apply(lowered)


def test_a_graph_without_masks_stays() -> None:
    lowered = masked("added")
    before = house.serialized(lowered.model)
    outcome = FoldMaskInputs().apply(dataclasses.replace(lowered, padded_axes=()))
    assert (outcome.rewritten, house.serialized(outcome.lowered.model)) == (0, before)
