"""smooth_channels: scales moved from data into weights."""

import dataclasses

import numpy as np
import pytest

from compiler.calib.watched_streams import noise_between
from compiler.errors import Refused
from compiler.graph.runners.choose import runner_of
from compiler.graph.stages import Lowered
from compiler.passes.quantize_static import QuantizeStatic
from compiler.passes.smooth_channels import SmoothChannels
from tests.kit.graphs import copy_of, parse
from tests.kit.quantization import SHAPES, speech, streams


def uneven() -> Lowered:
    gamma = np.ones(SHAPES["gamma"], np.float32)
    gamma[2], gamma[5] = 40.0, 0.1
    expand = np.random.default_rng(3).standard_normal(SHAPES["expand"]).astype(np.float32)
    expand[2] /= 40.0
    return speech({"gamma": gamma, "expand": expand})


def test_not_a_bit_of_any_output_changes() -> None:
    graph = uneven()
    outcome = SmoothChannels().apply(copy_of(graph))
    assert outcome.matched == outcome.rewritten == 1
    before, after = runner_of(graph), runner_of(outcome.lowered)
    for feed in streams(graph)[0]:
        got, expected = after.step(feed), before.step(feed)
        assert {name: array.tobytes() for name, array in got.items()} == {
            name: array.tobytes() for name, array in expected.items()
        }


def test_int8_loses_less_afterwards() -> None:
    graph = uneven()
    only = QuantizeStatic(pins=(), keep_float=("s*", "p*", "r*", "q*", "d*", "l*"))
    plain = only.apply(copy_of(graph)).lowered
    equal = only.apply(SmoothChannels().apply(copy_of(graph)).lowered).lowered
    assert noise_between(graph, equal, streams(graph))["y"] * 2 < noise_between(graph, plain, streams(graph))["y"]


def test_a_second_time_nothing_is_left_to_do() -> None:
    once = SmoothChannels().apply(copy_of(uneven())).lowered
    assert SmoothChannels().apply(copy_of(once)).rewritten == 0


def test_a_normalisation_that_others_read_stays() -> None:
    text = """(float[batch,2,4] x, float[4] g, float[4] b, float[4,4] w) => (float[batch,2,4] y)
    { n = LayerNormalization(x, g, b)  p = MatMul(n, w)  y = Add(p, n) }"""
    weights = {"g": np.array([1, 50, 1, 1], np.float32), "b": np.zeros(4, np.float32), "w": np.eye(4, dtype=np.float32)}
    outcome = SmoothChannels().apply(Lowered("tiny", parse(text, weights), batch_axis="batch"))
    assert outcome.matched == outcome.rewritten == 0 and "read by more" in str(outcome.refused[0])


def test_without_calibration_data_it_is_refused() -> None:
    with pytest.raises(Refused, match=r"data\.calibration"):
        SmoothChannels().apply(dataclasses.replace(uneven(), calibration=None))


def test_a_first_call_of_its_own_is_refused() -> None:
    # regression: streams were run without it, as if they began with a later call
    with pytest.raises(Refused, match="one for the first call"):
        SmoothChannels().apply(dataclasses.replace(uneven(), first_call=uneven().model))
