"""quantize_static: 8-bit integers with fixed grids."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.base.records.precision import Pin, TensorRange
from compiler.build.lowering.certificates import replay_certificates
from compiler.calib.watched_streams import noise_between
from compiler.errors import GateFailed, Refused
from compiler.graph.runners.structure import is_same
from compiler.graph.stages import Lowered
from compiler.passes import quantize_static
from compiler.passes.quantize_static import QuantizeStatic
from tests.kit.calibration import FixedCalibration
from tests.kit.contract import verify_pass
from tests.kit.graphs import copy_of, node_named, ops_of
from tests.kit.quantization import speech, streams


def test_contract_with_everything_on_integers() -> None:
    """Rows alone and in a batch agree to the bit, as they do for any poison in padded slots."""
    graph = speech()
    outcome = verify_pass(QuantizeStatic(pins=()), graph, tolerance=0.2)
    assert outcome.rewritten == outcome.matched == 7
    assert replay_certificates(graph, outcome) == len(outcome.records[0]["records"]) > 30


def test_default_pins_stay_and_say_why() -> None:
    outcome = QuantizeStatic().apply(copy_of(speech()))
    pins = {each.node: each.reason for each in outcome.precision if isinstance(each, Pin)}
    assert set(pins) == {"slid_conv", "depth_conv", "logits_matmul"} and outcome.rewritten == 4
    ranges = {each.tensor: each for each in outcome.precision if isinstance(each, TensorRange)}
    assert {"normed", "swish", "rows", "r"} <= set(ranges)
    assert "24 calls" in outcome.detail


def test_layers_are_ranked_only_where_the_task_minds_them_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantize_static, "sensitivities", None)
    graph = speech()
    everything = QuantizeStatic(pins=()).apply(copy_of(graph))
    content = dataclasses.replace(graph, calibration=FixedCalibration(streams(graph), lambda _: 0.001))
    told = QuantizeStatic(pins=()).apply(copy_of(content))
    assert is_same(told.lowered.model, everything.lowered.model)
    assert told.detail == f"{everything.detail}, task 0.0010 from the original's in 1 evaluations"


def test_the_task_decides_what_stays() -> None:
    def distance(lowered: Lowered) -> float:
        return 0.4 if ops_of(lowered.model).count("QuantizeLinear") > 3 else 0.0

    graph = speech()
    graph = dataclasses.replace(graph, calibration=FixedCalibration(streams(graph), distance))
    outcome = QuantizeStatic(pins=()).apply(copy_of(graph))
    kept = [each for each in outcome.precision if isinstance(each, Pin)]
    assert kept and all("the task allows 0.01" in each.reason and each.cost is not None for each in kept)
    assert outcome.rewritten + len(kept) == 7
    assert "dB predicted" in outcome.detail
    assert distance(outcome.lowered) == 0.0


def test_a_task_that_nothing_satisfies_is_refused() -> None:
    graph = speech()
    graph = dataclasses.replace(graph, calibration=FixedCalibration(streams(graph), lambda _: 0.3))
    with pytest.raises(Refused, match=r"got 0\.3 at best"):
        QuantizeStatic().apply(copy_of(graph))


def test_random_caches_calibrate_worse() -> None:
    """Why streams are chained: with states drawn at random, grids fit numbers that no call has."""
    graph = speech()
    generator = np.random.default_rng(0)
    outcome = QuantizeStatic(pins=()).apply(copy_of(graph))
    loud = [[{name: (8 * generator.standard_normal(array.shape)).astype(np.float32) for name, array in feed.items()}
             for feed in stream] for stream in streams(graph)]  # fmt: skip
    other = QuantizeStatic(pins=()).apply(dataclasses.replace(copy_of(graph), calibration=FixedCalibration(loud)))
    assert noise(graph, outcome.lowered) * 2 < noise(graph, other.lowered)


def noise(exact: Lowered, rounded: Lowered) -> float:
    return noise_between(exact, rounded, streams(exact))["y"]


def test_without_calibration_data_it_is_refused() -> None:
    with pytest.raises(Refused, match=r"data\.calibration"):
        QuantizeStatic().apply(dataclasses.replace(speech(), calibration=None))


def test_a_first_call_of_its_own_is_refused() -> None:
    # regression: streams were run without it, as if they began with a later call
    with pytest.raises(Refused, match="one for the first call"):
        QuantizeStatic().apply(dataclasses.replace(speech(), first_call=speech().model))


def test_unknown_options() -> None:
    with pytest.raises(Refused, match="pins of"):
        QuantizeStatic(pins=("first",)).apply(copy_of(speech()))


def test_the_checker_replays_the_proof_on_the_graph_that_ships() -> None:
    graph = speech()
    outcome = QuantizeStatic(pins=()).apply(copy_of(graph))
    gate = node_named(outcome.lowered.model, "gate")
    gate.op_type = "Softmax"
    gate.attributes["axis"] = ir.AttrInt64("axis", 0)
    with pytest.raises(GateFailed, match="a certificate that holds"):
        replay_certificates(graph, outcome)
