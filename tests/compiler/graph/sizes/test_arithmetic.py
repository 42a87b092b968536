"""What an operator computes of sizes is what it computes of their numbers, at every length."""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph.sizes.arithmetic import computed, plain
from compiler.graph.sizes.expressions import Dim, expression

Function = Callable[..., np.ndarray]

OPERATORS: dict[str, tuple[dict[str, int], Function]] = {
    "Abs": ({}, np.abs),
    "Add": ({}, np.add),
    "Div": ({}, lambda a, b: np.trunc(a / b)),
    "Max": ({}, np.maximum),
    "Min": ({}, np.minimum),
    "Mod": ({}, np.mod),
    "Mod with fmod": ({"fmod": 1}, np.fmod),
    "Mul": ({}, np.multiply),
    "Neg": ({}, np.negative),
    "Sub": ({}, np.subtract),
    "Sum": ({}, np.add),
}
PAIRS = [("time", "2"), ("3*time + 1", "4"), ("2 - time", "3"), ("time - 2", "time"), ("5", "3"), ("-7", "2")]
LENGTHS = range(2, 60)


def node_of(name: str, dtype: ir.DataType = ir.DataType.INT64) -> ir.Node:
    attributes, function = OPERATORS[name]
    count = 1 if isinstance(function, np.ufunc) and function.nin == 1 else 2
    operands = [ir.Value(name=f"x{at}", type=ir.TensorType(dtype)) for at in range(count)]
    return ir.node(name.split()[0], operands, attributes)


def at(size: Dim, length: int) -> int:
    return size if isinstance(size, int) else int(size.subs(dict.fromkeys(size.free_symbols, length)))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_at_every_length(name: str, pair: tuple[str, str]) -> None:
    node, sizes = node_of(name), [expression(text) for text in pair]
    size = computed(node, sizes[: len(node.inputs)])
    assert size is not None
    numbers = [np.array([at(operand, length) for length in LENGTHS]) for operand in sizes[: len(node.inputs)]]
    assert [at(size, length) for length in LENGTHS] == OPERATORS[name][1](*numbers).astype(int).tolist()
    assert isinstance(size, int) or any(not isinstance(operand, int) for operand in sizes)


def test_quotients_of_real_numbers_are_exact() -> None:
    assert str(computed(node_of("Div", ir.DataType.FLOAT), [expression("time"), 2])) == "time/2"


@pytest.mark.parametrize("name", ["Div", "Mod", "Mod with fmod"])
def test_nothing_is_divided_by_zero(name: str) -> None:
    assert computed(node_of(name), [expression("time"), 0]) is None


def test_what_is_not_known() -> None:
    # the sign of the dividend changes with the length, and so does the way in which it is rounded
    assert computed(node_of("Div"), [expression("later - time"), 2]) is None
    assert computed(node_of("Mod with fmod"), [expression("later - time"), 2]) is None
    assert computed(ir.node("Pow", node_of("Add").inputs), [expression("time"), 2]) is None


def test_whole_numbers_are_integers() -> None:
    assert plain(expression("time") - expression("time")) == 0 and plain(3) == 3
