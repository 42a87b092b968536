"""What random graphs hide: frames by what they hold, by masks that the model takes, and by both at once.

Hidden scores are finite or not, so that rows of which all is hidden have shares of what they hide, or no number.
"""

import numpy as np
import onnx_ir as ir

from tests.property.graph_builder import WIDTH, GraphBuilder, Kinds, since

FLOAT, BOOL, INT64 = ir.DataType.FLOAT, ir.DataType.BOOL, ir.DataType.INT64

LOWS = (-np.inf, float(np.finfo(np.float32).min), -1.0e30, -1.0e9, -1.0e4, -30.0)
"""What hidden scores become: the last is no mask, but a number like others."""

TAKEN = {"mask": (INT64, 1), "weight": (FLOAT, 1), "hidden": (BOOL, 0), "bias": (FLOAT, 0)}
"""Masks that a model takes, by the name of the input: their type, and what they hold at valid places."""


def _seen(builder: GraphBuilder, found: ir.Value) -> ir.Value:
    """Truths [batch, time]: what may be seen, by the numbers of a frame, or by a mask."""
    how = str(builder.rng.choice(["content", "tokens", "mask", "hidden", "both"]))
    if how in ("mask", "hidden"):
        return _taken(builder, how)
    channel = builder.op("Gather", [found, builder.scalar(int(builder.rng.integers(0, WIDTH)))], {"axis": 2})
    if how == "tokens":
        whole = builder.op("Cast", [builder.op("Round", [channel])], {"to": INT64}, INT64)
        return builder.op("Not", [builder.op("Equal", [whole, builder.scalar(0)], dtype=BOOL)], dtype=BOOL)
    seen = builder.op(
        "Greater", [channel, builder.scalar(float(builder.rng.choice([-0.5, 0.0, 0.5])), FLOAT)], dtype=BOOL
    )
    if how == "content":
        return seen
    return builder.op(str(builder.rng.choice(["And", "Or"])), [seen, _taken(builder, "mask")], dtype=BOOL)


def _taken(builder: GraphBuilder, name: str) -> ir.Value:
    """Truths [batch, time] of what a mask among the inputs shows."""
    dtype, shown = TAKEN[name]
    given = builder.input(name, ["batch", "time"], dtype)
    truths = given if dtype == BOOL else builder.op("Cast", [given], {"to": BOOL}, BOOL)
    return truths if shown else builder.op("Not", [truths], dtype=BOOL)


@since(16)
def _hiding_attention(builder: GraphBuilder) -> None:
    """Attention that hides keys, or queries, selected or added, with zeros where there is no number, or without."""
    found, low = builder.timed(), builder.scalar(float(builder.rng.choice(LOWS)), FLOAT)
    turned = builder.op("Transpose", [found], {"perm": [0, 2, 1]})
    scores = builder.op("MatMul", [builder.op("MatMul", [found, builder.weights(WIDTH, WIDTH)]), turned])
    seen = builder.op(
        "Unsqueeze", [_seen(builder, found), builder.insert.int64s(int(builder.rng.choice([1, 1, 2])))], dtype=BOOL
    )
    if builder.rng.integers(0, 2):
        scores = builder.op("Where", [seen, scores, low])
    else:
        bias = builder.op("Where", [seen, builder.scalar(0.0, FLOAT), low])
        scores = builder.op("Add", [scores, bias])
    if not builder.rng.integers(0, 3):
        bias = builder.op("Unsqueeze", [builder.input("bias", ["batch", "time"]), builder.insert.int64s(1)])
        scores = builder.op("Add", [scores, bias])
    weights = builder.op("Softmax", [scores], {"axis": -1})
    if builder.rng.integers(0, 2):
        weights = builder.op("Where", [builder.op("IsNaN", [weights], dtype=BOOL), builder.scalar(0.0, FLOAT), weights])
    builder.keep(builder.op("MatMul", [weights, found]), False)


@since(16)
def _own_key(builder: GraphBuilder) -> None:
    """Attention to frames and to a key of its own behind them, which a mask with one entry more leaves to be seen."""
    found, ends = builder.timed(), builder.insert.int64s
    row = builder.whole("Concat", [builder.size(found, 0), ends(1), ends(WIDTH)], axis=0)
    own = builder.op("Expand", [builder.weights(1, 1, WIDTH), row])
    keys = builder.op("Concat", [found, own], {"axis": 1})
    turned = builder.op("Transpose", [keys], {"perm": [0, 2, 1]})
    scores = builder.op("MatMul", [builder.op("MatMul", [found, builder.weights(WIDTH, WIDTH)]), turned])
    seen = _taken(builder, str(builder.rng.choice(["mask", "hidden"])))
    low = builder.scalar(float(builder.rng.choice(LOWS)), FLOAT)
    bias = builder.op("Pad", [builder.op("Where", [seen, builder.scalar(0.0, FLOAT), low]), ends(0, 0, 0, 1)])
    scores = builder.op("Add", [scores, builder.op("Unsqueeze", [bias, ends(1)])])
    builder.keep(builder.op("MatMul", [builder.op("Softmax", [scores], {"axis": -1}), keys]), False)


@since(13)
def _hidden_mean(builder: GraphBuilder) -> None:
    """The mean of the frames that are seen, divided by how many they are, by one less, or by 1 at least."""
    found = builder.timed()
    weight = builder.op(
        "Unsqueeze", [builder.op("Cast", [_seen(builder, found)], {"to": FLOAT}), builder.insert.int64s(2)]
    )
    total, count = (
        builder.op("ReduceSum", [each, builder.insert.int64s(1)], {"keepdims": 1})
        for each in (builder.op("Mul", [found, weight]), weight)
    )
    one = builder.scalar(1.0, FLOAT)
    match int(builder.rng.integers(0, 3)):
        case 0:
            count = builder.op("Max", [count, one])
        case 1:
            count = builder.op("Sub", [count, one])
    builder.keep(builder.op("Sub", [found, builder.op("Div", [total, count])]), False)


@since(13)
def _weighed(builder: GraphBuilder) -> None:
    """Frames times a mask of numbers."""
    found = builder.timed()
    weight = builder.op("Unsqueeze", [builder.input("weight", ["batch", "time"]), builder.insert.int64s(2)])
    builder.keep(builder.op("Mul", [found, weight]), False)


MASK_KINDS: Kinds = ((_hiding_attention, 5), (_own_key, 3), (_hidden_mean, 3), (_weighed, 1))
"""What grows under masks."""
