"""Grids chosen by what the error does behind the weights."""

import dataclasses

import numpy as np
import pytest

from compiler.calib.histogram import Histogram, Table
from compiler.numerics.quantization.plans import make_plans, ranges_chosen
from compiler.numerics.quantization.recording import inputs_of, record
from compiler.numerics.quantization.weighted_layers import find_layers
from compiler.targets import placements
from tests.kit.quantization import SHAPES, speech, streams

CPU = placements()["cpu"]


def planned(**changes: np.ndarray):  # type: ignore[no-untyped-def]  # noqa: ANN201
    graph = speech(changes)
    layers = find_layers(graph.model)
    table = record(graph, inputs_of(layers), streams(graph))
    return {str(layer.node.outputs[0].name): layer for layer in layers}, make_plans(layers, table, CPU), table


def test_one_grid_for_what_is_only_moved() -> None:
    layers, plans, _ = planned()
    assert plans[layers["slid"].name].result == plans[layers["projected"].name].data
    assert plans[layers["expanded"].name].result is None


@pytest.mark.parametrize("heeded", [False, True])
def test_an_outlier_is_clipped_when_the_weights_do_not_heed_it(heeded: bool) -> None:
    """The same tensor is cut or kept by what its consumer makes of the outlier."""
    graph = speech()
    (layer,) = [each for each in find_layers(graph.model) if each.name == "expanded_matmul"]
    weights = np.random.default_rng(0).standard_normal(SHAPES["expand"]).astype(np.float32)
    weights[3] = 10.0 if heeded else 0.0
    rows = np.random.default_rng(1).standard_normal((100, 8)).astype(np.float32)
    rows[50, 3] = 60.0
    histogram = Histogram(-1)
    histogram.add(rows)
    table = Table({"normed@-1": histogram}, 1)
    plan = make_plans([dataclasses.replace(layer, weights=weights)], table, CPU)[layer.name]
    assert (plan.data.high > 55.0) == heeded, plan.data_range


def test_the_correction_makes_the_mean_error_vanish() -> None:
    layers, plans, table = planned()
    for name in ("expanded", "reduced", "logits"):
        layer, plan = layers[name], plans[layers[name].name]
        rows = table.tensors[f"{layer.data.name}@-1"].rows.astype(np.float64)
        rounded = plan.data.rounded(rows.astype(np.float32)) @ plan.weights.rounded
        missed = (rows @ layer.weights - rounded).mean(axis=0)
        assert plan.correction == pytest.approx(missed, abs=1e-5)
        assert np.abs(missed).max() > 1e-4  # there is something to correct


def test_signed_placement_has_no_zero_point() -> None:
    graph = speech()
    layers = find_layers(graph.model)
    table = record(graph, inputs_of(layers), streams(graph))
    plans = make_plans(layers, table, placements()["tensorrt"])
    assert {(plan.data.type, plan.data.zero_point, plan.result) for plan in plans.values()} == {("int8", 0, None)}


def test_ranges_are_told_for_data_and_weights() -> None:
    layers, plans, table = planned()
    told = {each.tensor: each for each in ranges_chosen(list(layers.values()), plans, table)}
    assert told["normed"].type == "uint8" and told["normed"].channels == 1
    assert 0.0 <= told["normed"].clipped < 0.05
    assert told["expand"].channels == SHAPES["expand"][1] and told["expand"].type == "int8"
    assert "lit" in told
