"""repeated_heads: what heads were before they were repeated."""

import pytest

from compiler.rewriting.attention.repeated_heads import before_repeats
from tests.kit.graphs import node_named, parse

CONSTANTS = """int64[1] two = {2}, int64[1] one = {1}, int64[5] five = {1, 2, 3, 5, 8}, int64[4] heads = {0, 6, 5, 8},
    int64[4] flat = {0, 2, 15, 8}, int64[6] in_order = {0, 0, 0, 1, 1, 1}, int64[6] crossed = {0, 1, 0, 1, 0, 1},
    int64[5] whole = {1, 3, 2, 5, 8}, int64[4] same = {0, 2, 5, 8}, int64[3] once = {0, 0, 1}"""
EXPANDED = "u = Unsqueeze(x, two)  e = Expand(u, five)  y = Reshape(e, heads)"


def found(lines: str) -> str | None:
    graph = parse(f"(float[b,2,5,8] x) => (float[b,n,m,8] y) <{CONSTANTS}> {{ {lines} }}")
    value = before_repeats(node_named(graph, "y").outputs[0])
    return None if value is None else str(value.name)


@pytest.mark.parametrize("lines", [EXPANDED, "y = Gather<axis = 1>(x, in_order)"])
def test_repeats_are_seen_through(lines: str) -> None:
    assert found(lines) == "x"


@pytest.mark.parametrize(
    "lines",
    [
        EXPANDED.replace("x, two", "x, one").replace("u, five", "u, whole"),
        EXPANDED.replace("e, heads", "e, flat"),
        "u = Unsqueeze(x, two)  y = Reshape(u, same)",
        "y = Gather<axis = 1>(x, crossed)",
        "y = Gather<axis = 1>(x, once)",
        "y = Gather<axis = 2>(x, in_order)",
        "y = Relu(x)",
    ],
    ids=[
        "groups repeated as a whole",
        "frames repeated",
        "no repeats",
        "another order",
        "not alike",
        "frames",
        "other",
    ],
)
def test_others_are_no_repeats(lines: str) -> None:
    assert found(lines) is None
