"""What quantising one layer alone does to the outputs."""

import dataclasses
import os

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.numerics.quantization.plans import make_plans
from compiler.numerics.quantization.recording import inputs_of, record
from compiler.numerics.quantization.sensitivity import sensitivities
from compiler.numerics.quantization.weighted_layers import find_layers
from compiler.numerics.quantization.writer import Writer
from compiler.targets import placements
from tests.kit.quantization import speech, streams

CPU = placements()["cpu"]


def test_losses_are_those_of_graphs_with_one_site_quantised() -> None:
    graph = speech()
    layers = find_layers(graph.model)
    plans = make_plans(layers, record(graph, inputs_of(layers), streams(graph)), CPU)
    losses = sensitivities(graph, plans, CPU, streams(graph), calls=12)
    assert set(losses) == {layer.name for layer in layers}
    for name in ("expanded_matmul", "logits_matmul"):
        copy = dataclasses.replace(graph, model=graphs.clone(graph.model))
        Writer(copy.model, "q", CPU, plans).write([layer for layer in find_layers(copy.model) if layer.name == name])
        exact, rounded = runner_of(graph), runner_of(copy)
        outputs = [(exact.step(feed)["y"], rounded.step(feed)["y"]) for feed in streams(graph)[0]]
        expected = sum(np.square(a - b).sum() for a, b in outputs) / sum(np.square(a).sum() for a, _ in outputs)
        assert losses[name] == pytest.approx(expected, rel=0.05)


def test_losses_add_up() -> None:
    graph = speech()
    layers = find_layers(graph.model)
    plans = make_plans(layers, record(graph, inputs_of(layers), streams(graph)), CPU)
    losses = sensitivities(graph, plans, CPU, streams(graph), calls=12)
    copy = dataclasses.replace(graph, model=graphs.clone(graph.model))
    Writer(copy.model, "q", CPU, plans).write(find_layers(copy.model))
    exact, rounded = runner_of(graph), runner_of(copy)
    outputs = [(exact.step(feed)["y"], rounded.step(feed)["y"]) for feed in streams(graph)[0]]
    together = sum(np.square(a - b).sum() for a, b in outputs) / sum(np.square(a).sum() for a, _ in outputs)
    assert 0.5 < together / sum(losses.values()) < 2.0


@pytest.mark.parametrize("cores", [1, 3])
def test_losses_do_not_depend_on_the_number_of_cores(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    graph = speech()
    layers = find_layers(graph.model)
    plans = make_plans(layers, record(graph, inputs_of(layers), streams(graph)), CPU)
    here = sensitivities(graph, plans, CPU, streams(graph))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert sensitivities(graph, plans, CPU, streams(graph)) == here
    assert list(here) == [layer.name for layer in layers]
