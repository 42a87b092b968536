"""Rule RS1: the shift of relative position scores is recognised by execution, however it is spelled."""

import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Fact, make_fact
from compiler.proof.facts.interval import ANYTHING, Interval
from compiler.proof.facts.layout import Axis, Rows, Segment, Side, joined, suffix
from compiler.proof.rules.relative_shift import Chain, match
from tests.kit.attacked import HERE
from tests.kit.graphs import node_named, parse
from tests.kit.judged import integers
from tests.kit.soundness import Node, Operand, check_node
from tests.property.chains import together

TIME, BATCH = graphs.symbol("time"), graphs.symbol("batch")
CENTERED = joined([Segment(TIME, Side.RIGHT), Segment(TIME - 1)])
SIZES = """n = Shape<start = 0, end = 1>(x)  t = Shape<start = 2, end = 3>(x)
           tt = Add(t, t)  long = Sub(tt, one)"""
CONSTANTS = """<int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] zero = {0},
    int64[1] minus = {-1}, int64[1] end = {9223372036854775807}, float[1] nought = {0.0},
    int64[8] front = {0, 0, 0, 1, 0, 0, 0, 0}, int64[8] behind = {0, 0, 0, 0, 0, 0, 0, 1}>"""

SPELLINGS = {
    "a padded column": """p = Pad(x, front)  wide = Concat<axis = 0>(n, two, tt, t)  a = Reshape(p, wide)
        b = Slice(a, one, end, two)  narrow = Concat<axis = 0>(n, two, t, long)  c = Reshape(b, narrow)
        y = Slice(c, zero, t, three)""",
    "a joined column of zeros": """column = Concat<axis = 0>(n, two, t, one)  zeros = Expand(nought, column)
        p = Concat<axis = 3>(zeros, x)  wide = Concat<axis = 0>(n, two, minus, t)  a = Reshape(p, wide)
        b = Slice(a, one, end, two)  narrow = Concat<axis = 0>(n, two, t, minus)  c = Reshape(b, narrow)
        y = Slice(c, zero, t, three)""",
    "the whole row dropped first": """p = Pad(x, front)  flat = Concat<axis = 0>(n, two, minus)  a = Reshape(p, flat)
        b = Slice(a, t, end, two)  narrow = Concat<axis = 0>(n, two, t, long)  c = Reshape(b, narrow)
        y = Slice(c, zero, t, three)""",
}


def graph(body: str) -> ir.Model:
    return parse(f"(float[batch,2,time,w] x) => (float[a,b,c,d] out) {CONSTANTS} {{ {SIZES} {body} out = Relu(y) }}")


SCORES = Interval(-3, 3)


def found(body: str, axis: Axis = CENTERED, content: Interval = SCORES) -> tuple[Chain | None, ir.Model]:
    model = graph(body)
    scores = model.graph.inputs[0]
    size = axis[0].size
    scores.shape = ir.Shape(["batch", 2, "time", str(size)])
    graphs.forget_shapes(model)
    graphs.infer_shapes(model)
    layouts: dict[int, Axis] = {0: (Rows(BATCH),), 2: suffix(TIME), 3: axis}
    fact = make_fact(layouts, lambda region: ANYTHING if region else content)
    node = node_named(model, "p")
    facts = [fact if value is scores else None if value is None else Fact() for value in node.inputs]
    return match(Case(node, facts, "batch", {"time": Side.LEFT})), model


@pytest.mark.parametrize("body", SPELLINGS.values(), ids=SPELLINGS)
def test_spellings(body: str) -> None:
    chain, model = found(body)
    assert chain is not None
    assert chain.nodes[-1] is node_named(model, "y")
    fact = chain.verdict.outputs[0]
    assert str(fact).startswith("{0: rows(batch), 2: [time, left], 3: [time, left]}")
    assert fact.valid == Interval(-3, 3)
    assert fact.padding(3) == ANYTHING
    assert TIME in chain.verdict.at_least_one


def test_added_zeros_may_be_among_valid_entries() -> None:
    chain, _ = found(SPELLINGS["a padded column"], content=Interval(1, 3))
    assert chain is not None
    assert chain.verdict.outputs[0].valid == Interval(0, 3)


BACK = """less = Sub(t, one)  none = Concat<axis = 0>(zero, zero, zero, zero, zero, zero, zero)
    pads = Concat<axis = 0>(none, less)  p = Pad(x, pads)  rows = Mul(t, long)  flat = Concat<axis = 0>(n, two, rows)
    a = Reshape(p, flat)  before = Concat<axis = 0>(zero, zero, t, zero, zero, zero)  b = Pad(a, before)
    wide = Concat<axis = 0>(n, two, t, tt)  c = Reshape(b, wide)  y = Slice(c, one, end, three)"""


@pytest.mark.parametrize("padding", [Interval(0, 0), Interval(1, 1), Interval(0, 1)])
def test_weights_go_back_about_the_middle_where_the_padding_holds_zero(padding: Interval) -> None:
    model = graph(BACK)
    weights = model.graph.inputs[0]
    weights.shape = ir.Shape(["batch", 2, "time", "time"])
    graphs.forget_shapes(model)
    graphs.infer_shapes(model)
    layouts: dict[int, Axis] = {0: (Rows(BATCH),), 2: suffix(TIME), 3: suffix(TIME)}
    fact = make_fact(layouts, lambda region: padding if 3 in region else Interval(0, 1))
    node = node_named(model, "p")
    facts = [fact if value is weights else None if value is None else Fact() for value in node.inputs]
    chain = match(Case(node, facts, "batch", {"time": Side.LEFT}))
    assert (chain is not None) == (padding == Interval(0, 0))
    if chain is not None:
        assert str(chain.verdict.outputs[0]).startswith(
            "{0: rows(batch), 2: [time, left], 3: [time, right] ++ [time - 1, left]}"
        )


SHIFT = SPELLINGS["a padded column"]
WRONG = {
    "one row too many": SHIFT.replace("Slice(a, one, end, two)", "Slice(a, two, end, two)"),
    "a column behind": SHIFT.replace("front", "behind"),
    "the other half": SHIFT.replace("Slice(c, zero, t, three)", "Slice(c, t, end, three)"),
    "rows and columns mistaken": SHIFT.replace("(n, two, tt, t)", "(n, two, t, tt)"),
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_other_movements_are_not_recognised(body: str) -> None:
    assert found(body)[0] is None


def test_positions_laid_out_otherwise_are_not_recognised() -> None:
    assert found(SHIFT, suffix(2 * TIME - 1))[0] is None


def test_values_that_are_read_in_between_end_a_chain() -> None:
    assert found(SHIFT + " seen = Relu(b)")[0] is None
    assert found(SHIFT + " size = Shape(b)")[0] is not None


def test_sizes_that_only_the_shortest_trial_tells_apart_are_not_recognised() -> None:
    """Of so many channels one frame alone is tried, where time and time**8 are both 1."""
    turn = {"perm": [0, 1, 3, 2]}
    many = Operand(("batch", 4096, "time", "time**8"))
    with pytest.raises(Refused):
        check_node(
            Node("Transpose", [many], turn, most={"time": 2}, then=[Node("Transpose", [HERE], turn)]), rule=together
        )


def test_a_single_movement_is_no_chain() -> None:
    assert found("p = Slice(x, zero, t, three)  y = Relu(p)")[0] is None


def test_an_unpadded_operand_is_no_business_of_chains() -> None:
    model = graph(SHIFT)
    node = node_named(model, "p")
    assert match(Case(node, [Fact() for _ in node.inputs], "batch", {"time": Side.LEFT})) is None


INTERLEAVED = """across = Concat<axis = 0>(n, two, minus, t)  p = Reshape(x, across)  b = Slice(p, far, end, AXIS)
    back = Concat<axis = 0>(n, two, t, minus)  y = Reshape(b, back)"""


def cut_from_the_back(last: int, axis: str) -> Chain | None:
    """Of [batch, 2, 4, time] as many entries are kept, from the end on, of the axis that a constant names."""
    body = INTERLEAVED.replace("AXIS", axis)
    text = f"(float[batch,2,time,4] x) => (float[a,b,c,d] out) {CONSTANTS} {{ {SIZES} {body} out = Relu(y) }}"
    model = parse(text.replace("int64[1] one", f"int64[1] far = {{{-last}}}, int64[1] one"))
    layouts: dict[int, Axis] = {0: (Rows(BATCH),), 2: suffix(TIME)}
    fact = make_fact(layouts, lambda region: ANYTHING if region else SCORES)
    node = node_named(model, "p")
    facts = [fact if value is model.graph.inputs[0] else None if value is None else Fact() for value in node.inputs]
    return match(Case(node, facts, "batch", {"time": Side.LEFT}))


@pytest.mark.parametrize("last", [1, 60, 200, 2**31 - 2])
def test_what_the_trials_do_not_reach_is_not_taken_for_granted(last: int) -> None:
    """A cut that leaves everything as it was up to 60 frames changes the places of all frames from there on."""
    assert cut_from_the_back(last, "three") is None


def test_a_cut_at_a_number_that_longer_axes_exceed_is_not_followed() -> None:
    """Up to 120 frames all are kept; of more, 120 are, which is no layout by the number of frames."""
    cut = Node("Slice", [HERE, integers(0), integers(120), integers(3)])
    scores, perm = Operand(("batch", 2, "time", 3)), {"perm": [0, 1, 3, 2]}
    with pytest.raises(Refused, match="cannot be followed"):
        check_node(
            Node("Transpose", [scores], perm, least={"time": 100}, most={"time": 140}, then=[cut]), rule=together
        )


@pytest.mark.parametrize(("last", "is_whole"), [(3, False), (4, True), (60, True)])
def test_a_cut_that_keeps_all_entries_of_a_known_size_moves_nothing(last: int, is_whole: bool) -> None:
    assert (cut_from_the_back(last, "two") is not None) == is_whole


WINDOW = """(float[batch,2,3,w] x) => (float[a,b,c,d] out) <int64[1] one = {1}, int64[1] two = {2},
    int64[1] three = {3}, int64[1] zero = {0}, int64[1] less = {-1}, int64[1] end = {9223372036854775807},
    int64[8] front = {0, 0, 0, 1, 0, 0, 0, 0}>
    { n = Shape<start = 0, end = 1>(x)  long = Shape<start = 3, end = 4>(x)  p = Pad(x, front)
      wide = Concat<axis = 0>(n, two, less, three)  a = Reshape(p, wide)  b = Slice(a, one, end, two)
      narrow = Concat<axis = 0>(n, two, three, less)  c = Reshape(b, narrow)  count = Sub(long, two)
      y = Slice(c, zero, count, three)  out = Relu(y) }"""
"""A step of three new frames: distances of each to all cached ones and to themselves, cache + 5 of them."""


def shifted_on_a_step(text: str, axis: Axis) -> Chain | None:
    model = parse(text)
    scores = model.graph.inputs[0]
    scores.shape = ir.Shape(["batch", 2, 3, "cache + 5"])
    graphs.forget_shapes(model)
    graphs.infer_shapes(model)
    fact = make_fact({0: (Rows(BATCH),), 3: axis}, lambda region: ANYTHING if region else SCORES)
    node = node_named(model, "p")
    facts = [fact if value is scores else None if value is None else Fact() for value in node.inputs]
    return match(Case(node, facts, "batch", {"cache": Side.RIGHT}))


CACHED = graphs.symbol("cache")


def test_scores_of_a_window_lie_at_its_end_again() -> None:
    chain = shifted_on_a_step(WINDOW, joined([Segment(CACHED + 5, Side.RIGHT)]))
    assert chain is not None
    assert str(chain.verdict.outputs[0]).startswith("{0: rows(batch), 3: [cache + 3, right]}")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Slice(a, one", "Slice(a, two"),
        ("(n, two, less, three)", "(n, two, three, less)"),
        ("Slice(c, zero, count", "Slice(c, two, end"),
        ("Slice(c, zero, count", "Slice(c, zero, end"),
    ],
)
def test_wrong_shifts_of_a_window_are_not_recognised(old: str, new: str) -> None:
    assert WINDOW.count(old) == 1
    assert shifted_on_a_step(WINDOW.replace(old, new), joined([Segment(CACHED + 5, Side.RIGHT)])) is None


def test_scores_of_a_window_that_come_first_are_not_shifted_so() -> None:
    assert shifted_on_a_step(WINDOW, suffix(CACHED + 5)) is None
