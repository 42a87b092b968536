"""lower_elu: no Elu behind loops."""

import pytest

from compiler.graph.stages import Lowered
from compiler.passes.lower_elu import LowerElu
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import ops_of, parse, random_weights

RECURRENT = """(float[3,2,4] x, float[1,12,4] w, float[1,12,4] r) => (float[3,1,2,4] y) {
    h = GRU<hidden_size = 4>(x, w, r)  a = Elu(h)  y = Elu<alpha = 0.5>(a) }"""


HALVES = ("Min", "Exp", "Sub")


def lowered(text: str) -> Lowered:
    return Lowered("tiny", parse(text, random_weights({"w": (1, 12, 4), "r": (1, 12, 4)})))


def test_both_of_two_behind_a_recurrence_are_written_otherwise() -> None:
    outcome = verify_pass(LowerElu(), lowered(RECURRENT), tolerance=1e-6)
    assert outcome.rewritten == 2
    assert ops_of(outcome.lowered.model) == ["GRU", *HALVES, "Relu", "Add", *HALVES, "Mul", "Relu", "Add"]


@pytest.mark.parametrize("text", ["(float[2,4] x) => (float[2,4] y) { a = Elu(x)  y = Elu(a) }"])
def test_without_a_loop_they_stay(text: str) -> None:
    verify_untouched(LowerElu(), lowered(text))
