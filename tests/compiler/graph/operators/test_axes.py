"""Every legal spelling of an axis gives the same one, counted from the front."""

import onnx
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.model import OLDEST_OPSET
from compiler.graph.operators.axes import (
    AXIS_OPERANDS,
    axis_of,
    axis_operand,
    changed_axes,
    counts_from_the_front,
    has_axis,
    order_of,
    perm_of,
)
from tests.kit.graphs import node_named, parse

NEWEST = onnx.defs.onnx_opset_version()
OF_ALL_ENTRIES = {"Compress", "Unique"}
"""Without an axis they take the entries of all; no rule follows them."""


def _operators() -> list[tuple[str, int]]:
    """Every operator that an attribute names an axis of, in every operator set that the compiler reads."""
    names = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if "axis" in schema.attributes}
    there = [(name, opset) for name in sorted(names) for opset in range(OLDEST_OPSET, NEWEST + 1)]
    return [(name, opset) for name, opset in there if onnx.defs.has(name, opset)]


def _node(name: str, opset: int, axis: int | None) -> ir.Node:
    stated = [] if axis is None else [ir.AttrInt64("axis", axis)]
    return ir.Node("", name, [ir.Value(name="x")], stated, version=opset)


@pytest.mark.parametrize("rank", [1, 3, 4])
def test_an_axis_counts_from_the_front(rank: int) -> None:
    for name, opset in _operators():
        for axis in range(rank):
            assert axis_of(_node(name, opset, axis), rank) == axis == axis_of(_node(name, opset, axis - rank), rank)


def test_what_is_left_out_is_what_the_operator_set_says() -> None:
    for name, opset in _operators():
        schema = onnx.defs.get_schema(name, opset)
        if "axis" not in schema.attributes or schema.attributes["axis"].required or name in OF_ALL_ENTRIES:
            continue
        default = schema.attributes["axis"].default_value.i
        assert axis_of(_node(name, opset, None), 4) == default % 4, (name, opset)


def test_every_operand_that_names_an_axis_is_known() -> None:
    schemas = [schema for schema in onnx.defs.get_all_schemas() if not schema.domain]
    named = {schema.name: at for schema in schemas for at, each in enumerate(schema.inputs) if each.name == "axis"}
    assert named == AXIS_OPERANDS


@pytest.mark.parametrize("axis", [1, -3])
def test_an_axis_among_the_operands(axis: int) -> None:
    model = parse(f"(float[2,3,4,2] x) => (float[a,b,c,d] y) <int64 axis = {{{axis}}}> {{ y = CumSum(x, axis) }}")
    node = node_named(model, "y")
    assert axis_operand(node) is model.graph.initializers["axis"]
    assert axis_of(node, 4, axis) == 1


def test_the_default_of_a_fourier_transform_is_another_since_an_operand_names_it() -> None:
    old, new = (parse("(float[2,3,4,2] x) => (float[a,b,c,d] y) { y = DFT(x) }", opset=opset) for opset in (19, 20))
    assert axis_of(node_named(old, "y"), 4) == 1 and axis_of(node_named(new, "y"), 4) == 2
    assert axis_operand(node_named(new, "y")) is None


def test_flatten_may_name_what_lies_behind_the_last_axis() -> None:
    assert [axis_of(_node("Flatten", 20, axis), 3) for axis in (0, -3, 3, -1, None)] == [0, 0, 3, 2, 1]


def test_an_axis_that_the_data_have_not() -> None:
    assert has_axis(_node("QuantizeLinear", 20, -2), 2) and has_axis(_node("QuantizeLinear", 20, None), 2)
    assert not has_axis(_node("QuantizeLinear", 20, None), 1) and not has_axis(_node("QuantizeLinear", 20, -3), 2)


def test_a_spelling_from_the_back_stays_where_an_axis_is_added_in_front() -> None:
    node = _node("LayerNormalization", 20, 1)
    assert counts_from_the_front(node) and not counts_from_the_front(_node("LayerNormalization", 20, -1))
    assert not counts_from_the_front(_node("Softmax", 20, None)) and counts_from_the_front(_node("Gather", 20, None))


def test_the_order_of_axes_is_the_reverse_where_none_is_stated() -> None:
    stated = parse("(float[2,3,4] x) => (float[a,b,c] y) { y = Transpose<perm = [1, 0, 2]>(x) }")
    assert perm_of(node_named(stated, "y"), 3) == (1, 0, 2)
    reverse = parse("(float[2,3,4] x) => (float[a,b,c] y) { y = Transpose(x) }")
    assert perm_of(node_named(reverse, "y"), 3) == order_of(node_named(reverse, "y")) == (2, 1, 0)
    assert order_of(None) is None


@pytest.mark.parametrize(("op", "axes"), [("Squeeze", {0, 2}), ("Unsqueeze", {0, 2})])
def test_axes_that_come_and_go(op: str, axes: set[int]) -> None:
    rank = 4 if op == "Squeeze" else 6
    spellings = ["0, 2", "2, 0", f"{-rank}, 2", f"2, {-rank}", f"{-rank}, {2 - rank}"]
    views = [_changed(f"{op}(x, axes)", f"int64[2] axes = {{{each}}}") for each in spellings]
    assert [set(each or ()) for each in views] == [axes] * len(views)


def test_a_squeeze_without_axes_takes_all_of_one_entry() -> None:
    assert _changed("Squeeze(x)", "float unused = {0}") == (0, 2)
    assert _changed("Squeeze(x)", "float unused = {0}", "1,t,1,4") is None
    assert _changed("Squeeze(x, n)", "float unused = {0}") is None and _changed("Neg(x)", "float unused = {0}") is None


def _changed(op: str, constants: str, dims: str = "1,3,1,4") -> tuple[int, ...] | None:
    model = parse(f"(float[{dims}] x, int64[1] n) => (float[o] y) <{constants}> {{ y = {op} }}")
    return changed_axes(node_named(model, "y"), graphs.integers_of)
