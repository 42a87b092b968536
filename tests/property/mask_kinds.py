"""What random graphs hide: frames by what they hold, by masks that the model takes, and by both at once.

Hidden scores are finite or not, so that rows of which all is hidden have shares of what they hide, or no number.
"""

import numpy as np
import onnx_ir as ir

from tests.property.garden import WIDTH, Garden, Kinds, since

FLOAT, BOOL, INT64 = ir.DataType.FLOAT, ir.DataType.BOOL, ir.DataType.INT64

LOWS = (-np.inf, float(np.finfo(np.float32).min), -1.0e30, -1.0e9, -1.0e4, -30.0)
"""What hidden scores become: the last is no mask, but a number like others."""

TAKEN = {"mask": (INT64, 1), "weight": (FLOAT, 1), "hidden": (BOOL, 0), "bias": (FLOAT, 0)}
"""Masks that a model takes, by the name of the input: their type, and what they hold at valid places."""


def _seen(garden: Garden, found: ir.Value) -> ir.Value:
    """Truths [batch, time]: what may be seen, by the numbers of a frame, or by a mask."""
    how = str(garden.rng.choice(["content", "tokens", "mask", "hidden", "both"]))
    if how in ("mask", "hidden"):
        return _taken(garden, how)
    channel = garden.op("Gather", [found, garden.scalar(int(garden.rng.integers(0, WIDTH)))], {"axis": 2})
    if how == "tokens":
        whole = garden.op("Cast", [garden.op("Round", [channel])], {"to": INT64}, INT64)
        return garden.op("Not", [garden.op("Equal", [whole, garden.scalar(0)], dtype=BOOL)], dtype=BOOL)
    seen = garden.op("Greater", [channel, garden.scalar(float(garden.rng.choice([-0.5, 0.0, 0.5])), FLOAT)], dtype=BOOL)
    if how == "content":
        return seen
    return garden.op(str(garden.rng.choice(["And", "Or"])), [seen, _taken(garden, "mask")], dtype=BOOL)


def _taken(garden: Garden, name: str) -> ir.Value:
    """Truths [batch, time] of what a mask among the inputs shows."""
    dtype, shown = TAKEN[name]
    given = garden.input(name, ["batch", "time"], dtype)
    truths = given if dtype == BOOL else garden.op("Cast", [given], {"to": BOOL}, BOOL)
    return truths if shown else garden.op("Not", [truths], dtype=BOOL)


@since(16)
def _hiding_attention(garden: Garden) -> None:
    """Attention that hides keys, or queries, selected or added, with zeros where there is no number, or without."""
    found, low = garden.timed(), garden.scalar(float(garden.rng.choice(LOWS)), FLOAT)
    turned = garden.op("Transpose", [found], {"perm": [0, 2, 1]})
    scores = garden.op("MatMul", [garden.op("MatMul", [found, garden.weights(WIDTH, WIDTH)]), turned])
    seen = garden.op(
        "Unsqueeze", [_seen(garden, found), garden.insert.int64s(int(garden.rng.choice([1, 1, 2])))], dtype=BOOL
    )
    if garden.rng.integers(0, 2):
        scores = garden.op("Where", [seen, scores, low])
    else:
        bias = garden.op("Where", [seen, garden.scalar(0.0, FLOAT), low])
        scores = garden.op("Add", [scores, bias])
    if not garden.rng.integers(0, 3):
        bias = garden.op("Unsqueeze", [garden.input("bias", ["batch", "time"]), garden.insert.int64s(1)])
        scores = garden.op("Add", [scores, bias])
    weights = garden.op("Softmax", [scores], {"axis": -1})
    if garden.rng.integers(0, 2):
        weights = garden.op("Where", [garden.op("IsNaN", [weights], dtype=BOOL), garden.scalar(0.0, FLOAT), weights])
    garden.keep(garden.op("MatMul", [weights, found]), False)


@since(16)
def _own_key(garden: Garden) -> None:
    """Attention to frames and to a key of its own behind them, which a mask with one entry more leaves to be seen."""
    found, ends = garden.timed(), garden.insert.int64s
    row = garden.whole("Concat", [garden.size(found, 0), ends(1), ends(WIDTH)], axis=0)
    own = garden.op("Expand", [garden.weights(1, 1, WIDTH), row])
    keys = garden.op("Concat", [found, own], {"axis": 1})
    turned = garden.op("Transpose", [keys], {"perm": [0, 2, 1]})
    scores = garden.op("MatMul", [garden.op("MatMul", [found, garden.weights(WIDTH, WIDTH)]), turned])
    seen = _taken(garden, str(garden.rng.choice(["mask", "hidden"])))
    low = garden.scalar(float(garden.rng.choice(LOWS)), FLOAT)
    bias = garden.op("Pad", [garden.op("Where", [seen, garden.scalar(0.0, FLOAT), low]), ends(0, 0, 0, 1)])
    scores = garden.op("Add", [scores, garden.op("Unsqueeze", [bias, ends(1)])])
    garden.keep(garden.op("MatMul", [garden.op("Softmax", [scores], {"axis": -1}), keys]), False)


@since(13)
def _hidden_mean(garden: Garden) -> None:
    """The mean of the frames that are seen, divided by how many they are, by one less, or by 1 at least."""
    found = garden.timed()
    weight = garden.op("Unsqueeze", [garden.op("Cast", [_seen(garden, found)], {"to": FLOAT}), garden.insert.int64s(2)])
    total, count = (
        garden.op("ReduceSum", [each, garden.insert.int64s(1)], {"keepdims": 1})
        for each in (garden.op("Mul", [found, weight]), weight)
    )
    one = garden.scalar(1.0, FLOAT)
    match int(garden.rng.integers(0, 3)):
        case 0:
            count = garden.op("Max", [count, one])
        case 1:
            count = garden.op("Sub", [count, one])
    garden.keep(garden.op("Sub", [found, garden.op("Div", [total, count])]), False)


@since(13)
def _weighed(garden: Garden) -> None:
    """Frames times a mask of numbers."""
    found = garden.timed()
    weight = garden.op("Unsqueeze", [garden.input("weight", ["batch", "time"]), garden.insert.int64s(2)])
    garden.keep(garden.op("Mul", [found, weight]), False)


MASK_KINDS: Kinds = ((_hiding_attention, 5), (_own_key, 3), (_hidden_mean, 3), (_weighed, 1))
"""What grows under masks."""
