"""lower_flags: no operator over truth values that is documented for numbers alone."""

import numpy as np
import pytest

from compiler.graph.stages import Array, Lowered
from compiler.passes.lower_flags import COUNT, TRUTH_OPERANDS, LowerFlags
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import ops_of, parse

GRAPHS: dict[str, tuple[str, list[str]]] = {
    "CumSum": (
        """(bool[2,4] x, int64[1] rows, int64 last) => (int64[2,1,4] y)
        { n = Cast<to = 6>(x)  u = Unsqueeze(n, rows)  w = Cast<to = 7>(u)
          y = CumSum<exclusive = 1, reverse = 1>(w, last) }""",
        ["Cast", "Unsqueeze", "Cast", "Cast", "CumSum", "Cast"],
    ),
    "Equal": ("(bool[2,4] x, bool[4] u) => (bool[2,4] y) { y = Equal(x, u) }", ["Cast", "Cast", "Equal"]),
    "Pad": (
        "(bool[2,4] x, int64[4] n, bool t) => (bool[2,7] y) { y = Pad(x, n, t) }",
        ["Cast", "Pad", "Cast"],
    ),
    "ReduceMax": (
        "(bool[2,4] x, int64[1] last) => (bool[2] y) { y = ReduceMax<keepdims = 0>(x, last) }",
        ["Cast", "ReduceMax", "Cast"],
    ),
    "ReduceMin": (
        "(bool[2,4] x, int64[1] last) => (bool[2,1] y) { y = ReduceMin(x, last) }",
        ["Cast", "ReduceMin", "Cast"],
    ),
    "ScatterElements": (
        "(bool[2,4] x, int64[2,1] i, bool[2,1] u) => (bool[2,4] y) { y = ScatterElements<axis = 1>(x, i, u) }",
        ["Cast", "Cast", "ScatterElements", "Cast"],
    ),
    "ScatterND": (
        "(bool[2,4] x, int64[1,1] i, bool[1,4] u) => (bool[2,4] y) { y = ScatterND(x, i, u) }",
        ["Cast", "Cast", "ScatterND", "Cast"],
    ),
}

CONSTANTS: dict[str, Array] = {
    "n": np.array([0, 1, 0, 2]),
    "t": np.array(True),
    "last": np.array([1]),
    "rows": np.array([1]),
    "i": np.array([[1], [0]]),
}


def lowered(text: str) -> Lowered:
    weights = {name: array for name, array in CONSTANTS.items() if f" {name}," in text or f" {name})" in text}
    if "int64 last" in text:
        weights["last"] = np.array(-1)
    if "int64[1,1] i" in text:
        weights["i"] = CONSTANTS["i"][:1]
    return Lowered("tiny", parse(text, weights))


def test_every_operator_of_the_table_has_a_graph() -> None:
    assert set(GRAPHS) == set(TRUTH_OPERANDS) | set(COUNT)


@pytest.mark.parametrize("name", GRAPHS)
def test_truth_values_are_moved_compared_and_reduced_as_numbers(name: str) -> None:
    text, ops = GRAPHS[name]
    outcome = verify_pass(LowerFlags(), lowered(text), tolerance=0.0)
    assert outcome.rewritten == 1
    assert ops_of(outcome.lowered.model) == ops


def test_inside_a_branch_they_are_written_there() -> None:
    text = """(bool c, bool[4] x, bool[4] u) => (bool[4] y) {
        y = If(c) <then_branch = a () => (bool[4] p) { p = Equal(x, u) },
                   else_branch = b () => (bool[4] q) { q = Not(x) }> }"""
    assert verify_pass(LowerFlags(), lowered(text), tolerance=0.0).rewritten == 1


@pytest.mark.parametrize(
    "graph",
    [
        "(int64[2,4] x, int64 last) => (int64[2,4] y) { y = CumSum(x, last) }",
        "(bool[2,frames] x, int64 last) => (int64[2,frames] y) { w = Cast<to = 7>(x)  y = CumSum(w, last) }",
        "(bool[2,16777216] x, int64 last) => (int64[2,16777216] y) { w = Cast<to = 7>(x)  y = CumSum(w, last) }",
        "(float[2,4] x, int64 last) => (float[2,4] y) { y = CumSum(x, last) }",
    ],
)
def test_sums_that_are_no_counts_or_may_be_too_large_stay(graph: str) -> None:
    given = lowered(graph)
    assert LowerFlags().apply(given).matched == 0


@pytest.mark.parametrize("name", [name for name in GRAPHS if name not in ("CumSum", "Pad")])
def test_over_numbers_they_stay(name: str) -> None:
    text, _ = GRAPHS[name]
    numbers = text.replace("bool[", "float[").replace("float[2,4] y) { y = Equal", "bool[2,4] y) { y = Equal")
    verify_untouched(LowerFlags(), lowered(numbers))
