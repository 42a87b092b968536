"""fuse_gelu: the error function of a GELU, in every order of its factors, and what only looks like one."""

import pytest

from compiler.graph.stages import Lowered
from compiler.passes.fuse_gelu import FuseGelu
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import ops_of, parse

HEAD = """(float[2,8] x, float[2,8] z) => (float[2,8] y)
    <float root = {1.4142135}, float inverse = {0.70710677}, float one = {1}, float half = {0.5}, float two = {2}> {
    s = Neg(z)  """


def lowered(body: str) -> Lowered:
    return Lowered("tiny", parse(HEAD + body + " }", {}))


FORMS = [
    "q = Div(s, root)  e = Erf(q)  a = Add(e, one)  m = Mul(s, a)  y = Mul(m, half)",
    "q = Mul(s, inverse)  e = Erf(q)  a = Add(one, e)  m = Mul(a, s)  y = Mul(half, m)",
    "q = Div(s, root)  e = Erf(q)  a = Add(e, one)  h = Mul(s, half)  y = Mul(h, a)",
    "q = Div(s, root)  e = Erf(q)  a = Add(e, one)  h = Mul(a, half)  y = Mul(h, s)",
    "q = Div(s, root)  e = Erf(q)  a = Add(e, one)  m = Mul(s, a)  y = Div(m, two)",
]


@pytest.mark.parametrize("body", FORMS)
def test_every_order_of_the_factors_is_one_operator(body: str) -> None:
    outcome = verify_pass(FuseGelu(), lowered(body), tolerance=1e-6)
    assert (outcome.matched, outcome.rewritten) == (1, 1)
    assert ops_of(outcome.lowered.model) == ["Neg", "Gelu"]


@pytest.mark.parametrize(
    "body",
    [
        FORMS[0].replace("Div(s, root)", "Div(s, two)"),
        FORMS[0].replace("Add(e, one)", "Add(e, half)"),
        FORMS[0].replace("Mul(m, half)", "Mul(m, two)"),
        FORMS[0].replace("Mul(s, a)", "Mul(x, a)"),
        FORMS[3].replace("Mul(h, s)", "Mul(h, x)"),
        "q = Div(s, root)  y = Erf(q)",
        "y = Erf(s)",
    ],
)
def test_other_numbers_and_other_data_stay(body: str) -> None:
    verify_untouched(FuseGelu(), lowered(body))


def test_what_else_reads_the_error_function_keeps_it() -> None:
    body = "q = Div(s, root)  e = Erf(q)  a = Add(e, one)  m = Mul(s, a)  g = Mul(m, half)  y = Add(g, e)"
    outcome = verify_pass(FuseGelu(), lowered(body), tolerance=1e-6)
    assert ops_of(outcome.lowered.model) == ["Neg", "Div", "Erf", "Gelu", "Add"]
