"""What random graphs make of axes: a second input, axes without a name, chunks of time, and values without a batch."""

import onnx_ir as ir

from tests.property.garden import WIDTH, Garden, Grown, Kinds, since

FLOAT = ir.DataType.FLOAT

SECOND: tuple[tuple[str, ...], ...] = (
    ("batch", "time"), ("rows", "time"), ("1", "time"), ("batch", "other"), ("rows", "other"), ("batch", "later"),
)  # fmt: skip
"""Rows and frames of a second input: those of the first, rows of another name, one row for all, frames that are not
padded, and frames that are padded apart."""


def _beside(garden: Garden) -> None:
    """A second input with axes of its own, and what the first one has to do with it."""
    rows, frames = SECOND[int(garden.rng.integers(0, len(SECOND)))]
    dims = [1 if rows == "1" else rows, frames, WIDTH] if garden.rows == "batch" else garden.own(frames)
    other = garden.input(f"y_{rows}_{frames}", dims)
    if garden.rows == "none":
        other = garden.op("Unsqueeze", [other, garden.insert.int64s(0)])
    match int(garden.rng.integers(0, 6)):
        case 0 if frames == "time":
            garden.keep(garden.op("Add", [garden.timed(), other]), False)
        case 1 if frames == "time":
            joined = garden.op("Concat", [garden.timed(), other], {"axis": 2})
            garden.keep(garden.op("MatMul", [joined, garden.weights(2 * WIDTH, WIDTH)]), False)
        case 0 | 1 | 2:
            garden.keep(_attention(garden, garden.pick(False).value, other), False)
        case 3:
            mean = garden.op("ReduceMean", [other, garden.insert.int64s(1)], {"keepdims": 1})
            garden.keep(garden.op("Mul", [garden.pick(False).value, mean]), False)
        case 4:
            garden.keep(garden.op("Concat", [garden.pick(False).value, other], {"axis": 1}), False)
        case _:
            garden.values.insert(0, Grown(other, False))
            garden.graph.outputs.append(garden.op("MatMul", [other, garden.weights(WIDTH, WIDTH)]))


def _attention(garden: Garden, queries: ir.Value, keys: ir.Value) -> ir.Value:
    scores = garden.op("MatMul", [queries, garden.op("Transpose", [keys], {"perm": [0, 2, 1]})])
    return garden.op("MatMul", [garden.op("Softmax", [scores], {"axis": 2}), keys])


@since(11)
def _without_a_name(garden: Garden) -> None:
    """Axes of which shape inference has no size: of the last few frames, and of a count in floating point."""
    found, ends = garden.pick(False).value, garden.insert.int64s
    if not garden.rng.integers(0, 4):
        size = garden.op("Cast", [garden.whole("Squeeze", [garden.length(found, False)])], {"to": FLOAT})
        places = garden.op("Range", [garden.scalar(0.0, FLOAT), size, garden.scalar(1.0, FLOAT)])
        return garden.keep(garden.op("Mul", [found, garden.op("Unsqueeze", [places, ends(1)])]), False)
    few = garden.op("Slice", [found, ends(-int(garden.rng.integers(1, 6))), ends(2**63 - 1), ends(1)])
    match int(garden.rng.integers(0, 4)):
        case 0:
            op = str(garden.rng.choice(["ReduceMean", "ReduceMax", "ReduceSum"]))
            return garden.keep(garden.op("Sub", [found, garden.op(op, [few, ends(1)], {"keepdims": 1})]), False)
        case 1:
            return garden.keep(_attention(garden, found, few), False)
        case 2:
            return garden.keep(garden.op("Concat", [few, found], {"axis": 1}), False)
    return garden.keep(few, False)


@since(11)
def _dual_path(garden: Garden) -> None:
    """Chunks of time: something within each, something across all, and frames again."""
    found, ends = garden.pick(False).value, garden.insert.int64s
    chunk, last, width = ends(int(garden.rng.integers(2, 5))), ends(-1), ends(WIDTH)
    size, rows = garden.length(found, False), garden.size(found, 0)
    is_longer = bool(garden.rng.integers(0, 3))
    if is_longer:
        rest = garden.whole("Mod", [garden.whole("Neg", [size]), chunk])
        pads = garden.whole("Concat", [ends(0, 0, 0, 0), rest, ends(0)], axis=0)
        whole = garden.op("Pad", [found, pads])
    else:
        end = garden.whole("Mul", [garden.whole("Div", [size, chunk]), chunk])
        whole = garden.op("Slice", [found, ends(0), end, ends(1)])
    chunks = garden.op("Reshape", [whole, garden.whole("Concat", [rows, last, chunk, width], axis=0)])
    if garden.rng.integers(0, 3):
        inner = garden.op("Reshape", [chunks, garden.whole("Concat", [last, chunk, width], axis=0)])
        shape = garden.whole("Concat", [rows, last, chunk, width], axis=0)
        chunks = garden.op("Add", [chunks, garden.op("Reshape", [_path(garden, inner), shape])])
    if garden.rng.integers(0, 3):
        count, lanes = garden.size(chunks, 1), garden.whole("Mul", [rows, chunk])
        turned = garden.op("Transpose", [chunks], {"perm": [0, 2, 1, 3]})
        across = garden.op("Reshape", [turned, garden.whole("Concat", [lanes, count, width], axis=0)])
        shape = garden.whole("Concat", [rows, chunk, count, width], axis=0)
        back = garden.op("Reshape", [_path(garden, across), shape])
        chunks = garden.op("Add", [chunks, garden.op("Transpose", [back], {"perm": [0, 2, 1, 3]})])
    frames = garden.op("Reshape", [chunks, garden.whole("Concat", [rows, last, width], axis=0)])
    garden.keep(garden.op("Slice", [frames, ends(0), size, ends(1)]) if is_longer else frames, False)


def _path(garden: Garden, value: ir.Value) -> ir.Value:
    """Something over the second axis of [.., steps, channels]."""
    match int(garden.rng.integers(0, 5)):
        case 0:
            return garden.op("Softmax", [value], {"axis": 1})
        case 1:
            return _attention(garden, value, value)
        case 2:
            return garden.op("CumSum", [value, garden.scalar(1)])
        case 3:
            op = str(garden.rng.choice(["ReduceMean", "ReduceMax"]))
            return garden.op("Sub", [value, garden.op(op, [value, garden.insert.int64s(1)], {"keepdims": 1})])
    turned = garden.op("Transpose", [value], {"perm": [1, 0, 2]})
    weights = [garden.weights(1, 3 * WIDTH, WIDTH) for _ in range(2)]
    direction = str(garden.rng.choice(["forward", "reverse"]))
    frames, _ = garden.several("GRU", [turned, *weights], {"hidden_size": WIDTH, "direction": direction}, [FLOAT] * 2)
    return garden.op("Transpose", [garden.op("Squeeze", [frames, garden.insert.int64s(1)])], {"perm": [1, 0, 2]})


def _frames_alone(garden: Garden) -> None:
    """One row as [frames, channels], something over either axis, and the row again."""
    found, ends = garden.pick(False).value, garden.insert.int64s
    flat = garden.op("Squeeze", [found, ends(0)])
    match int(garden.rng.integers(0, 5)):
        case 0:
            made = garden.op("Softmax", [flat], {"axis": int(garden.rng.integers(0, 2))})
        case 1:
            op = str(garden.rng.choice(["ReduceMean", "ReduceMax", "ReduceSum"]))
            axis = ends(int(garden.rng.integers(0, 2)))
            made = garden.op("Sub", [flat, garden.op(op, [flat, axis], {"keepdims": 1})])
        case 2:
            scores = garden.op("MatMul", [flat, garden.op("Transpose", [flat], {"perm": [1, 0]})])
            made = garden.op("MatMul", [garden.op("Softmax", [scores], {"axis": 1}), flat])
        case 3:
            made = garden.op("Gemm", [flat, garden.weights(WIDTH, WIDTH), garden.weights(WIDTH)])
        case _:
            made = garden.op("Add", [flat, garden.op("Gather", [flat, ends(-1)], {"axis": 0})])
    garden.keep(garden.op("Unsqueeze", [made, ends(0)]), False)


AXIS_KINDS: Kinds = ((_beside, 4), (_without_a_name, 3), (_dual_path, 3))
"""What grows where axes are other ones than those of the first input."""

ONE_ROW_KINDS: Kinds = (*AXIS_KINDS, (_frames_alone, 3))
"""What grows where there is one row."""
