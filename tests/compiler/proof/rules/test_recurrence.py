"""Recurrent networks over padded frames, both ways, with their final states."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.passes.pad_axes import PadAxes
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval
from tests.kit.graphs import random_weights
from tests.kit.judged import attack
from tests.kit.offline import offline, verify_offline
from tests.kit.soundness import Node, Operand, constant

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
HEAD = """(float[batch,time,4] x, float[DIRS,SIZE,4] w, float[DIRS,SIZE,3] r) => (float[batch,a,b] y)
    <int64[1] one = {1}, int64[3] flat = {0, -1, 6}, int64[4] apart = {0, 0, -1, 1}>
    { t = Transpose<perm = [1, 0, 2]>(x)  BODY }"""


def network(op: str, direction: str, body: str) -> str:
    """The graph of one network."""
    directions = 2 if direction == "bidirectional" else 1
    run = f'o, h = {op}<hidden_size = 3, direction = "{direction}">(t, w, r)  {body}'
    return HEAD.replace("DIRS", str(directions)).replace("SIZE", str(3 * GATES[op])).replace("BODY", run)


def weights(op: str, direction: str) -> dict[str, np.ndarray]:
    """Its parameters."""
    directions, gates = 2 if direction == "bidirectional" else 1, 3 * GATES[op]
    return random_weights({"w": (directions, gates, 4), "r": (directions, gates, 3)})


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("result", ["outputs", "final state"])
def test_padded_rows_are_as_alone(op: str, direction: str, result: str) -> None:
    width = 6 if direction == "bidirectional" else 3
    outputs = "q = Transpose<perm = [2, 0, 1, 3]>(o)  y = Reshape(q, flat)"
    final = "y = Transpose<perm = [1, 0, 2]>(h)"
    text = network(op, direction, outputs if result == "outputs" else final).replace("-1, 6", f"-1, {width}")
    verify_offline(offline(text, weights(op, direction)))


def test_time_and_batch_may_not_change_places() -> None:
    text = network("GRU", "forward", "y = Transpose<perm = [1, 0, 2]>(h)").replace(
        "perm = [1, 0, 2]>(x)", "perm = [0, 1, 2]>(x)"
    )
    with pytest.raises(Refused, match="batch axis"):
        PadAxes().apply(offline(text, weights("GRU", "forward")))


@pytest.mark.parametrize("op", GATES)
def test_chunks_of_time_as_rows_are_one_or_more(op: str) -> None:
    """The kernels of LSTM and GRU end the process where there are none, which nobody can catch."""
    text = f"""(float[batch,time,4] x, float[1,{3 * GATES[op]},4] w, float[1,{3 * GATES[op]},3] r)
        => (float[batch,a,b] y)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] three = {{3}}, int64[3] chunks = {{-1, 3, 4}},
         int64[2] last = {{-1, 3}}>
        {{ s = Shape<start = 1, end = 2>(x)  rows = Shape<start = 0, end = 1>(x)  m = Div(s, three)  k = Mul(m, three)
           p = Slice(x, zero, k, one)  c = Reshape(p, chunks)  t = Transpose<perm = [1, 0, 2]>(c)
           o, h = {op}<hidden_size = 3>(t, w, r)  q = Squeeze(o, one)  b = Transpose<perm = [1, 0, 2]>(q)
           all = Concat<axis = 0>(rows, last)  y = Reshape(b, all) }}"""
    outcome = verify_offline(offline(text, weights(op, "forward")))
    assert outcome.records[0]["minimum"] == {"time": 3}


def drawn(rng: np.random.Generator) -> Node:
    """One network with any of its operands, over frames that are valid in front or behind."""
    op = str(rng.choice(list(GATES)))
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    directions, gates = 2 if direction == "bidirectional" else 1, 3 * GATES[op]
    right = ["cache"] if rng.random() < 0.2 else []
    time = right[0] if right else str(rng.choice(["time", "time", "2*time", "time - 1"]))
    batch = "batch" if rng.random() < 0.8 else 2
    small = Interval(-2.0, 2.0)
    frames = Operand((time, batch, 2), valid=small, padding=ANYTHING if rng.random() < 0.6 else ZERO)

    def given(chance: float, operand: Operand) -> Operand | None:
        return operand if rng.random() < chance else None

    def weights(*shape: int) -> Operand:
        values = rng.normal(size=(directions, *shape))
        return constant(values) if rng.random() < 0.7 else Operand((directions, *shape), valid=small)

    operands = [
        frames, weights(gates, 2), weights(gates, 3), given(0.5, weights(2 * gates)),
        given(0.2, Operand((batch,), ir.DataType.INT32, valid=Interval(1, 1))),
        given(0.5, Operand((directions, batch, 3), valid=Interval(-3.0, 3.0))),
    ]  # fmt: skip
    if op == "LSTM":
        operands += [given(0.5, Operand((directions, batch, 3), valid=small)), given(0.4, weights(9))]
    attributes: dict[str, object] = {"hidden_size": 3, "direction": direction}
    if op != "GRU" and rng.random() < 0.3:
        default = ["Sigmoid", "Tanh", "Tanh"] if op == "LSTM" else ["Tanh"]
        other = ["Sigmoid", "Relu", "Tanh"] if op == "LSTM" else ["Relu"]
        attributes["activations"] = (default if rng.random() < 0.5 else other) * directions
    outputs = int(rng.integers(1, 4 if op == "LSTM" else 3))
    return Node(op, operands, attributes, outputs=outputs, right=right)


def test_random_networks_are_sound_or_refused() -> None:
    attack(drawn, 80, 40, tolerance=1e-4)
