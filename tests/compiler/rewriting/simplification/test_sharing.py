"""sharing: equal to the bit, and never what is drawn."""

from compiler.passes.simplify import simplify_model
from tests.kit.graphs import ops_of, parse


def test_a_drawn_number_is_drawn_again() -> None:
    text = """(float[n] x) => (float[n] y) <float[4] half = {0.5, 0.5, 0.5, 0.5}>
        { a = Bernoulli(x)  b = Bernoulli(x)  c = Bernoulli(half)  d = RandomUniform<shape = [1]>()
        e = RandomUniform<shape = [1]>()  f = Add(a, b)  g = ReduceMax(c)  h = Add(d, e)  i = Add(f, g)
        y = Add(i, h) }"""
    model = parse(text)
    simplify_model(model)
    assert sorted(ops_of(model)).count("Bernoulli") == 3 and ops_of(model).count("RandomUniform") == 2


def test_operators_of_other_domains_may_have_a_state() -> None:
    model = parse("(float[2] x) => (float[2] y) { a = com.acme.Next(x)  b = com.acme.Next(x)  y = Sub(a, b) }")
    simplify_model(model)
    assert ops_of(model) == ["Next", "Next", "Sub"]
