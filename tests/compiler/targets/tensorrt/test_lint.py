"""The linter of the TensorRT target: every rule finds its violation, only its own, and all are found at once."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.targets.tensorrt import lint as linter
from compiler.targets.tensorrt.lint import RULES, Unbuildable, lint, require_buildable
from tests.compiler.targets.tensorrt.planted import PLANTED, STAYS, T4, Case
from tests.kit.graphs import parse

NAMES = [rule.name for rule in RULES]

COMPANIONS = {
    "domain": set(),
    "tensors-only": {"operator"},
    "known-type": {"domain"},
    "topk-k": set(),
    "scale-lengths": set(),
    "quantized-type": {"uint8-border"},
    "scale-blocks": {"scale-channels", "weight-axis"},
    "both-halves": set(),
}
"""Rules that the same graph must break as well."""


def test_every_rule_has_a_planted_violation() -> None:
    assert sorted(PLANTED) == sorted(NAMES)
    assert len(set(NAMES)) == len(NAMES)


def test_rules_that_stay_against_a_builder_are_rules() -> None:
    assert set(STAYS) <= set(NAMES)


@pytest.mark.parametrize("rule", NAMES)
def test_a_planted_violation_is_found_by_its_rule_with_node_and_cure(rule: str) -> None:
    found = PLANTED[rule][0].found()
    mine = [violation for violation in found if violation.rule == rule]
    assert mine, f"{rule} found nothing: {found}"
    assert {violation.rule for violation in found} - {rule} <= COMPANIONS.get(rule, set())
    for violation in mine:
        assert violation.message.startswith("expected ")
        assert ", got " in violation.message
        assert violation.cure
        if rule != "opset":
            assert violation.place.node or violation.place.tensor


@pytest.mark.parametrize("rule", NAMES)
def test_the_nearest_graph_that_keeps_the_rule_is_clean(rule: str) -> None:
    assert PLANTED[rule][1].found() == ()


@pytest.mark.parametrize("rule", NAMES)
def test_no_other_rule_stands_in_for_a_dropped_one(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linter, "RULES", tuple(each for each in RULES if each.name != rule))
    assert rule not in {violation.rule for violation in PLANTED[rule][0].found()}
    assert {violation.rule for violation in PLANTED[rule][0].found()} <= COMPANIONS.get(rule, set())


MANY = """(float[batch,4] x, double[4] wide, uint8[4] bytes, int64[1] at, int64[1] k,
    int8[4,4] w, float[4] ws, int8[4] wz, float[3] few, int8[3] three, float zero, int8 one, float16[4] half)
    => (float[batch,4] y, float[4] n)
{
    foreign = com.acme.Norm(x)
    bits = BitShift<direction = "LEFT">(bytes, bytes)
    there = Identity(at)
    summed = ReduceSum(x, there)
    total = CumSum(x, there)
    best, index = TopK<sorted = 0>(x, k)
    best_of, index_of = TopK(x, k)
    mixed = Add(x, half)
    unit = Unique(x)
    dead = Det(x)
    none = NonZero(x)
    q = QuantizeLinear(x, zero, one)
    d = DequantizeLinear(q, zero, one)
    soft = Softmax(d)
    dw = DequantizeLinear<axis = 0>(w, ws, wz)
    product = MatMul(d, dw)
    dv = DequantizeLinear<axis = 1>(w, few, three)
    again = MatMul(x, dv)
    lone = QuantizeLinear(x, zero)
    n = Identity(wide)
    y = Relu(mixed)
}"""


def test_all_violations_of_a_graph_are_found_in_one_run_with_their_lines() -> None:
    weights = {
        "k": np.array([4000]), "w": np.full((4, 4), -128, np.int8), "ws": np.full(4, 0.1, np.float32),
        "wz": np.zeros(4, np.int8), "few": np.full(3, -1, np.float32), "three": np.zeros(3, np.int8),
        "zero": np.array(0, np.float32), "one": np.array(1, np.int8), "half": np.ones(4, np.float16),
        "wide": np.ones(4, np.float64),
    }  # fmt: skip
    model = parse(MANY, weights)
    with pytest.raises(Unbuildable) as caught:
        require_buildable([model], T4, "many")
    found = caught.value.violations
    expected = {
        ("domain", "foreign"), ("operator", "bits"), ("constant-operand", "summed"), ("cumsum-axis", "total"),
        ("topk-sorted", "best"), ("topk-k", "best_of"), ("same-types", "mixed"), ("operator", "unit"),
        ("operator", "dead"), ("scale", "q"), ("zero-point", "q"), ("float-only", "soft"), ("weight-axis", "dw"),
        ("weight-range", "dw"), ("scale-channels", "dv"), ("scale", "dv"), ("quantized-type", "lone"),
        ("both-halves", "lone"), ("data-size", "none"),
    }  # fmt: skip
    got = {(violation.rule, violation.place.node.rsplit("_", 1)[0]) for violation in found}
    assert len(expected) >= 15
    assert expected <= got
    assert {("profile", "x"), ("element-type", "wide")} <= {(v.rule, v.place.tensor) for v in found}
    lines = {v.place.node.rsplit("_", 1)[0]: v.place.source for v in found if v.place.node}
    assert lines["summed"].startswith("tiny.py:4 ")
    text = str(caught.value)
    assert all(f"[{violation.rule}]" in text and violation.place.node in text for violation in found)
    assert isinstance(caught.value, Refused)
    assert caught.value.exit_code == 3
    assert caught.value.place.graph == "many"


def test_violations_that_buckets_share_are_said_once() -> None:
    model = Case("(float[2] x) => (double[2] y) { y = Cast<to = 11>(x) }").model()
    with pytest.raises(Unbuildable) as caught:
        require_buildable([model, model], T4, "same")
    assert len(caught.value.violations) == len(lint(model, T4)) == 1


def test_clean_graphs_are_let_through() -> None:
    require_buildable([keeping.model() for _, keeping in PLANTED.values() if keeping.open_axis is None], T4, "clean")


def test_limits_of_the_device_and_of_the_parser_are_asked() -> None:
    model = Case("(float[2] x) => (float[2] y) { y = Relu(x) }", opset=20).model()
    assert [v.rule for v in lint(model, dataclasses.replace(T4, opset=19))] == ["opset"]


def without_shapes(model: ir.Model) -> Iterator[ir.Model]:
    copy = model.clone()
    for node in copy.graph:
        for value in node.outputs:
            value.shape = None
    yield copy


def without_types(model: ir.Model) -> Iterator[ir.Model]:
    copy = model.clone()
    for node in copy.graph:
        for value in node.outputs:
            value.type = None
    yield copy


def without_an_operand(model: ir.Model) -> Iterator[ir.Model]:
    for at, node in enumerate(model.graph):
        for index in range(len(node.inputs)):
            copy = model.clone()
            copy.graph[at].replace_input_with(index, None)
            yield copy


def with_an_odd_constant(model: ir.Model) -> Iterator[ir.Model]:
    for name in model.graph.initializers:
        for shape in ((0,), (), (3,), (1, 3), (2, 2, 2)):
            copy = model.clone()
            value = copy.graph.initializers[name]
            assert value.dtype is not None
            value.const_value = ir.tensor(np.ones(shape, value.dtype.numpy()), name=name)
            value.shape = ir.Shape(shape)
            yield copy


@pytest.mark.parametrize("change", [without_shapes, without_types, without_an_operand, with_an_odd_constant])
@pytest.mark.parametrize("rule", NAMES)
def test_no_graph_makes_the_linter_stumble(change: Callable[[ir.Model], Iterator[ir.Model]], rule: str) -> None:
    for case in PLANTED[rule]:
        for changed in change(case.model()):
            for violation in lint(changed, T4):
                assert str(violation)
