"""Every legal spelling of a Pad gives the same view."""

import itertools

import pytest

from compiler.graph import model as graphs
from compiler.graph.operators.pads import Pad, pad_of
from tests.kit.graphs import node_named, parse

TEXT = """(float[2,3,4] x, int64[2] given) => (float[a,b,c] y)
    <int64[6] all = {0, 1, -1, 0, 0, 2}, int64[4] some = {1, -1, 0, 2}, int64[4] other = {-1, 1, 2, 0},
     int64[2] front = {1, 2}, int64[2] back = {-2, -1}, int64[2] turned = {2, -2}, float nothing = {0}>
    { y = OP }"""


def view(op: str) -> Pad | None:
    return pad_of(node_named(parse(TEXT.replace("OP", op)), "y"), graphs.integers_of)


SPELLINGS = [
    f"{operands[0]}, {value}{operands[1]}"
    for operands, value in itertools.product(
        [("all", ""), ("some", ", front"), ("some", ", back"), ("other", ", turned")], ["", "nothing"]
    )
]


@pytest.mark.parametrize("operands", [*SPELLINGS, "all"])
def test_spellings(operands: str) -> None:
    pad = view(f"Pad(x, {operands})")
    assert pad is not None and pad.mode == "constant"
    assert pad.numbers == pad.added and {axis: pair for axis, pair in pad.added.items() if any(pair)} == {
        1: (1, 0), 2: (-1, 2),
    }  # fmt: skip
    assert (None if pad.value is None else pad.value.name) == ("nothing" if "nothing" in operands else None)


def test_entries_of_another_kind() -> None:
    pad = view('Pad<mode = "edge">(x, all)')
    assert pad is not None and pad.mode == "edge"


def test_what_is_not_known() -> None:
    assert view("Pad(x, some, , given)") is None
    assert view("Pad(x, given, , given)") is None
    assert view("Relu(x)") is None and pad_of(None, graphs.integers_of) is None


def test_amounts_that_follow_from_lengths() -> None:
    text = "(float[time,3] x) => (float[a,b] y) <int64[3] zeros = {0, 0, 0}> { OP }"
    model = parse(text.replace("OP", "n = Shape<end = 1>(x) p = Concat<axis = 0>(zeros, n) y = Pad(x, p)"))
    pad = pad_of(node_named(model, "y"), graphs.integers_of)
    assert pad is not None and pad.numbers is None and pad.added == {0: (0, 0), 1: (0, graphs.symbol("time"))}
