"""The types that a graph plans, and layers that keep to them, do not, or do not show it."""

import numpy as np
import pytest

from compiler.build.verify.precision_plan import Audited, Kept, audit, broken, counts, planned_nodes
from compiler.graph.stages import Array
from compiler.targets.base import EngineLayer
from tests.kit.graphs import parse

TEXT = """(float16[2,4] x, float16[4,4] w, float[4,4] v, int8[4,4] c, float16 s, int8 z) => (float16[2,4] y) {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    e = DequantizeLinear(c, s, z)
    integers = MatMul(d, e)
    halves = MatMul(integers, w)
    f = Cast<to = 1>(halves)
    floats = MatMul(f, v)
    norm = Softmax(floats)
    t = Transpose(norm)
    h = Cast<to = 10>(t)
    k = Transpose(h)
    weights_alone = MatMul(k, e)
    y = Add(weights_alone, x)
}"""

WEIGHTS: dict[str, Array] = {
    "w": np.ones((4, 4), np.float16),
    "v": np.ones((4, 4), np.float32),
    "c": np.ones((4, 4), np.int8),
    "s": np.array(1, np.float16),
    "z": np.array(0, np.int8),
}

PLAN = planned_nodes(parse(TEXT, WEIGHTS))
NODES = {each.node.rpartition("_")[0]: each for each in PLAN}


def layer(
    *nodes: str,
    reads: tuple[str, ...] = (),
    holds: tuple[str, ...] = (),
    multiplies: bool = True,
    converts: bool = False,
) -> EngineLayer:
    names = frozenset(NODES[node].node for node in nodes)
    return EngineLayer("layer of " + nodes[0], names, multiplies, frozenset(reads), holds, frozenset(), converts)


KEPT = (
    layer("integers", reads=("int8",), holds=("int8",)),
    layer("halves", reads=("float16",), holds=("float16",)),
    layer("floats", reads=("float32",), holds=("float32",)),
    layer("norm", reads=("float32",), multiplies=False),
    layer("weights_alone", reads=("float16",), holds=("int8",)),
)


def test_products_are_planned_by_their_operands_and_others_only_where_they_stay_precise() -> None:
    assert {name: (each.type, each.is_product) for name, each in NODES.items()} == {
        "integers": ("int8", True),
        "halves": ("float16", True),
        "floats": ("float32", True),
        "norm": ("float32", False),
        "weights_alone": ("float16", True),
    }


def test_in_a_graph_of_one_type_products_alone_are_planned() -> None:
    model = parse("(float[2,4] x, float[4,4] w) => (float[2,4] y) { a = MatMul(x, w)  y = Softmax(a) }")
    assert [(each.op, each.type, each.has_weights) for each in planned_nodes(model)] == [("MatMul", "float32", False)]


def test_layers_that_keep_to_the_plan_are_counted_by_type() -> None:
    found = {kind: kept[Kept.YES] for kind, kept in counts(audit(PLAN, KEPT)).items()}
    assert found == {"int8": 1, "float16": 2, "float32": 2}


@pytest.mark.parametrize(
    ("node", "wrong", "types"),
    [
        ("integers", layer("integers", reads=("float16",), holds=("float16",)), ("float16",)),
        ("integers", layer("integers", reads=("float16",), holds=("int8",)), ("float16",)),
        ("halves", layer("halves", reads=("int8",), holds=("int8",)), ("int8",)),
        ("floats", layer("floats", reads=("float16",), holds=("float16",)), ("float16",)),
        ("norm", layer("norm", reads=("float16",), multiplies=False), ("float16",)),
    ],
)
def test_a_pin_that_is_broken_and_a_node_that_is_quantised_or_not_are_found(
    node: str, wrong: EngineLayer, types: tuple[str, ...]
) -> None:
    layers = [wrong if NODES[node].node in each.nodes else each for each in KEPT]
    (only,) = broken(audit(PLAN, layers))
    assert only == Audited(NODES[node], Kept.NO, types, (wrong.name,))
    assert str(only) == f"{NODES[node].node} ({NODES[node].op}) in {types[0]}"


def test_weights_of_several_products_in_one_layer_may_be_of_several_types() -> None:
    both = layer("halves", "floats", reads=("float16",), holds=("float32", "float16", "float16"))
    found = {each.planned.node: each.kept for each in audit(PLAN, [both])}
    assert found[NODES["halves"].node] is found[NODES["floats"].node] is Kept.YES
    alone = layer("halves", reads=("float16",), holds=("float16", "float32"))
    assert audit(PLAN, [alone])[1].kept is Kept.YES, "the smaller constant is a bias"


def test_a_node_inside_a_kernel_that_converts_is_not_shown_and_not_broken() -> None:
    inside = layer("norm", reads=("float16",), multiplies=False, converts=True)
    states = {each.planned.node: each.kept for each in audit(PLAN, [*KEPT[:3], inside, KEPT[4]])}
    assert states[NODES["norm"].node] is Kept.INSIDE
    assert not list(broken(audit(PLAN, [inside])))


def test_a_product_that_no_multiplying_layer_names_is_nowhere() -> None:
    moved = layer("halves", reads=("float16",), multiplies=False)
    found = {each.planned.node: each for each in audit(PLAN, [moved])}
    assert {each.kept for each in found.values()} == {Kept.NOWHERE}
    assert found[NODES["halves"].node].layers == ()
    hidden = layer("halves", reads=("float16",), multiplies=False, converts=True)
    assert audit(PLAN, [hidden])[1].kept is Kept.INSIDE, "more steps than its name has room for"
