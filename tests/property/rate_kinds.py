"""What random graphs do with several entries per frame, inputs that are fixed, and values that nodes take twice."""

import numpy as np
import onnx_ir as ir

from compiler import ir as graphs
from tests.property.garden import WIDTH, Garden, Kinds, since

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def _spread(garden: Garden) -> None:
    """Every frame as two or three entries of as many channels."""
    found, rate = garden.pick(False).value, int(garden.rng.integers(2, 4))
    match int(garden.rng.integers(0, 4)):
        case 0:
            wide = garden.op("MatMul", [found, garden.weights(WIDTH, rate * WIDTH)])
        case 1:
            shape = garden.insert.int64s(1, 1, rate, 1)
            wide = garden.op("Expand", [garden.op("Unsqueeze", [found, garden.insert.int64s(2)]), shape])
        case 2:
            wide = garden.op("Concat", [found, *[garden.op("Neg", [found])] * (rate - 1)], {"axis": 2})
        case _:
            wide = garden.op("Tile", [found, garden.insert.int64s(1, 1, rate)])
    garden.keep(garden.op("Reshape", [wide, garden.insert.int64s(0, -1, WIDTH)]), False)


def _gathered(garden: Garden) -> None:
    """Neighbouring entries as one frame, where their number is even."""
    found = garden.pick(False).value
    graphs.infer_shapes(garden.model)
    size = (graphs.dims_of(found) or (0, 1, 0))[1]
    if isinstance(size, int) or not (size / 2).as_coeff_Mul()[0].is_Integer or size.is_Add:
        return
    pairs = garden.op("Reshape", [found, garden.insert.int64s(0, -1, 2 * WIDTH)])
    garden.keep(garden.op("MatMul", [pairs, garden.weights(2 * WIDTH, WIDTH)]), False)


@since(11)
def _made_whole(garden: Garden) -> None:
    """Frames of which the last is repeated until they are a whole number of pairs or threes, each of which is one."""
    found, count = garden.pick(False).value, int(garden.rng.integers(2, 4))
    none, size = garden.insert.int64s(0), garden.length(found, False)
    rest = garden.whole("Mod", [garden.whole("Neg", [size]), garden.insert.int64s(count)])
    pads = garden.whole("Concat", [none, none, none, none, rest, none], axis=0)
    whole = garden.op("Pad", [found, pads], {"mode": "edge"})
    if garden.rng.integers(0, 2):
        apart = garden.op("Reshape", [whole, garden.insert.int64s(0, -1, count, WIDTH)])
        whole = garden.op("ReduceMean", [apart, garden.insert.int64s(2)], {"keepdims": 0})
    garden.keep(whole, False)


def _returned(garden: Garden) -> None:
    """Another result: entries as they are, or with the channels as entries, too."""
    if len(garden.graph.outputs) > 1:
        return
    found = garden.pick(False).value
    if garden.rng.integers(0, 2):
        found = garden.op("Reshape", [found, garden.insert.int64s(0, -1)])
    garden.graph.outputs.append(garden.op("Identity", [found]))


def _fixed(garden: Garden) -> None:
    """An input that a recipe fixes to a constant: numbers, an entry, a bound, or a size."""
    found, what = garden.pick(False).value, int(garden.rng.integers(0, 5))
    match what:
        case 0:
            shape = [[], [1], [WIDTH], [1, 1, WIDTH]][int(garden.rng.integers(0, 4))]
            given = garden.fixed("gain", garden.rng.standard_normal(shape).astype(np.float32))
            made = garden.op(str(garden.rng.choice(["Mul", "Add", "Max"])), [found, given])
        case 1:
            entry = garden.fixed("entry", np.array([int(garden.rng.choice([0, -1]))], np.int64))
            made = garden.op("Sub", [found, garden.op("Gather", [found, entry], {"axis": 1})])
        case 2:
            first = garden.fixed("first", np.array([int(garden.rng.integers(-2, 3))], np.int64))
            ends = [garden.insert.int64s(n) for n in (graphs.END, 1)]
            made = garden.op("Slice", [found, first, *ends])
        case 3:
            halved = garden.fixed("shape", np.array([0, -1, WIDTH // 2], np.int64))
            halves = garden.op("Reshape", [found, halved])
            made = garden.op("MatMul", [halves, garden.weights(WIDTH // 2, WIDTH)])
        case _:
            table = garden.fixed("table", garden.rng.standard_normal((1, 64, WIDTH)).astype(np.float32))
            bounds = [garden.insert.int64s(0), garden.length(found, False), garden.insert.int64s(1)]
            made = garden.op("Add", [found, garden.op("Slice", [table, *bounds])])
    garden.keep(made, False)


def _twice(garden: Garden) -> None:
    """One value in several places of one node."""
    found = garden.pick(False).value
    match int(garden.rng.integers(0, 7)):
        case 0:
            made = garden.op("Concat", [found, found], {"axis": 1})
        case 1:
            positive = garden.op("Greater", [found, garden.scalar(0.0, FLOAT)], dtype=ir.DataType.BOOL)
            made = garden.op("Where", [positive, found, found])
        case 2:
            made = garden.op("Einsum", [found, found], {"equation": "btd,btd->btd"})
        case 3:
            scores = garden.op("Einsum", [found, found], {"equation": "btd,bsd->bts"})
            made = garden.op("MatMul", [garden.op("Softmax", [scores], {"axis": -1}), found])
        case 4:
            gain = garden.weights(WIDTH)
            made = garden.op("LayerNormalization", [found, gain, gain], {"axis": -1})
        case 5:
            square = garden.weights(1, 4 * WIDTH, WIDTH)
            turned = garden.op("Transpose", [found], {"perm": [1, 0, 2]})
            rows = garden.whole(
                "Concat", [garden.insert.int64s(1), garden.size(found, 0), garden.insert.int64s(WIDTH)], axis=0
            )
            start = garden.op("Expand", [garden.weights(1, 1, WIDTH), rows])
            given = [turned, square, square, None, None, start, start]
            frames, _ = garden.several("LSTM", given, {"hidden_size": WIDTH}, [FLOAT, FLOAT])
            flat = garden.op("Squeeze", [frames, garden.insert.int64s(1)])
            made = garden.op("Transpose", [flat], {"perm": [1, 0, 2]})
        case _:
            made = garden.op("Sum", [found, found, found])
    garden.keep(made, False)


RATE_KINDS: Kinds = (
    (_spread, 4), (_gathered, 2), (_returned, 3), (_made_whole, 2), (since(10)(_fixed), 3), (since(17)(_twice), 3),
)  # fmt: skip
"""What grows where frames have several entries, inputs are fixed, and values are taken twice."""
