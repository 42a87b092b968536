"""canonicalize_transposes: swapping the last two axes needs no merged leading axis."""

import pytest

from compiler.graph.stages import Lowered
from compiler.passes.canonicalize_transposes import CanonicalizeTransposes
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import ops_of, parse

CHAIN = """(float[batch,2,6,4] x) => (float[batch,2,4,6] y)
<int64[3] merged = {-1, 6, 4}, int64[4] parted = {-1, 2, 4, 6}>
{
    a = Reshape(x, merged)
    b = Transpose<perm = [0, 2, 1]>(a)
    c = Reshape(b, parted)
    y = Relu(c)
}"""


def lowered_of(text: str) -> Lowered:
    return Lowered("tiny", parse(text), batch_axis="batch")


def test_the_chain_becomes_one_transpose() -> None:
    outcome = verify_pass(CanonicalizeTransposes(), lowered_of(CHAIN), tolerance=0.0, steps=1)
    assert ops_of(outcome.lowered.model) == ["Transpose", "Relu"]


def test_a_chain_that_ends_in_an_output_keeps_the_output_name() -> None:
    text = CHAIN.replace("c = Reshape", "y = Reshape").replace("y = Relu(c)", "")
    verify_pass(CanonicalizeTransposes(), lowered_of(text), tolerance=0.0, steps=1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("perm = [0, 2, 1]", "perm = [1, 0, 2]"),
        ("parted = {-1, 2, 4, 6}", "parted = {-1, 2, 6, 4}"),
        ("y = Relu(c)", "d = Reshape(b, parted)  y = Add(c, d)"),
        ("merged = {-1, 6, 4}", "merged = {-1, 4, 6}"),
    ],
    ids=["another transpose", "another target", "middle read twice", "not a merge"],
)
def test_other_chains_stay(old: str, new: str) -> None:
    assert verify_untouched(CanonicalizeTransposes(), lowered_of(CHAIN.replace(old, new))).matched == 0
