"""Random graphs of the rule table: what is accepted keeps its meaning, for every length and content of the padding."""

import contextlib
import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compiler import ir as house
from compiler.analysis.facts import Action, Fact, Verdict
from compiler.analysis.rules import RULES
from compiler.errors import Refused
from compiler.evaluate import open_session
from compiler.passes.carry_projections import CarryProjections
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from compiler.stages import Lowered, State, Window, right_aligned
from tests.kit.contract import check_honesty, check_idempotence, check_meaning, content_of, recorded
from tests.kit.graphs import ROWS, STEP, WINDOW, copy_of, feeds_of, parse, random_weights

UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Erf", "HardSwish", "Gelu", "Softplus", "Reciprocal", "Exp", "Sin",
         "Cos", "Floor", "Identity", "Log", "Sqrt")  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Max", "Min", "Div")

# one line each: {new} is the value it makes, {a} and {b} are joined values [batch, length, 4]
ROW_WISE = (
    *(f"{{new}} = {op}({{a}})" for op in UNARY),
    *(f"{{new}} = {op}({{a}}, row)" for op in BINARY),
    "{new} = Pow({a}, square)",
    "{new} = LayerNormalization<axis = -1>({a}, row)",
    "{new} = Softmax<axis = -1>({a})",
    "{new} = MatMul({a}, w)",
    "{new}_c = Concat<axis = 2>({a}, {a})  {new} = Slice({new}_c, two, six, two)",
    "{new}_u = Unsqueeze({a}, zero)  {new} = Squeeze({new}_u, zero)",
    "{new}_r = Reshape({a}, heads)  {new}_t = Transpose<perm = [0, 2, 1, 3]>({new}_r)  "
    "{new}_s = Transpose<perm = [0, 2, 1, 3]>({new}_t)  {new} = Reshape({new}_s, merged)",
    "{new}_m = ReduceMean<keepdims = 1>({a}, two)  {new} = Sub({a}, {new}_m)",
    "{new}_h, {new}_i = Split<axis = 2, num_outputs = 2>({a})  {new} = Concat<axis = 2>({new}_i, {new}_h)",
    "{new}_g = Greater({a}, half)  {new} = Where({new}_g, {a}, row)",
)
JOINING = (
    *(f"{{new}} = {op}({{a}}, {{b}})" for op in BINARY),
    "{new}_p = Slice(table, zero, length, one)  {new} = Add({a}, {new}_p)",
    "{new}_p = Slice(table, back, end, one)  {new} = Add({a}, {new}_p)",
    "{new}_p = Slice(table, zero, length, one)  {new}_q = MatMul({new}_p, w)  {new} = Mul({a}, {new}_q)",
    '{new} = Einsum<equation = "bld,de->ble">({a}, w)',
)
MIXING = (
    "{new}_t = Transpose<perm = [0, 2, 1]>({a})  {new}_s = MatMul(x, {new}_t)  {new}_w = Softmax<axis = -1>({new}_s)  "
    "{new} = MatMul({new}_w, {b})",
    "{new}_t = Transpose<perm = [0, 2, 1]>({a})  {new}_s = MatMul(x, {new}_t)  {new}_w = Sigmoid({new}_s)  "
    "{new} = MatMul({new}_w, {b})",
    "{new}_t = Transpose<perm = [0, 2, 1]>({a})  {new}_s = MatMul({new}_t, {b})  {new} = MatMul(x, {new}_s)",
    "{new}_s = Softmax<axis = 1>({a})  {new}_t = Transpose<perm = [0, 2, 1]>({new}_s)  {new}_m = MatMul({new}_t, {b})  "
    "{new} = MatMul(x, {new}_m)",
    "{new} = Slice({a}, newest, end, one)",
    "{new}_s = Einsum<equation = \"bqd,bld->bql\">(x, {a})  {new}_w = Softmax<axis = -1>({new}_s)  "
    "{new} = Einsum<equation = \"bql,bld->bqd\">({new}_w, {b})",
)  # fmt: skip


@st.composite
def bodies(draw: st.DrawFn, joining: tuple[str, ...] = JOINING) -> str:
    """Some lines over joined values, then one or two that give new frames, summed to `y`."""
    joined, lines, results = ["next_past"], [], []
    for number in range(draw(st.integers(1, 4))):
        template = draw(st.sampled_from((*ROW_WISE, *joining)))
        picks = {side: draw(st.sampled_from(joined)) for side in "ab"}
        lines.append(template.format(new=f"v{number}", **picks))
        joined.append(f"v{number}")
    for number in range(draw(st.integers(1, 2))):
        template = draw(st.sampled_from(MIXING))
        lines.append(
            template.format(new=f"m{number}", a=draw(st.sampled_from(joined)), b=draw(st.sampled_from(joined)))
        )
        results.append(f"m{number}")
    lines.append("y = Add(m0, m1)" if len(results) == 2 else "y = Identity(m0)")
    return "\n        ".join(lines)


def graph_of(body: str) -> Lowered:
    text = f"""(float[batch,2,4] x, float[batch,cache,4] past, float[4,4] w, float[4] row, float[1,{ROWS},4] table)
    => (float[batch,2,4] y, float[batch,kept,4] next_past)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] six = {{6}},
     int64[1] end = {{9223372036854775807}}, int64[1] newest = {{-2}}, int64[4] heads = {{0, -1, 2, 2}},
     int64[3] merged = {{0, -1, 4}}, float square = {{2}}, float half = {{0.5}}>
    {{
        next_past = Concat<axis = 1>(past, x)
        length = Shape<start = 1, end = 2>(next_past)
        back = Neg(length)
        {body}
    }}"""
    model = parse(text, random_weights({"w": (4, 4), "row": (4,), "table": (1, ROWS, 4)}))
    return Lowered("tiny", model, states=(State("past", "next_past", 1),),
                   window=Window("cache", WINDOW, STEP, "real_length", None), batch_axis="batch")  # fmt: skip


LENGTHS = (0, 1, WINDOW - 1, WINDOW)
POISONS = (0.0, np.nan, np.inf, -np.inf, 1e30)


def check_every_length(origin: Lowered, padded: Lowered) -> None:
    """Rows of all interesting lengths in one batch, every poison in their padding, against the dynamic graph."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((len(LENGTHS), STEP, 4)).astype(np.float32)
    caches = [rng.standard_normal((1, length, 4)).astype(np.float32) for length in LENGTHS]
    dynamic, static = (open_session(house.serialized(each.model)) for each in (origin, padded))
    expected = np.concatenate([
        dynamic.run(["y"], {"x": x[row : row + 1], "past": caches[row]})[0] for row in range(len(LENGTHS))
    ])  # fmt: skip
    results = []
    for poison in POISONS:
        past = np.concatenate([right_aligned(cache, 1, WINDOW) for cache in caches])
        for row, length in enumerate(LENGTHS):
            past[row, : WINDOW - length] = poison
        feed = {"x": x, "past": past, "real_length": np.array(LENGTHS, np.int64)}
        results.append(static.run(["y"], feed)[0])
    finite = np.isfinite(expected).all(axis=(1, 2)) & (np.abs(expected).max(axis=(1, 2)) < 1e4)
    for row in map(int, np.flatnonzero(finite)):  # where the original itself overflows there is nothing to keep
        scale = max(1.0, float(np.abs(expected[row]).max()))
        assert np.abs(results[0][row] - expected[row]).max() <= 2e-3 * scale, f"length {LENGTHS[row]}"
    for poison, result in zip(POISONS, results, strict=True):
        assert result.tobytes() == results[0].tobytes(), f"{poison} in the padding is seen"


@settings(max_examples=400)
@given(bodies())
def test_no_unsound_padding_is_accepted(body: str) -> None:
    origin = graph_of(body)
    try:
        padded = PadAxes().apply(copy_of(origin)).lowered
    except Refused:
        return
    check_every_length(origin, padded)


@pytest.mark.parametrize("mixing", range(len(MIXING)))
@pytest.mark.parametrize("joining", range(len(JOINING)))
def test_each_pair_of_templates(joining: int, mixing: int) -> None:
    lines = (
        JOINING[joining].format(new="v", a="next_past", b="next_past"),
        MIXING[mixing].format(new="m", a="v", b="v"),
    )
    origin = graph_of("  ".join(lines) + "  y = Identity(m)")
    try:
        padded = PadAxes().apply(copy_of(origin)).lowered
    except Refused:
        return
    check_every_length(origin, padded)


@settings(max_examples=40)
@given(bodies(joining=()))
def test_carrying_keeps_the_meaning_and_pads(body: str) -> None:
    origin = graph_of(body)
    before = content_of(origin)
    outcome = CarryProjections().apply(copy_of(origin))
    check_honesty(outcome, before)
    check_idempotence(CarryProjections(), outcome.lowered)
    results = [step.outputs["y"] for step in recorded(origin, feeds_of(origin, 6, 2), 2)]
    assume(all(np.isfinite(result).all() and np.abs(result).max() < 1e4 for result in results))
    check_meaning(origin, outcome.lowered, 2e-3, 6, 2)
    try:
        padded = PadAxes().apply(copy_of(outcome.lowered)).lowered
    except Refused:
        return
    check_meaning(origin, padded, 2e-3, 6, 2)
    check_meaning(origin, WindowStates().apply(copy_of(padded)).lowered, 2e-3, 6, 2)


def without_action(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """A rule that asks for nothing."""
    verdict = HONEST[node.op_type](node, facts)
    return dataclasses.replace(verdict, action=Action.NONE)


HONEST = {op: RULES["", op] for op in ("Softmax", "MatMul")}

BLINDED = {
    "Softmax": "v = Tanh(next_past)  " + MIXING[0].format(new="m", a="v", b="v"),
    "MatMul": "v = Reciprocal(next_past)  " + MIXING[1].format(new="m", a="next_past", b="v"),
}


@pytest.mark.parametrize("op", BLINDED)
def test_the_check_sees_a_rule_that_asks_for_too_little(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = graph_of(BLINDED[op] + "  y = Identity(m)")
    check_every_length(origin, PadAxes().apply(copy_of(origin)).lowered)
    monkeypatch.setitem(RULES, ("", op), without_action)
    with pytest.raises(AssertionError):
        check_every_length(origin, PadAxes().apply(copy_of(origin)).lowered)


def test_most_random_graphs_are_accepted() -> None:
    accepted = []

    @settings(max_examples=60)
    @given(bodies())
    def try_one(body: str) -> None:
        with contextlib.suppress(Refused):
            accepted.append(PadAxes().apply(graph_of(body)))

    try_one()
    assert len(accepted) >= 30, "a search that mostly meets refusals finds nothing"
