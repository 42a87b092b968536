"""Random nodes where rules have their edges: what a mutation moves by one shows here, if it shows at all.

Cuts of every layout at every place, windows that hang over one axis of two, contents that end where a bound is
computed, indices that count, tables with biases, axes of transforms that are computed, searches among NaN.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from compiler.proof.facts.facts import Index
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval
from compiler.proof.facts.layout import Axis, Rows, Segment, Side, joined, size_of, suffix
from tests.kit.attacked import Node, Operand, constant, number, size_at

Draw = np.random.Generator
T = TypeVar("T")
Shape = tuple[int | str, ...]

INT64, BOOL = ir.DataType.INT64, ir.DataType.BOOL
END, COUNTED = 2**63 - 1, Interval(0.0, 2.0**31)
TIME, CACHE = size_at("time"), size_at("cache")

LAYOUTS: tuple[Axis, ...] = (
    suffix(TIME), suffix(TIME + 3), suffix(2 * TIME), suffix(2 * TIME - 1), joined([Segment(TIME, Side.RIGHT)]),
    joined([Segment(TIME + 2, Side.RIGHT)]), joined([Segment(CACHE, Side.RIGHT), Segment(TIME)]),
    joined([Segment(3), Segment(TIME, Side.RIGHT)]), joined([Segment(TIME), Segment(2)]),
    joined([Segment(TIME, Side.RIGHT), Segment(TIME - 1)]), joined([Segment(TIME), Segment(3), Segment(CACHE)]),
)  # fmt: skip
"""Everything that an axis may be made of."""

AWAY = (Interval(1.0, 2.0), Interval(-3.0, -1.0), Interval(0.0, 1.0), Interval(-1.0, 0.0), Interval(-2.0, 3.0))


def nodes(count: int) -> Iterator[Node]:
    """So many of each kind."""
    for at, kind in enumerate(KINDS):
        for seed in range(count):
            yield kind(np.random.default_rng([seed, at]))


def _one(rng: Draw, options: Sequence[T]) -> T:
    return options[int(rng.integers(len(options)))]


def _shape(rng: Draw, *shapes: Shape) -> Shape:
    return _one(rng, shapes)


def _integers(*numbers: int) -> Operand:
    return constant(np.array(numbers, np.int64), np.int64)


def _bound(given: int | str) -> Operand:
    return _integers(given) if isinstance(given, int) else number(given, shape=(1,))


def _weights(rng: Draw, *shape: int) -> Operand:
    return constant(rng.standard_normal(shape))


def _along(axis: Axis, channels: int = 2, **given: object) -> Operand:
    return Operand(("batch", str(size_of(axis)), channels), axes={1: axis}, **given)  # type: ignore[arg-type]


def cut(rng: Draw) -> Node:
    """Any layout from any place to any other, in steps, and backwards."""
    axis = LAYOUTS[int(rng.integers(len(LAYOUTS)))]
    whole = str(size_of(axis))
    texts = (
        "time",
        "time - 1",
        "time + 1",
        "-time",
        "2*time - 1",
        "cache",
        "1 - time",
        whole,
        f"{whole} - 1",
        "cache + 1",
    )
    valid = AWAY[int(rng.integers(len(AWAY)))]
    least = {"time": int(rng.integers(1, 4))}
    if rng.random() < 0.15:
        start = -1 if rng.random() < 0.5 else f"{whole} - 1"
        bounds = [_bound(start), _integers(-END), _integers(1), _integers(-1 if rng.random() < 0.8 else -2)]
        return Node("Slice", [_along(axis, valid=valid), *bounds], least=least)
    start, end = (
        usual if rng.random() < 0.4 else int(rng.integers(-4, 5)) if rng.random() < 0.6 else (_one(rng, texts))
        for usual in (0, END)
    )
    step = 1 if rng.random() < 0.8 else int(rng.integers(2, 4))
    return Node(
        "Slice", [_along(axis, valid=valid), _bound(start), _bound(end), _integers(1), _integers(step)], least=least
    )


def counted_cut(rng: Draw) -> Node:
    """Positions along one axis, cut along it or along another."""
    shape = _shape(rng, ("batch", 5, "time"), ("batch", "time", 5), (7, 2), ("time", 4))
    along = int(rng.integers(len(shape) - 1)) + 1 if len(shape) > 2 else int(rng.integers(2))
    cells = Operand(shape, INT64, COUNTED, COUNTED, index=Index(along, int(rng.integers(3))))
    axis = int(rng.integers(1 if len(shape) > 2 else 0, len(shape)))
    start, end = int(rng.integers(-3, 4)), int(_one(rng, (END, 3, 4, -1)))
    step = int(_one(rng, (1, 1, 2)))
    bounds = [_integers(each) for each in (start, end, axis, step)]
    return Node("Slice", [cells, *bounds], least={"time": 4})


def table_cut(rng: Draw) -> Node:
    """Rows of a table from one length to another, in steps."""
    table = _weights(rng, 1, 16, 2) if rng.random() < 0.6 else Operand((1, 16, 2), valid=Interval(1.0, 2.0))
    bounds = ("time", "time + 2", "16 - time", "2*time", "8 - time")
    start = 0 if rng.random() < 0.5 else (_one(rng, bounds))
    end = (_one(rng, (*bounds, "16"))) if rng.random() < 0.8 else END
    step = 1 if rng.random() < 0.8 else 2
    return Node("Slice", [table, _bound(start), _bound(end), _integers(1), _integers(step)])


def image(rng: Draw) -> Node:
    """A kernel over two axes, of which one has pads, hangs over, or is padded."""
    op = _one(rng, ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"))
    first, second = (int(each) for each in rng.integers(1, 4, 2))
    begin = [int(rng.integers(0, size)) for size in (first, second)]
    end = [int(rng.integers(0, size)) for size in (first, second)]
    if rng.random() < 0.6:
        at = int(rng.integers(2))
        begin[at] = end[at] = 0
    strides = [int(each) for each in rng.integers(1, 3, 2)]
    shape = _shape(
        rng, ("batch", 2, "time", 4), ("batch", 2, 4, "time"), ("batch", 2, "time", "late"), ("batch", 2, 5, 4)
    )
    frames = Operand(shape, valid=AWAY[int(rng.integers(5))], padding=[ANYTHING, ZERO, AWAY[0]][int(rng.integers(3))])
    attributes: dict[str, object] = {"kernel_shape": [first, second], "pads": [*begin, *end], "strides": strides}
    operands = [frames]
    if op in ("Conv", "ConvTranspose"):
        kernel = np.abs(rng.standard_normal((2, 2, first, second))) if rng.random() < 0.5 else None
        operands.append(_weights(rng, 2, 2, first, second) if kernel is None else constant(kernel))
        operands += [constant(rng.choice([-5.0, 5.0], 2))] if rng.random() < 0.5 else []
    elif rng.random() < 0.5:
        attributes["ceil_mode"] = 1
    if op == "AveragePool":
        attributes["count_include_pad"] = int(rng.integers(0, 2))
    right = {"time"} if rng.random() < 0.2 else set()
    return Node(op, operands, attributes, least={"time": 4, "late": 3}, right=right)


def activation(rng: Draw) -> Node:
    """Contents that end where a function bends."""
    edge = float(rng.choice([0.5, 1.0, 2.0]))
    op, attributes = [
        ("LeakyRelu", {"alpha": edge}), ("Elu", {"alpha": edge}), ("ThresholdedRelu", {"alpha": edge}),
        ("HardSigmoid", {"alpha": edge}), ("Celu", {"alpha": edge}), ("Shrink", {"lambd": edge, "bias": edge}),
        ("Selu", {}), ("Clip", {}),
    ][int(rng.integers(8))]  # fmt: skip
    low, high = sorted(float(each) for each in rng.choice([-edge, 0.0, edge, 1.5 * edge, -2.0 * edge, np.inf], 2))
    held = Interval(low, high if low != np.inf else np.inf, bool(rng.random() < 0.2))
    held = Interval(-edge, np.inf) if low == np.inf else held
    operand = Operand(("batch", "time", 2), valid=held, padding=[ANYTHING, held, Interval(edge, edge)][rng.integers(3)])
    bounds = [constant(np.float32(each)) for each in sorted((-edge, 1.5 * edge))] if op == "Clip" else []
    return Node(op, [operand, *bounds], dict(attributes))


def search(rng: Draw) -> Node:
    """The largest or smallest entries next to padding that ties with them, or among NaN."""
    op = _one(rng, ("ArgMax", "ArgMin", "TopK", "ReduceMax", "ReduceMin", "Hardmax"))
    edges = (-np.inf, -1.0, 0.0, 1.0, np.inf)
    low, high = sorted(float(each) for each in rng.choice(edges[:4], 2))
    below, above = sorted(float(each) for each in rng.choice(edges, 2))
    if np.isinf(below) and below == above:
        above = below = float(rng.choice((-np.inf, np.inf)))
    low = max(low, -1.0)
    held = Interval(low, max(low, high), bool(rng.random() < 0.3))
    dtype = BOOL if op in ("ReduceMax", "ReduceMin") and rng.random() < 0.3 else ir.DataType.FLOAT
    padding = Interval(below, above, bool(rng.random() < 0.2))
    operand = Operand(("batch", "time", 3), dtype, held, padding)
    if dtype == BOOL:
        operand = Operand(("batch", "time", 3), dtype)
    axis = int(rng.integers(1, 3))
    if op == "TopK":
        return Node(op, [operand, _integers(1)], {"axis": axis, "largest": int(rng.integers(2))}, 2)
    if op == "Hardmax":
        return Node(op, [operand], {"axis": axis})
    if op.startswith("Arg"):
        return Node(op, [operand], {"axis": axis, "select_last_index": int(rng.integers(2)), "keepdims": 1})
    return Node(op, [operand, _integers(axis)], {"keepdims": int(rng.integers(2))})


def product(rng: Draw) -> Node:
    """Products with a bias, turned operands and factors; sums over axes of either."""
    valid, padding = AWAY[int(rng.integers(5))], [ANYTHING, ZERO, AWAY[0]][int(rng.integers(3))]
    match int(rng.integers(4)):
        case 0:
            turned = [int(each) for each in rng.integers(0, 2, 2)]
            frames = Operand(("time", 3) if not turned[0] else (3, "time"), valid=valid, padding=padding)
            weights = _weights(rng, 2, 3) if turned[1] else _weights(rng, 3, 2)
            bias = [constant(rng.choice([-50.0, 50.0], 2))] if rng.random() < 0.6 else []
            factors = {"alpha": float(rng.choice([1.0, -2.0, 0.5])), "beta": float(rng.choice([1.0, -1.0, 0.0]))}
            return Node("Gemm", [frames, weights, *bias], {"transA": turned[0], "transB": turned[1], **factors})
        case 1:
            packed = rng.integers(0, 255, (3, 1, 8))
            more: list[Operand | None] = (
                [None, None, constant(rng.choice([-5e4, 5e4], 3))] if rng.random() < 0.7 else []
            )
            return Node(
                "MatMulNBits",
                [Operand(("batch", "time", 16), valid=valid, padding=padding), constant(packed, np.uint8),
                 constant(np.full((3,), 0.1)), *more],
                {"K": 16, "N": 3, "bits": 4, "block_size": 16}, domain="com.microsoft", opset=1,
            )  # fmt: skip
        case 2:
            other = Operand(("batch", "late", 3), valid=AWAY[int(rng.integers(5))], padding=padding)
            return Node("Einsum", [Operand(("batch", "time", 3), valid=valid), other], {"equation": "btd,bsd->bts"})
    weights = Operand(("batch", "time", "late"), valid=Interval(0.0, 1.0), padding=padding)
    return Node("MatMul", [weights, Operand(("batch", "late", 2), valid=valid, padding=padding)])


def transform(rng: Draw) -> Node:
    """A transform of a given or a computed axis, parts on any axis."""
    shape = _shape(rng, ("batch", 6, "time", 1), ("batch", "time", 6, 2), ("batch", 6, "time"))
    given: list[Operand | None] = [
        constant(1, np.int64), constant(-2, np.int64), constant(1, np.int64), Operand((), INT64, Interval(1.0, 2.0)),
        number("time"), None,
    ]  # fmt: skip
    length = [None, constant(8, np.int64), number("time"), Operand((), INT64, Interval(4.0, 8.0))][int(rng.integers(4))]
    axis = given[int(rng.integers(6))]
    if axis is None or rng.random() < 0.5:
        length = None  # the kernel ends the process where a longer one meets the axis of its default
    valid = AWAY[int(rng.integers(5))]
    return Node("DFT", [Operand(shape, valid=valid), length, axis], opset=20)


def reshaped(rng: Draw) -> Node:
    """Sizes that are copied, told, left over, or nothing."""
    shape = _shape(rng, ("batch", "time", 4), ("batch", 4, "time"), ("batch", "time", 2, 2))
    targets = [
        (0, 0, -1), (0, -1, 2), (-1, 4), (0, 0, 2, 2), (0, -1, 4), (0, 0, 4), (0, 4, -1), (0, 0, 0), (0, 0, 1, 4),
        (-1, 0, 4), (0, -1, 0),
    ]  # fmt: skip
    target = targets[int(rng.integers(len(targets)))]
    attributes = {"allowzero": 1} if rng.random() < 0.2 else {}
    return Node("Reshape", [Operand(shape), _integers(*target)], attributes, least={"time": int(rng.integers(0, 2))})


def merged(rng: Draw) -> Node:
    """Rows and frames on one axis, as a Reshape leaves them."""
    both: Axis = (Rows(size_at("batch")), *suffix(TIME))
    frames = Operand(("batch*time", 3), axes={0: both}, valid=AWAY[int(rng.integers(5))])
    weights = _weights(rng, 3, 2)
    return [
        Node("MatMul", [frames, weights]), Node("Relu", [frames]), Node("Softmax", [frames], {"axis": 1}),
        Node("ReduceMean", [frames, _integers(int(rng.integers(2)))], {"keepdims": 1}),
        Node("Gemm", [frames, weights, constant(rng.choice([-9.0, 9.0], 2))]),
        Node("LayerNormalization", [frames, constant(np.ones(3)), constant(np.ones(3))], {"axis": -1}),
        Node("Reshape", [frames, _integers(-1, 3, 1)]), Node("Add", [frames, Operand((3,), valid=AWAY[0])]),
        Node("Concat", [frames, frames], {"axis": 1}), Node("Gather", [frames, _integers(0, 2)], {"axis": 1}),
        Node("Slice", [frames, _integers(0), _integers(2), _integers(1)]),
        Node("Pad", [frames, _integers(0, 1, 0, 1)]), Node("Transpose", [frames], {"perm": [1, 0]}),
    ][int(rng.integers(13))]  # fmt: skip


KINDS: tuple[Callable[[Draw], Node], ...] = (
    cut, cut, counted_cut, table_cut, image, image, activation, search, product, transform, reshaped, merged,
)  # fmt: skip
