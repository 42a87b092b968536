"""Every legal spelling of a Reshape gives the same view."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.operators.reshapes import LEFT_OVER, Target, copies_zeros, target_of
from compiler.graph.runners.session import run_model
from tests.kit.graphs import node_named, parse

TEXT = """(float[2,3,4] x, int64[2] given) => (float[a,b] y)
    <int64[2] copied = {0, -1}, int64[2] plain = {2, -1}, int64[3] empty = {0, 4, 5}, int64[4] behind = {0, 3, 1, 4}>
    { y = OP }"""


def view(op: str) -> Target | None:
    return target_of(node_named(parse(TEXT.replace("OP", op)), "y"), graphs.integers_of)


@pytest.mark.parametrize("attribute", ["", "<allowzero = 0>"])
def test_spellings(attribute: str) -> None:
    copied, plain = view(f"Reshape{attribute}(x, copied)"), view(f"Reshape{attribute}(x, plain)")
    assert copied == Target((0, LEFT_OVER), copies=True) and plain == Target((2, LEFT_OVER), copies=True)
    assert copied.of((2, 3, 4)) == plain.of((2, 3, 4)) == (2, LEFT_OVER)
    assert copied.copied(0) and not plain.copied(0) and not copied.copied(1)


def test_zeros_that_mean_no_entries() -> None:
    asked = view("Reshape<allowzero = 1>(x, empty)")
    assert asked is not None and asked.of((2, 3, 4)) == (0, 4, 5) and not asked.copied(0)
    assert view("Reshape<allowzero = 1>(x, plain)") == Target((2, LEFT_OVER), copies=False)


@pytest.mark.parametrize("sizes", ["copied", "plain", "behind"])
def test_the_runtime_gives_the_sizes_that_are_asked_for(sizes: str) -> None:
    model = parse(TEXT.replace("OP", f"Reshape(x, {sizes})"))
    asked = view(f"Reshape(x, {sizes})")
    assert asked is not None
    x = np.zeros((2, 3, 4), np.float32)
    shape = run_model(model, {"x": x, "given": np.zeros(2, np.int64)})["y"].shape
    assert x.reshape([int(str(size)) for size in asked.of(x.shape)]).shape == shape


def test_what_is_not_known() -> None:
    assert view("Reshape(x, given)") is None and view("Relu(x)") is None and target_of(None, graphs.integers_of) is None
    assert copies_zeros(node_named(parse(TEXT.replace("OP", "Reshape(x, given)")), "y"))
