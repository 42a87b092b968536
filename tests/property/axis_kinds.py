"""What random graphs make of axes: a second input, axes without a name, chunks of time, and values without a batch."""

import onnx_ir as ir

from tests.property.graph_builder import WIDTH, GraphBuilder, Grown, Kinds, since

FLOAT = ir.DataType.FLOAT

SECOND: tuple[tuple[str, ...], ...] = (
    ("batch", "time"), ("rows", "time"), ("1", "time"), ("batch", "other"), ("rows", "other"), ("batch", "later"),
)  # fmt: skip
"""Rows and frames of a second input: those of the first, rows of another name, one row for all, frames that are not
padded, and frames that are padded apart."""


def _beside(builder: GraphBuilder) -> None:
    """A second input with axes of its own, and what the first one has to do with it."""
    rows, frames = SECOND[int(builder.rng.integers(0, len(SECOND)))]
    dims = [1 if rows == "1" else rows, frames, WIDTH] if builder.rows == "batch" else builder.own(frames)
    other = builder.input(f"y_{rows}_{frames}", dims)
    if builder.rows == "none":
        other = builder.op("Unsqueeze", [other, builder.insert.int64s(0)])
    match int(builder.rng.integers(0, 6)):
        case 0 if frames == "time":
            builder.keep(builder.op("Add", [builder.timed(), other]), False)
        case 1 if frames == "time":
            joined = builder.op("Concat", [builder.timed(), other], {"axis": 2})
            builder.keep(builder.op("MatMul", [joined, builder.weights(2 * WIDTH, WIDTH)]), False)
        case 0 | 1 | 2:
            builder.keep(_attention(builder, builder.pick(False).value, other), False)
        case 3:
            mean = builder.op("ReduceMean", [other, builder.insert.int64s(1)], {"keepdims": 1})
            builder.keep(builder.op("Mul", [builder.pick(False).value, mean]), False)
        case 4:
            builder.keep(builder.op("Concat", [builder.pick(False).value, other], {"axis": 1}), False)
        case _:
            builder.values.insert(0, Grown(other, False))
            builder.graph.outputs.append(builder.op("MatMul", [other, builder.weights(WIDTH, WIDTH)]))


def _attention(builder: GraphBuilder, queries: ir.Value, keys: ir.Value) -> ir.Value:
    scores = builder.op("MatMul", [queries, builder.op("Transpose", [keys], {"perm": [0, 2, 1]})])
    return builder.op("MatMul", [builder.op("Softmax", [scores], {"axis": 2}), keys])


@since(11)
def _without_a_name(builder: GraphBuilder) -> None:
    """Axes of which shape inference has no size: of the last few frames, and of a count in floating point."""
    found, ends = builder.pick(False).value, builder.insert.int64s
    if not builder.rng.integers(0, 4):
        size = builder.op("Cast", [builder.whole("Squeeze", [builder.length(found, False)])], {"to": FLOAT})
        places = builder.op("Range", [builder.scalar(0.0, FLOAT), size, builder.scalar(1.0, FLOAT)])
        return builder.keep(builder.op("Mul", [found, builder.op("Unsqueeze", [places, ends(1)])]), False)
    few = builder.op("Slice", [found, ends(-int(builder.rng.integers(1, 6))), ends(2**63 - 1), ends(1)])
    match int(builder.rng.integers(0, 4)):
        case 0:
            op = str(builder.rng.choice(["ReduceMean", "ReduceMax", "ReduceSum"]))
            return builder.keep(builder.op("Sub", [found, builder.op(op, [few, ends(1)], {"keepdims": 1})]), False)
        case 1:
            return builder.keep(_attention(builder, found, few), False)
        case 2:
            return builder.keep(builder.op("Concat", [few, found], {"axis": 1}), False)
    return builder.keep(few, False)


@since(11)
def _dual_path(builder: GraphBuilder) -> None:
    """Chunks of time: something within each, something across all, and frames again."""
    found, ends = builder.pick(False).value, builder.insert.int64s
    chunk, last, width = ends(int(builder.rng.integers(2, 5))), ends(-1), ends(WIDTH)
    size, rows = builder.length(found, False), builder.size(found, 0)
    is_longer = bool(builder.rng.integers(0, 3))
    if is_longer:
        rest = builder.whole("Mod", [builder.whole("Neg", [size]), chunk])
        pads = builder.whole("Concat", [ends(0, 0, 0, 0), rest, ends(0)], axis=0)
        whole = builder.op("Pad", [found, pads])
    else:
        end = builder.whole("Mul", [builder.whole("Div", [size, chunk]), chunk])
        whole = builder.op("Slice", [found, ends(0), end, ends(1)])
    chunks = builder.op("Reshape", [whole, builder.whole("Concat", [rows, last, chunk, width], axis=0)])
    if builder.rng.integers(0, 3):
        inner = builder.op("Reshape", [chunks, builder.whole("Concat", [last, chunk, width], axis=0)])
        shape = builder.whole("Concat", [rows, last, chunk, width], axis=0)
        chunks = builder.op("Add", [chunks, builder.op("Reshape", [_path(builder, inner), shape])])
    if builder.rng.integers(0, 3):
        count, lanes = builder.size(chunks, 1), builder.whole("Mul", [rows, chunk])
        turned = builder.op("Transpose", [chunks], {"perm": [0, 2, 1, 3]})
        across = builder.op("Reshape", [turned, builder.whole("Concat", [lanes, count, width], axis=0)])
        shape = builder.whole("Concat", [rows, chunk, count, width], axis=0)
        back = builder.op("Reshape", [_path(builder, across), shape])
        chunks = builder.op("Add", [chunks, builder.op("Transpose", [back], {"perm": [0, 2, 1, 3]})])
    frames = builder.op("Reshape", [chunks, builder.whole("Concat", [rows, last, width], axis=0)])
    builder.keep(builder.op("Slice", [frames, ends(0), size, ends(1)]) if is_longer else frames, False)


def _path(builder: GraphBuilder, value: ir.Value) -> ir.Value:
    """Something over the second axis of [.., steps, channels]."""
    match int(builder.rng.integers(0, 5)):
        case 0:
            return builder.op("Softmax", [value], {"axis": 1})
        case 1:
            return _attention(builder, value, value)
        case 2:
            return builder.op("CumSum", [value, builder.scalar(1)])
        case 3:
            op = str(builder.rng.choice(["ReduceMean", "ReduceMax"]))
            return builder.op("Sub", [value, builder.op(op, [value, builder.insert.int64s(1)], {"keepdims": 1})])
    turned = builder.op("Transpose", [value], {"perm": [1, 0, 2]})
    weights = [builder.weights(1, 3 * WIDTH, WIDTH) for _ in range(2)]
    direction = str(builder.rng.choice(["forward", "reverse"]))
    frames, _ = builder.several("GRU", [turned, *weights], {"hidden_size": WIDTH, "direction": direction}, [FLOAT] * 2)
    return builder.op("Transpose", [builder.op("Squeeze", [frames, builder.insert.int64s(1)])], {"perm": [1, 0, 2]})


def _frames_alone(builder: GraphBuilder) -> None:
    """One row as [frames, channels], something over either axis, and the row again."""
    found, ends = builder.pick(False).value, builder.insert.int64s
    flat = builder.op("Squeeze", [found, ends(0)])
    match int(builder.rng.integers(0, 5)):
        case 0:
            made = builder.op("Softmax", [flat], {"axis": int(builder.rng.integers(0, 2))})
        case 1:
            op = str(builder.rng.choice(["ReduceMean", "ReduceMax", "ReduceSum"]))
            axis = ends(int(builder.rng.integers(0, 2)))
            made = builder.op("Sub", [flat, builder.op(op, [flat, axis], {"keepdims": 1})])
        case 2:
            scores = builder.op("MatMul", [flat, builder.op("Transpose", [flat], {"perm": [1, 0]})])
            made = builder.op("MatMul", [builder.op("Softmax", [scores], {"axis": 1}), flat])
        case 3:
            made = builder.op("Gemm", [flat, builder.weights(WIDTH, WIDTH), builder.weights(WIDTH)])
        case _:
            made = builder.op("Add", [flat, builder.op("Gather", [flat, ends(-1)], {"axis": 0})])
    builder.keep(builder.op("Unsqueeze", [made, ends(0)]), False)


AXIS_KINDS: Kinds = ((_beside, 4), (_without_a_name, 3), (_dual_path, 3))
"""What grows where axes are other ones than those of the first input."""

ONE_ROW_KINDS: Kinds = (*AXIS_KINDS, (_frames_alone, 3))
"""What grows where there is one row."""
