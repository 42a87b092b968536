"""What random graphs count of lengths: ones in masks that hold no data, shares of these, and functions of the counts.

Some functions have no value for short inputs, as the mean by a count less one, and some none at any length.
"""

import onnx_ir as ir

from tests.property.garden import WIDTH, Garden, Kinds, since

FLOAT, BOOL, INT64 = ir.DataType.FLOAT, ir.DataType.BOOL, ir.DataType.INT64


def _ones(garden: Garden, found: ir.Value) -> ir.Value:
    """[batch or 1, time, channels or 1]: a mask that shows every frame, or every one but the first."""
    how = str(garden.rng.choice(["expanded", "filled", "below", "behind"]))
    if how in ("expanded", "filled"):
        shape = garden.whole("Shape", [found])
        if how == "expanded":
            return garden.op("Expand", [garden.scalar(1.0, FLOAT), shape])
        return garden.op("Add", [garden.op("ConstantOfShape", [shape]), garden.scalar(1.0, FLOAT)])
    size = garden.whole("Squeeze", [garden.length(found, False)])
    places = garden.whole("Range", [garden.scalar(0), size, garden.scalar(1)])
    bound = garden.scalar(0) if how == "behind" else size
    truths = garden.op("Greater" if how == "behind" else "Less", [places, bound], dtype=BOOL)
    column = garden.op("Unsqueeze", [garden.op("Cast", [truths], {"to": FLOAT}), garden.insert.int64s(0, 2)])
    if not garden.rng.integers(0, 2):
        return column
    rows = garden.whole("Concat", [garden.size(found, 0), garden.insert.int64s(1, 1)], axis=0)
    return garden.op("Expand", [column, rows])


def _summed(garden: Garden, ones: ir.Value) -> tuple[ir.Value, list[float]]:
    """What is summed: shares among as many frames, sums so far, or the mask itself; and numbers to take off the sum.

    Shares less one are noise alone.
    """
    match int(garden.rng.integers(0, 4)):
        case 0:
            return garden.op("Softmax", [ones], {"axis": 1}), [0.5, 1.5]
        case 1:
            return garden.op("CumSum", [ones, garden.scalar(1)]), [0.0, 1.0, 3.0]
    return ones, [0.0, 1.0, 2.0, 3.0]


def _counted(garden: Garden) -> None:
    """A function of a count of every row, over all entries."""
    found = garden.timed()
    summed, numbers = _summed(garden, _ones(garden, found))
    total = garden.op("ReduceSum", [summed, garden.insert.int64s(1)], {"keepdims": 1})
    count = garden.op("ReduceMax", [total, garden.insert.int64s(2)], {"keepdims": 1})
    less = garden.op("Sub", [count, garden.scalar(float(garden.rng.choice(numbers)), FLOAT)])
    match int(garden.rng.integers(0, 6)):
        case 0:
            total = garden.op("ReduceSum", [found, garden.insert.int64s(1)], {"keepdims": 1})
            made = garden.op("Sub", [found, garden.op("Div", [total, less])])
        case 1:
            made = garden.op("Mul", [found, garden.op("Log", [less])])
        case 2:
            made = garden.op("Mul", [found, garden.op("Sqrt", [less])])
        case 3:
            made = garden.op("Mul", [found, garden.op("Reciprocal", [less])])
        case 4:
            power = garden.scalar(float(garden.rng.choice([-1.0, -0.5, 0.5, 2.0])), FLOAT)
            made = garden.op("Mul", [found, garden.op("Pow", [less, power])])
        case _:
            made = garden.op("Div", [found, garden.op("Max", [less, garden.scalar(1.0, FLOAT)])])
    garden.keep(made, False)


@since(13)
def _counted_whole(garden: Garden) -> None:
    """A quotient or a remainder by a whole count of every row, kept off 0 now and then."""
    found = garden.timed()
    ones = garden.op("Cast", [_ones(garden, found)], {"to": INT64}, INT64)
    count = garden.whole("ReduceSum", [ones, garden.insert.int64s(1)], keepdims=1)
    less = garden.whole("Sub", [count, garden.insert.int64s(int(garden.rng.integers(0, 4)))])
    if garden.rng.integers(0, 2):
        less = garden.whole("Max", [less, garden.insert.int64s(1)])
    op = str(garden.rng.choice(["Div", "Mod"]))
    whole = garden.whole(op, [garden.insert.int64s(*[int(garden.rng.integers(5, 90))] * WIDTH), less])
    garden.keep(garden.op("Add", [found, garden.op("Cast", [whole], {"to": FLOAT})]), False)


COUNT_KINDS: Kinds = ((_counted, 8), (_counted_whole, 4))
"""What grows of counts."""
