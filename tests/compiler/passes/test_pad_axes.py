"""pad_axes: the cache axis becomes static, and what lies in its padding cannot be seen."""

import dataclasses
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.graph.stages import Lowered, State
from compiler.passes.canonicalize_reshapes import CanonicalizeReshapes
from compiler.passes.pad_axes import PadAxes, RightAligned, derive_tolerantly
from compiler.passes.select_states import SelectStates
from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.states import CACHES
from runtime_lite.states.kind import StateKind
from tests.kit.contract import ContractBroken, check_meaning, content_of, verify_pass, verify_refusal, verify_untouched
from tests.kit.graphs import BATCH, ROWS, STEP, WINDOW, copy_of, ops_of, parse, random_weights, streaming

VARIANTS: dict[str, dict[str, Any]] = {
    "mask is an input": {},
    "mask is computed": {"mask_input": None},
    "last rows of the table": {"lookup": "last"},
    "projected rows": {"lookup": "projected"},
    "no positions": {"lookup": None},
    "window cut in the graph": {"in_graph_window": True},
    "two caches": {"two_caches": True},
    "cache read twice": {"extra_reader": True},
    "batch of one": {"batch": 1},
    "batch of two": {"batch": 2, "mask_input": None},
    "steps as long as the window": {"window": 4, "step": 4},
    "steps longer than the window": {"window": 2, "step": 5},
    "window of one": {"window": 1, "step": 1},
    "window no multiple of the step": {"window": 5, "step": 2},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_padded_stream_keeps_its_meaning(name: str) -> None:
    outcome = verify_pass(PadAxes(), streaming(**VARIANTS[name]), tolerance=1e-5, steps=15)
    for node in outcome.lowered.model.graph:
        for output in node.outputs:
            assert output.shape is not None
            assert not any("cache" in str(dim) for dim in output.shape)


def test_the_mask_is_an_input_or_made_of_the_length() -> None:
    given = PadAxes().apply(copy_of(streaming())).lowered.model
    made = PadAxes().apply(copy_of(streaming(mask_input=None))).lowered.model
    assert [str(value.name) for value in given.graph.inputs][-2:] == ["real_length", "mask"]
    assert [str(value.name) for value in made.graph.inputs][-1] == "real_length"
    comparisons = {"GreaterOrEqual", "Less", "Equal", "Greater", "LessOrEqual"}
    assert not comparisons & set(ops_of(given)), "a target that takes the mask as an input may lack comparisons"
    assert comparisons & set(ops_of(made))


def test_certificate_has_one_record_per_judged_node() -> None:
    outcome = PadAxes().apply(copy_of(streaming(lookup=None)))
    (certificate,) = outcome.records
    assert outcome.matched == len(certificate["records"])
    (softmax,) = [record for record in certificate["records"] if record["op"] == "Softmax"]
    assert [need["value"] for need in softmax["needs"]] == ["-inf"]
    assert softmax["source"].startswith("tiny.py:")


def test_without_a_padded_axis_rows_are_proved_and_nothing_is_written() -> None:
    outcome = PadAxes().apply(copy_of(dataclasses.replace(streaming(), caches=())))
    assert outcome.rewritten == 0
    assert outcome.lowered.rows_independent


def test_a_padded_graph_stays() -> None:
    verify_untouched(PadAxes(), PadAxes().apply(copy_of(streaming())).lowered)


def test_states_are_mapped_to_the_right() -> None:
    mapped = RightAligned((("a", 1, 4),)).apply({"a": np.ones((1, 2, 1)), "b": np.ones(3)})
    assert mapped["a"].reshape(-1).tolist() == [0, 0, 1, 1]
    assert mapped["b"].tolist() == [1, 1, 1]


# --- what it refuses --------------------------------------------------------------------------------------------------


def attend(
    body: str, *, past: str = "batch,cache,4", kept: str = "batch,kept,4", outputs: str = "", inputs: str = "",
    frames_axis: int = 1, window: int = WINDOW, batch: str | None = BATCH,
) -> Lowered:  # fmt: skip
    """A cache `past` joined to `joined` by hand, and whatever the body does with it."""
    text = f"""(float[{batch or 1},2,4] x, float[{past}] past{inputs}, float[4,4] w,
        float[1,{ROWS},4] table, float[{ROWS},4] flat, float[1,{ROWS},{ROWS}] square, float[4] g)
    => (float[batch,q,r] y, float[{kept}] next_past{outputs})
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] end = {{9223372036854775807}},
     int64[1] three = {{3}}, int64[1] nine = {{9}}, int64[4] heads = {{-1, 2, 2, 2}}, float half = {{0.5}},
     int64[4] split_rows = {{1, -1, 2, 2}}, int64[1] newest = {{-2}}, int64[1] less_newest = {{-3}},
     int64[2] outside = {{0, 2}}, int64[6] in_front = {{0, 0, 1, 0, 0, 0}}>
    {{
        {body}
    }}"""
    weights = random_weights(
        {"w": (4, 4), "table": (1, ROWS, 4), "flat": (ROWS, 4), "square": (1, ROWS, ROWS), "g": (4,)}
    )
    return Lowered(
        "tiny", parse(text, weights), states=(State("past", "next_past", frames_axis, "cache"),),
        caches=(CacheAxis("cache", window, STEP, "real_length", None),), batch_axis=batch,
    )  # fmt: skip


JOIN = "next_past = Concat<axis = 1>(past, x)  "
MIX = """t = Transpose<perm = [0, 2, 1]>(KEYS)  s = MatMul(x, t)  p = Softmax<axis = -1>(s)  y = MatMul(p, KEYS)"""
PLAIN_MIX = MIX.replace("KEYS", "next_past")
LENGTH = "length = Shape<start = 1, end = 2>(next_past)  "

POSITIONS = """first = Squeeze(zero)  by = Squeeze(one)  last = Squeeze(length)  positions = Range(first, last, by)
    cached = Shape<start = 1, end = 2>(past)  column = Unsqueeze(offset, one)  from_row = Sub(column, cached)  """
"""Of frames cached and new, `offset - cached + arange(cached + 2)` in two parts."""

PLACES = """first = Squeeze(zero)  by = Squeeze(one)  last = Squeeze(length)  positions = Range(first, last, by)
    f = Cast<to = 1>(positions)  """
SHARED_PLACES = "places = Unsqueeze(f, outside)  rows = Shape<start = 0, end = 1>(x)  "
"""Positions [1, frames, 1] of all rows, and the number of rows."""

DISTANCES = """first = Squeeze(zero)  by = Squeeze(one)  last = Squeeze(length)  keys = Range(first, last, by)
    begin_at = Sub(length, two)  begin = Squeeze(begin_at)  queries = Range(begin, last, by)
    column = Unsqueeze(queries, one)  row = Unsqueeze(keys, zero)  distance = Sub(row, column)
    near = Max(distance, less_newest)  far = Min(near, three)  place = Add(far, three)
    by_place = Gather(flat, place)  """
SCORES_BY_DISTANCE = """t = Transpose<perm = [0, 2, 1]>(next_past)  s = MatMul(x, t)
    d = Einsum<equation = "bqd,qkd->bqk">(x, by_place)  both = Add(s, d)  """
"""Shaw's relative positions: rows of a table by the distance of a query's and a key's frame."""

SHIFTED = """begin = Sub(nine, length)  eleven = Add(nine, two)  rows = Slice(table, begin, eleven, one)
    u = Transpose<perm = [0, 2, 1]>(rows)  m = MatMul(x, u)  c = Pad(m, in_front)  n = Shape<start = 0, end = 1>(x)
    minus = Sub(zero, one)  wide = Concat<axis = 0>(n, minus, two)  a = Reshape(c, wide)  b = Slice(a, one, end, one)
    back = Concat<axis = 0>(n, two, minus)  turned = Reshape(b, back)  shifted = Slice(turned, zero, length, two)  """
"""The relative shift of Transformer-XL on a step."""

ACCEPTED: dict[str, dict[str, Any]] = {
    "positions repeated for every row before they meet keys": {"body": JOIN + LENGTH + PLACES + SHARED_PLACES
         + "whole = Concat<axis = 0>(rows, length, one)  late = Expand(places, whole)  k = Add(next_past, late)  "
         + MIX.replace("KEYS", "k")},
    "positions tiled for every row before they meet keys": {"body": JOIN + LENGTH + PLACES + SHARED_PLACES
         + "times = Concat<axis = 0>(rows, one, one)  late = Tile(places, times)  k = Add(next_past, late)  "
         + MIX.replace("KEYS", "k")},
    "the places of new frames cut off those of all": {"body": JOIN + LENGTH + PLACES + SHARED_PLACES
         + "new = Slice(places, newest, end, one)  q = Add(x, new)  k = Add(next_past, places)  "
         + MIX.replace("KEYS", "k").replace("MatMul(x,", "MatMul(q,")},
    "a table cut along both of its axes": {"body": JOIN + LENGTH
         + "cached = Shape<start = 1, end = 2>(past)  new = Slice(square, cached, length, one)  "
         + "band = Slice(new, zero, length, two)  "
         + PLAIN_MIX.replace("p = Softmax<axis = -1>(s)", "near = Add(s, band)  p = Softmax<axis = -1>(near)")},
    "keys weighted by their distances in a table": {"body": JOIN + LENGTH + DISTANCES + SCORES_BY_DISTANCE
         + "p = Softmax<axis = -1>(both)  y = MatMul(p, next_past)"},
    "values of a table summed up by their distances": {"body": JOIN + LENGTH + DISTANCES + SCORES_BY_DISTANCE
         + 'p = Softmax<axis = -1>(both)  y = Einsum<equation = "bqk,qkd->bqd">(p, by_place)'},
    "scores of every distance shifted into their columns": {"body": JOIN + LENGTH + SHIFTED
         + "t = Transpose<perm = [0, 2, 1]>(next_past)  s = MatMul(x, t)  both = Add(s, shifted)  "
         + "p = Softmax<axis = -1>(both)  y = MatMul(p, next_past)"},
    "operator without a rule": {"body": JOIN + "axis = Squeeze(one)  k = CumSum(next_past, axis)  " + MIX.replace("KEYS", "k")},  # noqa: E501
    "joined behind the new frames": {"body": JOIN + "k = Concat<axis = 1>(x, past)  " + MIX.replace("KEYS", "k")},
    "joined behind new frames of the window's number": {"body": JOIN + "k = Concat<axis = 1>(x, past)  " + MIX.replace("KEYS", "k"), "window": 2},  # noqa: E501
    "the length as a number": {"body": JOIN + LENGTH + "f = Cast<to = 1>(length)  d = Mul(next_past, f)  " + PLAIN_MIX},
    "a table looked up along its columns": {"body": JOIN + LENGTH + "cols = Slice(square, zero, length, two)  "
         + "t = Transpose<perm = [0, 2, 1]>(next_past)  "
         + "tc = Transpose<perm = [0, 2, 1]>(cols)  "
         + "m = MatMul(t, tc)  " + PLAIN_MIX.replace("t =", "u =").replace("(x, t)", "(x, u)")},
    "two normalisers without a bound": {"body": JOIN + "e = Log(next_past)  t = Transpose<perm = [0, 2, 1]>(e)  y = MatMul(t, e)"},  # noqa: E501
    "positions from an offset of each row, before they meet keys": {"body": JOIN + LENGTH + POSITIONS
         + "places = Add(from_row, positions)  f = Cast<to = 1>(places)  late = Unsqueeze(f, two)  "
         + "k = Add(next_past, late)  " + MIX.replace("KEYS", "k"), "inputs": ", int64[batch] offset"},
    "a table looked up from an offset of each row": {"body": JOIN + LENGTH + POSITIONS
         + "places = Add(from_row, positions)  late = Mod(places, nine)  rows = Gather(flat, late)  "
         + "k = Add(next_past, rows)  " + MIX.replace("KEYS", "k"), "inputs": ", int64[batch] offset"},
    "frames in front of the batch": {"body": JOIN + "k = Transpose<perm = [1, 0, 2]>(next_past)  "
         + "u = Softmax<axis = 0>(k)  "
         + "y = ReduceMax<keepdims = 1>(x, one)"},
    "frames in front of a batch of one": {"body": JOIN + "k = Transpose<perm = [1, 0, 2]>(next_past)  "
         + "u = Softmax<axis = 0>(k)  "
         + "y = ReduceMax<keepdims = 1>(x, one)", "batch": None, "past": "1,cache,4", "kept": "1,kept,4"},
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_can_be_shown_is_padded(name: str) -> None:
    verify_pass(PadAxes(), attend(**ACCEPTED[name]), tolerance=1e-4)


REFUSALS: dict[str, tuple[dict[str, Any], str, str, str, str]] = {
    "operator of another domain": (
        {"body": JOIN + "k = com.acme.Turn(next_past)  " + MIX.replace("KEYS", "next_past")},
        "no rule for operator com.acme::Turn", "docs/generated/coverage.md", "Turn", "",
    ),
    "merged heads and frames": (
        {"body": JOIN + "k = Reshape(next_past, heads)  " + PLAIN_MIX},
        "cuts or interleaves", "keep the axis whole", "Reshape", "",
    ),
    "softmax over cached frames alone": (
        {"body": JOIN + "t = Transpose<perm = [0, 2, 1]>(past)  "
         + "s = MatMul(x, t)  "
         + "p = Softmax<axis = -1>(s)  "
         + "y = MatMul(p, past)"},
        "at least 1 cached frames", "join at least one new frame", "", "",
    ),
    "cut inside the padding": (
        {"body": JOIN + "k = Slice(next_past, zero, three, one)  " + PLAIN_MIX},
        "by slot, not by position", "fixed distance from the end", "Slice", "",
    ),
    "a short table": (
        {"body": JOIN + LENGTH + "rows = Slice(table, zero, length, one)  "
         + "k = Add(next_past, rows)  " + MIX.replace("KEYS", "k"), "window": 20},
        "has 16 rows, the padded axis 22", "at least 22 rows", "Slice", "",
    ),
    "a table without a leading axis": (
        {"body": JOIN + LENGTH + "rows = Slice(flat, zero, length, zero)  "
         + "k = Add(next_past, rows)  " + MIX.replace("KEYS", "k")},
        "looked up at positions of each row", "leading axis of size 1", "Slice", "",
    ),
    "a padded result": (
        {"body": JOIN + PLAIN_MIX + "  z = Relu(next_past)", "outputs": ", float[batch,kept,4] z"},
        "of the output is [cache + 2, right]", "return the new frames only", "Relu", "z",
    ),
    "attention weights as a result": (
        {"body": JOIN + PLAIN_MIX, "outputs": ", float[batch,2,kept] p"},
        "of the output is [cache + 2, right]", "declare the output as a state", "Softmax", "p",
    ),
    "the length as a result": (
        {"body": JOIN + LENGTH + PLAIN_MIX, "outputs": ", int64[1] length"},
        "the output is an axis length", "", "Shape", "length",
    ),
    "a state with new frames first": (
        {"body": "next_past = Concat<axis = 1>(x, past)  j = Concat<axis = 1>(past, x)  " + MIX.replace("KEYS", "j")},
        "the state holds", "cache first", "Concat", "next_past",
    ),
    "a state that grows otherwise": (
        {"body": "h = Slice(x, zero, one, one)  next_past = Concat<axis = 1>(past, h)  "
         + "j = Concat<axis = 1>(past, x)  " + MIX.replace("KEYS", "j")},
        "the state holds", "cache first", "Concat", "next_past",
    ),
    "a state that comes back as it was": (
        {"body": "next_past = Identity(past)  j = Concat<axis = 1>(past, x)  " + MIX.replace("KEYS", "j")},
        "the state holds", "cache first", "Identity", "next_past",
    ),
    "a state that loses as many frames as it gets": (
        {"body": "j = Concat<axis = 1>(past, x)  next_past = Slice(j, two, end, one)  " + MIX.replace("KEYS", "j")},
        "the state holds", "cache first", "Slice", "next_past",
    ),
    "positions reshaped as those of one stream": (
        {"body": JOIN + LENGTH + "rows = Slice(table, zero, length, one)  "
         + "r = Reshape(rows, split_rows)  "
         + "m = ReduceMax<keepdims = 0>(r, three)  "
         + "n = ReduceMax<keepdims = 0>(m, two)  "
         + "o = Unsqueeze(n, two)  "
         + "k = Add(next_past, o)  " + MIX.replace("KEYS", "k")},
        "Add joins", "pad and join both operands alike", "Add", "",
    ),
    "positions squeezed to one stream": (
        {"body": JOIN + LENGTH + "rows = Slice(table, zero, length, one)  "
         + "r = Squeeze(rows, zero)  "
         + "k = Add(next_past, r)  " + MIX.replace("KEYS", "k")},
        "Squeeze of axis 0", "keep the axis", "Squeeze", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_node_operator_source_and_cure(name: str) -> None:
    graph, message, cure, op, tensor = REFUSALS[name]
    lowered = attend(**graph)
    with pytest.raises(Exception) as raised:
        PadAxes().apply(copy_of(lowered))
    axis = getattr(getattr(raised.value, "place", None), "axis", "")
    assert axis in ("", "cache", "batch", "batch, cache")
    verify_refusal(PadAxes(), lowered, message=message, cure=cure, op=op, tensor=tensor, axis=axis)


def test_an_axis_that_no_input_has_is_refused() -> None:
    lowered = dataclasses.replace(streaming(), caches=(CacheAxis("frames", 6, 2, "real_length", None),))
    verify_refusal(
        PadAxes(), lowered, message="no input has an axis 'frames'", cure="name the growing axis", axis="frames"
    )
    with pytest.raises(Refused, match="no input has an axis 'frames'"):
        derive_tolerantly(lowered)


@pytest.mark.parametrize("kind", [kind for kind in CACHES.values() if not kind.is_given_whole])
def test_a_kind_of_cache_that_is_not_lowered_yet_is_refused_by_its_name(kind: StateKind) -> None:
    cache = CacheAxis("cache", 6, 2, "real_length", None).as_kind(kind)
    lowered, message = dataclasses.replace(streaming(), caches=(cache,)), f"{kind.name} are not lowered yet"
    for made in (PadAxes(), SelectStates()):
        verify_refusal(made, lowered, message=message, cure="join each cache in front of the new frames", axis="cache")


def test_a_name_that_is_taken_is_refused() -> None:
    lowered = dataclasses.replace(streaming(), caches=(CacheAxis("cache", 6, 2, "x", None),))
    verify_refusal(PadAxes(), lowered, message="has a value 'x' already", cure="another length_input")


def test_without_a_batch_axis_a_call_is_one_row() -> None:
    lowered = PadAxes().apply(dataclasses.replace(copy_of(streaming()), batch_axis=None)).lowered
    assert not lowered.rows_independent
    (length,) = (value for value in lowered.model.graph.inputs if value.name == "real_length")
    assert length.shape == [1]


def test_without_a_batch_axis_positions_count_from_what_callers_feed() -> None:
    text = """(float[4,2] x, int64 offset, float[cached,2] cache)
    => (float[4,2] y, float[every,2] next_cache, int64 next_offset)
    <int64 zero = {0}, int64 one = {1}, int64 four = {4}, int64[1] first = {0}, int64[1] last = {1}, float weak = {0.1}>
    {
        next_cache = Concat<axis = 0>(cache, x)  size = Shape<start = 0, end = 1>(cache)  cached = Squeeze(size, first)
        all = Add(cached, four)  run = Range(zero, all, one)  begin = Sub(offset, cached)  places = Add(begin, run)
        real = Cast<to = 1>(places)  slow = Mul(real, weak)  wave = Sin(slow)  column = Unsqueeze(wave, last)
        keys = Add(next_cache, column)  turned = Transpose<perm = [1, 0]>(keys)  scores = MatMul(x, turned)
        shares = Softmax(scores)  y = MatMul(shares, keys)  next_offset = Add(offset, four)
    }"""
    states = (State("cache", "next_cache", 0, "cached"), State("offset", "next_offset", None))
    lowered = Lowered("tiny", parse(text), None, states, (CacheAxis("cached", 8, 4, "real_length", None),))
    verify_pass(PadAxes(), lowered, tolerance=1e-5, steps=5)


def test_half_precision_is_masked_in_half_precision() -> None:
    lowered = attend(JOIN + "h = Cast<to = 10>(next_past)  t = Transpose<perm = [0, 2, 1]>(h)  xh = Cast<to = 10>(x)  s = MatMul(xh, t)  p = Softmax<axis = -1>(s)  z = MatMul(p, h)  y = Cast<to = 1>(z)")  # fmt: skip # noqa: E501
    verify_pass(PadAxes(), lowered, tolerance=1e-2)


# --- regressions ------------------------------------------------------------------------------------------------------


def test_a_product_over_frames_is_filled_on_the_side_that_is_not_finite() -> None:
    # regression: 0 times NaN came through, because the finite side was filled
    body = JOIN + "d = Log(next_past)  sq = Sigmoid(next_past)  t = Transpose<perm = [0, 2, 1]>(sq)  y = MatMul(t, d)"
    positive = attend(body.replace("Log(next_past)", "Reciprocal(next_past)"))
    verify_pass(PadAxes(), positive, tolerance=1e-3)


def test_a_body_that_reads_padded_frames_is_refused() -> None:
    # regression: only inputs of the node were looked at
    body = (
        JOIN
        + """flag = Cast<to = 9>(half)
        y = If (flag) <
            then_branch = yes () => (float[batch,k,4] a) { a = Relu(next_past) },
            else_branch = no () => (float[batch,k,4] b) { b = Neg(next_past) }
        >"""
    )
    verify_refusal(PadAxes(), attend(body), message="the body of If reads", cure="without a body", op="If")


def test_positions_split_into_heads_after_canonical_reshapes() -> None:
    body = (
        JOIN
        + LENGTH
        + """rows = Slice(table, zero, length, one)  r = Reshape(rows, split_rows)
        h = Transpose<perm = [0, 2, 3, 1]>(r)  xr = Reshape(x, split_x)  xh = Transpose<perm = [0, 2, 1, 3]>(xr)
        s4 = MatMul(xh, h)  p4 = Softmax<axis = -1>(s4)  p = ReduceMax<keepdims = 0>(p4, one)
        y = MatMul(p, next_past)"""
    )
    lowered = attend(body.replace("split_x", "heads"))
    verify_refusal(
        PadAxes(),
        lowered,
        message="lets every row of the batch meet every other one",
        cure="keep th",
        op="MatMul",
        axis="batch, cache",
    )
    canonical = CanonicalizeReshapes().apply(copy_of(lowered)).lowered
    verify_pass(PadAxes(), canonical, tolerance=1e-5, origin=lowered)


def test_a_graph_that_is_padded_wrongly_does_not_hold() -> None:
    origin = streaming()
    padded = PadAxes().apply(copy_of(origin)).lowered
    other = dataclasses.replace(padded, caches=(dataclasses.replace(padded.caches[0], step=1),))
    with pytest.raises((ContractBroken, ValueError)):
        check_meaning(origin, other, 1e-5, 12, 1)


BYTES = """
import hashlib, sys
from compiler.passes import make_pass
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.contract import content_of
from tests.kit.graphs import streaming
lowered = streaming(lookup="projected", two_caches=True)
for name in sys.argv[1:]:
    lowered = make_pass(name, {}).apply(lowered).lowered
sys.stdout.write(hashlib.sha256(content_of(lowered)).hexdigest())
"""
CHAIN = ("simplify", "canonicalize_reshapes", "select_states", "pad_axes", "window_states", "project_positions",
         "pack_states", "simplify")  # fmt: skip


def test_all_passes_write_the_same_bytes_under_every_hash_seed() -> None:
    from compiler.passes import make_pass

    lowered = streaming(lookup="projected", two_caches=True)
    for name in CHAIN:
        lowered = make_pass(name, {}).apply(lowered).lowered
    expected = hashlib.sha256(content_of(lowered)).hexdigest()
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": str(root)}
    run = subprocess.run(
        [sys.executable, "-c", BYTES, *CHAIN], capture_output=True, text=True, check=True, cwd=root, env=environment
    )
    assert run.stdout == expected
