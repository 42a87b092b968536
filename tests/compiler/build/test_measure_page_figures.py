"""measure_page_figures: what a node computes in, what differs most, what the original costs."""

import numpy as np
import pytest

from compiler.base.records.precision import Pin, TensorRange
from compiler.build.measure_page_figures import boxes_of, precision_of, time_original, worst_histograms
from compiler.build.report.page_figures import Precision
from compiler.graph.runners.stream import OriginalCall
from compiler.graph.stages import Lowered
from tests.kit.deep_stream import change_weight, deep_stream, in_half, steps_of
from tests.kit.graphs import node_named, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(float[2] x) => (float[2] y) { y = Relu(x) }", Precision.FLOAT32),
        ("(float16[2] x) => (float16[2] y) { y = Relu(x) }", Precision.HALF),
        ("(float[2,2] x) => (int64[2] y) { y = Shape(x) }", Precision.OTHER),
        ("(float[2] x, float s, int8 z) => (int8[2] y) { y = QuantizeLinear(x, s, z) }", Precision.INT8),
        (
            "(int8[2] x, float s, int8 z, float[2] w) => (float y) { d = DequantizeLinear(x, s, z) y = MatMul(d, w) }",
            Precision.INT8,
        ),
    ],
)
def test_what_a_node_computes_in(text: str, expected: Precision) -> None:
    assert precision_of(node_named(parse(text), "y")) is expected


def test_pins_and_ranges_are_on_the_map() -> None:
    model = parse("(float[2] x) => (float[2] y) { e = Exp(x) y = Relu(e) }")
    boxes = boxes_of(
        model,
        [Pin("e_exp", "Exp", "its output reaches 90112"), TensorRange("e", -1.0, 2.0, "percentile 99.9")],
    )
    by_name = {box.name: box for box in boxes}
    assert [box.op for box in boxes] == ["input", "Exp", "Relu"]
    assert by_name["e_exp"].kind is Precision.PINNED
    assert "kept in float32: its output reaches 90112" in by_name["e_exp"].notes
    assert "e: -1..2 in int8, percentile 99.9" in by_name["y_relu"].notes
    assert by_name["y_relu"].below == "float32 [2]"
    assert any(note.startswith("tiny.py:2") for note in by_name["y_relu"].notes)


def test_the_worst_tensors_come_first() -> None:
    before, after = deep_stream(3), deep_stream(3)
    change_weight(after.model, "wk_1", 1.5)
    steps = steps_of(before, 4)
    found = worst_histograms(before, after, steps)
    assert found[0].tensor in {"key_1", "turned_1", "scores_1", "scaled_1"}
    assert found[0].sqnr_db == pytest.approx(20 * np.log10(2), abs=0.01)
    assert sum(found[0].reference) == sum(found[0].shipped)
    assert [each.sqnr_db for each in found] == sorted(each.sqnr_db or 0.0 for each in found)
    assert {each.tensor for each in worst_histograms(None, after, steps)} <= {"logits", "cache_1", "cache_2"}
    assert worst_histograms(before, before, steps) == ()


def test_half_precision_is_compared_with_what_it_was() -> None:
    before, after = deep_stream(2), deep_stream(2)
    in_half(after.model)
    found = worst_histograms(before, after, steps_of(before, 3))
    assert len(found) == 6
    assert all(30 < (each.sqnr_db or 0.0) < 80 for each in found)


def test_the_original_is_timed() -> None:
    before = deep_stream(2)
    assert 0.0 < time_original(before, [step.feed for step in steps_of(before, 3)]) < 1e3


def test_what_masks_fill_with_is_left_out() -> None:
    text = """(float[1,4] x, float[1,4] m, %s w) => (float[1,4] y) <float zero = {0.0}, float low = {-3e38}>
    { k = Greater(m, zero) f = Where(k, x, low) s = Mul(x, w) y = Add(s, s) }"""
    before, after = (parse(text % "float[1,4]", {"w": np.full((1, 4), w, np.float32)}) for w in (1.0, 1.1))
    lowered = [Lowered("net", model) for model in (before, after)]
    for each in lowered:
        each.model.graph.outputs.append(node_named(each.model, "f").outputs[0])
    feed = {"x": np.ones((1, 4), np.float32), "m": np.array([[1, 1, 0, 0]], np.float32)}
    found = worst_histograms(lowered[0], lowered[1], [OriginalCall(feed, {}, {})])
    assert {each.tensor for each in found} == {"s", "y"}
    assert all(each.low >= 0.5 for each in found)
