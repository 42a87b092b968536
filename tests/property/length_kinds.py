"""What random graphs make of lengths: declared ones, numbers and positions as data, entries that they choose."""

import onnx_ir as ir

from tests.property.garden import WIDTH, Garden, Grown, Kinds, since

FLOAT, BOOL, INT32 = ir.DataType.FLOAT, ir.DataType.BOOL, ir.DataType.INT32


def _number(garden: Garden, of: ir.Value) -> ir.Value:
    """Whole numbers from 1 on that follow from lengths, and are no larger than these."""
    one, two = garden.insert.int64s(1), garden.insert.int64s(2)
    match int(garden.rng.integers(0, 3)):
        case 0:
            return garden.whole("Div", [garden.whole("Add", [of, one]), two])
        case 1:
            return garden.whole("Add", [garden.whole("Div", [garden.whole("Sub", [of, one]), two]), one])
    return of


def _any_number(garden: Garden, of: ir.Value) -> ir.Value:
    """Whole numbers that follow from lengths, negative ones included."""
    op = str(garden.rng.choice(["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"]))
    given = garden.insert.int64s(int(garden.rng.integers(1, 6)))
    made = garden.whole(op, [of, given] if op in ("Div", "Mod") or garden.rng.integers(0, 2) else [given, of])
    return made if garden.rng.integers(0, 2) else garden.whole("Div", [made, garden.insert.int64s(2)])


def _float(garden: Garden, value: ir.Value) -> ir.Value:
    return garden.op("Cast", [value], {"to": FLOAT})


def _places(garden: Garden, value: ir.Value) -> ir.Value:
    """0, 1, ... for every frame of [batch, frames, channels]."""
    size = garden.whole("Squeeze", [garden.length(value, False)])
    return garden.whole("Range", [garden.scalar(0), size, garden.scalar(1)])


def _recurrence(garden: Garden) -> None:
    """A recurrence over as many frames as are declared, or over all."""
    found, gates = garden.timed(), {"LSTM": 4, "GRU": 3, "RNN": 1}
    op = str(garden.rng.choice(list(gates)))
    lengths = None
    if garden.rng.integers(0, 3):
        lengths = garden.op("Cast", [_number(garden, garden.declared())], {"to": INT32}, INT32)
    turned = garden.op("Transpose", [found], {"perm": [1, 0, 2]})
    direction = str(garden.rng.choice(["forward", "reverse", "bidirectional"]))
    ways = 2 if direction == "bidirectional" else 1
    weights = [garden.weights(ways, gates[op] * WIDTH, WIDTH) for _ in range(2)]
    start = _first_state(garden, found, ways) if garden.rng.integers(0, 2) else None
    given = [turned, *weights, None, lengths, start]
    frames, last = garden.several(op, given, {"hidden_size": WIDTH, "direction": direction}, [FLOAT, FLOAT])
    if garden.rng.integers(0, 2):
        state = garden.op("ReduceSum", [last, garden.insert.int64s(0)], {"keepdims": 1})
        return garden.keep(garden.op("Add", [found, garden.op("Transpose", [state], {"perm": [1, 0, 2]})]), False)
    both = garden.op("ReduceSum", [frames, garden.insert.int64s(1)], {"keepdims": 0})
    return garden.keep(garden.op("Transpose", [both], {"perm": [1, 0, 2]}), False)


def _first_state(garden: Garden, value: ir.Value, ways: int) -> ir.Value:
    """[ways, batch, channels]: the same for every row."""
    shape = garden.whole(
        "Concat", [garden.insert.int64s(ways), garden.size(value, 0), garden.insert.int64s(WIDTH)], axis=0
    )
    return garden.op("Expand", [garden.weights(ways, 1, WIDTH), shape])


@since(10)
def _reverse_sequence(garden: Garden) -> None:
    lengths = _number(garden, garden.declared())
    garden.keep(garden.op("ReverseSequence", [garden.timed(), lengths], {"batch_axis": 0, "time_axis": 1}), False)


@since(12)
def _length_as_data(garden: Garden) -> None:
    """A number of every row, or of the length of an axis, over all entries."""
    if garden.rng.integers(0, 2):
        numbers, found = _any_number(garden, garden.declared()), garden.pick(False)
        numbers = garden.whole("Unsqueeze", [numbers, garden.insert.int64s(1, 2)])
    else:
        found = garden.pick(False)
        numbers = _any_number(garden, garden.length(found.value, False))
    op = str(garden.rng.choice(["Add", "Mul", "Sub", "Max"]))
    garden.keep(garden.op(op, [found.value, _float(garden, numbers)]), False)


@since(12)
def _returned_lengths(garden: Garden) -> None:
    """The lengths of the result, as an output."""
    if len(garden.graph.outputs) > 0:
        return
    made = _any_number(garden, garden.declared())
    made = made if made.producer() is not None else garden.whole("Identity", [made])
    made.shape = ir.Shape(["batch"])
    garden.graph.outputs.append(made)


@since(11)
def _positions(garden: Garden) -> None:
    """Positions as data: as parts of the length, reversed, centred, halved, or in waves."""
    found = garden.pick(False)
    places, size = _places(garden, found.value), garden.length(found.value, False)
    one, two = garden.insert.int64s(1), garden.insert.int64s(2)
    match int(garden.rng.integers(0, 7)):
        case 0:
            made = garden.op("Div", [_float(garden, places), _float(garden, size)])
        case 1:
            made = _float(garden, garden.whole("Sub", [garden.whole("Sub", [size, one]), places]))
        case 2:
            made = _float(garden, garden.whole("Sub", [places, garden.whole("Div", [size, two])]))
        case 3:
            made = _float(garden, garden.whole("Div", [garden.whole("Sub", [size, places]), two]))
        case 4:
            made = garden.op("Sin", [garden.op("Div", [_float(garden, places), _float(garden, size)])])
        case 5:
            ends = [garden.insert.int64s(n) for n in (-1, -(2**63) + 1, 0, -1)]
            made = _float(garden, garden.whole("Slice", [places, *ends]))
        case _:
            last = garden.whole("Squeeze", [garden.whole("Sub", [size, one])])
            made = _float(garden, garden.whole("Range", [last, garden.scalar(-1), garden.scalar(-1)]))
    column = garden.op("Unsqueeze", [made, garden.insert.int64s(1)])
    garden.keep(garden.op(str(garden.rng.choice(["Add", "Mul"])), [found.value, column]), False)


@since(12)
def _below_a_number(garden: Garden) -> None:
    """Frames in front of a number of the row, or of the length, and nothing behind."""
    found = garden.timed()
    numbers = _any_number(garden, garden.declared() if garden.rng.integers(0, 2) else garden.length(found, False))
    column = garden.whole("Unsqueeze", [numbers, garden.insert.int64s(1)])
    seen = garden.op("Less", [_places(garden, found), column], dtype=BOOL)
    mask = garden.op("Unsqueeze", [seen, garden.insert.int64s(2)], dtype=BOOL)
    other = garden.scalar(float(garden.rng.choice([0.0, 1.0, -1e30])), FLOAT)
    garden.keep(garden.op("Where", [mask, found, other]), False)


@since(11)
def _own_entry(garden: Garden) -> None:
    """One frame of every row, by the row's own number or the length of the axis, spread again."""
    how = int(garden.rng.integers(0, 3))
    if how == 0:
        found = garden.timed()
        size = garden.whole("Squeeze", [garden.size(found, 0)])
        rows = garden.whole("Range", [garden.scalar(0), size, garden.scalar(1)])
        last = garden.whole("Sub", [_number(garden, garden.declared()), garden.insert.int64s(1)])
        pairs = [garden.whole("Unsqueeze", [each, garden.insert.int64s(1)]) for each in (rows, last)]
        entry = garden.op("GatherND", [found, garden.whole("Concat", pairs, axis=1)])
        entry = garden.op("Unsqueeze", [entry, garden.insert.int64s(1)])
    elif how == 1:
        found = garden.timed()
        last = garden.whole("Sub", [_number(garden, garden.declared()), garden.insert.int64s(1)])
        cube = garden.whole("Reshape", [last, garden.insert.int64s(-1, 1, 1)])
        index = garden.whole("Expand", [cube, garden.insert.int64s(1, 1, WIDTH)])
        entry = garden.op("GatherElements", [found, index], {"axis": 1})
    else:
        found = garden.pick(False).value
        middle = garden.whole(
            "Div", [garden.length(found, False), garden.insert.int64s(int(garden.rng.integers(2, 4)))]
        )
        entry = garden.op("Gather", [found, middle], {"axis": 1})
    garden.keep(garden.op("Sub", [found, entry]), False)


@since(12)
def _looked_up(garden: Garden) -> None:
    """Frames at positions that follow from the length: turned, rolled, halved, or the neighbours."""
    found = garden.pick(False)
    places, size = _places(garden, found.value), garden.length(found.value, False)
    top = garden.whole("Sub", [size, garden.insert.int64s(1)])
    amount = garden.insert.int64s(int(garden.rng.integers(1, 4)))
    match int(garden.rng.integers(0, 4)):
        case 0:
            index = garden.whole("Sub", [top, places])
        case 1:
            index = garden.whole("Mod", [garden.whole("Sub", [places, amount]), size])
        case 2:
            index = garden.whole("Div", [places, amount])
        case _:
            index = garden.whole("Min", [garden.whole("Add", [places, amount]), top])
    garden.keep(garden.op("Gather", [found.value, index], {"axis": 1}), False)


@since(10)
def _rolled(garden: Garden) -> None:
    """Frames moved round along time."""
    found, ends = garden.pick(False), garden.insert.int64s
    by = int(garden.rng.choice([-2, -1, 1, 2]))
    behind = garden.op("Slice", [found.value, ends(by), ends(2**63 - 1), ends(1)])
    front = garden.op("Slice", [found.value, ends(0), ends(by), ends(1)])
    garden.keep(garden.op("Concat", [behind, front], {"axis": 1}), False)


@since(10)
def _turned(garden: Garden) -> None:
    """All frames from the last to the first, or those of the second half."""
    found, ends = garden.pick(False), garden.insert.int64s
    if garden.rng.integers(0, 2):
        bounds = [ends(-1), ends(-(2**63) + 1), ends(1), ends(-1)]
    else:
        size = garden.length(found.value, False)
        bounds = [garden.whole("Div", [size, ends(2)]), size, ends(1)]
    garden.keep(garden.op("Slice", [found.value, *bounds]), False)


@since(16)
def _scattered(garden: Garden) -> None:
    """Frames added where a sum over time has come to."""
    found = garden.pick(False).value
    share = garden.op("Sigmoid", [garden.op("MatMul", [found, garden.weights(WIDTH, 1)])])
    flat = garden.op("Squeeze", [share, garden.insert.int64s(2)])
    fired = garden.op("Floor", [garden.op("CumSum", [flat, garden.scalar(1)])])
    top = garden.whole("Sub", [garden.length(found, False), garden.insert.int64s(1)])
    reached = garden.op("Cast", [fired], {"to": ir.DataType.INT64}, ir.DataType.INT64)
    places = garden.whole("Max", [garden.whole("Min", [reached, top]), garden.insert.int64s(0)])  # of NaN, too
    shape = garden.whole("Shape", [found])
    index = garden.whole("Expand", [garden.whole("Unsqueeze", [places, garden.insert.int64s(2)]), shape])
    none = garden.op("ConstantOfShape", [shape])
    garden.keep(garden.op("ScatterElements", [none, index, found], {"axis": 1, "reduction": "add"}), False)


@since(12)
def _interpolated(garden: Garden) -> None:
    """Twice as many frames, between neighbours."""
    found = garden.pick(False)
    size = garden.whole("Squeeze", [garden.length(found.value, False)])
    double = garden.whole("Mul", [size, garden.scalar(2)])
    places = _float(garden, garden.whole("Range", [garden.scalar(0), double, garden.scalar(1)]))
    half = garden.scalar(0.5, FLOAT)
    source = garden.op("Sub", [garden.op("Mul", [garden.op("Add", [places, half]), half]), half])
    source = garden.op("Clip", [source, garden.scalar(0.0, FLOAT)])
    low = garden.op("Cast", [source], {"to": ir.DataType.INT64}, ir.DataType.INT64)
    top = garden.whole("Sub", [size, garden.scalar(1)])
    high = garden.whole("Min", [garden.whole("Add", [low, garden.scalar(1)]), top])
    share = garden.op("Unsqueeze", [garden.op("Sub", [source, _float(garden, low)]), garden.insert.int64s(1)])
    left, right = (garden.op("Gather", [found.value, each], {"axis": 1}) for each in (low, high))
    garden.keep(garden.op("Add", [left, garden.op("Mul", [garden.op("Sub", [right, left]), share])]), False)


def _shared(garden: Garden) -> None:
    """A statistic of an input without a batch, added to every row."""
    found, shared = garden.timed(), garden.shared()
    axis = int(garden.rng.integers(0, 2))
    match int(garden.rng.integers(0, 3)):
        case 0:
            made = garden.op("Softmax", [shared], {"axis": axis})
        case 1:
            made = garden.op("ReduceMean", [shared, garden.insert.int64s(axis)], {"keepdims": 1})
        case _:
            made = garden.op("MatMul", [shared, garden.weights(WIDTH, WIDTH)])
    garden.keep(garden.op("Add", [found, made]), False)


NARROW = {
    ir.DataType.INT8: 50, ir.DataType.UINT8: 100, ir.DataType.INT16: 20_000, ir.DataType.UINT16: 40_000,
    ir.DataType.FLOAT16: 1_001, ir.DataType.BFLOAT16: 129, BOOL: 1, FLOAT: 2**23 + 1, INT32: 2**30,
}  # fmt: skip
"""Types, and multiples of lengths that they outgrow at once."""


@since(13)
def _outgrown(garden: Garden) -> None:
    """A multiple of the length, in a type that it outgrows, as data, as a bound of a mask or of a cut."""
    found = garden.pick(False)
    dtype = list(NARROW)[int(garden.rng.integers(0, len(NARROW)))]
    many = garden.whole("Mul", [garden.length(found.value, False), garden.insert.int64s(NARROW[dtype])])
    narrow = garden.op("Cast", [many], {"to": dtype}, dtype)
    if dtype == INT32:
        narrow = garden.op("Add", [narrow, narrow], dtype=dtype)
    back = garden.op("Cast", [narrow], {"to": ir.DataType.INT64}, ir.DataType.INT64)
    _use(garden, found, garden.whole("Mod", [back, garden.insert.int64s(int(garden.rng.integers(3, 8)))]))


@since(13)
def _rounded(garden: Garden) -> None:
    """A part of the length, rounded up, down, to the nearest, or towards 0, likewise."""
    found = garden.pick(False)
    part = garden.scalar(float(garden.rng.choice([0.5, 1 / 3, 0.1, 2.0, 3.0, 49.0])), FLOAT)
    share = garden.op(str(garden.rng.choice(["Div", "Mul"])), [_float(garden, garden.length(found.value, False)), part])
    if garden.rng.integers(0, 2):
        share = garden.op(str(garden.rng.choice(["Mul", "Sub"])), [share, part])
    op = str(garden.rng.choice(["Ceil", "Floor", "Round", "Identity"]))
    whole = garden.op("Cast", [garden.op(op, [share])], {"to": ir.DataType.INT64}, ir.DataType.INT64)
    _use(garden, found, whole if garden.rng.integers(0, 2) else _any_number(garden, whole))


def _in_heads(garden: Garden) -> None:
    """Attention whose rows are merged with heads, in either order, and numbers laid over the scores."""
    found, (front, two, less) = garden.pick(False), (garden.insert.int64s(each) for each in (0, 2, -1))
    rows_first = bool(garden.rng.integers(0, 2))
    rows, frames = (garden.size(found.value, axis) for axis in (0, 1))
    apart = garden.op("Reshape", [found.value, garden.insert.int64s(0, 0, 2, 2)])
    turned = garden.op("Transpose", [apart], {"perm": [0, 2, 1, 3] if rows_first else [2, 0, 1, 3]})
    query = garden.op("Reshape", [turned, garden.whole("Concat", [less, frames, two], axis=0)])
    scores = garden.op("MatMul", [query, garden.op("Transpose", [query], {"perm": [0, 2, 1]})])
    places = _places(garden, found.value)
    below = garden.whole("Unsqueeze", [places, less])
    match int(garden.rng.integers(0, 4)):
        case 0:
            mask = garden.op("Less", [below, places], dtype=BOOL)
            mask = garden.op("Unsqueeze", [mask, front], dtype=BOOL) if garden.rng.integers(0, 2) else mask
            scores = garden.op("Where", [mask, garden.scalar(-1e9, FLOAT), scores])
        case 1:
            scores = garden.op("Add", [scores, _float(garden, garden.whole("Sub", [frames, places]))])
        case 2:
            scores = garden.op("Div", [scores, _float(garden, _number(garden, frames))])
        case _:
            entries = garden.whole("Mul", [garden.insert.int64s(1, 3), frames])
            query = garden.op("Mul", [query, _float(garden, entries)])
    mixed = garden.op("MatMul", [garden.op("Softmax", [scores], {"axis": -1}), query])
    order = [rows, two] if rows_first else [two, rows]
    apart = garden.op("Reshape", [mixed, garden.whole("Concat", [*order, frames, two], axis=0)])
    back = garden.op("Transpose", [apart], {"perm": [0, 2, 1, 3] if rows_first else [1, 2, 0, 3]})
    garden.keep(garden.op("Reshape", [back, garden.insert.int64s(0, 0, WIDTH)]), False)


def _use(garden: Garden, found: Grown, few: ir.Value) -> None:
    """Use a number of one entry as data, as a bound of a mask, or of a cut whose frames may be merged with rows."""
    match int(garden.rng.integers(0, 3)):
        case 0:
            made = garden.op("Add", [found.value, _float(garden, few)])
        case 1:
            seen = garden.op("Less", [_places(garden, found.value), few], dtype=BOOL)
            mask = garden.op("Unsqueeze", [seen, garden.insert.int64s(0, 2)], dtype=BOOL)
            made = garden.op("Where", [mask, found.value, garden.scalar(0.0, FLOAT)])
        case _:
            made = garden.op("Slice", [found.value, garden.insert.int64s(0), few, garden.insert.int64s(1)])
            if garden.rng.integers(0, 2):  # a size of 0 is told to a Reshape, which copies another in its place
                flat = garden.op("Reshape", [made, garden.insert.int64s(-1, WIDTH)])
                turned = garden.op("Tanh", [flat])
                made = garden.op("Reshape", [turned, garden.op("Shape", [made], dtype=ir.DataType.INT64)])
    garden.keep(made, False)


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
