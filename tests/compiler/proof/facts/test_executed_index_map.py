"""Place numbers: movements are executed as ONNX Runtime would, and layouts say which slots a row's entries have."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.proof.facts.executed_index_map import entry_positions, pad_value, run, uniform
from compiler.proof.facts.layout import Axis, Plain, Rows, Segment, Side, joined, suffix
from tests.kit.graphs import node_named, parse

TIME, BATCH = graphs.symbol("time"), graphs.symbol("batch")

LINES = [
    "y = Reshape(x, target)", "y = Reshape<allowzero = 1>(x, sizes)", "y = Flatten<axis = 2>(x)",
    "y = Flatten<axis = -1>(x)", "y = Slice(x, one, end, one)", "y = Slice(x, minus, end, minus)",
    "y = Slice(x, zero, n, one)", "y = Pad(x, pads, seven)",
    "y = Pad(x, pads, seven, others)", "y = Pad(x, some, , back)", "y = Pad(x, pads)", "y = Transpose(x)",
    "y = Transpose<perm = [1, 0, 2]>(x)", "y = Unsqueeze(x, minus)", "a = Unsqueeze(x, one)  y = Squeeze(a, one)",
    "y = Concat<axis = 2>(nines, x)", "y = Concat<axis = 2>(made, x, x2)", "y = Identity(x)",
]  # fmt: skip


def graph(lines: str) -> ir.Model:
    return parse(
        f"""(float[2,time,3] x) => (float[a] out)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] minus = {{-1}}, int64[1] end = {{9223372036854775807}},
         int64[2] target = {{0, -1}}, int64[3] sizes = {{3, -1, 2}}, int64[6] pads = {{0, 1, 0, 0, 0, 2}},
         int64[3] others = {{-1, 0, 1}}, int64[4] some = {{1, 0, 0, 2}}, int64[2] back = {{-2, 2}},
         float seven = {{7.0}},
         float[2,4,1] nines = {{9, 9, 9, 9, 9, 9, 9, 9}}, int64[3] spread = {{2, 4, 1}}, float[1] three = {{3.0}}>
        {{ n = Shape<start = 1, end = 2>(x)  made = Expand(three, spread)  x2 = Identity(made)
           {lines}  out = Relu(y) }}"""
    )


@pytest.mark.parametrize("lines", LINES)
def test_movements(lines: str) -> None:
    model = graph(lines)
    x = model.graph.inputs[0]
    nodes = [node for node in model.graph if node.outputs[0].name in ("a", "y")]
    numbers = {7.0, 0.0} if "Pad" in lines else {9.0, 3.0}
    places = np.arange(24).reshape(2, 4, 3)
    got = run(nodes, x, places, {TIME: 4})
    values = np.linspace(100, 200, 24, dtype=np.float32)
    expected = run_model(model, {"x": values.reshape(2, 4, 3)})["out"]
    assert got.shape == expected.shape
    assert np.array_equal(values[got[got >= 0]], expected[got >= 0])
    assert set(expected[got < 0].tolist()) <= numbers


IMPOSSIBLE = {
    'y = Pad<mode = "edge">(x, pads)': "constant Pad",
    "y = Concat<axis = 2>(x, x3)": "joins something else",
    "y = Reshape(x, wrong)": "cannot reshape",
}


@pytest.mark.parametrize(("lines", "message"), IMPOSSIBLE.items())
def test_what_cannot_be_executed(lines: str, message: str) -> None:
    model = parse(
        f"""(float[2,time,3] x, float[2,time,3] x3) => (float[a] out)
        <int64[6] pads = {{0, 1, 0, 0, 0, 2}}, int64[1] wrong = {{5}}> {{ {lines}  out = Relu(y) }}"""
    )
    with pytest.raises(ValueError, match=message):
        run([node_named(model, "y")], model.graph.inputs[0], np.arange(24).reshape(2, 4, 3), {TIME: 4})


def test_numbers_that_are_the_same_everywhere() -> None:
    model = graph("y = Pad(x, pads, seven)")
    assert pad_value(node_named(model, "y")) == 7.0
    assert uniform(node_named(model, "made").outputs[0]) == 3.0
    assert uniform(model.graph.inputs[0]) is None
    assert uniform(None) is None


def test_a_part_of_equal_numbers_holds_that_number_and_a_cast_what_becomes_of_it() -> None:
    model = parse("""(float[3,2] x) => (int32[1,2] y, float[1,2] z)
        <float v = {2.5}, int64[2] s = {4, 2}, int64[1] zero = {0}, int64[1] one = {1}>
        { made = Expand(v, s) z = Slice(made, zero, one, zero) y = Cast<to = 6>(z) }""")
    assert [uniform(value) for value in model.graph.outputs] == [2.0, 2.5]


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        (suffix(TIME), [0, 1]),
        (joined([Segment(TIME, Side.RIGHT)]), [3, 4]),
        (joined([Segment(TIME, Side.RIGHT), Segment(TIME - 1)]), [3, 4, 5]),
        (joined([Segment(TIME), Segment(2)]), [0, 1, 5, 6]),
        ((Rows(BATCH),), [1]),
        ((Rows(BATCH), Plain(2)), [2, 3]),
        ((Plain(2), Rows(BATCH)), [1, 4]),
        ((Rows(BATCH), *suffix(TIME)), [5, 6]),
    ],
)
def test_places_of_a_row(axis: Axis, expected: list[int]) -> None:
    (places,) = entry_positions({0: axis}, [0], 1, {TIME: 5, BATCH: 3}, {TIME: 2, BATCH: 1})
    assert places.tolist() == expected


def test_more_entries_than_slots_are_no_layout() -> None:
    with pytest.raises(ValueError, match="5 of 2 slots"):
        entry_positions({0: suffix(TIME)}, [0], 0, {TIME: 2}, {TIME: 5})


@pytest.mark.parametrize(("operand", "number"), [("", 0.0), (", half", 0.5), (", given", None)])
def test_the_number_that_a_pad_adds(operand: str, number: float | None) -> None:
    """One that is computed is not known."""
    model = parse(
        f"""(float[batch,time,4] x, float given) => (float[a,b,c] y) <float half = {{0.5}},
        int64[6] pads = {{0, 1, 0, 0, 0, 0}}> {{ y = Pad(x, pads{operand}) }}"""
    )
    assert pad_value(node_named(model, "y")) == number
