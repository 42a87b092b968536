"""Traits are said of operators that there are, and of all that have them by ONNX's own record where it tells."""

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compiler.graph.operators import traits as operator_traits
from compiler.graph.runners.session import evaluate_node

TRAITS: Mapping[str, frozenset[str]] = {
    name: value for name, value in vars(operator_traits).items() if isinstance(value, frozenset)
}
SCHEMAS = {schema.name: schema for schema in onnx.defs.get_all_schemas() if not schema.domain}


@pytest.mark.parametrize("name", TRAITS)
def test_every_operator_is_one_of_onnx(name: str) -> None:
    assert TRAITS[name] <= SCHEMAS.keys()


def test_what_works_on_entries_or_draws_numbers_has_one_trait_of_these() -> None:
    kinds = [operator_traits.ENTRYWISE - {"Identity"}, operator_traits.RANDOM, operator_traits.REDUCTIONS,
             operator_traits.MOVING, operator_traits.RECURRENCES, operator_traits.MAKING]  # fmt: skip
    assert sum(map(len, kinds)) == len(frozenset().union(*kinds))


@pytest.mark.parametrize("op", sorted(operator_traits.ONE_OPERAND))
def test_one_operand_is_one_operand(op: str) -> None:
    schema = SCHEMAS[op]
    assert schema.min_input == 1 and len(schema.outputs) == 1


@pytest.mark.parametrize("op", sorted(operator_traits.REDUCTIONS))
def test_reductions_take_their_axes(op: str) -> None:
    assert {*SCHEMAS[op].attributes} >= {"keepdims", "noop_with_empty_axes"}


def test_reductions_are_all_there() -> None:
    assert {name for name in SCHEMAS if name.startswith("Reduce")} == operator_traits.REDUCTIONS


def test_what_draws_numbers_has_a_seed() -> None:
    seeded = {name for name, schema in SCHEMAS.items() if "seed" in schema.attributes}
    assert seeded - {"Dropout"} == operator_traits.RANDOM, "Dropout draws in training alone"


TRUTHS = ("And", "Not", "Or", "Xor")


def operands_of(op: str) -> list[np.ndarray]:
    """Two operands, or three, of numbers that the operator is defined for."""
    rng = np.random.default_rng(0)
    whole = op in operator_traits.BITWISE or op == "BitwiseNot"
    kind = np.uint8 if whole else np.bool_ if op in TRUTHS else np.float32
    arrays = [rng.integers(0, 2, (3, 4)) if op in TRUTHS else rng.uniform(1, 5, (3, 4)) for _ in range(3)]
    typed: list[np.ndarray] = [array.astype(kind) for array in arrays]
    if op == "Where":
        return [rng.integers(0, 2, (3, 4)).astype(np.bool_), *typed[1:]]
    return typed[: 1 if op in operator_traits.ONE_OPERAND else 2]


@pytest.mark.parametrize("op", sorted(operator_traits.ENTRYWISE - operator_traits.CASTS - {"Clip"}))
def test_an_operator_entry_by_entry_answers_a_part_as_it_answers_the_whole(op: str) -> None:
    operands = operands_of(op)
    inputs = [ir.val(f"x{at}", ir.DataType.from_numpy(array.dtype), array.shape) for at, array in enumerate(operands)]
    attributes = {"BitShift": [ir.AttrString("direction", "LEFT")], "Mod": [ir.AttrInt64("fmod", 1)]}.get(op, [])
    node = ir.Node("", op, inputs, attributes, num_outputs=1)
    ir.Graph(inputs, node.outputs, nodes=[node], opset_imports={"": 24 if op == "Swish" else 20}, name="one")
    (whole,) = evaluate_node(node, operands)
    (part,) = evaluate_node(node, [array[1:, :2] for array in operands])
    assert whole.shape == (3, 4)
    np.testing.assert_allclose(part.astype(np.float64), whole[1:, :2].astype(np.float64), rtol=1e-5)
