"""carry_codes: a state becomes what its readers make of it, and no other output changes by a bit."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.coded_states import codes_of
from compiler.graph.stages import Array, Lowered, State
from compiler.passes.carry_codes import CarryCodes
from compiler.passes.quantize_static import QuantizeStatic
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import BATCH, copy_of, feeds_of, node_named, ops_of, parse
from tests.kit.quantization import speech

STEP, SLOTS, WIDTH = 2, 4, 3

READ = {
    "whole": "codes = QuantizeLinear(joined, scale, zero)",
    "turned": "turned = Transpose<perm = [0, 2, 1]>(joined)  codes = QuantizeLinear(turned, scale, zero)",
    "twice": """flat = Reshape(joined, shape)  one_codes = QuantizeLinear(flat, scale, zero)
        again = Reshape(one_codes, back)  other = QuantizeLinear(joined, scale, zero)
        codes = Concat<axis = 1>(again, other)""",
    "shared": """own = QuantizeLinear(x, scale, zero)  all = QuantizeLinear(joined, scale, zero)
        codes = Concat<axis = 1>(own, all)""",
    "along": "codes = QuantizeLinear<axis = 2>(joined, scales, zeros)",
    "real": """half = Mul(joined, wide)  more = QuantizeLinear(half, scale, zero)
        all = QuantizeLinear(joined, scale, zero)  codes = Concat<axis = 1>(more, all)""",
    "grids": """one_codes = QuantizeLinear(joined, scale, zero)  other = QuantizeLinear(joined, wide, zero)
        codes = Concat<axis = 1>(one_codes, other)""",
    "computed": "own = ReduceMax<keepdims = 0>(wide)  codes = QuantizeLinear(joined, own, zero)",
    "moved": "turned = Transpose<perm = [0, 2, 1]>(joined)  codes = QuantizeLinear<axis = 1>(turned, scales, zeros)",
    "shown": "codes = QuantizeLinear(joined, scale, zero)  z = Identity(joined)",
}  # fmt: skip
"""How what is joined is quantised."""

KEPT = {
    "newest": "next_past = Slice(joined, start, end, one)",
    "split": "older, next_past = Split<axis = 1>(joined, sizes)",
    "made": "twice_x = Concat<axis = 1>(x, x)  next_past = Mul(twice_x, wide)",
}
"""What is fed back."""


def stream(read: str, kept: str = "newest", *, kind: type = np.uint8, zero: int = 131, guarded: bool = True) -> Lowered:
    """Frames joined with those of a state, and quantised."""
    shown = f", float[{BATCH},j,{WIDTH}] z" if read == "shown" else ""
    weights: dict[str, Array] = {
        "scale": np.array(0.02, np.float32), "zero": np.array(zero, kind), "wide": np.array(0.04, np.float32),
        "scales": np.array([0.01, 0.02, 0.03], np.float32), "zeros": np.full(WIDTH, zero, kind),
        "fill": np.array([[[0.3, 0.3, -7.0]]], np.float32),
    }  # fmt: skip
    kinds = {"f": "float", "u": "uint8", "i": "int8"}
    declared = ", ".join(
        f"{kinds[array.dtype.kind]}[{','.join(map(str, array.shape))}] {name}" for name, array in weights.items()
    )
    text = f"""(float[{BATCH},{STEP},{WIDTH}] x, float[{BATCH},{SLOTS},{WIDTH}] past, bool[{BATCH},{SLOTS},1] ok,
      {declared}) => (float[{BATCH},l,m] y, float[{BATCH},k,{WIDTH}] next_past{shown})
    <int64[1] start = {{{STEP}}}, int64[1] end = {{9223372036854775807}}, int64[1] one = {{1}},
     int64[2] sizes = {{{STEP}, {SLOTS}}}, int64[2] shape = {{0, {(STEP + SLOTS) * WIDTH}}},
     int64[3] back = {{0, {STEP + SLOTS}, {WIDTH}}}>
    {{
        filled = Where(ok, past, fill)
        joined = Concat<axis = 1>({"filled" if guarded else "past"}, x)
        {READ[read]}
        y = DequantizeLinear(codes, scale, zero)
        {KEPT[kept]}
    }}""".replace("[]", "")
    state = State("past", "next_past", None)
    return Lowered("net", parse(text, weights), states=(state,), batch_axis=BATCH, data_outputs=("y",))


def answers(lowered: Lowered) -> list[bytes]:
    """To chained calls of several rows, with numbers beyond the grid, infinities and NaN among them."""
    runner, found = runner_of(lowered, 3), []
    for number, feed in enumerate(feeds_of(lowered, 6, 3)):
        x = np.array(feed["x"] * np.float32(3.0))
        if number == 2:
            x[0, 0], x[1, 0, 0] = [np.inf, -np.inf, 1e30], np.nan
        ok = np.random.default_rng(number).random((3, SLOTS, 1)) < 0.7
        found.append(runner.step({"x": x, "ok": ok})["y"].tobytes())
    return found


@pytest.mark.parametrize(
    ("read", "kept", "options"),
    [
        ("whole", "newest", {}),
        ("whole", "split", {"kind": np.int8, "zero": 0}),
        ("whole", "made", {"kind": np.int8, "zero": -5}),
        ("turned", "newest", {}),
        ("twice", "split", {}),
        ("shared", "newest", {}),
        ("along", "newest", {}),
        ("along", "newest", {"guarded": False, "kind": np.int8, "zero": 3}),
    ],
)
def test_no_bit_of_an_answer_changes(read: str, kept: str, options: dict[str, object]) -> None:
    before = stream(read, kept, **options)  # type: ignore[arg-type]
    after = CarryCodes().apply(copy_of(before)).lowered
    kind = ir.DataType.INT8 if options.get("kind") is np.int8 else ir.DataType.UINT8
    assert graphs.inputs_named(after.model)["past"].dtype == kind
    assert graphs.outputs_named(after.model)["next_past"].dtype == kind
    assert answers(after) == answers(before)


def test_what_arrives_is_quantised_once_and_nothing_else_is() -> None:
    after = CarryCodes().apply(copy_of(stream("shared"))).lowered
    made = [node for node in after.model.graph if node.op_type == "QuantizeLinear"]
    assert [node.inputs[0].name for node in made if node.inputs[0] is not None] == ["x"]
    filled = node_named(after.model, "filled")
    assert graphs.array_of(filled.inputs[2]).tolist() == [[[146, 146, 0]]]  # type: ignore[union-attr]


def test_a_stream_begins_with_the_code_of_zero_and_states_are_read_as_numbers() -> None:
    before = stream("whole", guarded=False)
    after = CarryCodes().apply(copy_of(before)).lowered
    runner, grid = runner_of(after, 2), codes_of(after, "past")
    assert np.array_equal(runner.states["past"], np.full((2, SLOTS, WIDTH), 131, np.uint8))
    assert grid is not None
    assert (grid.zero, grid.signed, float(grid.scales)) == (131, False, float(np.float32(0.02)))


def test_the_contract_of_passes() -> None:
    outcome = verify_pass(CarryCodes(), stream("whole", guarded=False), tolerance=2.6)
    assert (outcome.matched, outcome.rewritten) == (1, 1)


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        ("real", "past is read in real numbers"),
        ("grids", "past is quantised on several grids"),
        ("computed", "past is quantised on a grid that is computed"),
        ("moved", "past has a scale per entry of an axis that is moved"),
        ("shown", "past is given out as z"),
    ],
)
def test_left_alone_with_a_reason(read: str, reason: str) -> None:
    outcome = verify_untouched(CarryCodes(), stream(read), refused=reason)
    assert outcome.matched == 1
    assert "net" not in str(outcome.refused[0])


def test_states_that_nobody_quantises_do_not_match() -> None:
    outcome = verify_untouched(CarryCodes(), speech())
    assert outcome.matched == 0


def test_a_quantised_recogniser_carries_the_codes_that_its_convolution_reads() -> None:
    quantised = QuantizeStatic(pins=()).apply(copy_of(speech())).lowered
    outcome = CarryCodes().apply(copy_of(quantised))
    assert outcome.rewritten == 1
    after = outcome.lowered
    assert graphs.inputs_named(after.model)["context"].dtype == ir.DataType.UINT8
    assert ops_of(after.model).count("QuantizeLinear") == ops_of(quantised.model).count("QuantizeLinear")
    one, other = runner_of(quantised), runner_of(after)
    for feed in feeds_of(quantised, 12):
        assert np.array_equal(one.step(feed)["y"], other.step(feed)["y"])
    assert dataclasses.replace(after, model=quantised.model, states=quantised.states) == quantised
