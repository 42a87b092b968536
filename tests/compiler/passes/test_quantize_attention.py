"""quantize_attention: what is multiplied by caches runs on integers, and costs hardly anything of the results."""

import dataclasses

import pytest

from compiler.base.records.precision import TensorRange
from compiler.calib.noise import decibels
from compiler.calib.watched_streams import noise_between
from compiler.errors import Refused
from compiler.graph.runners.coded_states import codes_of
from compiler.graph.stages import Lowered
from compiler.passes.carry_codes import CarryCodes
from compiler.passes.lower_integers import LowerIntegers
from compiler.passes.pack_states import Stacked
from compiler.passes.quantize_attention import QuantizeAttention
from compiler.passes.quantize_static import QuantizeStatic
from tests.kit.calibration import FixedCalibration
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import copy_of, node_named, ops_of
from tests.kit.quantization import speech, streams


def test_contract() -> None:
    outcome = verify_pass(QuantizeAttention(sqnr_db=30.0), speech(), tolerance=0.1)
    assert (outcome.matched, outcome.rewritten) == (2, 2)
    ranges = {each.tensor: each for each in outcome.precision if isinstance(each, TensorRange)}
    assert {name: each.type for name, each in ranges.items()} == {
        "query": "uint8", "keys": "int8", "weights": "uint8", "next_past_whole": "int8",
    }  # fmt: skip
    assert "dB of results above their rounding" in outcome.detail


def test_keys_and_values_of_one_state_have_one_grid_and_the_state_carries_their_codes() -> None:
    graph = speech()
    rounded = QuantizeAttention(sqnr_db=30.0).apply(copy_of(graph)).lowered
    carried = CarryCodes().apply(copy_of(rounded))
    assert carried.rewritten == 1
    grid = codes_of(carried.lowered, "past")
    assert grid is not None
    assert (grid.zero, grid.signed) == (0, True)
    assert decibels(noise_between(graph, carried.lowered, streams(graph))["y"]) > 30.0


def test_with_weights_on_integers_nothing_is_multiplied_in_float() -> None:
    graph = speech()
    lowered = copy_of(graph)
    for each in (QuantizeAttention(sqnr_db=30.0), QuantizeStatic(pins=()), CarryCodes(), LowerIntegers()):
        lowered = each.apply(lowered).lowered
    ops = ops_of(lowered.model)
    assert ops.count("MatMulIntegerToFloat") == 7
    assert "MatMul" not in ops
    assert decibels(noise_between(graph, lowered, streams(graph))["y"]) > 25.0


def test_results_of_a_softmax_are_left_where_with_them_the_figure_is_missed() -> None:
    graph = speech()

    def distance(lowered: Lowered) -> float:
        maker = node_named(lowered.model, "mixed").inputs[0]
        return 0.5 if maker is not None and maker.name != "weights" else 0.0

    graph = dataclasses.replace(graph, calibration=FixedCalibration(streams(graph), distance))
    outcome = QuantizeAttention(sqnr_db=30.0).apply(copy_of(graph))
    assert (outcome.matched, outcome.rewritten) == (2, 1)
    assert "the task is 0.5000 from the original's, and 0.01 is allowed" in str(outcome.refused[0])
    assert "mixed_matmul" in str(outcome.refused[0])


def test_all_is_left_where_nothing_keeps_the_figure() -> None:
    outcome = verify_untouched(QuantizeAttention(sqnr_db=300.0), speech(), refused="its rounding leaves y")
    assert (outcome.matched, len(outcome.refused)) == (2, 2)


def test_packed_states_do_not_match() -> None:
    lowered = speech()
    packed = dataclasses.replace(lowered, state_maps=(*lowered.state_maps, Stacked((("past", ("one", "other")),))))
    assert verify_untouched(QuantizeAttention(sqnr_db=30.0), packed).matched == 0


def test_data_are_asked_for() -> None:
    with pytest.raises(Refused, match=r"data\.calibration"):
        QuantizeAttention(sqnr_db=30.0).apply(dataclasses.replace(speech(), calibration=None))
