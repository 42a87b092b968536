"""Quantised layers in a graph."""

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.session import open_session
from compiler.graph.runners.stream import Runner
from compiler.graph.stages import Lowered
from compiler.numerics.quantization.plans import make_plans
from compiler.numerics.quantization.recording import inputs_of, record
from compiler.numerics.quantization.weighted_layers import find_layers
from compiler.numerics.quantization.writer import Writer
from compiler.passes.freeze_axes import FreezeAxes
from compiler.targets import placements
from compiler.targets.tensorrt.lint import lint
from compiler.targets.tensorrt.rule import DeviceLimits
from tests.kit.graphs import ops_of
from tests.kit.quantization import speech, streams


def written(placement: str = "cpu", names: frozenset[str] | None = None) -> tuple[Lowered, Lowered]:
    graph = speech()
    layers = find_layers(graph.model)
    table = record(graph, inputs_of(layers), streams(graph))
    plans = make_plans(layers, table, placements()[placement])
    copy = dataclasses.replace(graph, model=graphs.clone(graph.model))
    chosen = [layer for layer in find_layers(copy.model) if names is None or layer.node.outputs[0].name in names]
    Writer(copy.model, "quantize_static", placements()[placement], plans).write(chosen)
    graphs.infer_shapes(copy.model)
    return graph, copy


@pytest.mark.parametrize("placement", ["cpu", "tensorrt"])
def test_results_are_near_and_not_the_same(placement: str) -> None:
    graph, quantised = written(placement)
    exact, rounded = runner_of(graph), runner_of(quantised)
    signal = noise = 0.0
    for feed in streams(graph)[1]:
        a, b = exact.step(feed)["y"], rounded.step(feed)["y"]
        signal, noise = signal + float(np.square(a).sum()), noise + float(np.square(a - b).sum())
    assert 20 < 10 * np.log10(signal / noise) < 70


def test_nothing_is_left_of_the_real_weights() -> None:
    _, quantised = written()
    kinds = {str(name): value.dtype for name, value in quantised.model.graph.initializers.items()}
    assert not {"expand", "reduce", "front", "kernel", "wq"} & set(kinds)
    assert ops_of(quantised.model).count("MatMul") == 7  # five of weights, two of attention


def test_what_several_read_is_rounded_once() -> None:
    _, quantised = written()
    made = [node for node in quantised.model.graph if node.op_type == "QuantizeLinear"]
    assert len(made) == len({node.inputs[0] for node in made})


def test_the_runtime_computes_every_site_on_integers(tmp_path: Path) -> None:
    _, quantised = written()
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(graphs.serialized(quantised.model), options, providers=["CPUExecutionProvider"])
    ops = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert ops.count("MatMulIntegerToFloat") == 5 and ops.count("QLinearConv") == 2
    assert ops.count("MatMul") + ops.count("FusedMatMul") == 2 and not {"Conv", "Gemm", "FusedConv"} & set(ops)


def test_some_sites_only() -> None:
    _, quantised = written(names=frozenset({"expanded"}))
    assert ops_of(quantised.model).count("QuantizeLinear") == 1


def test_switches_choose_between_both_forms() -> None:
    graph, quantised = written(names=frozenset({"expanded"}))
    layers = find_layers(graph.model)
    table = record(graph, inputs_of(layers), streams(graph))
    copy = dataclasses.replace(graph, model=graphs.clone(graph.model))
    plans = make_plans(layers, table, placements()["cpu"])
    switches = Writer(copy.model, "probe", placements()["cpu"], plans).write_switched(find_layers(copy.model))
    session = open_session(graphs.serialized(copy.model))
    feed = streams(graph)[0][0]
    off = {name: np.array(False) for name in switches.values()}
    one = off | {switches["expanded_matmul"]: np.array(True)}
    mixed = {key: Runner(copy, session).step({**feed, **each})["y"] for key, each in (("off", off), ("one", one))}
    assert np.allclose(mixed["off"], runner_of(graph).step(feed)["y"], atol=1e-6)
    assert np.allclose(mixed["one"], runner_of(quantised).step(feed)["y"], atol=1e-5)
    assert not np.allclose(mixed["one"], mixed["off"], atol=1e-5)


def test_tensorrt_takes_what_is_written_for_it_and_not_what_is_written_for_cpus() -> None:
    rules: dict[str, set[str]] = {}
    for placement in ("tensorrt", "cpu"):
        _, quantised = written(placement)
        frozen = FreezeAxes((("batch", 1),)).apply(quantised).lowered.model
        rules[placement] = {violation.rule for violation in lint(frozen, DeviceLimits((7, 5), 20))}
    assert rules["tensorrt"] == set() and rules["cpu"]
