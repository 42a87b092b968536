"""What random graphs make of lengths: declared ones, numbers and positions as data, entries that they choose."""

import onnx_ir as ir

from tests.property.graph_builder import WIDTH, GraphBuilder, Grown, Kinds, since

FLOAT, BOOL, INT32 = ir.DataType.FLOAT, ir.DataType.BOOL, ir.DataType.INT32


def _number(builder: GraphBuilder, of: ir.Value) -> ir.Value:
    """Whole numbers from 1 on that follow from lengths, and are no larger than these."""
    one, two = builder.insert.int64s(1), builder.insert.int64s(2)
    match int(builder.rng.integers(0, 3)):
        case 0:
            return builder.whole("Div", [builder.whole("Add", [of, one]), two])
        case 1:
            return builder.whole("Add", [builder.whole("Div", [builder.whole("Sub", [of, one]), two]), one])
    return of


def _any_number(builder: GraphBuilder, of: ir.Value) -> ir.Value:
    """Whole numbers that follow from lengths, negative ones included."""
    op = str(builder.rng.choice(["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"]))
    given = builder.insert.int64s(int(builder.rng.integers(1, 6)))
    made = builder.whole(op, [of, given] if op in ("Div", "Mod") or builder.rng.integers(0, 2) else [given, of])
    return made if builder.rng.integers(0, 2) else builder.whole("Div", [made, builder.insert.int64s(2)])


def _float(builder: GraphBuilder, value: ir.Value) -> ir.Value:
    return builder.op("Cast", [value], {"to": FLOAT})


def _places(builder: GraphBuilder, value: ir.Value) -> ir.Value:
    """0, 1, ... for every frame of [batch, frames, channels]."""
    size = builder.whole("Squeeze", [builder.length(value, False)])
    return builder.whole("Range", [builder.scalar(0), size, builder.scalar(1)])


def _recurrence(builder: GraphBuilder) -> None:
    """A recurrence over as many frames as are declared, or over all."""
    found, gates = builder.timed(), {"LSTM": 4, "GRU": 3, "RNN": 1}
    op = str(builder.rng.choice(list(gates)))
    lengths = None
    if builder.rng.integers(0, 3):
        lengths = builder.op("Cast", [_number(builder, builder.declared())], {"to": INT32}, INT32)
    turned = builder.op("Transpose", [found], {"perm": [1, 0, 2]})
    direction = str(builder.rng.choice(["forward", "reverse", "bidirectional"]))
    ways = 2 if direction == "bidirectional" else 1
    weights = [builder.weights(ways, gates[op] * WIDTH, WIDTH) for _ in range(2)]
    start = _first_state(builder, found, ways) if builder.rng.integers(0, 2) else None
    given = [turned, *weights, None, lengths, start]
    frames, last = builder.several(op, given, {"hidden_size": WIDTH, "direction": direction}, [FLOAT, FLOAT])
    if builder.rng.integers(0, 2):
        state = builder.op("ReduceSum", [last, builder.insert.int64s(0)], {"keepdims": 1})
        return builder.keep(builder.op("Add", [found, builder.op("Transpose", [state], {"perm": [1, 0, 2]})]), False)
    both = builder.op("ReduceSum", [frames, builder.insert.int64s(1)], {"keepdims": 0})
    return builder.keep(builder.op("Transpose", [both], {"perm": [1, 0, 2]}), False)


def _first_state(builder: GraphBuilder, value: ir.Value, ways: int) -> ir.Value:
    """[ways, batch, channels]: the same for every row."""
    shape = builder.whole(
        "Concat", [builder.insert.int64s(ways), builder.size(value, 0), builder.insert.int64s(WIDTH)], axis=0
    )
    return builder.op("Expand", [builder.weights(ways, 1, WIDTH), shape])


@since(10)
def _reverse_sequence(builder: GraphBuilder) -> None:
    lengths = _number(builder, builder.declared())
    builder.keep(builder.op("ReverseSequence", [builder.timed(), lengths], {"batch_axis": 0, "time_axis": 1}), False)


@since(12)
def _length_as_data(builder: GraphBuilder) -> None:
    """A number of every row, or of the length of an axis, over all entries."""
    if builder.rng.integers(0, 2):
        numbers, found = _any_number(builder, builder.declared()), builder.pick(False)
        numbers = builder.whole("Unsqueeze", [numbers, builder.insert.int64s(1, 2)])
    else:
        found = builder.pick(False)
        numbers = _any_number(builder, builder.length(found.value, False))
    op = str(builder.rng.choice(["Add", "Mul", "Sub", "Max"]))
    builder.keep(builder.op(op, [found.value, _float(builder, numbers)]), False)


@since(12)
def _returned_lengths(builder: GraphBuilder) -> None:
    """The lengths of the result, as an output."""
    if len(builder.graph.outputs) > 0:
        return
    made = _any_number(builder, builder.declared())
    made = made if made.producer() is not None else builder.whole("Identity", [made])
    made.shape = ir.Shape(["batch"])
    builder.graph.outputs.append(made)


@since(11)
def _positions(builder: GraphBuilder) -> None:
    """Positions as data: as parts of the length, reversed, centred, halved, or in waves."""
    found = builder.pick(False)
    places, size = _places(builder, found.value), builder.length(found.value, False)
    one, two = builder.insert.int64s(1), builder.insert.int64s(2)
    match int(builder.rng.integers(0, 7)):
        case 0:
            made = builder.op("Div", [_float(builder, places), _float(builder, size)])
        case 1:
            made = _float(builder, builder.whole("Sub", [builder.whole("Sub", [size, one]), places]))
        case 2:
            made = _float(builder, builder.whole("Sub", [places, builder.whole("Div", [size, two])]))
        case 3:
            made = _float(builder, builder.whole("Div", [builder.whole("Sub", [size, places]), two]))
        case 4:
            made = builder.op("Sin", [builder.op("Div", [_float(builder, places), _float(builder, size)])])
        case 5:
            ends = [builder.insert.int64s(n) for n in (-1, -(2**63) + 1, 0, -1)]
            made = _float(builder, builder.whole("Slice", [places, *ends]))
        case _:
            last = builder.whole("Squeeze", [builder.whole("Sub", [size, one])])
            made = _float(builder, builder.whole("Range", [last, builder.scalar(-1), builder.scalar(-1)]))
    column = builder.op("Unsqueeze", [made, builder.insert.int64s(1)])
    builder.keep(builder.op(str(builder.rng.choice(["Add", "Mul"])), [found.value, column]), False)


@since(12)
def _below_a_number(builder: GraphBuilder) -> None:
    """Frames in front of a number of the row, or of the length, and nothing behind."""
    found = builder.timed()
    numbers = _any_number(builder, builder.declared() if builder.rng.integers(0, 2) else builder.length(found, False))
    column = builder.whole("Unsqueeze", [numbers, builder.insert.int64s(1)])
    seen = builder.op("Less", [_places(builder, found), column], dtype=BOOL)
    mask = builder.op("Unsqueeze", [seen, builder.insert.int64s(2)], dtype=BOOL)
    other = builder.scalar(float(builder.rng.choice([0.0, 1.0, -1e30])), FLOAT)
    builder.keep(builder.op("Where", [mask, found, other]), False)


@since(11)
def _own_entry(builder: GraphBuilder) -> None:
    """One frame of every row, by the row's own number or the length of the axis, spread again."""
    how = int(builder.rng.integers(0, 3))
    if how == 0:
        found = builder.timed()
        size = builder.whole("Squeeze", [builder.size(found, 0)])
        rows = builder.whole("Range", [builder.scalar(0), size, builder.scalar(1)])
        last = builder.whole("Sub", [_number(builder, builder.declared()), builder.insert.int64s(1)])
        pairs = [builder.whole("Unsqueeze", [each, builder.insert.int64s(1)]) for each in (rows, last)]
        entry = builder.op("GatherND", [found, builder.whole("Concat", pairs, axis=1)])
        entry = builder.op("Unsqueeze", [entry, builder.insert.int64s(1)])
    elif how == 1:
        found = builder.timed()
        last = builder.whole("Sub", [_number(builder, builder.declared()), builder.insert.int64s(1)])
        cube = builder.whole("Reshape", [last, builder.insert.int64s(-1, 1, 1)])
        index = builder.whole("Expand", [cube, builder.insert.int64s(1, 1, WIDTH)])
        entry = builder.op("GatherElements", [found, index], {"axis": 1})
    else:
        found = builder.pick(False).value
        middle = builder.whole(
            "Div", [builder.length(found, False), builder.insert.int64s(int(builder.rng.integers(2, 4)))]
        )
        entry = builder.op("Gather", [found, middle], {"axis": 1})
    builder.keep(builder.op("Sub", [found, entry]), False)


@since(12)
def _looked_up(builder: GraphBuilder) -> None:
    """Frames at positions that follow from the length: turned, rolled, halved, or the neighbours."""
    found = builder.pick(False)
    places, size = _places(builder, found.value), builder.length(found.value, False)
    top = builder.whole("Sub", [size, builder.insert.int64s(1)])
    amount = builder.insert.int64s(int(builder.rng.integers(1, 4)))
    match int(builder.rng.integers(0, 4)):
        case 0:
            index = builder.whole("Sub", [top, places])
        case 1:
            index = builder.whole("Mod", [builder.whole("Sub", [places, amount]), size])
        case 2:
            index = builder.whole("Div", [places, amount])
        case _:
            index = builder.whole("Min", [builder.whole("Add", [places, amount]), top])
    builder.keep(builder.op("Gather", [found.value, index], {"axis": 1}), False)


@since(10)
def _rolled(builder: GraphBuilder) -> None:
    """Frames moved round along time."""
    found, ends = builder.pick(False), builder.insert.int64s
    by = int(builder.rng.choice([-2, -1, 1, 2]))
    behind = builder.op("Slice", [found.value, ends(by), ends(2**63 - 1), ends(1)])
    front = builder.op("Slice", [found.value, ends(0), ends(by), ends(1)])
    builder.keep(builder.op("Concat", [behind, front], {"axis": 1}), False)


@since(10)
def _turned(builder: GraphBuilder) -> None:
    """All frames from the last to the first, or those of the second half."""
    found, ends = builder.pick(False), builder.insert.int64s
    if builder.rng.integers(0, 2):
        bounds = [ends(-1), ends(-(2**63) + 1), ends(1), ends(-1)]
    else:
        size = builder.length(found.value, False)
        bounds = [builder.whole("Div", [size, ends(2)]), size, ends(1)]
    builder.keep(builder.op("Slice", [found.value, *bounds]), False)


@since(16)
def _scattered(builder: GraphBuilder) -> None:
    """Frames added where a sum over time has come to."""
    found = builder.pick(False).value
    share = builder.op("Sigmoid", [builder.op("MatMul", [found, builder.weights(WIDTH, 1)])])
    flat = builder.op("Squeeze", [share, builder.insert.int64s(2)])
    fired = builder.op("Floor", [builder.op("CumSum", [flat, builder.scalar(1)])])
    top = builder.whole("Sub", [builder.length(found, False), builder.insert.int64s(1)])
    reached = builder.op("Cast", [fired], {"to": ir.DataType.INT64}, ir.DataType.INT64)
    places = builder.whole("Max", [builder.whole("Min", [reached, top]), builder.insert.int64s(0)])  # of NaN, too
    shape = builder.whole("Shape", [found])
    index = builder.whole("Expand", [builder.whole("Unsqueeze", [places, builder.insert.int64s(2)]), shape])
    none = builder.op("ConstantOfShape", [shape])
    builder.keep(builder.op("ScatterElements", [none, index, found], {"axis": 1, "reduction": "add"}), False)


@since(12)
def _interpolated(builder: GraphBuilder) -> None:
    """Twice as many frames, between neighbours."""
    found = builder.pick(False)
    size = builder.whole("Squeeze", [builder.length(found.value, False)])
    double = builder.whole("Mul", [size, builder.scalar(2)])
    places = _float(builder, builder.whole("Range", [builder.scalar(0), double, builder.scalar(1)]))
    half = builder.scalar(0.5, FLOAT)
    source = builder.op("Sub", [builder.op("Mul", [builder.op("Add", [places, half]), half]), half])
    source = builder.op("Clip", [source, builder.scalar(0.0, FLOAT)])
    low = builder.op("Cast", [source], {"to": ir.DataType.INT64}, ir.DataType.INT64)
    top = builder.whole("Sub", [size, builder.scalar(1)])
    high = builder.whole("Min", [builder.whole("Add", [low, builder.scalar(1)]), top])
    share = builder.op("Unsqueeze", [builder.op("Sub", [source, _float(builder, low)]), builder.insert.int64s(1)])
    left, right = (builder.op("Gather", [found.value, each], {"axis": 1}) for each in (low, high))
    builder.keep(builder.op("Add", [left, builder.op("Mul", [builder.op("Sub", [right, left]), share])]), False)


def _shared(builder: GraphBuilder) -> None:
    """A statistic of an input without a batch, added to every row."""
    found, shared = builder.timed(), builder.shared()
    axis = int(builder.rng.integers(0, 2))
    match int(builder.rng.integers(0, 3)):
        case 0:
            made = builder.op("Softmax", [shared], {"axis": axis})
        case 1:
            made = builder.op("ReduceMean", [shared, builder.insert.int64s(axis)], {"keepdims": 1})
        case _:
            made = builder.op("MatMul", [shared, builder.weights(WIDTH, WIDTH)])
    builder.keep(builder.op("Add", [found, made]), False)


NARROW = {
    ir.DataType.INT8: 50, ir.DataType.UINT8: 100, ir.DataType.INT16: 20_000, ir.DataType.UINT16: 40_000,
    ir.DataType.FLOAT16: 1_001, ir.DataType.BFLOAT16: 129, BOOL: 1, FLOAT: 2**23 + 1, INT32: 2**30,
}  # fmt: skip
"""Types, and multiples of lengths that they outgrow at once."""


@since(13)
def _outgrown(builder: GraphBuilder) -> None:
    """A multiple of the length, in a type that it outgrows, as data, as a bound of a mask or of a cut."""
    found = builder.pick(False)
    dtype = list(NARROW)[int(builder.rng.integers(0, len(NARROW)))]
    many = builder.whole("Mul", [builder.length(found.value, False), builder.insert.int64s(NARROW[dtype])])
    narrow = builder.op("Cast", [many], {"to": dtype}, dtype)
    if dtype == INT32:
        narrow = builder.op("Add", [narrow, narrow], dtype=dtype)
    back = builder.op("Cast", [narrow], {"to": ir.DataType.INT64}, ir.DataType.INT64)
    _use(builder, found, builder.whole("Mod", [back, builder.insert.int64s(int(builder.rng.integers(3, 8)))]))


@since(13)
def _rounded(builder: GraphBuilder) -> None:
    """A part of the length, rounded up, down, to the nearest, or towards 0, likewise."""
    found = builder.pick(False)
    part = builder.scalar(float(builder.rng.choice([0.5, 1 / 3, 0.1, 2.0, 3.0, 49.0])), FLOAT)
    share = builder.op(
        str(builder.rng.choice(["Div", "Mul"])), [_float(builder, builder.length(found.value, False)), part]
    )
    if builder.rng.integers(0, 2):
        share = builder.op(str(builder.rng.choice(["Mul", "Sub"])), [share, part])
    op = str(builder.rng.choice(["Ceil", "Floor", "Round", "Identity"]))
    whole = builder.op("Cast", [builder.op(op, [share])], {"to": ir.DataType.INT64}, ir.DataType.INT64)
    _use(builder, found, whole if builder.rng.integers(0, 2) else _any_number(builder, whole))


def _in_heads(builder: GraphBuilder) -> None:
    """Attention whose rows are merged with heads, in either order, and numbers laid over the scores."""
    found, (front, two, less) = builder.pick(False), (builder.insert.int64s(each) for each in (0, 2, -1))
    rows_first = bool(builder.rng.integers(0, 2))
    rows, frames = (builder.size(found.value, axis) for axis in (0, 1))
    apart = builder.op("Reshape", [found.value, builder.insert.int64s(0, 0, 2, 2)])
    turned = builder.op("Transpose", [apart], {"perm": [0, 2, 1, 3] if rows_first else [2, 0, 1, 3]})
    query = builder.op("Reshape", [turned, builder.whole("Concat", [less, frames, two], axis=0)])
    scores = builder.op("MatMul", [query, builder.op("Transpose", [query], {"perm": [0, 2, 1]})])
    places = _places(builder, found.value)
    below = builder.whole("Unsqueeze", [places, less])
    match int(builder.rng.integers(0, 4)):
        case 0:
            mask = builder.op("Less", [below, places], dtype=BOOL)
            mask = builder.op("Unsqueeze", [mask, front], dtype=BOOL) if builder.rng.integers(0, 2) else mask
            scores = builder.op("Where", [mask, builder.scalar(-1e9, FLOAT), scores])
        case 1:
            scores = builder.op("Add", [scores, _float(builder, builder.whole("Sub", [frames, places]))])
        case 2:
            scores = builder.op("Div", [scores, _float(builder, _number(builder, frames))])
        case _:
            entries = builder.whole("Mul", [builder.insert.int64s(1, 3), frames])
            query = builder.op("Mul", [query, _float(builder, entries)])
    mixed = builder.op("MatMul", [builder.op("Softmax", [scores], {"axis": -1}), query])
    order = [rows, two] if rows_first else [two, rows]
    apart = builder.op("Reshape", [mixed, builder.whole("Concat", [*order, frames, two], axis=0)])
    back = builder.op("Transpose", [apart], {"perm": [0, 2, 1, 3] if rows_first else [1, 2, 0, 3]})
    builder.keep(builder.op("Reshape", [back, builder.insert.int64s(0, 0, WIDTH)]), False)


def _use(builder: GraphBuilder, found: Grown, few: ir.Value) -> None:
    """Use a number of one entry as data, as a bound of a mask, or of a cut whose frames may be merged with rows."""
    match int(builder.rng.integers(0, 3)):
        case 0:
            made = builder.op("Add", [found.value, _float(builder, few)])
        case 1:
            seen = builder.op("Less", [_places(builder, found.value), few], dtype=BOOL)
            mask = builder.op("Unsqueeze", [seen, builder.insert.int64s(0, 2)], dtype=BOOL)
            made = builder.op("Where", [mask, found.value, builder.scalar(0.0, FLOAT)])
        case _:
            made = builder.op("Slice", [found.value, builder.insert.int64s(0), few, builder.insert.int64s(1)])
            if builder.rng.integers(0, 2):  # a size of 0 is told to a Reshape, which copies another in its place
                flat = builder.op("Reshape", [made, builder.insert.int64s(-1, WIDTH)])
                turned = builder.op("Tanh", [flat])
                made = builder.op("Reshape", [turned, builder.op("Shape", [made], dtype=ir.DataType.INT64)])
    builder.keep(made, False)


LENGTH_KINDS: Kinds = (
    (_recurrence, 1.5), (_reverse_sequence, 1), (_length_as_data, 2), (_returned_lengths, 0.7), (_positions, 2),
    (_below_a_number, 1), (_own_entry, 1.5), (_looked_up, 1.5), (_rolled, 1), (_turned, 1), (_scattered, 0.7),
    (_interpolated, 0.7), (_shared, 1),
)  # fmt: skip
"""What grows of lengths; kinds with declared ones need rows."""

SIZE_KINDS: Kinds = ((_outgrown, 6), (_rounded, 6))
"""What grows of lengths in types that hold none, or of parts of lengths."""

HEAD_KINDS: Kinds = ((_in_heads, 8),)
"""What grows of lengths over rows that are merged with heads."""

DECLARING = (_recurrence, _reverse_sequence, _length_as_data, _returned_lengths, _below_a_number, _own_entry)
"""Kinds that read declared lengths, which graphs of one row have not."""

UNDECLARED: Kinds = tuple(each for each in LENGTH_KINDS if each[0] not in DECLARING)
