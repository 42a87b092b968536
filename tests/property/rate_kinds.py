"""What random graphs do with several entries per frame, inputs that are fixed, and values that nodes take twice."""

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from tests.property.graph_builder import WIDTH, GraphBuilder, Kinds, since

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def _spread(builder: GraphBuilder) -> None:
    """Every frame as two or three entries of as many channels."""
    found, rate = builder.pick(False).value, int(builder.rng.integers(2, 4))
    match int(builder.rng.integers(0, 4)):
        case 0:
            wide = builder.op("MatMul", [found, builder.weights(WIDTH, rate * WIDTH)])
        case 1:
            shape = builder.insert.int64s(1, 1, rate, 1)
            wide = builder.op("Expand", [builder.op("Unsqueeze", [found, builder.insert.int64s(2)]), shape])
        case 2:
            wide = builder.op("Concat", [found, *[builder.op("Neg", [found])] * (rate - 1)], {"axis": 2})
        case _:
            wide = builder.op("Tile", [found, builder.insert.int64s(1, 1, rate)])
    builder.keep(builder.op("Reshape", [wide, builder.insert.int64s(0, -1, WIDTH)]), False)


def _gathered(builder: GraphBuilder) -> None:
    """Neighbouring entries as one frame, where their number is even."""
    found = builder.pick(False).value
    graphs.infer_shapes(builder.model)
    size = (graphs.dims_of(found) or (0, 1, 0))[1]
    if isinstance(size, int) or not (size / 2).as_coeff_Mul()[0].is_Integer or size.is_Add:
        return
    pairs = builder.op("Reshape", [found, builder.insert.int64s(0, -1, 2 * WIDTH)])
    builder.keep(builder.op("MatMul", [pairs, builder.weights(2 * WIDTH, WIDTH)]), False)


@since(11)
def _made_whole(builder: GraphBuilder) -> None:
    """Frames of which the last is repeated until they are a whole number of pairs or threes, each of which is one."""
    found, count = builder.pick(False).value, int(builder.rng.integers(2, 4))
    none, size = builder.insert.int64s(0), builder.length(found, False)
    rest = builder.whole("Mod", [builder.whole("Neg", [size]), builder.insert.int64s(count)])
    pads = builder.whole("Concat", [none, none, none, none, rest, none], axis=0)
    whole = builder.op("Pad", [found, pads], {"mode": "edge"})
    if builder.rng.integers(0, 2):
        apart = builder.op("Reshape", [whole, builder.insert.int64s(0, -1, count, WIDTH)])
        whole = builder.op("ReduceMean", [apart, builder.insert.int64s(2)], {"keepdims": 0})
    builder.keep(whole, False)


def _returned(builder: GraphBuilder) -> None:
    """Another result: entries as they are, or with the channels as entries, too."""
    if len(builder.graph.outputs) > 1:
        return
    found = builder.pick(False).value
    if builder.rng.integers(0, 2):
        found = builder.op("Reshape", [found, builder.insert.int64s(0, -1)])
    builder.graph.outputs.append(builder.op("Identity", [found]))


def _fixed(builder: GraphBuilder) -> None:
    """An input that a recipe fixes to a constant: numbers, an entry, a bound, or a size."""
    found, what = builder.pick(False).value, int(builder.rng.integers(0, 5))
    match what:
        case 0:
            shape = [[], [1], [WIDTH], [1, 1, WIDTH]][int(builder.rng.integers(0, 4))]
            given = builder.fixed("gain", builder.rng.standard_normal(shape).astype(np.float32))
            made = builder.op(str(builder.rng.choice(["Mul", "Add", "Max"])), [found, given])
        case 1:
            entry = builder.fixed("entry", np.array([int(builder.rng.choice([0, -1]))], np.int64))
            made = builder.op("Sub", [found, builder.op("Gather", [found, entry], {"axis": 1})])
        case 2:
            first = builder.fixed("first", np.array([int(builder.rng.integers(-2, 3))], np.int64))
            ends = [builder.insert.int64s(n) for n in (graphs.END, 1)]
            made = builder.op("Slice", [found, first, *ends])
        case 3:
            halved = builder.fixed("shape", np.array([0, -1, WIDTH // 2], np.int64))
            halves = builder.op("Reshape", [found, halved])
            made = builder.op("MatMul", [halves, builder.weights(WIDTH // 2, WIDTH)])
        case _:
            table = builder.fixed("table", builder.rng.standard_normal((1, 64, WIDTH)).astype(np.float32))
            bounds = [builder.insert.int64s(0), builder.length(found, False), builder.insert.int64s(1)]
            made = builder.op("Add", [found, builder.op("Slice", [table, *bounds])])
    builder.keep(made, False)


def _twice(builder: GraphBuilder) -> None:
    """One value in several places of one node."""
    found = builder.pick(False).value
    match int(builder.rng.integers(0, 7)):
        case 0:
            made = builder.op("Concat", [found, found], {"axis": 1})
        case 1:
            positive = builder.op("Greater", [found, builder.scalar(0.0, FLOAT)], dtype=ir.DataType.BOOL)
            made = builder.op("Where", [positive, found, found])
        case 2:
            made = builder.op("Einsum", [found, found], {"equation": "btd,btd->btd"})
        case 3:
            scores = builder.op("Einsum", [found, found], {"equation": "btd,bsd->bts"})
            made = builder.op("MatMul", [builder.op("Softmax", [scores], {"axis": -1}), found])
        case 4:
            gain = builder.weights(WIDTH)
            made = builder.op("LayerNormalization", [found, gain, gain], {"axis": -1})
        case 5:
            square = builder.weights(1, 4 * WIDTH, WIDTH)
            turned = builder.op("Transpose", [found], {"perm": [1, 0, 2]})
            rows = builder.whole(
                "Concat", [builder.insert.int64s(1), builder.size(found, 0), builder.insert.int64s(WIDTH)], axis=0
            )
            start = builder.op("Expand", [builder.weights(1, 1, WIDTH), rows])
            given = [turned, square, square, None, None, start, start]
            frames, _ = builder.several("LSTM", given, {"hidden_size": WIDTH}, [FLOAT, FLOAT])
            flat = builder.op("Squeeze", [frames, builder.insert.int64s(1)])
            made = builder.op("Transpose", [flat], {"perm": [1, 0, 2]})
        case _:
            made = builder.op("Sum", [found, found, found])
    builder.keep(made, False)


RATE_KINDS: Kinds = (
    (_spread, 4), (_gathered, 2), (_returned, 3), (_made_whole, 2), (since(10)(_fixed), 3), (since(17)(_twice), 3),
)  # fmt: skip
"""What grows where frames have several entries, inputs are fixed, and values are taken twice."""
