"""lookup_ranges: which numbers are entries of the tables that they reach, and which declared ones are not."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.proof.facts.lookup_ranges import Carried, assumed_ranges, lookup_ranges, told_ranges
from tests.kit.graphs import parse

TABLE = {"table": np.zeros((12, 4), np.float32)}
HEAD = "(int64[batch,3,time] tokens, float[12,4] table) => (float[batch,3,time,4] y)"

WRITTEN = {
    "as they are": ("", "y = Gather(table, tokens)", (0, 11)),
    "one table for all books": (
        "<int64[3,1] first = {0, 4, 8}>", "p = Add(tokens, first) y = Gather(table, p)", (0, 3),
    ),
    "clamped from below": ("<int64 zero = {0}>", "p = Clip(tokens, zero) y = Gather(table, p)", (0, 11)),
    "clamped": ("<int64 low = {0}, int64 high = {5}>", "p = Clip(tokens, low, high) y = Gather(table, p)", (0, 11)),
    "replaced": (
        "<int64 zero = {0}>", "n = Less(tokens, zero) p = Where(n, zero, tokens) y = Gather(table, p)", (0, 11),
    ),
    "from a number on": ("<int64 first = {100}>", "p = Sub(tokens, first) y = Gather(table, p)", (88, 111)),
    "multiples": ("<int64 three = {3}>", "p = Mul(tokens, three) y = Gather(table, p)", (0, 3)),
    "one number alone": (
        "<int64 pad = {7}, int64 last = {11}, int64 none = {40}>",
        "n = Equal(tokens, pad) p = Where(n, none, last) y = Gather(table, p)", (0, 6),
    ),
}  # fmt: skip


def _graph(name: str) -> ir.Model:
    constants, body, _ = WRITTEN[name]
    return parse(f"{HEAD} {constants} {{ {body} }}", TABLE)


@pytest.mark.parametrize("name", WRITTEN)
def test_without_a_range_the_numbers_are_those_whose_places_are_in_the_table(name: str) -> None:
    low, high = lookup_ranges(_graph(name), {}, ["tokens"], {})["tokens"]
    if name == "from a number on":  # negative places count from the end of the table
        assert 88 <= low <= 100 and high == 111
    else:
        assert (low, high) == WRITTEN[name][2]


@pytest.mark.parametrize(("name", "span"), [("replaced", (-100, 11)), ("clamped", (-5, 99)), ("multiples", (0, 3))])
def test_a_declared_range_whose_places_are_in_the_table_is_taken(name: str, span: tuple[int, int]) -> None:
    assert lookup_ranges(_graph(name), {"tokens": span}, ["tokens"], {}) == {"tokens": span}


@pytest.mark.parametrize(
    ("name", "span", "words"),
    [
        ("one table for all books", (0, 7), "got 0 to 15 for 'tokens' from 0 to 7"),
        ("as they are", (-13, 11), "got -13 to 11"),
        ("clamped from below", (-1, 12), "got 0 to 12"),
        ("one number alone", (0, 20), "got 11 to 40"),
    ],
)
def test_a_declared_number_without_an_entry_is_refused(name: str, span: tuple[int, int], words: str) -> None:
    with pytest.raises(Refused, match="a table of 12 entries") as refused:
        lookup_ranges(_graph(name), {"tokens": span}, ["tokens"], {})
    assert words in refused.value.message
    assert refused.value.place.node == "y_gather" and "tiny.py" in refused.value.place.source
    assert f"write range: [0, {WRITTEN[name][2][1]}] at tokens" in refused.value.cure


def test_numbers_none_of_which_has_an_entry_are_refused() -> None:
    text = f"{HEAD} <int64 far = {{-100000}}> {{ p = Min(tokens, far) y = Gather(table, p) }}"
    with pytest.raises(Refused, match="that index a table of 12 entries, got none"):
        lookup_ranges(parse(text, TABLE), {}, ["tokens"], {})


CONTEXT = """(int64[batch,1] token, int64[batch,1] context, float[12,4] table) => (float[batch,2,4] y, int64[batch,1] n)
    <int64 zero = {0}> { both = Concat<axis = 1>(context, token) p = Max(both, zero) y = Gather(table, p)
    n = Identity(token) }"""


def test_a_state_holds_what_calls_before_left() -> None:
    model, carried = parse(CONTEXT, TABLE), {"context": Carried("n")}
    assert lookup_ranges(model, {"token": (-1, 11)}, ["token"], {}, carried) == {"token": (-1, 11)}
    with pytest.raises(Refused, match=r"got 0 to 12 for 'token' from -1 to 12") as refused:
        lookup_ranges(model, {"token": (-1, 12)}, ["token"], {}, carried)
    assert "write range: [0, 11] at token" in refused.value.cure


def test_a_count_that_goes_on_and_places_of_other_data_are_left_to_padding() -> None:
    counted = CONTEXT.replace("Identity(token)", "Add(context, token)").replace("[batch,1] n)", "[batch,1] n)")
    assert lookup_ranges(parse(counted, TABLE), {}, ["token"], {}, {"context": Carried("n")}) == {"token": (0, 11)}
    text = """(float[batch,4] x, float[12,4] table) => (float[batch,1,4] y)
        { p = ArgMax<axis = 1>(x) y = Gather(table, p) }"""
    assert lookup_ranges(parse(text, TABLE), {}, ["x"], {}) == {}


def test_without_a_name_of_the_rows_numbers_are_tried_call_by_call() -> None:
    text = """(int64[1,3] tokens, float[12,4] table) => (float[1,3,4] y) <int64 two = {2}>
        { p = Mul(tokens, two) y = Gather(table, p) }"""
    assert lookup_ranges(parse(text, TABLE), {}, ["tokens"], {}) == {"tokens": (0, 5)}


def test_ranges_are_told_and_assumed() -> None:
    assert told_ranges({"b": (0, 3), "a": (-1, 2)}) == {"a": [-1, 2], "b": [0, 3]}
    assert assumed_ranges({"a": (-1, 2)}) == ["'a' holds whole numbers from -1 to 2"]


def test_masks_that_places_are_computed_of_hold_either_truth() -> None:
    text = """(int64[batch,t] tokens, bool[batch,t] mask, float[12,4] table) => (float[batch,t,4] y)
        <int64 none = {20}> { p = Where(mask, tokens, none) y = Gather(table, p) }"""
    with pytest.raises(Refused, match="got none"):
        lookup_ranges(parse(text, TABLE), {}, ["tokens"], {})
    fine = parse(text.replace("{20}", "{11}"), TABLE)
    assert lookup_ranges(fine, {}, ["tokens"], {}) == {"tokens": (0, 11)}
