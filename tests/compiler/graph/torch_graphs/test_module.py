"""module: a static graph exported from torch answers as the graph does, chunk after chunk."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.torch_graphs.module import NODE, GraphModule, example_inputs, export_module
from compiler.passes.freeze_axes import FreezeAxes
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from tests.kit.graphs import copy_of, parse, streaming
from tests.kit.whole_sequences import session


def frozen_stream() -> ir.Model:
    lowered = streaming()
    for made in (PadAxes(), WindowStates(), FreezeAxes((("batch", 1),))):
        lowered = made.apply(copy_of(lowered)).lowered
    return lowered.model


def test_an_exported_stream_answers_as_the_graph() -> None:
    model = frozen_stream()
    exported = torch.export.export(GraphModule(model, "net"), example_inputs(model))
    draw, runs = np.random.default_rng(5), session(model)
    for _ in range(3):
        feeds = {}
        for value, example in zip(model.graph.inputs, example_inputs(model), strict=True):
            numbers = draw.standard_normal(tuple(example.shape))
            feeds[str(value.name)] = np.abs(numbers).astype(example.numpy().dtype)
        got = exported.module()(*(torch.from_numpy(feeds[str(value.name)]) for value in model.graph.inputs))
        for one, other in zip(runs.run(None, feeds), got, strict=True):
            np.testing.assert_allclose(other.numpy(), one, rtol=1e-5, atol=1e-5)


def test_the_weights_are_buffers_and_the_graph_is_not_changed() -> None:
    model = parse("(float[2,3] x) => (float[2,3] y) <float[3] w = {1, 2, 3}> { y = Add(x, w) }")
    before = graphs.serialized(model)
    module = GraphModule(model, "net")
    (weight,) = module.buffers()
    weight.zero_()
    assert module(torch.ones(2, 3))[0].sum() == 6.0
    assert graphs.serialized(model) == before


def test_a_graph_of_open_sizes_is_refused() -> None:
    with pytest.raises(Refused, match="a static target needs numbers"):
        GraphModule(parse("(float[n,3] x) => (float[n,3] y) { y = Relu(x) }"), "net")


def test_all_operators_that_are_missing_are_named() -> None:
    model = parse("(float[4] x) => (float[4] y) { a = Atan(x) b = Acosh(a) y = Atan(b) }")
    with pytest.raises(Refused, match="graph net: expected operators that torch computes, got Acosh, Atan;"):
        GraphModule(model, "net")


def test_a_program_names_the_node_of_every_operator(tmp_path: Path) -> None:
    model = parse("(float[1,4] x) => (float[1,2] y) { a, b = Split<axis = 1, num_outputs = 2>(x)  y = Add(a, b) }")
    export_module(model, "net", tmp_path / "net.pt2")
    operators = [each for each in torch.export.load(tmp_path / "net.pt2").graph.nodes if each.op == "call_function"]
    assert [(str(each.target), each.meta["custom"][NODE]) for each in operators] == [
        ("aten.slice.Tensor", "a_split"),
        ("aten.slice.Tensor", "a_split"),
        ("aten.add.Tensor", "y_add"),
    ]


def test_a_weight_of_full_size_is_handed_on_as_it_is() -> None:
    text = "(float[2,3] x) => (float[2,3] y) <float[3] w = {1, 2, 3}> { y = LayerNormalization<axis = -1>(x, w) }"
    model = parse(text)
    exported = torch.export.export(GraphModule(model, "net"), example_inputs(model))
    assert "expand" not in str(exported.graph)


def test_constants_that_are_named_are_trained() -> None:
    text = """(float[2,3] x) => (float[2,3] y) <float[3] w = {1, 2, 3}, float[3] b = {0, 0, 0}>
        { h = Mul(x, w)  y = Add(h, b) }"""
    module = GraphModule(parse(text), "net", trained=["w"])
    assert list(module.trained) == ["w"] and [*module.parameters()] == [module.trained["w"]]
    module(torch.full((2, 3), 2.0))[0].sum().backward()
    assert module.trained["w"].grad is not None and module.trained["w"].grad.tolist() == [4.0, 4.0, 4.0]
