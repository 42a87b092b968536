"""simplify: constants folded, copies shared, nothing unread; names of inputs and outputs kept."""

import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.passes import simplify
from compiler.passes.simplify import Simplify, simplify_model
from compiler.rewriting.simplification.rules import Candidate
from compiler.rewriting.simplification.sharing import Key
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import copy_of, node_named, ops_of, parse, streaming

MESSY = """(float[batch,2,4] x) => (float[batch,8] y, float[batch,8] z)
<int64[2] a = {0, -1}, int64[2] b = {0, -1}>
{
    same = Identity(x)
    y = Reshape(same, a)
    z = Reshape(x, b)
    unread = Relu(x)
}"""


def test_shares_equal_nodes_and_drops_unread_ones() -> None:
    outcome = verify_pass(Simplify(), Lowered("tiny", parse(MESSY), batch_axis="batch"), tolerance=0.0)
    assert sorted(ops_of(outcome.lowered.model)) == ["Identity", "Reshape"]


def test_folds_constants() -> None:
    text = "(float[2] x) => (float[2] y) <float[1] a = {2}, float[1] b = {3}> { c = Mul(a, b)  y = Mul(x, c) }"
    outcome = verify_pass(Simplify(), Lowered("tiny", parse(text)), tolerance=0.0)
    assert ops_of(outcome.lowered.model) == ["Mul"]
    assert graphs.array_of(node_named(outcome.lowered.model, "y").inputs[1]) == 6


@pytest.mark.parametrize(("width", "index"), [("3", 1), ("time", 0)])  # an axis of any length may have one piece only
def test_a_piece_of_a_sequence_is_cut_directly(width: str, index: int) -> None:
    text = f"""(float[3,{width}] x) => (float[t] y)
        <int64 size = {{2}}, int64 index = {{{index}}}, int64[1] flat = {{-1}}>
        {{ all = SplitToSequence<axis = 1>(x, size)  piece = SequenceAt(all, index)  y = Reshape(piece, flat) }}"""
    outcome = verify_pass(Simplify(), Lowered("tiny", parse(text)), tolerance=0.0)
    assert ops_of(outcome.lowered.model) == ["Slice", "Reshape"]


def test_entries_of_an_axis_are_cut_directly() -> None:
    text = """(float[3,time] x) => (float[t] y) <int64 last = {-1}>
        { all = SplitToSequence<axis = 0, keepdims = 0>(x)  y = SequenceAt(all, last) }"""
    outcome = verify_pass(Simplify(), Lowered("tiny", parse(text)), tolerance=0.0)
    assert ops_of(outcome.lowered.model) == ["Slice", "Squeeze"]


def test_amounts_that_are_spelled_out_are_folded() -> None:
    text = """(float[batch,4] x) => (float[batch,t] y) <int64[1] two = {2}, int64[2] front = {0, 0}>
        { rest = ConstantOfShape<value = int64[1] {1}>(two)  pads = Concat<axis = 0>(front, rest)
        y = Pad(x, pads) }"""
    model = Simplify().apply(Lowered("tiny", parse(text), batch_axis="batch")).lowered.model
    assert ops_of(model) == ["Pad"]


def test_numbers_by_way_of_floats_are_folded() -> None:
    text = """(float[batch,time] x) => (float[batch,time] y) <float[1] one = {2.0}, int64[1] less = {1}>
        { n = Shape<start = 1, end = 2>(x)  f = Cast<to = 1>(n)  g = Add(f, one)  c = Ceil(g)  m = Cast<to = 7>(c)
        d = Sub(m, n)  e = Cast<to = 1>(d)  y = Mul(x, e) }"""
    model = Simplify().apply(Lowered("tiny", parse(text), batch_axis="batch")).lowered.model
    assert ops_of(model) == ["Mul"]


def test_leaves_a_clean_graph_alone() -> None:
    text = "(float[2] x) => (float[2] y) <float[1] a = {2}> { y = Mul(x, a) }"
    verify_untouched(Simplify(), Lowered("tiny", parse(text)))


def test_a_stream_keeps_its_meaning_and_reaches_a_fixed_point() -> None:
    origin = streaming(extra_reader=True)
    once = verify_pass(Simplify(), origin, tolerance=1e-6)
    verify_untouched(Simplify(), once.lowered)


def test_unknown_operators_stay() -> None:
    model = parse("(float[2] x) => (float[2] y) { z = com.acme.Turn(x)  y = Relu(z) }")
    lowered = Lowered("tiny", model)
    Simplify().apply(copy_of(lowered))
    assert ops_of(model) == ["Turn", "Relu"]


def test_source_lines_survive_sharing() -> None:
    outcome = Simplify().apply(Lowered("tiny", parse(MESSY)))
    assert all(graphs.source_of(node).startswith("tiny.py:") for node in outcome.lowered.model.graph)


def test_steps_of_a_sweep_grow_with_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    visits: list[ir.Node] = []
    visit = simplify._visit

    def counted(candidate: Candidate, kept: dict[Key, ir.Node]) -> bool:
        visits.append(candidate.node)
        return visit(candidate, kept)

    monkeypatch.setattr(simplify, "_visit", counted)
    counts = {}
    for size in (20, 80):
        body = " ".join(
            f"a{at} = Identity(v{at})  b{at} = Mul(a{at}, k)  v{at + 1} = Relu(b{at})" for at in range(size)
        )
        model = parse(f"(float[n] v0) => (float[n] y) <float k = {{2}}> {{ {body}  y = Neg(v{size}) }}")
        nodes = len(ops_of(model))
        visits.clear()
        simplify_model(model)
        counts[size] = len(visits) / nodes
    assert counts[80] <= counts[20] <= 3


def test_rules_that_undo_each_other_end_with_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    opposite = {"Mul": "Add", "Add": "Mul"}

    def turned(candidate: Candidate) -> ir.Value:
        node = candidate.node
        return candidate.insert.op(opposite[node.op_type], list(node.inputs), name="turned")

    monkeypatch.setattr(simplify, "EVERY", {"Mul": turned, "Add": turned})
    outcome = Simplify(rounds=5).apply(Lowered("tiny", parse("(float[n] x) => (float[n] y) { y = Mul(x, x) }")))
    [refusal] = outcome.refused
    assert refusal.reason.startswith("given up after 5 rounds, of which the last changed 1 places")
