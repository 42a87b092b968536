"""attributes: a default that is written is a default."""

import pytest

from compiler.graph.operators.attributes import schema_of, stated_attributes
from compiler.passes.simplify import simplify_model
from tests.kit.graphs import ops_of, parse

CONV = "(float[1, 2, 9] x, float[2, 2, 3] w) => (float[1, 2, m] y) { y = Conv<%s>(x, w) }"


@pytest.mark.parametrize(
    "written",
    [
        "group = 1",
        'auto_pad = "NOTSET", pads = [0, 0]',
        "dilations = [1], strides = [1], kernel_shape = [3]",
    ],
)
def test_written_defaults_say_nothing(written: str) -> None:
    assert not stated_attributes(parse(CONV % written).graph[0])


@pytest.mark.parametrize("written", ["pads = [0, 1]", "strides = [2]", 'auto_pad = "SAME_UPPER"', "group = 2"])
def test_other_values_are_stated(written: str) -> None:
    assert list(stated_attributes(parse(CONV % written).graph[0])) == [written.split()[0]]


def test_numbers_are_compared_as_they_are_stored() -> None:
    model = parse("(float[2] x) => (float[2] y) { a = LeakyRelu<alpha = 0.01>(x)  y = LeakyRelu<alpha = 0.02>(a) }")
    assert [list(stated_attributes(node)) for node in model.graph] == [[], ["alpha"]]


def test_the_version_is_that_of_the_graph() -> None:
    model = parse("(float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax<axis = 1>(x) }")
    assert list(stated_attributes(model.graph[0])) == ["axis"]
    model.graph.opset_imports[""] = 11  # where the default is 1
    assert not stated_attributes(model.graph[0])


def test_operators_of_other_domains_have_no_known_defaults() -> None:
    model = parse("(float[2] x) => (float[2] y) { y = com.acme.Next<group = 1>(x) }")
    assert schema_of(model.graph[0]) is None
    assert list(stated_attributes(model.graph[0])) == ["group"]


def test_nodes_that_differ_in_a_written_default_are_one() -> None:
    model = parse(
        """(float[1, 2, 9] x) => (float[1, 2, 7] y) <float[2, 2, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
        { a = Conv(x, w)  b = Conv<pads = [0, 0], auto_pad = "NOTSET">(x, w)  y = Mul(a, b) }"""
    )
    simplify_model(model)
    assert ops_of(model) == ["Conv", "Mul"]
