"""The attack finds what a wrong padding shows, and nothing where the padding is right."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph.stages import PaddedAxis
from tests.kit.graphs import parse
from tests.zoo.family import BATCH, Given
from tests.zoo.measure import Attack, Run, WrongSize, runs

INPUTS = {
    "x": Given((BATCH, "time", 2)),
    "ids": Given((BATCH, "time"), "int64", below=3),
    "mask": Given((BATCH, "time"), "int64", mask_of="time"),
}
AXIS = PaddedAxis("time", "time_length", mask_inputs=("mask",))
TABLE = {"table": np.array([[1, 2], [3, 4], [5, 7]], np.float32)}
ORIGINAL = """(float[batch,time,2] x, int64[batch,time] ids, int64[batch,time] mask, float[3,2] table)
    => (float[batch,halved,2] y, float[batch,2] mean)
    <int64[1] one = {1}, int64[1] zero = {0}, int64[1] end = {9223372036854775807}, int64[1] two = {2}>
    {
        rows = Gather(table, ids)
        both = Add(x, rows)
        y = Slice(both, zero, end, one, two)
        mean = ReduceMean<keepdims = 0>(both, one)
    }"""
PADDED = """(float[batch,time,2] x, int64[batch,time] ids, int64[batch] time_length, float[3,2] table)
    => (float[batch,halved,2] y, float[batch,2] mean)
    <int64[1] one = {1}, int64[1] zero = {0}, int64[1] end = {9223372036854775807}, int64[1] two = {2},
     int64 first = {0}, int64 step = {1}, float nothing = {0}>
    {
        rows = Gather(table, ids)
        both = Add(x, rows)
        y = Slice(both, zero, end, one, two)
        slots = Shape<start = 1, end = 2>(x)
        number = Squeeze(slots)
        places = Range(first, number, step)
        lengths = Unsqueeze(time_length, one)
        valid = Less(places, lengths)
        wide = Unsqueeze(valid, two)
        filled = Where(wide, both, nothing)
        summed = ReduceSum<keepdims = 0>(filled, one)
        divisor = Cast<to = 1>(lengths)
        mean = Div(summed, divisor)
    }"""
MUTANTS = {
    "padding is summed": ("ReduceSum<keepdims = 0>(filled", "ReduceSum<keepdims = 0>(both"),
    "mask one too long": ("Less(places", "LessOrEqual(places"),
    "mask is multiplied": ("Where(wide, both, nothing)", "Mul(both, wide_f)  wide_g = Identity(wide_f)"),
    "divided by slots": ("Cast<to = 1>(lengths)", "Cast<to = 1>(slots)"),
    "rows mix": ("mean = Div(summed, divisor)", "own = Div(summed, divisor) mean = Softmax<axis = 0>(own)"),
}


def padded(change: tuple[str, str] = ("", "")) -> ir.Model:
    text = PADDED.replace(*change) if change[0] else PADDED
    return parse(text.replace("filled = Mul", "wide_f = Cast<to = 1>(wide) filled = Mul"), TABLE)


def attack(model: ir.Model) -> Attack:
    return Attack(parse(ORIGINAL, TABLE), model, INPUTS, [AXIS])


def batches() -> list[Run]:
    return list(runs([AXIS], {"time": 9}, np.random.default_rng(0)))


def test_a_right_padding_is_sound() -> None:
    found = attack(padded()).measure(batches())
    assert found.is_sound
    assert found.error < 1e-6
    assert found.changed == 0
    assert found.compared > 100


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_padding_is_found(name: str) -> None:
    found = attack(padded(MUTANTS[name])).measure(batches())
    assert not found.is_sound, f"{name}: {found}"


def test_what_lies_in_the_padding_changes_bits_of_a_leaking_graph() -> None:
    assert attack(padded(MUTANTS["mask is multiplied"])).measure(batches()).changed > 0


def test_a_wrong_formula_is_named() -> None:
    model = padded()
    model.graph.outputs[0].shape = ir.Shape([BATCH, "floor(time/2)", 2])
    with pytest.raises(WrongSize, match=r"y has shape \(4, 5, 2\), its formula .*floor.* says \(4, 4, 2\)"):
        attack(model).measure(batches())


def test_runs_hold_the_smallest_and_the_largest_length() -> None:
    limited = dataclasses.replace(AXIS, minimum=3, maximum=11)
    found = list(runs([limited], {"time": 9}, np.random.default_rng(0)))
    assert [each.slots["time"] for each in found] == [9, 11, 11]
    lengths = [row["time"] for each in found for row in each.lengths]
    assert min(lengths) == 3
    assert max(lengths) <= 11
    assert found[0].lengths[1]["time"] == 9
