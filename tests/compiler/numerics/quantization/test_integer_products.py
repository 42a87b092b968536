"""Products of dequantised values are found with all their parts, and what has no fast kernel says so."""

import numpy as np
import pytest

from compiler.graph.stages import Array
from compiler.numerics.quantization.integer_products import factor_of, products_of
from tests.kit.graphs import node_named, parse
from tests.kit.integers import ZERO, product

WEIGHTS = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)


def test_all_parts_are_found() -> None:
    model = product(bias="[1,1,4]")
    (found,) = products_of(model)
    assert (found.node, found.result.name) == (node_named(model, "sum"), "y")
    assert (found.first.codes.name, found.second.codes.name, found.hindrance) == ("x", "w", None)
    assert found.bias is not None
    assert found.bias.tolist() == [0.0, 1.0, 2.0, 3.0]
    numbers = (WEIGHTS.astype(np.float32) - ZERO) * np.array([0.5, 1.0, 1.5, 2.0], np.float32)
    assert np.array_equal(found.second.numbers, numbers)


@pytest.mark.parametrize("bias", ["[1,2,1]", "[1]", "computed", "read twice"])
def test_what_is_added_otherwise_is_no_bias(bias: str) -> None:
    (found,) = products_of(product(bias=bias))
    assert found.bias is None
    assert found.result.name == "sum"


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        (("int8", "int8"), "signed times signed codes fall to plain loops"),
        (("uint8", "uint8"), "unsigned times unsigned codes take three times as long"),
        (("int8", "uint8"), "signed times unsigned codes have no kernel"),
    ],
)
def test_pairs_of_types_without_a_fast_kernel_are_named(kinds: tuple[str, str], reason: str) -> None:
    (found,) = products_of(product(kinds=kinds))
    assert found.hindrance == reason


def test_scales_that_the_operator_has_no_place_for_are_named() -> None:
    (rows,) = products_of(product(axis=0))
    assert rows.hindrance == "its second operand has scales that are not those of its columns"
    (data,) = products_of(product(data_scales=True))
    assert data.hindrance == "its data have a scale per entry of an axis"


def test_other_values_have_no_parts() -> None:
    arrays: dict[str, Array] = {"none": np.array(0, np.uint8)}
    model = parse(
        """(uint8[batch,3] x, float s, uint8 none) => (float[batch,3] a, float[batch,3] b)
        { twice = Add(s, s)  a = DequantizeLinear(x, twice, none)  b = Relu(a) }""",
        arrays,
    )
    assert factor_of(node_named(model, "a").outputs[0]) is None
    assert factor_of(node_named(model, "b").outputs[0]) is None
    assert factor_of(None) is None
