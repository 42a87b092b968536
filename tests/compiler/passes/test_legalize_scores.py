"""legalize_scores: the lowest number hides scores, and gives the bits that -inf gives."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.session import session_of
from compiler.graph.stages import Array, Lowered, Outcome, PaddedAxis
from compiler.passes.legalize_scores import LegalizeScores
from compiler.proof.facts.seen_rows import infinite_constants
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.contract import check_form, check_idempotence, check_stamps
from tests.kit.graphs import copy_of, ops_of, parse

SLOTS, NEW = 4, 2
KEYS = SLOTS + NEW

ATTENTION = """({t}[batch,2,2,3] queries, {t}[batch,2,3,6] keys, {t}[batch,2,6,3] values, int64[batch] length{more})
    => ({t}[batch,2,2,3] y)
    <int64[1,6] slots = {{0, 1, 2, 3, 4, 5}}, int64[2] column = {{-1, 1}}, int64[2] middle = {{1, 2}}> {{
        ages = Reshape(length, column)  first = Sub(four, ages)  valid = GreaterOrEqual(slots, first)
        mask = Unsqueeze(valid, middle)
        scores = MatMul(queries, keys)
        {hidden}
        shares = Softmax<axis = -1>(hidden)
        y = MatMul(shares, values)
    }}"""

HIDDEN = {
    "a selection": "hidden = Where(mask, scores, inf)",
    "the other way round": "unseen = Not(mask)  hidden = Where(unseen, inf, scores)",
    "a selection of a selection": "odd = Where(even, scores, inf)  hidden = Where(mask, odd, inf)",
    "an added mask": "bias = Where(mask, nil, inf)  hidden = Add(scores, bias)",
    "an added table": "hidden = Add(scores, table)",
    "a table that is spread": "all = Expand(inf, shape)  hidden = Where(mask, scores, all)",
    "a mask that is scaled": "bias = Where(mask, nil, inf)  both = Add(scores, bias)  hidden = Mul(both, half)",
}
"""How scores of frames without a place are hidden."""


def attention(
    hidden: str, kind: str = "float16", more: str = "", weights: Mapping[str, Array] = MappingProxyType({})
) -> Lowered:
    """Two queries over cached frames and two new ones, which are always seen."""
    numbers: dict[str, Array] = {
        "inf": np.array(-np.inf), "nil": np.array(0.0), "half": np.array(0.5),
        "table": np.where(np.arange(KEYS) == 1, -np.inf, 0.25),
    }  # fmt: skip
    given: dict[str, Array] = {name: array.astype(np.dtype(kind)) for name, array in numbers.items()}
    given |= {"four": np.array(SLOTS), "shape": np.array([1, 1, 1, KEYS]), "even": np.arange(KEYS) % 2 == 0} | dict(
        weights
    )
    names = {"bool": "bool", "int64": "int64", "float16": "float16", "float32": "float"}
    more += "".join(
        f", {names[array.dtype.name]}{list(array.shape) if array.ndim else ''} {name}" for name, array in given.items()
    )
    model = parse(ATTENTION.format(t=names[kind], hidden=hidden, more=more), given)
    cache = CacheAxis("cache", SLOTS, NEW, "length", None)
    return Lowered("tiny", model, caches=(cache,), batch_axis="batch", is_padded=True)


def legalized(lowered: Lowered, **sizes: int) -> Outcome:
    outcome = LegalizeScores(tuple(({"batch": 3} | sizes).items())).apply(copy_of(lowered))
    check_form(outcome.lowered)
    check_stamps(LegalizeScores.name, lowered.model, outcome.lowered.model)
    return outcome


def feeds(lengths: tuple[int, ...], kind: str, poison: float) -> dict[str, Array]:
    """Frames of rows of given ages; what lies in free slots is poison."""
    rng, rows = np.random.default_rng(0), len(lengths)
    drawn = {
        "queries": rng.standard_normal((rows, 2, 2, 3)) * 4, "keys": rng.standard_normal((rows, 2, 3, KEYS)) * 4,
        "values": rng.standard_normal((rows, 2, KEYS, 3)),
    }  # fmt: skip
    for row, length in enumerate(lengths):
        drawn["keys"][row, ..., : SLOTS - length] = poison
    return {name: array.astype(kind) for name, array in drawn.items()} | {"length": np.array(lengths)}


@pytest.mark.parametrize("kind", ["float16", "float32"])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_every_bit_of_a_result_stays_whatever_lies_in_free_slots(hidden: str, kind: str) -> None:
    before = attention(HIDDEN[hidden], kind)
    outcome = legalized(before)
    assert (outcome.matched, outcome.rewritten, outcome.refused) == (1, 1, ())
    softmax = next(node for node in outcome.lowered.model.graph if node.op_type == "Softmax")
    assert softmax.inputs[0] is not None and infinite_constants(softmax.inputs[0]) == ()
    sessions = [session_of(each.model) for each in (before, outcome.lowered)]
    hides = "Add" not in ops_of(before.model)  # NaN plus a mask is NaN
    for poison in (0.0, np.nan, np.inf, -np.inf) if hides else (0.0, 1e3, -1e3):
        for lengths in ((0, 1, 2), (3, 4, 0)):
            fed = feeds(lengths, kind, poison)
            one, other = (session.run(["y"], fed)[0] for session in sessions)
            assert one.tobytes() == other.tobytes()
            assert np.isfinite(one).all()


def test_a_constant_that_a_selection_chooses_is_written_anew_and_nothing_is_computed_besides() -> None:
    before = attention(HIDDEN["a selection of a selection"])
    after = legalized(before).lowered.model
    assert sorted(ops_of(after)) == sorted(ops_of(before.model))
    numbers = [graphs.array_of(value) for value in after.graph.initializers.values()]
    assert np.float16(-65504) in [array for array in numbers if array is not None and array.shape == ()]


def test_it_is_done_once() -> None:
    for hidden in HIDDEN.values():
        check_idempotence(LegalizeScores((("batch", 3),)), legalized(attention(hidden)).lowered)


BLIND = {
    "a row sees nothing while the cache is empty": (
        "newest = And(mask, cached)  hidden = Where(newest, scores, inf)",
        {"cached": np.arange(KEYS) < SLOTS},
        "at cache 0",
    ),
    "one query sees nothing": (
        "hidden = Where(second, scores, inf)",
        {"second": np.array([[False] * KEYS, [True] * KEYS])},
        "row [0, 0, 0, 0] sees nothing",
    ),
    "all that it sees lies at the lowest number itself": (
        "low = Where(second, scores, lowest)  hidden = Where(mask, low, inf)",
        {"second": np.array([[False] * KEYS, [True] * KEYS]), "lowest": np.array(-65504, np.float16)},
        "row [0, 0, 0, 0] sees nothing",
    ),
    "the mask follows from data": (
        "loud = Greater(scores, nil)  hidden = Where(loud, scores, inf)", {}, "follows from keys"
    ),
    "the mask is cast from data": (
        "loud = Cast<to = 9>(scores)  hidden = Where(loud, scores, inf)", {}, "follows from keys"
    ),
}  # fmt: skip
"""Rows that would get equal shares in place of NaN."""


@pytest.mark.parametrize("reason", BLIND)
def test_a_softmax_of_which_a_row_may_see_nothing_stays_and_is_named(reason: str) -> None:
    hidden, weights, why = BLIND[reason]
    outcome = legalized(attention(hidden, weights=weights))
    assert (outcome.matched, outcome.rewritten) == (1, 0)
    (refused,) = outcome.refused
    assert why in refused.reason
    assert refused.place.node == "shares_softmax" and refused.place.source.startswith("tiny.py:")


def test_a_mask_that_callers_feed_is_not_known() -> None:
    outcome = legalized(attention("hidden = Where(fed, scores, inf)", more=", bool[batch,1,1,6] fed"))
    assert [each.reason for each in outcome.refused] == ["scores stay -inf: what hides scores follows from fed"]


UTTERANCE = """(float16[batch,time,3] x, int64[batch] time_length, float16 inf, int64 zero, int64 one, int64 far)
    => (float16[batch,time,3] y)
    <int64[2] column = {-1, 1}, int64[1] first = {1}, int64[1] last = {2}> {
        count = Shape<start = 1, end = 2>(x)  number = Squeeze(count)  places = Range(zero, number, one)
        lengths = Reshape(time_length, column)  valid = Less(places, lengths)  mask = Unsqueeze(valid, first)
        rows = Unsqueeze(places, first)  distance = Sub(rows, places)  near = Less(distance, far)
        seen = And(mask, near)
        turned = Transpose<perm = [0, 2, 1]>(x)  scores = MatMul(x, turned)  hidden = Where(seen, scores, inf)
        shares = Softmax<axis = -1>(hidden)  y = MatMul(shares, x)
    }"""


def utterance(seen: str = "And(mask, near)") -> Lowered:
    """Frames of an utterance see valid ones, by default those that lie no more than one behind them."""
    numbers: dict[str, Array] = {
        "inf": np.array(-np.inf, np.float16), "zero": np.array(0), "one": np.array(1), "far": np.array(2)
    }  # fmt: skip
    axis, model = PaddedAxis("time", "time_length"), parse(UTTERANCE.replace("And(mask, near)", seen), numbers)
    return Lowered("tiny", model, batch_axis="batch", is_padded=True, padded_axes=(axis,))


def test_rows_in_the_padding_may_see_nothing() -> None:
    outcome = legalized(utterance(), time=7)
    assert (outcome.rewritten, outcome.refused) == (1, ())


def test_rows_in_front_of_it_may_not() -> None:
    outcome = legalized(utterance("Less(rows, places)"), time=7)
    assert [each.reason for each in outcome.refused] == ["scores stay -inf: row [0, 6, 0] sees nothing"]


def test_rows_of_an_axis_without_a_length_are_asked_about_as_any_others() -> None:
    (refused,) = legalized(dataclasses.replace(utterance(), padded_axes=()), time=7).refused
    assert refused.reason == "scores stay -inf: what hides scores follows from time_length"


def test_a_guard_that_looks_for_hidden_scores_still_finds_them() -> None:
    guarded = "hidden = Where(mask, scores, inf)  gone = Equal(hidden, inf)  marks = Cast<to = 10>(gone)"
    before = attention(guarded)
    before.model.graph.outputs.append(next(n.outputs[0] for n in before.model.graph if n.outputs[0].name == "marks"))
    after = legalized(before).lowered
    fed = feeds((1, 2, 3), "float16", 0.0)
    one, other = (session_of(each.model).run(None, fed) for each in (before, after))
    assert all(left.tobytes() == right.tobytes() for left, right in zip(one, other, strict=True))


def test_scores_inside_a_branch_are_bounded_there() -> None:
    text = """(bool c, float[2,6] x, bool[6] seen, float inf) => (float[2,6] y) {
        y = If(c) <then_branch = a () => (float[2,6] p) { hidden = Where(seen, x, inf)  p = Softmax(hidden) },
                   else_branch = b () => (float[2,6] q) { q = Neg(x) }> }"""
    weights: dict[str, Array] = {"seen": np.arange(KEYS) > 1, "inf": np.array(-np.inf, np.float32)}
    before = Lowered("tiny", parse(text, weights))
    outcome = LegalizeScores().apply(copy_of(before))
    assert (outcome.matched, outcome.rewritten) == (1, 1)
    nodes = list(ir.traversal.RecursiveGraphIterator(outcome.lowered.model.graph))
    inner = next(node for node in nodes if node.op_type == "Softmax")
    assert inner.graph is not outcome.lowered.model.graph
    assert inner.inputs[0] is not None and infinite_constants(inner.inputs[0]) == ()
    fed = {"c": np.array(True), "x": np.linspace(-3, 3, 12).reshape(2, 6).astype(np.float32)}
    one, other = (session_of(each.model).run(None, fed)[0] for each in (before, outcome.lowered))
    assert one.tobytes() == other.tobytes()


def test_graphs_without_infinite_scores_stay() -> None:
    finite = attention("hidden = Where(mask, scores, low)", weights={"low": np.array(-1e4, np.float16)})
    assert legalized(finite).rewritten == legalized(finite).matched == 0
