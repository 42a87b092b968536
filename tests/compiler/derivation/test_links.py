"""Axes through operators, and time through reshapes."""

import onnx_ir as ir
import pytest
import sympy

from compiler.derivation.links import NotLinked, links_of, regrouped
from compiler.ir import Dim, symbol

BATCH, TIME = symbol("batch"), symbol("time")


def node(op_type: str, *shapes: list[str | int], out: list[str | int], **attributes: int | str) -> ir.Node:
    values = [
        ir.Value(name=f"x{at}", shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
        for at, shape in enumerate(shapes)
    ]
    return ir.node(op_type, values, attributes, outputs=[ir.Value(name="y", shape=ir.Shape(out))])


def test_a_product_mixes_what_it_sums_over() -> None:
    found = links_of(node("MatMul", ["batch", 2, "time", 4], [4, 8], out=["batch", 2, "time", 8]))
    assert found.axes == {0: {0: 0}, 1: {0: 1}, 2: {0: 2}, 3: {1: 1}}
    assert found.mixed == ({0: 3, 1: 0},)


def test_an_einsum_is_read_by_its_letters() -> None:
    equation = "bhid,bhjd->bhij"
    found = links_of(node("Einsum", [1, 2, 3, 4], [1, 2, 5, 4], out=[1, 2, 3, 5], equation=equation))
    assert found.axes[2] == {0: 2}
    assert found.axes[3] == {1: 2}
    assert found.mixed == ({0: 3, 1: 3},)
    with pytest.raises(NotLinked, match="Einsum"):
        links_of(node("Einsum", [3, 3], out=[3], equation="ii->i"))


def test_a_normalisation_with_known_statistics_scales_every_frame_alone() -> None:
    shapes: list[list[str | int]] = [["batch", 8, "time"], [8], [8], [8], [8]]
    found = links_of(node("BatchNormalization", *shapes, out=["batch", 8, "time"]))
    assert (found.data, found.mixed) == ((0,), ())
    assert found.axes == {0: {0: 0}, 1: {0: 1}, 2: {0: 2}}
    with pytest.raises(NotLinked, match="measures what it is given"):
        links_of(node("BatchNormalization", *shapes, out=["batch", 8, "time"], training_mode=1))


def test_an_operator_without_a_rule_is_named() -> None:
    with pytest.raises(NotLinked, match="NonZero"):
        links_of(node("NonZero", ["time"], out=["n"]))


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ([(BATCH,), (TIME,), (8,)], [BATCH, TIME, 2, 4], {1: (1, (TIME,))}),
        ([(BATCH,), (2,), (TIME,), (4,)], [2 * BATCH, TIME, 4], {2: (1, (TIME,))}),
        ([(BATCH,), (TIME,), (8,)], [BATCH * TIME, 8], {1: (0, (BATCH, TIME))}),
        ([(BATCH, TIME), (8,)], [BATCH, TIME, 8], {0: (1, (TIME,))}),
        ([(TIME,)], [1, TIME, 1], {0: (1, (TIME,))}),
        ([(TIME,), (TIME,)], [1, TIME, TIME], {0: (1, (TIME,)), 1: (2, (TIME,))}),
    ],
)
def test_time_is_followed_through_a_reshape(
    before: list[tuple[Dim, ...]], after: list[Dim], found: dict[int, tuple[int, tuple[Dim, ...]]]
) -> None:
    assert regrouped(before, after, TIME) == found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([(TIME,), (8,)], [8, TIME]),
        ([(TIME,), (TIME,)], [TIME * TIME]),
        ([(TIME,)], [sympy.floor(TIME / 2), 2]),
    ],
    ids=["turned", "two merged", "parted"],
)
def test_a_reshape_that_moves_frames_is_not_followed(before: list[tuple[Dim, ...]], after: list[Dim]) -> None:
    with pytest.raises(NotLinked):
        regrouped(before, after, TIME)
