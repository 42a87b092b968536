"""What is said about padding a graph: every mask with its reason, every refusal with the way to it."""

import dataclasses

import pytest

from compiler.errors import GateFailed, Location, Refused
from compiler.front.explain import explanation as module
from compiler.front.explain.explanation import Explanation, explain
from compiler.front.explain.words import Kind
from compiler.graph.stages import Lowered, Outcome
from compiler.passes.pad_axes import PadAxes
from compiler.passes.simplify import Simplify
from tests.kit.graphs import streaming
from tests.kit.offline import offline

SOFTMAX = """(float[batch,time,4] x) => (float[batch,time,time] y) {
    turned = Transpose<perm = [0, 2, 1]>(x)
    scores = MatMul(x, turned)
    y = Softmax<axis = -1>(scores)
}"""

TWICE_REFUSED = """(float[batch,time,4] x, float[batch,other,4] z) => (int64[3,many] y, int64[3,more] v) {
    a = Relu(x)
    b = Exp(a)
    found = NonZero(b)
    y = Neg(found)
    c = Abs(z)
    d = NonZero(c)
    v = Abs(d)
}"""


def explained(lowered: Lowered) -> Explanation:
    return explain(lowered, [PadAxes()])


def refused() -> Explanation:
    return explained(offline(TWICE_REFUSED, axes=("time", "other")))


def test_proof_names_the_node_that_needs_a_mask_and_why() -> None:
    found = explained(offline(SOFTMAX))
    assert not found.refusals
    (step,) = [step for step in found.steps if step.inserted]
    assert (step.node, step.op) == ("y_softmax", "Softmax")
    assert step.inserted[0].startswith("padding of scores (axis 2) := ")
    assert step.source == "tiny.py:3 in forward: Softmax"
    assert step.reason
    assert [name for name, _ in step.given] == ["scores"]


def test_proof_says_what_is_padded_and_what_comes_out() -> None:
    found = explained(offline(SOFTMAX))
    (axis,) = found.axes
    assert (axis.name, axis.inputs, axis.minimum, axis.maximum) == ("time", ("x [batch, time, 4]",), 1, None)
    assert axis.length_input == "time_length"
    assert "behind" in axis.side
    assert found.outputs == (("y", "[batch, time, time]"),)
    assert found.rows_independent
    assert (found.counts.nodes, found.counts.judged, found.counts.fills, found.counts.masks) == (3, 3, 1, 1)
    assert found.replayed == 3


def test_colours_follow_the_padding() -> None:
    boxes = {box.name: box for box in explained(offline(SOFTMAX)).boxes}
    assert boxes["x"].kind is Kind.ANYTHING
    assert boxes["scores_matmul"].kind is Kind.ANYTHING
    assert boxes["y_softmax"].kind is Kind.ANYTHING  # rows of padded queries are left as they are
    assert boxes["scores_filled_node"].kind is Kind.INSERTED
    assert not {Kind.REFUSED, Kind.UNKNOWN} & {box.kind for box in boxes.values()}


def test_every_refusal_has_its_own_way_from_an_input() -> None:
    found = refused()
    ways = {each.place.node: [(link.node, link.op) for link in each.chain] for each in found.refusals}
    assert ways == {
        "found_nonzero": [("x", "input"), ("a_relu", "Relu"), ("b_exp", "Exp"), ("found_nonzero", "NonZero")],
        "d_nonzero": [("z", "input"), ("c_abs", "Abs"), ("d_nonzero", "NonZero")],
    }
    links = found.refusals[0].chain
    assert [link.source for link in links[1:]] == [
        f"tiny.py:{line} in forward: {op}" for line, op in enumerate(("Relu", "Exp", "NonZero"), 1)
    ]
    assert links[0].padding == "anything, NaN possible"
    assert links[-1].padding == "refused"
    assert all(each.reason and each.cure for each in found.refusals)


def test_the_way_says_where_a_mask_would_be() -> None:
    text = "(float[batch,time,4] x) => (int64[3,many] y) { a = Softmax<axis = 1>(x) y = NonZero(a) }"
    (refusal,) = explained(offline(text)).refusals
    assert refusal.chain[1].padding.endswith(", once masked")
    assert not refusal.chain[0].padding.endswith("masked")


def test_nodes_behind_a_refused_one_are_told_apart() -> None:
    kinds = {box.name: box.kind for box in refused().boxes}
    assert kinds["found_nonzero"] is kinds["d_nonzero"] is Kind.REFUSED
    assert kinds["y_neg"] is kinds["v_abs"] is Kind.UNKNOWN
    assert kinds["b_exp"] is Kind.ANYTHING


def test_an_output_that_callers_cannot_cut_is_shown_with_its_way() -> None:
    text = "(float[batch,time,2] x) => (float[time,batch,2] y) { a = Relu(x) y = Transpose<perm = [1, 0, 2]>(a) }"
    (refusal,) = explained(offline(text)).refusals
    assert [link.node for link in refusal.chain] == ["x", "a_relu", "y_transpose"]
    assert refusal.chain[-1].padding == "anything, NaN possible"
    assert "not the first axis" in refusal.reason


def test_what_cannot_start_is_refused_without_a_way() -> None:
    text = "(float[batch,time,2] x) => (float[batch,time,2] y) { y = Relu(x) }"
    lowered = offline(text, axes=("time", "gone"))
    (refusal,) = explained(lowered).refusals
    assert refusal.chain == ()
    assert refusal.place.stage == "pad_axes"
    assert "no input has an axis 'gone'" in refusal.reason


def test_a_pass_before_padding_that_refuses_is_shown() -> None:
    @dataclasses.dataclass(frozen=True)
    class Refusing(Simplify):
        def apply(self, lowered: Lowered) -> Outcome:
            raise Refused("no", cure="yes", place=Location(node="y_softmax", op="Softmax"))

    found = explain(offline(SOFTMAX), [Refusing(), PadAxes()])
    (refusal,) = found.refusals
    assert (refusal.place.stage, refusal.reason, refusal.cure) == ("simplify", "no", "yes")
    assert {box.name: box.kind for box in found.boxes}["y_softmax"] is Kind.REFUSED


def test_a_proof_that_the_checker_rejects_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def reject(before: Lowered, outcome: Outcome) -> int:
        raise GateFailed("expected a certificate that holds")

    monkeypatch.setattr(module, "replay_certificates", reject)
    assert explained(offline(SOFTMAX)).rejected == "expected a certificate that holds"


def test_a_stream_is_explained_with_its_window() -> None:
    found = explained(streaming())
    (axis,) = found.axes
    assert (axis.name, axis.minimum) == ("cache", 0)
    assert "valid last" in axis.side
    assert any(step.op == "Softmax" and step.inserted for step in found.steps)


def test_without_axes_there_is_nothing_to_say() -> None:
    lowered = dataclasses.replace(offline(SOFTMAX, axes=()), batch_axis=None)
    found = explained(lowered)
    assert (found.replayed, found.refusals, found.steps, found.free) == (None, (), (), ("batch", "time"))
