"""What can be computed on integers."""

import numpy as np

from compiler.numerics.quantization.weighted_layers import find_layers, kinds_of, left_out, root_of
from tests.kit.graphs import node_named, parse, random_weights
from tests.kit.quantization import speech


def test_products_and_convolutions_with_constant_weights() -> None:
    graph = speech()
    layers = {layer.node.outputs[0].name: layer for layer in find_layers(graph.model)}
    assert set(layers) == {"slid", "projected", "expanded", "reduced", "query", "depth", "logits"}
    assert [node.op_type for node in layers["slid"].parts] == ["Conv", "Relu"]
    assert [node.op_type for node in layers["expanded"].parts] == ["MatMul", "Add"]
    assert layers["query"].bias is None and len(layers["query"].parts) == 1


def test_kinds() -> None:
    graph = speech()
    layers = find_layers(graph.model)
    names = {layer.name: layer.node.outputs[0].name for layer in layers}
    kinds = {names[name]: kind for name, kind in kinds_of(layers, ("y",)).items()}
    assert kinds == {"slid": "front", "depth": "depthwise", "logits": "output"}


def test_what_is_only_moved_has_the_root_of_what_it_is_moved_from() -> None:
    graph = speech()
    assert root_of(node_named(graph.model, "rows").outputs[0]).name == "lit"
    assert root_of(node_named(graph.model, "swish").outputs[0]).name == "swish"


def test_mean_outputs_are_those_of_the_node() -> None:
    for layer in find_layers(speech().model):
        means = np.arange(
            1, layer.weights.shape[1] * layer.groups + 1 if layer.is_convolution else len(layer.weights) + 1
        )
        found = layer.mean_output(layer.weights, means.astype(np.float64))
        if layer.is_convolution:
            taps = layer.weights.reshape(*layer.weights.shape[:2], -1).sum(axis=2)
            expected = [
                sum(taps[o, i] * means[i if layer.groups == 1 else o] for i in range(taps.shape[1]))
                for o in range(len(taps))
            ]
        else:
            expected = list(means @ layer.weights)
        assert np.allclose(found, expected)


def test_what_has_no_integer_form_is_named() -> None:
    text = """(float[batch,4] x, float[4,4] w) => (float[batch,4] y)
    { a = Gemm(x, w)  b = MatMul(a, w)  c = MatMul(b, a)  y = Relu(c) }"""
    model = parse(text.replace("MatMul(b, a)", "Mul(b, a)"), random_weights({"w": (4, 4)}))
    assert find_layers(model) == []
    assert [str(each.place.node) for each in left_out(model)] == ["a_gemm", "b_matmul"]
    assert "rank 2" in left_out(model)[1].reason
    assert left_out(speech().model) == []
