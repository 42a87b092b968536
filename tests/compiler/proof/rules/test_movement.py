"""Rules MV: axes move, merge, split and repeat whole, and every claim holds under attack."""

import numpy as np
import onnx_ir as ir
import pytest
import sympy

from compiler.graph import model as graphs
from compiler.proof.facts.facts import Index
from compiler.proof.facts.interval import Interval
from compiler.proof.facts.layout import Axis, Frames, Plain, Rows, Segment, Side, joined
from tests.kit.judged import attack, check, check_refused, integers
from tests.kit.soundness import Node, Operand, number

TIME, BATCH = graphs.symbol("time"), graphs.symbol("batch")
CENTERED = joined([Segment(TIME, Side.RIGHT), Segment(TIME - 1)])
ROWS, LEFT = "0: rows(batch)", "[time, left]"


def reshape(shape: tuple[int | str, ...], *target: int, **axes: Axis) -> Node:
    return Node("Reshape", [Operand(shape, axes={int(at[1:]): axis for at, axis in axes.items()}), integers(*target)])


RESHAPED = {
    "heads apart": (reshape(("batch", "time", 6), 0, 0, 2, 3), f"{ROWS}, 1: {LEFT}"),
    "heads together": (reshape(("batch", "time", 2, 3), 0, 0, 6), f"{ROWS}, 1: {LEFT}"),
    "batch and heads merge": (reshape(("batch", 2, 5, 3), -1, 5, 3), "0: rows(batch) * 2"),
    "heads leave the batch": (reshape(("time", "2*batch", 3), 0, -1, 2, 3), "0: [time, left], 1: rows(batch)"),
    "rows of frames": (reshape(("batch", "time", 6), -1, 6), f"0: rows(batch) * {LEFT}"),
    "frames of channels": (reshape(("batch", "time", 6), 0, -1), f"{ROWS}, 1: [6*time, left]"),
    "channels back": (reshape(("batch", "6*time"), 0, -1, 6), f"{ROWS}, 1: {LEFT}"),
    "stacked frames": (reshape(("batch", "4*(time//4)", 3), 0, -1, 12), f"{ROWS}, 1: [floor(time/4), left]"),
    "fixed axes in any way": (reshape(("batch", "time", 4, 9), 0, 0, 6, 6), f"{ROWS}, 1: {LEFT}"),
    "size 1 in between": (reshape(("batch", "time", 6), 0, 1, -1, 6), f"{ROWS}, 2: {LEFT}"),
    "right-aligned frames of channels": (
        reshape(("batch", "time", 2), 0, -1, a1=(Frames((Segment(TIME, Side.RIGHT),)),)),
        f"{ROWS}, 1: [2*time, right]",
    ),
    "centered frames of channels": (
        reshape((1, "2*time - 1", 6), 1, -1, 2, 3, a1=CENTERED), "1: [time, right] ++ [time - 1, left]",
    ),
    "frames in front of the batch": (reshape(("time", "batch", 6), 0, -1, 3), f"0: {LEFT}, 1: rows(batch) * 2"),
}  # fmt: skip


@pytest.mark.parametrize(("node", "axes"), RESHAPED.values(), ids=RESHAPED)
def test_reshape_keeps_axes_whole(node: Node, axes: str) -> None:
    check(node, "MV2", axes)


REFUSED = [
    (
        reshape(("batch", "time", 3), 0, 3, -1),
        "the batch: [rows(batch), [time, left], 3] to [batch, 3, ",
    ),
    (reshape(("batch", 2, "time", 3), -1, 6, 3), "to ["),
    (reshape(("batch", "2*time", 3), 0, 2, -1, 3), "cuts or interleaves"),
    (reshape(("batch", "time", 4), 0, -1, 8), "cuts or interleaves"),
    (reshape((2, "batch"), -1, 2), "cuts or interleaves"),
    (Node("Squeeze", [Operand(("batch", 1, "time"))]), "every axis of size 1"),
    (Node("Squeeze", [Operand(("batch", "time")), integers(0)]), "has batch entries"),
    (Node("Expand", [Operand(("batch",)), number("time", shape=(1,))]), "makes time entries of batch"),
    (Node("Expand", [Operand((1,)), number("batch*time", shape=(1,))]), "batch"),
]


@pytest.mark.parametrize(("node", "message"), REFUSED)
def test_refused(node: Node, message: str) -> None:
    check_refused(node, message)


MOVED = [
    (Node("Transpose", [Operand(("batch", "time", 3))], {"perm": [2, 1, 0]}), "MV1", f"1: {LEFT}, 2: rows(batch)"),
    (Node("Transpose", [Operand(("batch", "time"))]), "MV1", f"0: {LEFT}, 1: rows(batch)"),
    (Node("Unsqueeze", [Operand(("batch", "time")), integers(0, -2)]), "MV3", "1: rows(batch), 3: [time, left]"),
    (Node("Squeeze", [Operand(("batch", 1, "time")), integers(-2)]), "MV3", f"{ROWS}, 1: {LEFT}"),
    (Node("Flatten", [Operand(("batch", "time", 3))], {"axis": 2}), "MV2", f"0: rows(batch) * {LEFT}"),
    (Node("Flatten", [Operand(("batch", "time", 3))]), "MV2", f"{ROWS}, 1: [3*time, left]"),
    (Node("Expand", [Operand(("batch", 1, "time")), integers(1, 5, 1)]), "MV4", f"{ROWS}, 2: {LEFT}"),
    (Node("Expand", [Operand((1,)), number("time", shape=(1,))]), "MV4", f"0: {LEFT}"),
    (Node("Expand", [Operand(("batch", 1)), number("time + 1", shape=(1,))]), "MV4", f"{ROWS}, 1: [time + 1, left]"),
    (Node("Expand", [Operand((1,)), number("2*batch", shape=(1,))]), "MV4", "0: rows(batch) * 2"),
    (Node("Tile", [Operand(("batch", "time")), integers(1, 2)]), "MV4", f"{ROWS}, 1: 2 * {LEFT}"),
    (Node("Tile", [Operand((3,)), number("batch", shape=(1,))]), "MV4", "0: rows(batch) * 3"),
    (Node("Tile", [Operand((3,)), number("time", shape=(1,))]), "MV4", "0: [3*time, left]"),
]


@pytest.mark.parametrize(("node", "rule", "axes"), MOVED)
def test_moved(node: Node, rule: str, axes: str) -> None:
    check(node, rule, axes)


def test_positions_stay_positions_when_they_move() -> None:
    counted = Interval(0, 2.0**31)
    positions = Operand(("time",), ir.DataType.INT64, counted, counted, index=Index(0))
    assert check(Node("Unsqueeze", [positions, integers(0)]), "MV3", "1: [time, left]").outputs[0].index == Index(1)
    assert check(Node("Reshape", [positions, integers(1, -1, 1)]), "MV2", "1: [time, left]").outputs[0].index == Index(
        1
    )


def drawn_operand(rng: np.random.Generator) -> tuple[Operand, list[sympy.Expr | int]]:
    """An operand with one axis of each kind at most, and its factors from outer to inner."""
    pool: dict[str | int, list[tuple[Axis | None, list[sympy.Expr | int]]]] = {
        "batch": [(None, [BATCH])],
        "time": [(None, [TIME]), ((Frames((Segment(TIME, Side.RIGHT),)),), [TIME])],
        "2*time": [(None, [TIME, 2]), ((Frames((Segment(TIME),)), Plain(2)), [TIME, 2])],
        "2*time - 1": [(CENTERED, [2 * TIME - 1])],
        "time + 1": [(None, [TIME + 1]), (joined([Segment(TIME), Segment(1)]), [TIME + 1])],
        "3*batch": [(None, [BATCH, 3]), ((Plain(3), Rows(BATCH)), [3, BATCH])],
        1: [(None, [1])], 2: [(None, [2])], 4: [(None, [2, 2])],
    }  # fmt: skip
    shape: list[int | str] = []
    axes: dict[int, Axis] = {}
    factors: list[sympy.Expr | int] = []
    for _ in range(int(rng.integers(1, 5))):
        dim = list(pool)[int(rng.integers(len(pool)))]
        if isinstance(dim, str) and any(isinstance(d, str) and ("batch" in d) == ("batch" in dim) for d in shape):
            dim = 2
        axis, own = pool[dim][int(rng.integers(len(pool[dim])))]
        if axis is not None:
            axes[len(shape)] = axis
        shape.append(dim)
        factors += own
    return Operand(tuple(shape), axes=axes), factors


def drawn_reshape(rng: np.random.Generator) -> Node:
    """Factors grouped anew: at most one group is left to be inferred."""
    operand, factors = drawn_operand(rng)
    groups: list[list[sympy.Expr | int]] = []
    for factor in factors:
        if groups and rng.random() < 0.45:
            groups[-1].append(factor)
        else:
            groups.append([factor])
    target: list[int] = []
    for at, group in enumerate(groups):
        size = sympy.expand(sympy.prod(group))
        before = graphs.expression(str(operand.shape[at])) if at < len(operand.shape) else None
        target.append(
            int(size) if size.is_Integer else 0 if before is not None and sympy.expand(before) == size else -1
        )
    return drawn_reshape(rng) if target.count(-1) > 1 else Node("Reshape", [operand, integers(*target)])


def drawn_movement(rng: np.random.Generator) -> Node:
    operand, _ = drawn_operand(rng)
    rank = len(operand.shape)
    match int(rng.integers(4)):
        case 0:
            return Node("Transpose", [operand], {"perm": [int(at) for at in rng.permutation(rank)]})
        case 1:
            return Node("Unsqueeze", [operand, integers(int(rng.integers(-rank - 1, rank + 1)))])
        case 2:
            return Node("Flatten", [operand], {"axis": int(rng.integers(-rank, rank + 1))})
    return Node("Tile", [operand, integers(*(int(rng.integers(1, 4)) for _ in range(rank)))])


def test_random_reshapes() -> None:
    attack(drawn_reshape, 120, 90)


def test_random_movements() -> None:
    attack(drawn_movement, 80, 78)
