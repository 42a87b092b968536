"""Which lengths a proof holds for."""

from collections.abc import Mapping

import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph.model import dims_of, expression, symbol
from compiler.proof.facts.layout import Side
from compiler.proof.facts.lengths import (
    Limit,
    infer_settled,
    keeps_all_counted,
    least_lengths,
    longest_lengths,
    require_one_length,
    smallest,
    with_slots,
)
from compiler.proof.propagation.propagate import Axes, input_facts, propagate
from tests.kit.graphs import parse, random_weights


def test_rows_of_a_table_limit_the_length_and_keep_its_size() -> None:
    model = parse(
        """(float[batch,time,4] x, float[1,9,4] table) => (float[batch,time,4] y)
        <int64[1] zero = {0}, int64[1] one = {1}>
        { n = Shape<start = 1, end = 2>(x)  rows = Slice(table, zero, n, one)  y = Add(x, rows) }""",
        random_weights({"table": (1, 9, 4)}),
    )
    limits = infer_settled(model)
    longest = longest_lengths(limits, ["time"])["time"]
    assert (longest.slots, str(longest)) == (
        9,
        "Slice rows_slice takes time entries of 9 (tiny.py:2 in forward: Slice)",
    )
    rows = next(node for node in model.graph if node.op_type == "Slice").outputs[0]
    assert dims_of(rows) == (1, symbol("time"), 4)


def test_a_limit_is_found_again_after_sizes_were_settled() -> None:
    model = parse(
        """(float[batch,time] x, float[9] table) => (float[r] y) <int64[1] zero = {0}, int64[1] rows = {9}>
        { n = Shape<start = 1, end = 2>(x)  most = Min(n, rows)  y = Slice(table, zero, most) }""",
        random_weights({"table": (9,)}),
    )
    assert _longest(infer_settled(model)) == 9
    assert _longest(infer_settled(model)) == 9
    assert dims_of(model.graph.outputs[0]) == (symbol("time"),)


@pytest.mark.parametrize(
    ("body", "size", "least", "most"),
    [
        ("d = Sub(rows, n)  from = Max(d, zero)  y = Slice(table, from, end, zero)", "time", 1, 9),
        ("d = Sub(one, n)  from = Max(d, zero)  y = Slice(row, from, end, zero)", "1", 1, None),
        ("d = Sub(n, five)  more = Max(d, zero)  pads = Concat<axis = 0>(zero, more)  y = Pad(table, pads)",
         "time + 4", 5, None),
    ],
)  # fmt: skip
def test_a_choice_between_two_programs_limits_the_length(body: str, size: str, least: int, most: int | None) -> None:
    model = parse(
        f"""(float[batch,time] x, float[9] table, float[1] row) => (float[r] y)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] rows = {{9}}, int64[1] five = {{5}},
         int64[1] end = {{9223372036854775807}}>
        {{ n = Shape<start = 1, end = 2>(x)  {body} }}""",
        random_weights({"table": (9,), "row": (1,)}),
    )
    limits = infer_settled(model)
    assert dims_of(model.graph.outputs[0]) == (expression(size),)
    assert _longest(limits) == most
    axes = Axes("batch", {"time": Side.LEFT})
    derivation = propagate(model, axes, input_facts(model, axes), tolerant=True)
    assert least_lengths(derivation.at_least_one, {"time": 1}, limits) == {"time": least}


def _longest(limits: Mapping[Limit, ir.Node]) -> int | None:
    longest = longest_lengths(limits, ["time"]).get("time")
    return None if longest is None else longest.slots


@pytest.mark.parametrize(
    ("body", "most"),
    [
        ("a = Cast<to = 6>(n)  b = Mul(a, a)  y = Cast<to = 7>(b)", 46340),
        ("h = Mul(n, hop)  a = Cast<to = 1>(h)  y = Cast<to = 7>(a)", 93206),
        ("a = Cast<to = 6>(n)  y = Cast<to = 7>(a)", None),
        ("h = Mul(n, hop)  y = Cast<to = 1>(h)", None),
    ],
)
def test_sizes_do_not_outgrow_their_type(body: str, most: int | None) -> None:
    model = parse(
        f"(float[batch,time] x) => (int64[1] y) <int64[1] hop = {{180}}> {{ n = Shape<start = 1, end = 2>(x)  {body} }}"
    )
    limits = infer_settled(model)
    assert _longest(limits) == most
    if most == 46340:
        assert str(longest_lengths(limits, ["time"])["time"]).startswith(
            "Mul b_mul takes time**2 as INT32, up to 2147483647"
        )


def test_unsigned_sizes_do_not_fall_below_zero() -> None:
    model = parse(
        """(float[batch,time] x) => (uint64[1] y) <uint64[1] five = {5}>
        { n = Shape<start = 1, end = 2>(x)  a = Cast<to = 13>(n)  y = Sub(a, five) }"""
    )
    limits = infer_settled(model)
    derivation = propagate(model, axes := Axes("batch", {"time": Side.LEFT}), input_facts(model, axes), tolerant=True)
    assert least_lengths(derivation.at_least_one, {"time": 1}, limits) == {"time": 5}


@pytest.mark.parametrize(("attributes", "least"), [("", 3), ("dilations = [2]", 5), ("pads = [1, 1]", 1)])
def test_the_shortest_length_gives_every_size_an_entry(attributes: str, least: int) -> None:
    model = parse(
        f"""(float[batch,4,time] x, float[4,4,3] k) => (float[batch,4,r] y) <int64[1] two = {{2}}>
        {{ c = Conv<{attributes or "group = 1"}>(x, k)  y = ReduceMax(c, two) }}""",
        random_weights({"k": (4, 4, 3)}),
    )
    axes = Axes("batch", {"time": Side.LEFT})
    derivation = propagate(model, axes, input_facts(model, axes))
    assert least_lengths(derivation.at_least_one, {"time": 1}) == {"time": least}


@pytest.mark.parametrize(
    ("size", "is_kept"),
    [
        ("cache + chunk", True),
        ("Min(5, cache + chunk)", True),
        ("Min(9, cache + chunk)", True),
        ("cache + chunk - Max(0, cache + chunk - 5)", True),
        ("cache", False),
        ("Min(5, cache)", False),
        ("Min(4, cache + chunk)", False),
        ("cache + chunk - 1", False),
        ("chunk", False),
        ("5", False),
        ("cache + other", False),
    ],
)
def test_a_state_keeps_as_many_frames_as_are_counted(size: str, is_kept: bool) -> None:
    assert keeps_all_counted(expression(size), expression("cache + chunk"), "cache", 5) is is_kept


def test_a_state_of_all_its_slots_is_counted_where_a_call_fills_them() -> None:
    assert keeps_all_counted(5, expression("cache + 5"), "cache", 5)
    assert not keeps_all_counted(5, expression("cache + 4"), "cache", 5)


@pytest.mark.parametrize(
    ("size", "least"), [("floor(a/2) + b", 5), ("Min(3, a)", 3), ("9 - a", 0), ("a*c", 0), ("12", 12)]
)
def test_a_size_is_smallest_at_the_least_lengths_where_it_grows(size: str, least: int) -> None:
    assert smallest(expression(size) if "a" in size else int(size), {"a": 6, "b": 2}) == least


def test_a_size_of_several_lengths_is_limited_where_all_but_one_are_slots_of_caches() -> None:
    node = ir.Node("", "Slice", [])
    limits: dict[Limit, ir.Node] = {(expression("cache + time"), 8): node}
    with pytest.raises(Refused, match="takes cache \\+ time entries of 8"):
        require_one_length(limits, ["cache", "time"])
    fitted = with_slots(limits, {"cache": 5})
    require_one_length(fitted, ["cache", "time"])
    assert longest_lengths(fitted, ["cache", "time"])["time"].slots == 3
    require_one_length({(expression("-cache - time"), -3): node}, ["cache", "time"])  # a lower limit, solved elsewhere
    require_one_length({(expression("other + more"), 8): node}, ["cache", "time"])
