"""Records of the TensorRT linter: a finding takes the rule's name and its node's place."""

from compiler.targets.tensorrt.rule import Breach, DeviceLimits, every_node, is_inner
from tests.compiler.targets.tensorrt.planted import branch
from tests.kit.graphs import node_named, parse


def test_a_violation_says_rule_place_what_and_cure() -> None:
    node = node_named(parse("(float[2] x) => (float[2] y) { y = Relu(x) }"), "y")
    violation = Breach("expected a, got b", "write a", node, node.inputs[0]).named("some-rule")
    assert str(violation) == (
        "[some-rule] node y_relu, op Relu, tensor x, source tiny.py:1 in forward: Relu: expected a, got b; write a"
    )
    assert str(Breach("expected a, got b", "write a").named("r")) == "[r] expected a, got b; write a"


def test_nodes_of_branches_are_seen_and_known_as_inner() -> None:
    model = branch("p", "q").model()
    seen = {node.op_type: is_inner(model, node) for node in every_node(model)}
    assert seen == {"If": False, "Neg": True, "Relu": True}


def test_the_device_is_named_as_the_vendor_names_it() -> None:
    assert DeviceLimits((7, 5), 24).device == "sm_75"
