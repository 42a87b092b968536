"""What classes are chosen by is found on the way back from them."""

from compiler.calib.deciding_numbers import measured_on, with_deciding
from compiler.graph.stages import Lowered
from tests.kit.graphs import parse

TAGGED = """(float[2,4] x, int64[1] tokens)
    => (float[2,4] y, int64[2] labels, bool[2,4] loud, int64[1] next, int64[2] size)
    <float limit = {0.5}, int64[1] one = {1}> {
    y = Neg(x)  scores = Mul(x, y)  best = ArgMax<axis = 1, keepdims = 0>(scores)  labels = Add(best, one)
    level = Abs(y)  loud = Greater(level, limit)  next = Add(tokens, one)  size = Shape(scores) }"""


def test_a_class_is_measured_on_what_decides_it() -> None:
    assert measured_on(parse(TAGGED)) == {
        "y": ("y",),
        "labels": ("scores",),
        "loud": ("level",),
        "next": (),
        "size": (),
    }


def test_both_graphs_return_what_both_compute() -> None:
    first = Lowered("net", parse(TAGGED))
    second = Lowered("net", parse(TAGGED.replace("level", "other")))
    names = [[value.name for value in each.model.graph.outputs][5:] for each in with_deciding(first, second)]
    assert names == [["scores"], ["scores"]]
    plain = Lowered("net", parse("(float[2] x) => (float[2] y) { y = Neg(x) }"))
    assert with_deciding(plain) == (plain,)
