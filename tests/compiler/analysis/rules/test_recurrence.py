"""Recurrent networks over padded frames, both ways, with their final states."""

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.passes.pad_axes import PadAxes
from tests.kit.graphs import random_weights
from tests.kit.offline import offline, verify_offline

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
