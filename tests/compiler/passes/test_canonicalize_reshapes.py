"""canonicalize_reshapes: targets copy what they keep, so that no length is written into them."""

import pytest

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.passes.canonicalize_reshapes import CanonicalizeReshapes
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import node_named, ops_of, parse


def lowered_of(text: str) -> Lowered:
    return Lowered("tiny", parse(text), batch_axis="batch")


COMPUTED = """(float[batch,6,4] x) => (float[batch,6,2,2] y)
<int64[3] tail = {6, 2, 2}>
{
    rows = Shape<start = 0, end = 1>(x)
    target = Concat<axis = 0>(rows, tail)
    y = Reshape(x, target)
}"""


def test_a_computed_target_becomes_copies() -> None:
    outcome = verify_pass(CanonicalizeReshapes(), lowered_of(COMPUTED), tolerance=0.0)
    assert ops_of(outcome.lowered.model) == ["Reshape"]
    target = graphs.array_of(node_named(outcome.lowered.model, "y").inputs[1])
    assert target is not None
    assert target.tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize(
    ("inputs", "target", "expected"),
    [
        ("batch,6,4", "0, -1, 2", [0, 12, 2]),
        ("batch,6,4", "-1, 4", [-1, 4]),
        ("batch,6,4", "0, 0, 2, -1", [0, 0, 2, 2]),
        ("1,6,4", "1, 6, 2, 2", [0, 0, 2, 2]),
        ("batch,6,4", "0, 4, 6", [0, 4, 6]),
    ],
)
def test_targets(inputs: str, target: str, expected: list[int]) -> None:
    rank = target.count(",") + 1
    text = f"(float[{inputs}] x) => (float[{','.join('d' + str(i) for i in range(rank))}] y) "
    outcome = CanonicalizeReshapes().apply(
        lowered_of(text + f"<int64[{rank}] t = {{{target}}}> {{ y = Reshape(x, t) }}")
    )
    got = graphs.array_of(node_named(outcome.lowered.model, "y").inputs[1])
    assert got is not None
    assert got.tolist() == expected


def test_a_target_that_is_written_well_stays() -> None:
    text = "(float[batch,6,4] x) => (float[batch,6,2,2] y) <int64[4] t = {0, 0, 2, 2}> { y = Reshape(x, t) }"
    verify_untouched(CanonicalizeReshapes(), lowered_of(text))


def test_two_dimensions_that_cannot_be_copied_are_reported() -> None:
    text = "(float[batch,6,4] x, int64[3] t) => (float[a,b,c] y) { y = Reshape(x, t) }"
    outcome = verify_untouched(CanonicalizeReshapes(), lowered_of(text), refused="more than copies and one inferred")
    (refusal,) = outcome.refused
    assert (refusal.place.op, refusal.place.source) == ("Reshape", "tiny.py:1 in forward: Reshape")


def test_zeros_that_mean_empty_are_not_read_as_copies() -> None:
    text = "(float[0,6] x) => (float[6,0] y) <int64[2] t = {6, 0}> { y = Reshape<allowzero = 1>(x, t) }"
    outcome = verify_pass(CanonicalizeReshapes(), Lowered("tiny", parse(text)), tolerance=0.0, steps=1)
    target = graphs.array_of(node_named(outcome.lowered.model, "y").inputs[1])
    assert target is not None
    assert target.tolist() == [6, -1]
