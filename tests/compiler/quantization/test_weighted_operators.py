"""What can be computed on integers."""

import numpy as np

from compiler.quantization.weighted_operators import find_sites, kinds_of, left_out, root_of
from tests.kit.graphs import node_named, parse, random_weights
from tests.kit.quantization import speech


def test_products_and_convolutions_with_constant_weights() -> None:
    graph = speech()
    sites = {site.node.outputs[0].name: site for site in find_sites(graph.model)}
    assert set(sites) == {"slid", "projected", "expanded", "reduced", "query", "depth", "logits"}
    assert [node.op_type for node in sites["slid"].parts] == ["Conv", "Relu"]
    assert [node.op_type for node in sites["expanded"].parts] == ["MatMul", "Add"]
    assert sites["query"].bias is None and len(sites["query"].parts) == 1


def test_kinds() -> None:
    graph = speech()
    sites = find_sites(graph.model)
    names = {site.name: site.node.outputs[0].name for site in sites}
    kinds = {names[name]: kind for name, kind in kinds_of(sites, ("y",)).items()}
    assert kinds == {"slid": "front", "depth": "depthwise", "logits": "output"}


def test_what_is_only_moved_has_the_root_of_what_it_is_moved_from() -> None:
    graph = speech()
    assert root_of(node_named(graph.model, "rows").outputs[0]).name == "lit"
    assert root_of(node_named(graph.model, "swish").outputs[0]).name == "swish"


def test_mean_outputs_are_those_of_the_node() -> None:
    for site in find_sites(speech().model):
        means = np.arange(1, site.weights.shape[1] * site.groups + 1 if site.is_convolution else len(site.weights) + 1)
        found = site.mean_output(site.weights, means.astype(np.float64))
        if site.is_convolution:
            taps = site.weights.reshape(*site.weights.shape[:2], -1).sum(axis=2)
            expected = [
                sum(taps[o, i] * means[i if site.groups == 1 else o] for i in range(taps.shape[1]))
                for o in range(len(taps))
            ]
        else:
            expected = list(means @ site.weights)
        assert np.allclose(found, expected)


def test_what_has_no_integer_form_is_named() -> None:
    text = """(float[batch,4] x, float[4,4] w) => (float[batch,4] y)
    { a = Gemm(x, w)  b = MatMul(a, w)  c = MatMul(b, a)  y = Relu(c) }"""
    model = parse(text.replace("MatMul(b, a)", "Mul(b, a)"), random_weights({"w": (4, 4)}))
    assert find_sites(model) == []
    assert [str(each.place.node) for each in left_out(model)] == ["a_gemm", "b_matmul"]
    assert "rank 2" in left_out(model)[1].reason
    assert left_out(speech().model) == []
