"""The checker accepts what holds and rejects every kind of tampering."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from compiler.checker import graph as graph_of_checker
from compiler.checker.check import check
from compiler.checker.graph import DoesNotRun, Rejected
from compiler.checker.replay import Replay
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.passes.pad_axes import PadAxes
from tests.compiler.passes.test_pad_axes_offline import ACCEPTED, WEIGHTS, graph
from tests.compiler.proof.rules.test_recurrence import network, weights
from tests.kit.agreement import lowered
from tests.kit.graphs import copy_of, streaming
from tests.kit.offline import offline
from tests.property.small_graphs import text_of

Proof = tuple[onnx.ModelProto, onnx.ModelProto, dict[str, Any]]


def proof_of(lowered: Lowered) -> Proof:
    """The graph before, the graph after and the certificate."""
    graphs.infer_shapes(lowered.model)
    before = ir.serde.serialize_model(graphs.clone(lowered.model))
    outcome = PadAxes().apply(lowered)
    after = ir.serde.serialize_model(outcome.lowered.model)
    return before, after, json.loads(json.dumps(outcome.records[0]))


def attention() -> Proof:
    return proof_of(offline(graph(ACCEPTED["attention"][0]), WEIGHTS))


GRAPHS: dict[str, Callable[[], Proof]] = {
    **{
        name: lambda body=body: proof_of(offline(graph(body), WEIGHTS))  # type: ignore[misc]
        for name, (body, _) in ACCEPTED.items()
        if "rows_only" not in body
    },
    "a stream": lambda: proof_of(copy_of(streaming())),
    "a stream that computes its mask": lambda: proof_of(copy_of(streaming(mask_input=None))),
    "a stream with two caches": lambda: proof_of(copy_of(streaming(two_caches=True, lookup="last"))),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_certificate_that_holds_is_accepted(name: str) -> None:
    before, after, certificate = GRAPHS[name]()
    assert check(before, after, certificate) == len(certificate["records"])


def _record(certificate: dict[str, Any], op: str) -> dict[str, Any]:
    return next(record for record in certificate["records"] if record["op"] == op)


def _node(model: onnx.ModelProto, op: str) -> onnx.NodeProto:
    found: onnx.NodeProto = next(node for node in model.graph.node if node.op_type == op)
    return found


def _drop_fill(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    fill = next(node for node in after.graph.node if node.op_type == "Where")
    for node in after.graph.node:
        for at, name in enumerate(node.input):
            if name == fill.output[0]:
                node.input[at] = fill.input[1]


def _change_fill(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    for tensor in after.graph.initializer:
        if tensor.name.startswith("padding"):
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(3.0, np.float32), tensor.name))


def _shift_mask(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    _node(after, "Less").op_type = "LessOrEqual"


def _invert_mask(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    node = _node(after, "Less")
    node.input[0], node.input[1] = node.input[1], node.input[0]


def _remove_record(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    certificate["records"].remove(_record(certificate, "Softmax"))


def _double_record(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    certificate["records"].append(copy.deepcopy(_record(certificate, "Softmax")))


def _tighten_input(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    for content in certificate["records"][0]["in"][0]["contents"]:
        if content[0]:
            content[1:] = [0.0, 0.0, False]


def _tighten_output(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    fact = _record(certificate, "Softmax")["out"][0]
    for content in fact["contents"]:
        content[1:] = [0.0, 0.0, False]


def _forget_nan(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    fact = _record(certificate, "MatMul")["out"][0]
    for content in fact["contents"]:
        if content[0]:
            content[1:] = [-1.0, 1.0, False]


def _swap_side(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    certificate["sides"]["time"] = "right"


def _change_size(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    fact = _record(certificate, "Softmax")["out"][0]
    fact["axes"]["2"] = [{"frames": [["time - 1", "left"]]}]


def _move_axis(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    fact = _record(certificate, "Transpose")["out"][0]
    fact["axes"] = {"0": fact["axes"]["0"], "1": fact["axes"]["2"]}


def _replace_operator(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    _node(after, "Softmax").op_type = "LogSoftmax"


def _change_attribute(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    _node(after, "Softmax").attribute[0].i = 1


def _rewire(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    last = after.graph.node[-1]
    last.input[0] = next(node for node in after.graph.node if node.op_type == "Where").output[0]


def _forget_need(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    _record(certificate, "Softmax")["needs"].clear()


def _unknown_operand(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    _record(certificate, "Softmax")["inputs"][0] = "nothing"


def _claim_a_number(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    _record(certificate, "Softmax")["in"][0]["number"] = True


def _hostile_size(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    _record(certificate, "Softmax")["out"][0]["axes"]["2"] = [{"frames": [["__import__('os')", "left"]]}]


TAMPERED = [
    _drop_fill, _change_fill, _shift_mask, _invert_mask, _remove_record, _double_record, _tighten_input,
    _tighten_output, _forget_nan, _swap_side, _change_size, _move_axis, _replace_operator, _change_attribute, _rewire,
    _forget_need, _unknown_operand, _claim_a_number, _hostile_size,
]  # fmt: skip


@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda tamper: tamper.__name__.strip("_"))
def test_tampering_is_rejected(tamper: Callable[[onnx.ModelProto, dict[str, Any]], None]) -> None:
    before, after, certificate = attention()
    tamper(after, certificate)
    with pytest.raises(Rejected):
        check(before, after, certificate)


@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda tamper: tamper.__name__.strip("_"))
def test_tampering_is_rejected_although_every_run_survived_before(
    tamper: Callable[[onnx.ModelProto, dict[str, Any]], None],
) -> None:
    before, after, certificate = attention()
    survived = set[bytes]()
    check(before, after, certificate, survived=survived)
    tamper(after, certificate)
    with pytest.raises(Rejected):
        check(before, after, certificate, survived=survived)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_certificate_that_was_checked_before_runs_nothing_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after, certificate = GRAPHS[name]()
    survived, compared = set[bytes](), list[str]()
    monkeypatch.setattr(Replay, "_compare", lambda self, record, *_, **__: compared.append(record["node"]))
    check(before, after, certificate, survived=survived)
    count = len(compared)
    assert count == 2 * len(survived) > 0
    assert check(before, after, certificate, survived=survived) == len(certificate["records"])
    assert len(compared) == count


ALWAYS_NONE = """n = Shape<start = 1, end = 2>(x)  d = Mul(n, two)  k = Mod(d, by)  f = Cast<to = 1>(k)
    y = Add(x, f)"""


def test_a_number_that_lengths_change_is_no_constant() -> None:
    text = (
        f"(float[batch,time,8] x) => (float[p,q,r] y) <int64[1] two = {{2}}, int64[1] by = {{2}}> {{ {ALWAYS_NONE} }}"
    )
    before, after, certificate = proof_of(offline(text))
    assert "f" in [name for record in certificate["records"] for name in record["inputs"]]
    check(before, after, certificate)
    for model in (before, after):
        (by,) = [each for each in model.graph.initializer if each.name == "by"]
        by.CopyFrom(numpy_helper.from_array(np.array([3]), "by"))
    with pytest.raises(Rejected, match="may be anything, not within"):
        check(before, after, certificate)


COUNTED = "s = Shape(x)  o = Expand(single, s)  n = ReduceSum(o, lasttwo)  k = Add(n, half)  y = Mul(x, k)"


def test_a_sum_over_frames_of_the_only_row_changes_with_lengths() -> None:
    """Without a batch nothing tells that it is data; what is made of sizes alone is none."""
    before, after, certificate = proof_of(lowered(text_of(COUNTED, "float[1,time,4] x"), batch=None))
    check(before, after, certificate)
    _record(certificate, "Shape")["out"][0]["number"] = False
    with pytest.raises(Rejected, match="changes with the lengths"):
        check(before, after, certificate)


def test_what_stops_within_the_lengths_that_are_certified_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(self: Replay, record: object) -> None:
        raise DoesNotRun("modulo by zero")

    monkeypatch.setattr(Replay, "replay", stopped)
    with pytest.raises(Rejected, match="does not run at all that are certified: modulo by zero"):
        check(*attention())


def test_positions_are_counted_from_where_the_record_says() -> None:
    before, after, certificate = proof_of(offline(graph(ACCEPTED["causal attention"][0]), WEIGHTS))
    counting = [fact for record in certificate["records"] for fact in [*record["in"], *record["out"]] if fact]
    counting = [fact for fact in counting if "index" in fact]
    assert counting
    for fact in counting:
        fact["index"]["offset"] = "1"
    with pytest.raises(Rejected, match="does not count positions from 1"):
        check(before, after, certificate)


def test_an_output_that_nothing_reads_may_go() -> None:
    """The final state of a network that another form computes."""
    text = network("LSTM", "forward", "q = Transpose<perm = [2, 0, 1, 3]>(o)  y = Reshape(q, flat)")
    given = offline(text.replace("-1, 6", "-1, 3"), weights("LSTM", "forward"))
    before, after, certificate = proof_of(given)
    assert check(before, after, certificate) == len(certificate["records"])
    _record(certificate, "LSTM")["out"][0]["axes"].pop("0")
    with pytest.raises(Rejected):
        check(before, after, certificate)


def test_a_step_in_the_middle_is_replayed_although_others_look_like_it() -> None:
    body = "a = Softmax<axis = 1>(x)  b = Softmax<axis = 1>(a)  y = Softmax<axis = 1>(b)"
    before, after, certificate = proof_of(offline(graph(body)))
    fills = [node for node in after.graph.node if node.op_type == "Where"]
    assert len(fills) == 3
    check(before, after, certificate)
    node = next(node for node in after.graph.node if fills[1].output[0] in node.input)
    node.input[0] = fills[1].input[1]
    with pytest.raises(Rejected, match="row"):
        check(before, after, certificate)


def _read_between(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    chain = next(each for each in certificate["records"] if "chain" in each)
    chain["chain"].pop(1)


def _tell_twice(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    records = certificate["records"]
    records[0]["chain"] = [records[0]["node"], records[1]["node"]]


def _end_early(after: onnx.ModelProto, certificate: dict[str, Any]) -> None:
    chain = next(each for each in certificate["records"] if "chain" in each)
    chain["chain"].pop()


@pytest.mark.parametrize("tamper", [_read_between, _tell_twice, _end_early])
def test_a_chain_that_is_none_is_rejected(tamper: Callable[[onnx.ModelProto, dict[str, Any]], None]) -> None:
    before, after, certificate = GRAPHS["scores by distance"]()
    tamper(after, certificate)
    with pytest.raises(Rejected):
        check(before, after, certificate)


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_every_node_of_a_chain_is_what_it_was(at: int) -> None:
    before, after, certificate = GRAPHS["scores by distance"]()
    (record,) = [each for each in certificate["records"] if "chain" in each]
    node = next(each for each in after.graph.node if each.name == record["chain"][at])
    node.input[0] = record["inputs"][0] if at else "x"
    with pytest.raises(Rejected, match="and no need says so"):
        check(before, after, certificate)


def test_the_checker_shares_nothing_with_the_prover() -> None:
    imports = [
        line
        for path in Path(graph_of_checker.__file__).parent.glob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith(("import ", "from "))
    ]
    assert len(imports) > 20
    foreign = [line for line in imports if "compiler" in line and not line.startswith("from compiler.checker")]
    assert foreign == [] and not any("onnx_ir" in line for line in imports)


@pytest.mark.parametrize("number", [5, 30, 1001])
@pytest.mark.parametrize("test", ["Equal", "Greater"])
def test_what_changes_at_one_length_is_no_constant(test: str, number: int) -> None:
    """The certificate says that a number is the same for all lengths; it changes at one, or from one on."""
    text = f"""(float[batch,time,4] x) => (float[batch,time,4] y)
        <int64[1] special = {{{number}}}, int64[1] unit = {{1}}, int64[1] two = {{2}}>
        {{ n = Shape<start = 1, end = 2>(x)  e = {test}(n, special)  g = Where(e, two, unit)  f = Cast<to = 1>(g)
           y = Mul(x, f) }}"""
    before, after, certificate = proof_of(offline(text))
    check(before, after, certificate)
    constant = {"axes": {}, "contents": [[[], "-inf", "inf", True]]}
    told = {each["op"]: each for each in certificate["records"]}
    told["Where"]["out"] = [constant]
    told["Cast"]["in"] = told["Cast"]["out"] = [constant]
    told["Mul"]["in"][1], told["Mul"]["needs"] = constant, []
    with pytest.raises(Rejected, match="changes with the lengths"):
        check(before, before, certificate)


@pytest.mark.parametrize("body", [
    "h = Div(m, two)  s = Slice(z, h, m, one)  y = Relu(s)",
    "h = Neg(m)  k = Mod(h, two)  a = Concat<axis = 0>(nothing, k, none)  y = Pad(z, a)",
])  # fmt: skip
def test_sizes_that_both_programs_share_are_computed(body: str) -> None:
    """Drawn at random, they would cut or add as many entries as no program does."""
    before, after, certificate = proof_of(
        offline(f"""(float[batch,time,4] x, float[batch,other,4] z) => (float[batch,time,4] w, float[p,q,r] y)
            <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[4] nothing = {{0, 0, 0, 0}}, int64[1] none = {{0}}>
            {{ w = Relu(x)  m = Shape<start = 1, end = 2>(z)  {body} }}""")
    )
    check(before, after, certificate)


def test_what_all_rows_share_is_told_in_front_of_what_reads_it() -> None:
    """The normalization is written first, as it gives every row its own; its record stands behind its input's."""
    text = """(float[batch,time,4] x, float[1,time,4] z) => (float[batch,time,4] w, float[p,q,r] y)
        <float[4] ones = {1.0, 1.0, 1.0, 1.0}>
        { w = Relu(x)  c = Transpose<perm = [0, 2, 1]>(z)  n = InstanceNormalization(c, ones, ones)
          y = Transpose<perm = [0, 2, 1]>(n) }"""
    before, after, certificate = proof_of(offline(text))
    told = [each["op"] for each in certificate["records"]]
    assert told == ["Relu", "Transpose", "InstanceNormalization", "Transpose"]
    check(before, after, certificate)


def test_a_length_below_one_entry_is_rejected_before_anything_runs() -> None:
    before, after, certificate = attention()
    certificate["minimum"]["time"] = 0
    with pytest.raises(Rejected, match="'time' is said to be as short as 0, and lengths begin at 1"):
        check(before, after, certificate)
