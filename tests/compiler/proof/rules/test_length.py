"""Rules LN: lengths as numbers, and positions, triangles and fillings made of them; every claim holds under attack."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.passes.pad_axes import PadAxes
from compiler.proof.facts.facts import Index
from compiler.proof.facts.interval import ONE, ZERO, Interval
from compiler.proof.facts.layout import Frames, Segment, Side, joined
from tests.kit.judged import attack, check, check_refused
from tests.kit.offline import offline
from tests.kit.soundness import Node, Operand, constant, number

TIME = graphs.symbol("time")
ROWS = "0: rows(batch)"


def counted(start: int | str, limit: int | str, step: int = 1) -> Node:
    bounds = [number(b) if isinstance(b, str) else constant(b, np.int64) for b in (start, limit)]
    return Node("Range", [*bounds, constant(step, np.int64)])


COUNTED = {
    "from zero": (counted(0, "time"), "0: [time, left]", Index(0)),
    "from one": (counted(1, "time + 1"), "0: [time, left]", Index(0, 1)),
    "around zero": (counted("1 - time", "time"), "0: [time, right] ++ [time - 1, left]", Index(0, 1 - TIME)),
    "up to zero": (counted("-time", 0), "0: [time, right]", Index(0, -TIME)),
    "backwards": (counted("time - 1", -1, -1), "0: [time, right]", None),
    "backwards around zero": (counted("time - 1", "-time", -1), "0: [time, right] ++ [time - 1, left]", None),
    "in twos": (counted(0, "2*time", 2), "0: [time, left]", None),
    "from a length": (counted("time", "time + 3"), "number", None),
    "rows": (counted(0, "batch"), "number", None),
}


@pytest.mark.parametrize(("node", "axes", "index"), COUNTED.values(), ids=COUNTED)
def test_positions(node: Node, axes: str, index: Index | None) -> None:
    assert check(node, "LN4", axes).outputs[0].index == index


def test_positions_of_a_window_are_counted_from_its_front() -> None:
    check(dataclasses.replace(counted(0, "cache + 2"), right=["cache"]), "LN4", "0: [cache + 2, left]")


def test_lengths_are_numbers_and_fixed_sizes_are_not() -> None:
    value = Operand(("batch", "time", 3))
    check(Node("Shape", [value]), "LN2", "number")
    check(Node("Shape", [value], {"start": 1, "end": 2}), "LN2", "number")
    check(Node("Size", [value]), "LN2", "number")
    assert check(Node("Shape", [value], {"start": -1}), "LN2", "").outputs[0].valid.low == 3


SQUARE = Operand((1, "time", "time"), valid=ONE, padding=ONE)


@pytest.mark.parametrize(
    ("upper", "diagonal", "zero", "kept"), [(0, 0, 2, 1), (0, -1, 2, 1), (1, 0, 1, 2), (1, 1, 1, 2), (0, 1, None, 1)]
)
def test_causal_triangles_hide_the_padding(upper: int, diagonal: int, zero: int | None, kept: int | None) -> None:
    node = Node("Trilu", [SQUARE, constant(diagonal, np.int64)], {"upper": upper})
    fact = check(node, "LN5", "1: [time, left], 2: [time, left]").outputs[0]
    for axis in (1, 2):
        content = fact.content({axis})
        assert (content == ZERO) == (axis == zero)
        assert (content == ONE) == (axis == kept)


WINDOW = Operand((1, 2, "cache + 2"))
TRIANGLES = [
    (Node("Trilu", [WINDOW, number("cache")], {"upper": 0}, right=["cache"]), "2: [cache + 2, right]"),
    (Node("Trilu", [Operand((1, "time", "time"))], right=["time"]), "1: [time, right], 2: [time, right]"),
    (Node("Trilu", [Operand(("batch", "time", "late"))]), f"{ROWS}, 1: [time, left], 2: [late, left]"),
]  # fmt: skip


@pytest.mark.parametrize(("node", "axes"), TRIANGLES)
def test_triangles(node: Node, axes: str) -> None:
    assert not check(node, "LN5", axes).pointwise


def test_the_diagonal() -> None:
    fact = check(Node("EyeLike", [Operand(("time", "time"))]), "LN5", "0: [time, left], 1: [time, left]").outputs[0]
    assert fact.content({0}) == fact.content({1}) == ZERO


LENGTHS = Operand(("batch",), ir.DataType.INT64, valid=Interval(1, 3))
TIME_FIRST = {"time_axis": 0, "batch_axis": 1}


def test_reversal_within_lengths() -> None:
    node = Node("ReverseSequence", [Operand(("time", "batch", 2)), LENGTHS], TIME_FIRST, least={"time": 3})
    check(node, "LN6", "0: [time, left], 1: rows(batch)")


def test_one_value_at_every_place() -> None:
    fact = check(Node("ConstantOfShape", [constant([2, 3], np.int64)]), "LN3", "").outputs[0]
    assert fact.valid == ZERO


FILLED = {
    "batch;time": "0: rows(batch), 1: [time, left]",
    "time - 2;3": "0: [time - 2, left]",
    "batch;0;time": "0: rows(batch), 2: [time, left]",
}


@pytest.mark.parametrize(("shape", "axes"), FILLED.items())
def test_one_value_along_axes_that_the_shape_makes_is_not_pointwise(shape: str, axes: str) -> None:
    """No operand has slots whose order could change: that is left to values that lie along them."""
    assert not check(Node("ConstantOfShape", [number(shape)]), "LN3", axes).pointwise


RIGHT = (Frames((Segment(TIME, Side.RIGHT),)),)
GAP = joined([Segment(TIME), Segment(2)])
TURN = {"time_axis": 1, "batch_axis": 0}
REFUSED = [
    (counted("time", "2*time"), "counts time positions from time"),
    (counted(0, "batch*time"), "makes an axis of batch*time entries"),
    (
        Node("Trilu", [Operand((1, 2, "time"), axes={2: RIGHT})]),
        "diagonal 0 of axes laid out [2] and [time, right]",
    ),
    (Node("Trilu", [Operand((1, "time", "time")), number("time")]), "keeps diagonal time"),
    (Node("Trilu", [Operand((1, 3, "time + 2"), axes={2: GAP})]), "Trilu over [time, left] ++ [2]"),
    (Node("Trilu", [Operand((3, "batch", "time"))]), "rows of one batch"),
    (Node("EyeLike", [Operand(("time", "time"))], {"k": 1}), "off the main diagonal"),
    (Node("EyeLike", [Operand(("time", "late"))]), "differently laid out"),
    (Node("EyeLike", [Operand(("batch", 4))]), "rows of one batch"),
    (Node("EyeLike", [Operand((4, "batch"))]), "rows of one batch"),
    (Node("EyeLike", [Operand(("time", "cache"))], right=["cache"]), "differently laid out"),
    (
        Node("ReverseSequence", [Operand(("batch", "time", 2), axes={1: RIGHT}), LENGTHS], TURN, least={"time": 3}),
        "laid out otherwise",
    ),
    (Node("NonZero", [Operand(("batch", "time"))]), "depends on data"),
    (Node("Unique", [Operand(("batch", "time"))]), "depends on data"),
    (Node("Compress", [Operand(("batch", "time")), constant([True], np.bool_)], {"axis": 1}), "depends on data"),
]


@pytest.mark.parametrize(("node", "message"), REFUSED)
def test_refused(node: Node, message: str) -> None:
    check_refused(node, message)


def drawn_range(rng: np.random.Generator) -> Node:
    starts: list[int | str] = [0, 1, 5, "1 - time", "-time", "time - 1", "3 - late", "time"]
    limits: list[int | str] = ["time", "time + 2", "2*time", "time + late", "-time", -1, 4, "time//2 + 1"]
    steps = [1, 1, -1, 2]
    start, limit = (each[int(rng.integers(len(each)))] for each in (starts, limits))
    return counted(start, limit, steps[int(rng.integers(len(steps)))])


def drawn_triangle(rng: np.random.Generator) -> Node:
    names = ["time", "late"]
    rows: list[int | str] = [3, *names]
    columns: list[int | str] = [4, *names, "time + 2"]
    shape = (1, rows[int(rng.integers(3))], columns[int(rng.integers(4))])
    diagonal = [constant(int(rng.integers(-2, 3)), np.int64), number("time"), number("time - late")][
        int(rng.integers(3))
    ]
    right = [name for name in names if rng.random() < 0.4]
    operand = Operand(shape, valid=ONE, padding=ONE)
    return Node("Trilu", [operand, diagonal], {"upper": int(rng.integers(2))}, right=right)


def test_random_positions() -> None:
    attack(drawn_range, 80, 25)


def test_random_triangles() -> None:
    attack(drawn_triangle, 80, 12)


def test_sizes_rounded_from_floating_point_have_a_cure_in_whole_numbers() -> None:
    """Interpolation by a scale counts Cast(1.5 * n) places, of which no name is told to the user."""
    text = """(float[batch,time,4] x) => (float[batch,late,4] y)
        <float half = {1.5}, int64 none = {0}, int64 one = {1}, int64[1] first = {1}>
        { n = Shape<start = 1, end = 2>(x)  m = Squeeze(n)  f = Cast<to = 1>(m)  g = Mul(f, half)
          k = Cast<to = 7>(g)  i = Range(none, k, one)  c = Min(i, none)  y = Gather<axis = 1>(x, c) }"""
    lowered = offline(text)
    graphs.infer_shapes(lowered.model)
    with pytest.raises(Refused) as caught:
        PadAxes().apply(lowered)
    assert "_d" not in caught.value.message and "3 * n // 2" in caught.value.cure
