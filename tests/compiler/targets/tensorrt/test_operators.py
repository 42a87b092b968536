"""The operator table of the TensorRT linter and its limits, next to what the planted graphs show."""

import dataclasses

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compiler.targets.tensorrt.operators import OPERATORS, TYPES_BY_OPERATOR
from tests.compiler.targets.tensorrt.planted import BOTH, Case, axis_of, loop, stft

QUANTISED = ("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv", "DynamicQuantizeLinear")


def rules_of(case: Case) -> set[str]:
    return {violation.rule for violation in case.found()}


def test_every_operator_of_the_table_is_one_of_the_standard_and_stands_there_once() -> None:
    names = [name for names in OPERATORS.values() for name in names.split()]
    assert len(names) == len(set(names))
    assert [name for name in names if not onnx.defs.has(name)] == []


@pytest.mark.parametrize(
    "name",
    [*QUANTISED, "BitwiseAnd", "Unique", "Compress", "BitShift", "StringConcat", "SequenceAt", "Attention", "Det"],
)
def test_operators_that_the_parser_lacks_are_not_in_the_table(name: str) -> None:
    assert onnx.defs.has(name)
    assert name not in TYPES_BY_OPERATOR


@pytest.mark.parametrize("op", ["Squeeze", "Unsqueeze", "ReduceMean", "ReduceMax", "ReduceL2"])
def test_axes_are_constants(op: str) -> None:
    assert rules_of(axis_of(op, constant=False)) == {"constant-operand"}
    text = f"(float[2,1] x, int64[1] at) => (float[2] y) {{ y = {op}(x, at) }}"
    assert rules_of(Case(text, {"at": np.array([1])})) == set()


@pytest.mark.parametrize("operand", ["step", "window", "length"])
def test_step_window_and_length_of_frames_are_constants(operand: str) -> None:
    (found,) = stft(1, given=operand).found()
    assert (found.rule, found.place.tensor) == ("constant-operand", operand)
    assert rules_of(stft(1)) == set()


def test_a_spectrum_is_computed_in_float32() -> None:
    half = stft(1)
    text, window = half.text.replace("float[", "float16["), np.ones(8, np.float16)
    case = dataclasses.replace(half, text=text, types={"y": ir.DataType.FLOAT16}).with_weights(window=window)
    (found,) = case.found()
    assert (found.rule, found.cure) == ("operand-type", 'keep it in float32: lower_precision: {float32: ["op:STFT"]}')


def test_scatter_nd_may_not_even_say_that_it_does_not_reduce() -> None:
    text = '(float[4] x, int64[2,1] i, float[2] u) => (float[4] y) { y = ScatterND<reduction = "none">(x, i, u) }'
    (found,) = Case(text).found()
    assert (found.rule, found.cure) == ("scatter-reduction", "drop the attribute")


def test_a_condition_that_a_loop_reads_is_given() -> None:
    assert rules_of(loop(constant=True, condition='""')) == {"loop-condition"}


def test_the_exponent_is_of_the_type_of_the_base() -> None:
    text = f"{BOTH} {{ two = Constant<value_int = 2>()  y = Pow(x, two) }}"
    assert rules_of(Case(text)) == {"same-types"}


def test_types_inside_branches_are_looked_at() -> None:
    text = """(bool c, float[2] x, float16[2] h) => (float[2] y) {
        y = If(c) <then_branch = a () => (float[2] p) { p = Add(x, h) },
                   else_branch = b () => (float[2] q) { q = Neg(x) }> }"""
    assert rules_of(Case(text, types={"p": ir.DataType.FLOAT})) == {"same-types"}


def test_booleans_are_no_numbers() -> None:
    text = "(bool[2] x) => (bool[2] y) { y = Add(x, x) }"
    assert "operand-type" in rules_of(Case(text, types={"y": ir.DataType.BOOL}))
