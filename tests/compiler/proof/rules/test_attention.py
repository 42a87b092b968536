"""Rules of ai.onnx attention under attack: positions by rotation; what is refused by name."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from compiler.proof.facts.facts import Clamp
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval, bounded
from tests.kit.judged import attack, check, check_refused
from tests.kit.soundness import Node, Operand, constant

INT64 = ir.DataType.INT64
WIDE, HEADS = "0: rows(batch), 1: [time, left]", "0: rows(batch), 2: [time, left]"
RANDOM = np.random.default_rng(0)
TABLES = [constant(RANDOM.standard_normal((10, 4))) for _ in range(2)]


def data(*shape: int | str, padding: Interval = ANYTHING) -> Operand:
    return Operand(shape, padding=padding)


def positions(*shape: int | str) -> Operand:
    return Operand(shape or ("batch", "time"), INT64, Interval(0.0, 9.0))


def rotary(operands: Sequence[Operand | None], **attributes: Any) -> Node:
    return Node("RotaryEmbedding", operands, attributes, opset=23)


def test_positions_in_the_padding_stay_in_the_table() -> None:
    wide = rotary([data("batch", "time", 16), *TABLES, positions()], num_heads=2)
    assert check(wide, "EW2", WIDE, extremes=False).needs == (Clamp(3, 0, 9),)
    heads = rotary([data("batch", 2, "time", 8), *TABLES, positions()], interleaved=1)
    assert check(heads, "EW2", HEADS, extremes=False).needs == (Clamp(3, 0, 9),)


@pytest.mark.parametrize("padding", [ANYTHING, bounded(5.0), ZERO])
def test_angles_of_every_frame(padding: Interval) -> None:
    angles = [data("batch", "time", 4, padding=bounded(1.0)) for _ in range(2)]
    node = rotary([data("batch", 2, "time", 8, padding=padding), *angles])
    verdict = check(node, "EW2", HEADS, extremes=False)
    assert not verdict.needs
    assert verdict.outputs[0].content({2}).is_finite == padding.is_finite
    unknown = rotary([data("batch", 2, "time", 8, padding=padding), *[data("batch", "time", 4)] * 2])
    assert not check(unknown, "EW2", HEADS, extremes=False).outputs[0].content({2}).is_finite


def test_other_positions_and_tables_are_refused() -> None:
    heads = data("batch", 2, "time", 8)
    check_refused(rotary([heads, *TABLES, positions(1, "time")]), "another layout")
    check_refused(rotary([heads, *[data(1, "time", 4)] * 2]), "another layout")
    check_refused(rotary([heads, data("time", 4), TABLES[1], positions()]), "is padded or has the batch")
    check_refused(rotary([data("batch", "time", 6, 8), *TABLES, positions("batch", 6)]), "another layout")


def drawn(rng: np.random.Generator) -> Node:
    """A random rotation: spelling, layout of the frames, part that is turned, and what lies in the padding."""
    half = int(rng.integers(1, 4))
    size = 2 * half + 2 * int(rng.integers(0, 2))
    partial = {"rotary_embedding_dim": 2 * half} if size > 2 * half else {}
    interleaved = {"interleaved": int(rng.integers(0, 2))}
    padding = (ANYTHING, bounded(3.0), ZERO)[rng.integers(0, 3)]
    batch = ("batch", 2)[int(rng.random() < 0.2)]
    if rng.random() < 0.5:
        frames, attributes = data(batch, 2, "time", size, padding=padding), {"num_heads": 2} if partial else {}
    else:
        frames, attributes = data(batch, "time", 2 * size, padding=padding), {"num_heads": 2}
    if rng.random() < 0.5:
        angles = [data(batch, "time", half, padding=(ANYTHING, bounded(2.0))[rng.integers(0, 2)]) for _ in range(2)]
        return rotary([frames, *angles], **attributes, **partial, **interleaved)
    tables = [constant(rng.standard_normal((10, half))) for _ in range(2)]
    return rotary([frames, *tables, positions(batch, "time")], **attributes, **partial, **interleaved)


def test_random_rotations() -> None:
    attack(drawn, 60, 40, extremes=False)


def test_a_whole_attention_is_refused_by_name() -> None:
    operands = [data("batch", 2, "time", 4) for _ in range(3)]
    node = Node("Attention", operands, opset=23)
    check_refused(node, "holds a whole attention")
