"""Rule IX4: grids of indices choose rows and positions; every row looks up in itself, or is refused."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.proof.facts.facts import Clamp, Fact, Fill
from compiler.proof.facts.interval import Interval
from compiler.proof.facts.layout import Side
from compiler.proof.propagation.propagate import Axes, input_facts, propagate
from tests.kit.graphs import parse
from tests.kit.judged import attack, check, check_refused, rewrites
from tests.kit.soundness import Node, Operand, constant, number

INT64 = ir.DataType.INT64
ROWS = "0: rows(batch)"

GRID = """b = Shape<start = 0, end = 1>(x)  t = Shape<start = 1, end = 2>(x)
    n = Squeeze(b, zero)  m = Squeeze(t, zero)
    rows = Range(nought, n, unit)  frames = Range(nought, m, unit)
    rows4 = Unsqueeze(rows, behind_rows)  frames4 = Unsqueeze(frames, before_frames)
    wide = Concat<axis = 0>(b, one, one, t)
    r = Expand(rows4, wide)  f = Expand(frames4, wide)  r5 = Unsqueeze(r, last)  f5 = Unsqueeze(f, last)"""
TAIL = "index = Concat<axis = -1>(r5, f5)  out = GatherND(x, index)"


def facts_of(body: str) -> Fact:
    model = parse(
        f"""(float[batch,time] x, int64[batch,late] ids) => (float[q] out)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64 nought = {{0}}, int64 unit = {{1}}, int64[1] last = {{-1}},
         int64[3] behind_rows = {{1, 2, 3}}, int64[3] before_frames = {{0, 1, 2}}>
        {{ {body} }}"""
    )
    axes = Axes("batch", {"time": Side.LEFT, "late": Side.LEFT})
    return propagate(model, axes, input_facts(model, axes)).fact(model.graph.outputs[0])


def test_the_mask_grid_of_exporters() -> None:
    fact = facts_of(f"{GRID}  {TAIL}")
    assert str(fact).startswith("{0: rows(batch), 3: [time, left]}")


WRONG = {
    "rows turned round": ("rows4 =", "less = Sub(n, unit)  turned = Sub(less, rows)  rows4 =", "(rows,", "(turned,"),
    "frames as rows": ("index = Concat<axis = -1>(r5, f5)", "index = Concat<axis = -1>(f5, r5)", "", ""),
}


@pytest.mark.parametrize(("old", "new", "then", "now"), WRONG.values(), ids=WRONG)
def test_other_grids_are_refused(old: str, new: str, then: str, now: str) -> None:
    body = f"{GRID}  {TAIL}".replace(old, new)
    with pytest.raises(Refused, match="GatherND"):
        facts_of(body.replace(f"Unsqueeze{then}", f"Unsqueeze{now}") if then else body)


def test_frames_counted_back_are_those_of_each_row() -> None:
    turned = "end = Sub(m, unit)  back = Sub(end, frames)  frames4 ="
    body = f"{GRID}  {TAIL}".replace("frames4 =", turned).replace("Unsqueeze(frames,", "Unsqueeze(back,")
    assert str(facts_of(body)).startswith("{0: rows(batch), 3: [time, left]}")


def test_rows_with_an_index_of_data() -> None:
    picked = """b = Shape<start = 0, end = 1>(x)  n = Squeeze(b, zero)  rows = Range(nought, n, unit)
        top = ArgMax<axis = 1, keepdims = 0>(x)  r = Unsqueeze(rows, last)  i = Unsqueeze(top, last)
        index = Concat<axis = -1>(r, i)  out = GatherND(x, index)"""
    assert str(facts_of(picked)).startswith("{0: rows(batch)} valid")


FRAMES = Operand(("batch", "time", 1), INT64, valid=Interval(0, 2))


def test_shared_leading_axes() -> None:
    fixed = check(
        Node("GatherND", [Operand(("batch", 3, 2)), FRAMES], {"batch_dims": 1}), "IX4", f"{ROWS}, 1: [time, left]"
    )
    assert fixed.needs == (Clamp(1, -3, 2),)
    frames = dataclasses.replace(FRAMES, shape=("batch", "late", 1), valid=Interval(0, 0))
    padded = check(
        Node("GatherND", [Operand(("batch", "time", 2)), frames], {"batch_dims": 1}), "IX4", f"{ROWS}, 1: [late, left]"
    )
    assert padded.needs == (Fill(1, 1, 0.0),)
    assert not padded.pointwise
    check(
        Node("GatherND", [constant(np.ones((4, 4))), Operand(("batch", 2), INT64, valid=Interval(0, 3))]), "IX4", ROWS
    )


MASK = Operand(("batch", "time"))
OWN = Operand(("batch", 1), INT64, valid=Interval(0, 2))
REFUSED = [
    (Node("GatherND", [MASK, Operand((2, 1), INT64)]), "of other rows than its own"),
    (Node("GatherND", [MASK, Operand((1, 2, 1), INT64)], {"batch_dims": 1}), "GatherND of rows(batch) by"),
    (Node("GatherND", [Operand((3, "batch")), OWN]), "every row's indices"),
    (Node("GatherND", [Operand((4, 5)), Operand(("time", 2), INT64, valid=Interval(0, 3))]), "that all rows share"),
]  # fmt: skip


@pytest.mark.parametrize(("node", "message"), REFUSED)
def test_refused(node: Node, message: str) -> None:
    check_refused(node, message)


def drawn(rng: np.random.Generator) -> Node:
    pool: list[list[int | str]] = [["batch", 2], ["time", 3], [3, 3]]
    shape = [pair[int(rng.integers(2))] for pair in pool]
    shared = int(rng.integers(2))
    inner: list[list[int | str]] = [["late"], [2], ["late", 2]]
    indices = (*shape[:shared], *inner[int(rng.integers(3))], int(rng.integers(1, 4 - shared)))
    operand = Operand(indices, INT64, valid=Interval(0, 0 if shape[0] == "batch" and not shared else 1))
    return Node("GatherND", [Operand(tuple(shape)), operand], {"batch_dims": shared}, least={"time": 2})


def test_an_axis_of_fixed_size_is_looked_up_by_the_length_of_each_row() -> None:
    verdict = check(Node("Gather", [Operand(("batch", 3, 5, 2)), number("Min(time, 4)")], {"axis": 2}), "IX5", ROWS)
    assert rewrites(verdict) == ["look_up_again"]


def test_random_grids() -> None:
    attack(drawn, 80, 20)
