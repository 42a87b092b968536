"""explained_rounding: what rounding explains depends on the type, and on how badly a section is conditioned."""

import numpy as np
import pytest

from compiler.build.verify.explained_rounding import ExplainedError, Rounding, is_counted, rounding_of
from compiler.calib.noise import rms
from compiler.graph.runners.forced_values import TeacherForcedRuns
from compiler.graph.runners.stream import OriginalCall
from compiler.graph.stages import Lowered
from tests.kit.graphs import node_named, parse

CANCELLING = "(float[1,64] x) => (float[1,64] d) <float big = {1000.0}> { s = Add(x, big) d = Sub(s, big) }"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(float[2] x) => (float[2] y) { y = Relu(x) }", Rounding.FLOAT32),
        ("(float16[2] x) => (float16[2] y) { y = Relu(x) }", Rounding.FLOAT16),
        ("(bfloat16[2] x) => (bfloat16[2] y) { y = Relu(x) }", Rounding.BFLOAT16),
        ("(float[2] x, float s, uint8 z) => (uint8[2] y) { y = QuantizeLinear(x, s, z) }", Rounding.INT8),
        ("(int4[2] x, float s, int4 z) => (float[2] y) { y = DequantizeLinear(x, s, z) }", Rounding.INT4),
        ("(bool[2] x) => (uint8[2] y) { y = Cast<to = 2>(x) }", Rounding.FLOAT32),
    ],
)
def test_a_region_rounds_as_its_coarsest_type(text: str, expected: Rounding) -> None:
    assert rounding_of([node_named(parse(text, opset=21), "y")]) is expected


def explained(rounding: Rounding) -> dict[str, float]:
    lowered = Lowered("net", parse(CANCELLING))
    feed = {"x": np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)}
    measured = ExplainedError(lowered, {"s": rounding, "d": rounding}, ["s", "d"])
    for forced_run in TeacherForcedRuns(lowered, lowered, ["s", "d"]).run([OriginalCall(feed, {}, {})]):
        measured.measure(forced_run)
    return {name: measured.of(name, 1.0) for name in ("s", "d")}


def test_cancellation_is_explained() -> None:
    assert explained(Rounding.FLOAT16)["d"] > 0.1, "2^-11 of a thousand is left in a difference of about one"
    assert explained(Rounding.FLOAT32)["d"] < 1e-2
    assert explained(Rounding.INT8)["d"] > explained(Rounding.FLOAT16)["d"] / 100


def test_noise_of_whole_numbers_goes_by_the_range() -> None:
    array = np.zeros(1000, np.float32)
    array[0] = 255.0
    off = Rounding.INT8.noise(array, np.random.default_rng(0)) - array
    assert 0.4 < np.max(np.abs(off)) <= 0.5 + 1e-6
    assert rms(Rounding.FLOAT32.noise(array, np.random.default_rng(0)) - array) < 1e-4
    assert rms(np.array([3.0, 4.0])) == pytest.approx(np.sqrt(12.5))


@pytest.mark.parametrize("rounding", list(Rounding))
def test_what_masks_fill_with_tells_nothing(rounding: Rounding) -> None:
    array = np.array([1.0, np.inf, -3.4e38, 65504.0, np.nan], np.float32)
    off = rounding.noise(array, np.random.default_rng(0))
    assert off[0] != 1.0
    assert off[1:].tobytes() == array[1:].tobytes()
    assert is_counted(array).tolist() == [True, False, False, False, False]
