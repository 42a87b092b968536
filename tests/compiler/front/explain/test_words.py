"""Facts in words."""

import math

import numpy as np
import onnx_ir as ir
import pytest

from compiler.front.explain.words import Kind, kind_of, need_words, number_text, padding_words, shape_text
from compiler.graph.model import symbol
from compiler.proof.facts.facts import NUMBER, Fact, make_fact
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval
from compiler.proof.facts.layout import suffix


def padded(content: Interval, *axes: int) -> Fact:
    return make_fact({axis: suffix(symbol("time")) for axis in axes or (1,)}, lambda r: content if r else ANYTHING)


@pytest.mark.parametrize(
    ("fact", "words", "kind"),
    [
        (padded(ZERO), "zero", Kind.CONSTANT),
        (padded(Interval(1.0, 1.0)), "constant 1", Kind.CONSTANT),
        (padded(Interval(-math.inf, -math.inf)), "constant -inf", Kind.CONSTANT),
        (padded(Interval(-1.0, 2.0)), "finite", Kind.FINITE),
        (padded(Interval(-math.inf, 2.0)), "infinity possible", Kind.ANYTHING),
        (padded(ANYTHING, 1, 2), "anything, NaN possible", Kind.ANYTHING),
        (Fact(), "no padding", Kind.NONE),
        (NUMBER, "a size", Kind.NONE),
    ],
)
def test_padding_has_words_and_a_kind(fact: Fact, words: str, kind: Kind) -> None:
    assert (padding_words(fact), kind_of([fact])) == (words, kind)


def test_axes_that_differ_are_told_apart() -> None:
    axes = {axis: suffix(symbol("time")) for axis in (1, 2)}
    fact = make_fact(axes, lambda region: ZERO if 1 in region else Interval(0.0, 1.0))
    assert padding_words(fact) == "axis 1: zero, axis 2: finite"


def test_several_outputs_have_the_kind_of_the_worst() -> None:
    assert kind_of([padded(ZERO), padded(ANYTHING)]) is Kind.ANYTHING
    assert kind_of([padded(ZERO), padded(Interval(0.0, 1.0)), Fact()]) is Kind.FINITE


def test_needs_name_the_operand() -> None:
    names = ["data", "indices"]
    assert need_words({"fill": 0, "axis": 2, "value": "-inf"}, names) == "padding of data (axis 2) := -inf"
    assert need_words({"clamp": 1, "low": 0, "high": 9}, names) == "indices indices clamped to 0..9"
    assert need_words({"rewrite": "look_up", "details": []}, names) == "written in another form: look up"


def test_the_ends_of_float32_have_names() -> None:
    lowest = float(np.finfo(np.float32).min)
    assert [number_text(value) for value in (lowest, -lowest, 0.5, -math.inf)] == ["lowest", "highest", "0.5", "-inf"]


def test_shapes_show_what_is_not_known() -> None:
    assert shape_text(ir.Value(name="x", shape=ir.Shape(["batch", None, 3]))) == "[batch, ?, 3]"
    assert shape_text(ir.Value(name="x")) == "[?]"
