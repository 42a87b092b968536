"""Rules MM: products keep padding apart, or add exactly zero from it, and every claim holds under attack."""

import math

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import VALID, Fact, Fill
from compiler.proof.facts.interval import ANYTHING, ONE, TRUTH, ZERO, Interval
from compiler.proof.facts.layout import Axis, Frames, Plain, Rows, Segment, Side, joined
from compiler.proof.propagation.judge import judge
from compiler.proof.rules.contraction import sums_to_one
from tests.kit.judged import attack, check, check_refused
from tests.kit.soundness import Node, Operand, check_node, constant, number

BATCH, TIME = graphs.symbol("batch"), graphs.symbol("time")
ROWS = "0: rows(batch)"
FINITE = Interval(-3.0, 5.0)
WEIGHTS = constant(np.arange(12.0).reshape(4, 3) - 5)


def matmul(first: Operand, second: Operand, **more: object) -> Node:
    return Node("MatMul", [first, second], **more)  # type: ignore[arg-type]


def x(*shape: int | str, padding: Interval = FINITE, valid: Interval | None = None, **axes: Axis) -> Operand:
    return Operand(shape, padding=padding, valid=valid, axes={int(at[1:]): axis for at, axis in axes.items()})


HEADS = (Rows(BATCH), Plain(2))
WINDOW = joined([Segment(TIME, Side.RIGHT), Segment(3)])
CENTERED = joined([Segment(TIME, Side.RIGHT), Segment(TIME - 1)])

KEPT = {
    "a projection": (matmul(x("batch", "time", 4), WEIGHTS), f"{ROWS}, 1: [time, left]"),
    "scores": (matmul(x("batch", 2, "time", 4), x("batch", 2, 4, "key")), f"{ROWS}, 2: [time, left], 3: [key, left]"),
    "scores of heads in the batch": (
        matmul(x("2*batch", "time", 4), x("2*batch", 4, "time")),
        "0: rows(batch) * 2, 1: [time, left], 2: [time, left]",
    ),
    "time as a batch of products": (matmul(x("time", "batch", 4), x("time", 4, 3)), "0: [time, left], 1: rows(batch)"),
    "a shared table": (matmul(x("batch", 2, "time", 4), x(1, 4, "time")), f"{ROWS}, 2: [time, left], 3: [time, left]"),
    "a vector": (matmul(x("batch", "time", 4), constant(np.ones(4))), f"{ROWS}, 1: [time, left]"),
    "a vector in front": (matmul(constant(np.ones(4)), x("batch", 4, "time")), f"{ROWS}, 1: [time, left]"),
    "a window": (matmul(x("batch", "time + 3", 4, a1=WINDOW), WEIGHTS), f"{ROWS}, 1: [time + 3, right]"),
    "an outer product": (
        Node("Einsum", [x("batch", "time"), x("batch", "key")], {"equation": "bi,bj->bij"}),
        f"{ROWS}, 1: [time, left], 2: [key, left]",
    ),
    "an ellipsis": (
        Node("Einsum", [x("batch", 2, "time", 4), WEIGHTS], {"equation": "...d, de->...e"}), f"{ROWS}, 2: [time, left]",
    ),
    "an ellipsis in the middle": (
        Node("Einsum", [x("time", "batch", 4), x("batch")], {"equation": "a...b,..."}),
        f"{ROWS}, 1: [time, left]",
    ),
    "a product of rows": (Node("Gemm", [x("batch", 4), WEIGHTS, constant([1.0, 2.0, 3.0])]), ROWS),
    "a transposed product": (
        Node("Gemm", [x(4, "batch"), WEIGHTS, x("batch", 1)], {"transA": 1, "alpha": 0.5, "beta": -2.0}), ROWS,
    ),
    "merged rows and frames": (
        Node("Gemm", [x("batch*time", 4, a0=(Rows(BATCH), Frames((Segment(TIME),)))), WEIGHTS], {}),
        "0: rows(batch) * [time, left]",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("node", "axes"), KEPT.values(), ids=KEPT)
def test_kept_axes_need_nothing(node: Node, axes: str) -> None:
    verdict = check(node, "MM1", axes, extremes=False)
    assert verdict.pointwise and not verdict.needs


def test_padding_that_may_be_anything_is_kept_as_that() -> None:
    verdict = check(matmul(x("batch", "time", 4, padding=ANYTHING), WEIGHTS), "MM1", f"{ROWS}, 1: [time, left]")
    assert verdict.outputs[0].padding(1) == ANYTHING


def test_bounds_of_weights_are_their_sums() -> None:
    (out,) = check(matmul(x("batch", "time", 4), WEIGHTS), "MM1", f"{ROWS}, 1: [time, left]").outputs
    worst = 5.0 * np.abs(np.arange(12.0).reshape(4, 3) - 5).sum(axis=0).max()
    assert out.padding(1).is_finite and out.padding(1).magnitude == pytest.approx(worst, rel=1e-3)
    (out,) = check(matmul(x("batch", "time", 4, padding=ZERO), WEIGHTS), "MM1", f"{ROWS}, 1: [time, left]").outputs
    assert out.padding(1) == ZERO


def test_labels_that_weights_lack_are_counted_as_well() -> None:
    node = Node("Einsum", [x("batch", 7, "time", valid=FINITE), constant([1.0, 1.0])], {"equation": "bnt,d->bt"})
    (out,) = check(node, "MM1", f"{ROWS}, 1: [time, left]").outputs
    assert out.padding(1).high == pytest.approx(7 * 5 * 2, rel=1e-3)


def test_bounds_that_overflow_may_be_anything() -> None:
    huge = Interval(-1e30, 1e30)
    node = matmul(x("batch", "time", 4, padding=huge), x("batch", 4, 3, valid=huge))
    assert check(node, "MM1", f"{ROWS}, 1: [time, left]", extremes=False).outputs[0].padding(1) == ANYTHING
    half = Operand(("batch", "time", 4), ir.DataType.FLOAT16, FINITE, FINITE)
    node = matmul(half, constant(np.full((4, 3), 6e3), np.float16))
    assert check(node, "MM1", f"{ROWS}, 1: [time, left]", extremes=False).outputs[0].padding(1) == ANYTHING


def fills(node: Node, axes: str) -> list[tuple[int, int]]:
    verdict = check(node, "MM2", axes, extremes=False)
    assert not verdict.pointwise
    assert all(isinstance(need, Fill) and need.value == 0.0 for need in verdict.needs)
    return [(need.operand, need.axis) for need in verdict.needs if isinstance(need, Fill)]


PROBABILITIES = x("batch", 2, "time", "key", padding=TRUTH)
MIXED = f"{ROWS}, 2: [time, left]"

SUMMED = {
    "the smaller one of two finite factors": (matmul(PROBABILITIES, x("batch", 2, "key", 4)), MIXED, [(1, 2)]),
    "zero meets finite": (
        matmul(Operand(("batch", 2, "time", "key"), valid=TRUTH, padding={frozenset({3}): ZERO}),
               x("batch", 2, "key", 4)), MIXED, [],
    ),
    "zero meets anything": (
        matmul(x("batch", 2, "time", "key", padding=ZERO), x("batch", 2, "key", 4, padding=ANYTHING)),
        MIXED, [(1, 2)],
    ),
    "anything meets finite": (
        matmul(x("batch", 2, "time", "key", padding=ANYTHING), x("batch", 2, "key", 4)), MIXED, [(0, 3)],
    ),
    "anything meets anything": (
        matmul(x("batch", 2, "time", "key", padding=ANYTHING), x("batch", 2, "key", 4, padding=ANYTHING)),
        MIXED, [(0, 3), (1, 2)],
    ),
    "both zero": (matmul(x("batch", 2, "time", "key", padding=ZERO), x("batch", 2, "key", 4, padding=ZERO)), MIXED, []),
    "a right-aligned window": (
        matmul(x("batch", 5, "time + 3", a2=WINDOW), x("batch", "time + 3", 4, a1=WINDOW)), ROWS, [(1, 1)],
    ),
    "segments": (
        matmul(x("batch", 5, "2*time - 1", a2=CENTERED), x("batch", "2*time - 1", 4, a1=CENTERED)), ROWS, [(1, 1)],
    ),
    "one factor alone": (Node("Einsum", [x("batch", "time", 4)], {"equation": "btd->bd"}), ROWS, [(0, 1)]),
    "all of it": (
        Node("Einsum", [x("batch", "time", "key"), x("batch", "key", 3, "time")], {"equation": "btk,bkct->bc"}),
        ROWS, [(0, 1), (0, 2)],
    ),
    "three factors": (
        Node("Einsum", [x("batch", "time"), x("batch", "time", 4), x("batch", 4)], {"equation": "bt,btd,bd->bd"}),
        ROWS, [(0, 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("node", "axes", "expected"), SUMMED.values(), ids=SUMMED)
def test_summed_padding_is_zero_with_as_few_fills_as_possible(
    node: Node, axes: str, expected: list[tuple[int, int]]
) -> None:
    assert fills(node, axes) == expected


def test_a_shared_factor_is_left_alone_where_the_other_one_has_rows() -> None:
    node = matmul(x("batch", 5, "time", 300), x("time", 4, padding=Interval(1.0, 2.0)))
    node = Node("Einsum", node.operands, {"equation": "bntd,tc->bncd"})
    assert fills(node, ROWS) == [(0, 2)]


def test_a_shared_factor_gets_rows_where_it_has_to() -> None:
    node = matmul(x(1, 5, "time", padding=Interval(1.0, 2.0)), x(1, "time", 4, padding=Interval(3.0, 4.0)))
    assert fills(node, ROWS) == [(1, 1)]


def test_what_is_cleaned_along_one_label_is_clean_for_the_next() -> None:
    node = Node(
        "Einsum", [x("batch", "time", "key"), x("batch", "time", "key", padding=ZERO)], {"equation": "btk,btk->b"}
    )
    assert fills(node, ROWS) == []


REFUSED = [
    (matmul(x(3, "batch"), x("batch", 4)), "sums over the batch axis"),
    (Node("Einsum", [x("batch", "time")], {"equation": "bt->t"}), "sums over the batch axis"),
    (matmul(x("batch", "batch"), x("batch", "batch")), "batch"),
    (matmul(x("batch", 5, "time"), x("batch", "key", 4)), "pairs [time, left] with [key, left]"),
    (matmul(x("batch", 5, "time"), x("batch", 6, 4)), "with 6 unpadded entries"),
    (matmul(x("batch", "time", 4), x("time", 4, 3)), "pairs rows(batch) with [time, left]"),
    (matmul(x(5, "time"), x("time", 4)), "needs a mask on a value"),
    (Node("Einsum", [x("batch", "time", "time")], {"equation": "btt->bt"}), "takes a diagonal"),
    (Node("Gemm", [x("batch", 4), WEIGHTS, x(5, 3)]), "adds a term of another layout"),
    (Node("Gemm", [x("batch", 4), WEIGHTS, x("time", 3)], most={"time": 2}), "adds a term of [time, left]"),
    (Node("MatMul", [x("batch", 1), number("time", ir.DataType.FLOAT, (1, 1))]), "uses an axis length as its input 1"),
]


def test_a_factor_outside_the_sum_is_taken_for_finite_on_record() -> None:
    verdict = check_node(Node("Einsum", [x("batch", "time"), x("batch", 3, valid=ANYTHING)], {"equation": "bt,bd->bd"}))
    assert [each.operand for each in verdict.assumes] == [1]


@pytest.mark.parametrize(("node", "message"), REFUSED)
def test_refused(node: Node, message: str) -> None:
    check_refused(node, message)


def softmaxed(*after: str, axis: int = -1) -> ir.Value:
    scores = ir.val("scores", ir.DataType.FLOAT, [2, 3, 5])
    value = ir.node("Softmax", [scores], {"axis": axis}).outputs[0]
    value.shape = ir.Shape([2, 3, 5])
    for op in after:
        zero = ir.Value(name="zero", const_value=ir.tensor(np.zeros(1, np.float32)))
        condition = ir.val("condition", ir.DataType.BOOL, [2, 3, 5])
        value = ir.node(op, [condition, zero, value] if op == "Where" else [value]).outputs[0]
        value.shape = ir.Shape([2, 3, 5])
    return value


def test_probabilities_sum_to_one_also_where_some_are_taken_out() -> None:
    assert sums_to_one(softmaxed(), -1)
    assert sums_to_one(softmaxed("Where", "Identity", axis=2), -1)
    assert sums_to_one(softmaxed(axis=1), -2)
    assert not sums_to_one(softmaxed(axis=1), -1)
    assert not sums_to_one(softmaxed("Relu"), -1)
    assert not sums_to_one(None, -1)


def test_means_by_probabilities_are_bounded_by_what_they_weigh() -> None:
    probabilities = softmaxed()
    node = ir.node("MatMul", [probabilities, ir.val("v", ir.DataType.FLOAT, [2, 5, 4])])
    node.outputs[0].shape, node.outputs[0].dtype = ir.Shape([2, 3, 4]), ir.DataType.FLOAT
    values = Fact(contents=((VALID, FINITE),))
    verdict = judge(Case(node, [Fact(contents=((VALID, TRUTH),)), values], None, {}))
    assert verdict.outputs[0].valid.magnitude == pytest.approx(5.5, rel=1e-3)


def drawn(rng: np.random.Generator) -> Node:
    """A product of two or three factors with random labels, layouts and contents."""
    pool: dict[str, tuple[int | str, Axis | None]] = {
        "b": ("batch", None), "t": ("time", None), "k": ("key", None), "w": ("time + 3", WINDOW),
        "c": ("2*time - 1", CENTERED), "h": ("2*batch", HEADS), "d": (3, None), "e": (2, None), "m": ("4*key", None),
    }  # fmt: skip
    labels = [str(label) for label in rng.permutation(list(pool))][: int(rng.integers(2, 6))]
    if "b" in labels and "h" in labels:
        labels.remove("h")
    contents = [FINITE, ANYTHING, ZERO, ONE, TRUTH, Interval(-math.inf, 0.0), Interval(-1e30, 1e30)]
    operands, terms = [], []
    for _ in range(int(rng.integers(1, 4))):
        term = [label for label in rng.permutation(labels) if rng.random() < 0.7] or labels[:1]
        ones = {at for at in range(len(term)) if rng.random() < 0.05}
        shape = tuple(1 if at in ones else pool[label][0] for at, label in enumerate(term))
        axes = {at: axis for at, label in enumerate(term) if at not in ones and (axis := pool[label][1]) is not None}
        if rng.random() < 0.15 and all(isinstance(dim, int) for dim in shape):
            operands.append(constant(rng.standard_normal([int(dim) for dim in shape])))
        else:
            operands.append(Operand(shape, valid=FINITE, padding=contents[int(rng.integers(len(contents)))], axes=axes))
        terms.append("".join(term))
    used = sorted({label for term in terms for label in term})
    result = [label for label in rng.permutation(used) if label in "bh" or rng.random() < 0.5]
    return Node("Einsum", operands, {"equation": f"{','.join(terms)}->{''.join(result)}"}, most={"time": 4, "key": 3})


def test_random_products() -> None:
    attack(drawn, draws=120, fewest=70, extremes=False)


def test_what_is_added_to_a_product_counts_whole() -> None:
    node = Node(
        "Gemm", [Operand(("time", 2), valid=Interval(0.0, 1.0)), constant(np.ones((2, 3))), constant([5.0] * 3)]
    )
    valid = check(node, "MM1", "0: [time, left]").outputs[0].valid
    assert valid.low <= 5.0 and 7.0 <= valid.high < 8.0
