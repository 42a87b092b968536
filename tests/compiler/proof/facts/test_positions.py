"""How far apart positions are: bounds from sizes, by region."""

import math

import onnx_ir as ir
import pytest

from compiler.graph.model import Dim, symbol
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import NUMBER, Index, make_fact
from compiler.proof.facts.interval import ANYTHING, Interval
from compiler.proof.facts.layout import Axis, Frames, Segment, Side, suffix
from compiler.proof.facts.positions import difference
from tests.kit.attacked import Node, model_of, number
from tests.kit.soundness import Operand

TIME = symbol("time")


def apart(first: tuple[Axis | None, Dim, Dim], second: tuple[Axis | None, Dim, Dim], *region: int) -> Interval | None:
    """Positions [a, 1] minus positions [b]; each given as layout, offset and size."""
    shapes = [(str(first[2]), 1), (str(second[2]),)]
    operands = [Operand(tuple(int(d) if str(d).isdigit() else d for d in shape), ir.DataType.INT64) for shape in shapes]
    node = next(iter(model_of(Node("Sub", operands)).graph))
    facts = [
        make_fact({} if axis is None else {0: axis}, lambda region: ANYTHING, Index(0, offset))
        for axis, offset, _ in (first, second)
    ]
    return difference(Case(node, facts, "batch", {"time": Side.LEFT}), frozenset(region), 2)


@pytest.mark.parametrize(
    ("first", "second", "region", "expected"),
    [
        ((suffix(TIME), 0, TIME), (suffix(TIME), 0, TIME), (), None),
        ((suffix(TIME), 0, TIME), (suffix(TIME), 0, TIME), (0,), (1, math.inf)),
        ((suffix(TIME), 0, TIME), (suffix(TIME), 0, TIME), (1,), (-math.inf, -1)),
        ((suffix(TIME), 0, TIME), (suffix(TIME), 0, TIME), (0, 1), None),
        ((suffix(TIME), 5, TIME), (suffix(TIME), 2, TIME), (0,), (4, math.inf)),
        ((suffix(2 * TIME), 0, 2 * TIME), (suffix(TIME), 0, TIME), (0,), (1, math.inf)),
        ((suffix(TIME), 0, TIME), (suffix(2 * TIME), 0, 2 * TIME), (0,), None),
        ((None, 3, 4), (None, 0, 2), (), (2, 6)),
        (((Frames((Segment(TIME, Side.RIGHT),)),), 0, TIME), (None, 0, 2), (0,), (-math.inf, -1)),
        ((None, 0, 1), (suffix(TIME), 0, TIME), (), (-math.inf, 0)),
    ],
)
def test_bounds(
    first: tuple[Axis | None, Dim, Dim],
    second: tuple[Axis | None, Dim, Dim],
    region: tuple[int, ...],
    expected: tuple[float, float] | None,
) -> None:
    found = apart(first, second, *region)
    assert (None if found is None else (found.low, found.high)) == expected


def test_of_numbers_alone_nothing_is_told() -> None:
    node = next(each for each in model_of(Node("Sub", [number("time"), number("time")])).graph if each.name == "target")
    assert difference(Case(node, [NUMBER, NUMBER], "batch", {"time": Side.LEFT}), frozenset(), 0) is None
