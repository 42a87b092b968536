"""What random graphs count of lengths: ones in masks that hold no data, shares of these, and functions of the counts.

Some functions have no value for short inputs, as the mean by a count less one, and some none at any length.
"""

import onnx_ir as ir

from tests.property.graph_builder import WIDTH, GraphBuilder, Kinds, since

FLOAT, BOOL, INT64 = ir.DataType.FLOAT, ir.DataType.BOOL, ir.DataType.INT64


def _ones(builder: GraphBuilder, found: ir.Value) -> ir.Value:
    """[batch or 1, time, channels or 1]: a mask that shows every frame, or every one but the first."""
    how = str(builder.rng.choice(["expanded", "filled", "below", "behind"]))
    if how in ("expanded", "filled"):
        shape = builder.whole("Shape", [found])
        if how == "expanded":
            return builder.op("Expand", [builder.scalar(1.0, FLOAT), shape])
        return builder.op("Add", [builder.op("ConstantOfShape", [shape]), builder.scalar(1.0, FLOAT)])
    size = builder.whole("Squeeze", [builder.length(found, False)])
    places = builder.whole("Range", [builder.scalar(0), size, builder.scalar(1)])
    bound = builder.scalar(0) if how == "behind" else size
    truths = builder.op("Greater" if how == "behind" else "Less", [places, bound], dtype=BOOL)
    column = builder.op("Unsqueeze", [builder.op("Cast", [truths], {"to": FLOAT}), builder.insert.int64s(0, 2)])
    if not builder.rng.integers(0, 2):
        return column
    rows = builder.whole("Concat", [builder.size(found, 0), builder.insert.int64s(1, 1)], axis=0)
    return builder.op("Expand", [column, rows])


def _summed(builder: GraphBuilder, ones: ir.Value) -> tuple[ir.Value, list[float]]:
    """What is summed: shares among as many frames, sums so far, or the mask itself; and numbers to take off the sum.

    Shares less one are noise alone.
    """
    match int(builder.rng.integers(0, 4)):
        case 0:
            return builder.op("Softmax", [ones], {"axis": 1}), [0.5, 1.5]
        case 1:
            return builder.op("CumSum", [ones, builder.scalar(1)]), [0.0, 1.0, 3.0]
    return ones, [0.0, 1.0, 2.0, 3.0]


def _counted(builder: GraphBuilder) -> None:
    """A function of a count of every row, over all entries."""
    found = builder.timed()
    summed, numbers = _summed(builder, _ones(builder, found))
    total = builder.op("ReduceSum", [summed, builder.insert.int64s(1)], {"keepdims": 1})
    count = builder.op("ReduceMax", [total, builder.insert.int64s(2)], {"keepdims": 1})
    less = builder.op("Sub", [count, builder.scalar(float(builder.rng.choice(numbers)), FLOAT)])
    match int(builder.rng.integers(0, 6)):
        case 0:
            total = builder.op("ReduceSum", [found, builder.insert.int64s(1)], {"keepdims": 1})
            made = builder.op("Sub", [found, builder.op("Div", [total, less])])
        case 1:
            made = builder.op("Mul", [found, builder.op("Log", [less])])
        case 2:
            made = builder.op("Mul", [found, builder.op("Sqrt", [less])])
        case 3:
            made = builder.op("Mul", [found, builder.op("Reciprocal", [less])])
        case 4:
            power = builder.scalar(float(builder.rng.choice([-1.0, -0.5, 0.5, 2.0])), FLOAT)
            made = builder.op("Mul", [found, builder.op("Pow", [less, power])])
        case _:
            made = builder.op("Div", [found, builder.op("Max", [less, builder.scalar(1.0, FLOAT)])])
    builder.keep(made, False)


@since(13)
def _counted_whole(builder: GraphBuilder) -> None:
    """A quotient or a remainder by a whole count of every row, kept off 0 now and then."""
    found = builder.timed()
    ones = builder.op("Cast", [_ones(builder, found)], {"to": INT64}, INT64)
    count = builder.whole("ReduceSum", [ones, builder.insert.int64s(1)], keepdims=1)
    less = builder.whole("Sub", [count, builder.insert.int64s(int(builder.rng.integers(0, 4)))])
    if builder.rng.integers(0, 2):
        less = builder.whole("Max", [less, builder.insert.int64s(1)])
    op = str(builder.rng.choice(["Div", "Mod"]))
    whole = builder.whole(op, [builder.insert.int64s(*[int(builder.rng.integers(5, 90))] * WIDTH), less])
    builder.keep(builder.op("Add", [found, builder.op("Cast", [whole], {"to": FLOAT})]), False)


COUNT_KINDS: Kinds = ((_counted, 8), (_counted_whole, 4))
"""What grows of counts."""
