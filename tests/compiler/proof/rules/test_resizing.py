"""Entries added to padded frames."""

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.proof.facts.facts import Fill
from compiler.proof.facts.interval import ANYTHING, ZERO
from tests.compiler.passes.test_pad_axes_offline import CHANNELS, WEIGHTS, graph
from tests.kit.judged import attack, check, integers
from tests.kit.offline import offline, verify_offline
from tests.kit.soundness import Node, Operand, constant

ACCEPTED = [
    CHANNELS + "y = Pad(c, pads, half)",
    CHANNELS + "y = Pad(c, front)",
]


@pytest.mark.parametrize("body", ACCEPTED)
def test_padded_rows_are_as_alone(body: str) -> None:
    verify_offline(offline(graph(body), WEIGHTS), tolerance=1e-4)


SHEET = "0: rows(batch), 1: [time, left], 2: [late + 2, left]"


def padded(rng: np.random.Generator) -> Node:
    """One Pad of frames that are valid behind or in front, by any mode; it may cut entries off."""
    right = ["cache"] if rng.integers(0, 2) else []
    size = right[0] if right else str(rng.choice(["time", "2*time"]))
    frames = Operand(("batch", 2, size), padding=ANYTHING if rng.integers(0, 3) else ZERO)
    mode = str(rng.choice(["constant", "edge", "reflect", "wrap"]))
    begin, end = (int(each) for each in rng.integers(-2, 4, 2))
    value = [constant(float(rng.choice([0.0, 1.5])))] if mode == "constant" else []
    operands = [frames, integers(0, 0, begin, 0, 0, end), *value]
    return Node(
        "Pad", operands, {"mode": mode}, right=right, least={"time": 5, "cache": 5}, most={"time": 9, "cache": 9}
    )


def blocked(rng: np.random.Generator) -> Node:
    """One DepthToSpace or SpaceToDepth along frames."""
    op = str(rng.choice(["DepthToSpace", "SpaceToDepth"]))
    size = str(rng.choice(["time", "2*time", "2*time - 1", "4*(time//4)"]))
    shape: tuple[int | str, ...] = ("batch", 4, size, 4) if rng.random() < 0.7 else ("batch", 4, 2, size)
    if rng.random() < 0.2:
        shape = ("batch", "4*time", 2, 2)
    frames = Operand(shape, padding=ANYTHING if rng.integers(0, 2) else ZERO)
    return Node(op, [frames], {"blocksize": 2}, right=["time"] if rng.random() < 0.2 else [])


def test_a_pad_behind_one_of_two_padded_axes_fills_that_one() -> None:
    sheet = Operand(("batch", "time", "late"))
    verdict = check(Node("Pad", [sheet, integers(0, 0, 0, 0, 0, 2)]), "IX13", SHEET)
    assert verdict.needs == (Fill(0, 2, 0.0),)


def test_frames_that_are_padded_up_to_a_number_are_filled_and_have_no_length_any_more() -> None:
    text = """(float[batch,time,4] x) => (float[batch,12,4] y)
        <int64[1] all = {12}, int64[3] none = {0, 0, 0}, int64[1] zero = {0}, float half = {0.5}>
        { n = Shape<start = 1, end = 2>(x)  more = Sub(all, n)
        pads = Concat<axis = 0>(none, zero, more, zero)  y = Pad(x, pads, half) }"""
    verify_offline(offline(text), tolerance=1e-6)


def test_random_blocks_are_sound_or_refused() -> None:
    attack(blocked, 30, 12)


def test_random_pads_are_sound_or_refused() -> None:
    attack(padded, 60, 25)


def test_a_table_is_padded_by_what_the_shortest_length_has_too_little() -> None:
    text = """(float[batch,time,4] x) => (float[batch,time,4] y)
        <float[1,3,4] table = {1, -2, 3, -1, 2, 5, 7, 0, 1, 2, 3, 4},
        int64[1] one = {1}, int64[1] three = {3}, int64[1] none = {0}, int64[1] last = {2}>
        { n = Shape<start = 1, end = 2>(x)  d = Sub(n, three)  more = Max(d, none)
        pads = Concat<axis = 0>(none, more, none, none, more, none)  p = Pad(table, pads)
        q = Transpose<perm = [0, 2, 1]>(p)  scores = MatMul(x, q)  best = ReduceMax(scores, last)  y = Mul(x, best) }"""
    outcome = verify_offline(offline(text), tolerance=1e-4)
    assert [axis.minimum for axis in outcome.lowered.padded_axes] == [3]


REPEATED = """(float[batch,time,4] x) => (float[batch,half,4] y)
    <int64[1] none = {0}, int64[1] two = {2}, int64[1] axis = {2}, int64[4] pairs = {0, -1, 2, 4}>
    { n = Shape<start = 1, end = 2>(x)  less = Neg(n)  rest = MORE
    pads = Concat<axis = 0>(none, none, none, none, rest, none)  p = Pad<mode = "MODE">(x, pads)
    z = Reshape(p, pairs)  y = ReduceMean<keepdims = 0>(z, axis) }"""


def test_the_last_frame_of_every_row_is_repeated_until_their_number_is_even() -> None:
    verify_offline(offline(REPEATED.replace("MORE", "Mod(less, two)").replace("MODE", "edge")), tolerance=1e-6)


@pytest.mark.parametrize(("more", "mode"), [("Mod(less, two)", "reflect"), ("Sub(two, n)", "edge")])
def test_other_borders_of_as_many_entries_as_the_length_says_are_refused(more: str, mode: str) -> None:
    with pytest.raises(Refused, match=f"Pad by {mode} of 0 and .* entries"):
        verify_offline(offline(REPEATED.replace("MORE", more).replace("MODE", mode)))


def test_more_than_the_entries_joined_behind_frames_is_not_cut_off() -> None:
    text = """(float[batch,time,4] x, float[batch,3,4] tail) => (float[batch,4] y)
        <int64[1] axis = {1}, int64[6] pads = {0, 0, 0, 0, -5, 0}>
        { c = Concat<axis = 1>(x, tail)  p = Pad(c, pads)  y = ReduceMax<keepdims = 0>(p, axis) }"""
    with pytest.raises(Refused, match="Pad cuts 0 and -5 entries off"):
        verify_offline(offline(text), shortest=4)
