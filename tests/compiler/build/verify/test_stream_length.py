"""How many calls a table lasts is what it does in fact; a count is followed through every operator."""

import numpy as np
import pytest

from compiler.build.verify.stream_length import FIRST_CALLS, Lookup, counts_of, lookups_by_counts, shortest, words_of
from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.graph.stages import Lowered, State
from tests.kit.graphs import parse, random_weights

STEP = 4


def counting(body: str, rows: int, dtype: str = "int64", more: str = "") -> Lowered:
    """A graph of one count and one lookup, of which `places` are the indices."""
    text = f"""(float[batch,4,2] x, {dtype}[batch] offset, float[{rows},2] table{more})
    => (float[batch,4,2] y, {dtype}[batch] offset_after)
    <{dtype} step = {{{STEP}}}, {dtype}[4] run = {{0, 1, 2, 3}}, int64[1] last = {{1}}, {dtype} many = {{24}},
     {dtype} two = {{2}}, float half = {{0.5}}, {dtype} none = {{0}}, {dtype} far = {{99}}> {{
        offset_after = Add(offset, step)
        column = Unsqueeze(offset, last)
        late = Add(column, run)
        {body}
        found = Gather(table, places)
        y = Add(x, found)
    }}"""
    model = parse(text, random_weights({"table": (rows, 2)}))
    graphs.infer_shapes(model)
    return Lowered("net", model, None, (State("offset", "offset_after", None),), (), "batch")


def first_failure(lowered: Lowered, most: int) -> int | None:
    """The number of calls that the graph itself answers, one after the other."""
    session = open_session(graphs.serialized(lowered.model))
    for call in range(most):
        feed = {"x": np.zeros((1, 4, 2), np.float32), "offset": np.array([call * STEP], np.int64)}
        try:
            session.run(None, feed)
        except Exception:  # noqa: BLE001 - whatever the runtime calls it
            return call
    return None


@pytest.mark.parametrize("count", ["", "1"])
def test_a_count_of_a_model_without_a_batch_axis_is_followed_call_by_call(count: str) -> None:
    text = f"""(float[4,2] x, int64[{count}] offset, float[100,2] table) => (float[4,2] y, int64[{count}] offset_after)
    <int64 step = {{4}}, int64[4] run = {{0, 1, 2, 3}}> {{
        offset_after = Add(offset, step)
        places = Add(offset, run)
        found = Gather(table, places)
        y = Add(x, found)
    }}"""
    model = parse(text.replace("int64[] offset", "int64 offset"), random_weights({"table": (100, 2)}))
    graphs.infer_shapes(model)
    (lookup,) = lookups_by_counts(Lowered("net", model, None, (State("offset", "offset_after", None),), (), None))
    assert (lookup.calls, lookup.is_exact) == (25, True)


BODIES = {
    "as it is": ("places = Identity(late)", 100),
    "doubled": ("places = Add(late, late)", 100),
    "times a number": ("places = Mul(late, two)", 100),
    "through floats": ("f = Cast<to = 1>(late)  g = Mul(f, half)  places = Cast<to = 7>(g)", 100),
    "its root": ("f = Cast<to = 1>(late)  g = Sqrt(f)  places = Cast<to = 7>(g)", 12),
    "through bits": ("b = BitwiseOr(late, two)  places = BitwiseXor(b, two)", 60),
    "divided": ("places = Div(late, step)", 30),
    "a remainder that is too large": ("places = Mod(late, far)", 90),
    "through a choice": ("c = Less(late, many)  places = Where(c, none, late)", 70),
    "backwards": ("places = Neg(late)", 40),
    "the larger of two": ("places = Max(late, many)", 50),
    "summed up": ("a = Squeeze(last)  places = CumSum(late, a)", 200),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_table_lasts_as_many_calls_as_the_graph_answers(name: str) -> None:
    body, rows = BODIES[name]
    lowered = counting(body, rows)
    (found,) = lookups_by_counts(lowered)
    assert found.entries == rows and found.is_exact
    assert found.calls is not None and found.calls == first_failure(lowered, 200)


def test_a_period_within_the_table_never_ends() -> None:
    (found,) = lookups_by_counts(counting("places = Mod(late, many)", 24))
    assert found.calls is None and "never seen" in words_of(found)
    (bounded,) = lookups_by_counts(counting("places = Min(late, many)", 25))
    assert bounded.calls is None


def test_a_table_that_ends_beyond_the_first_calls_is_bounded() -> None:
    (found,) = lookups_by_counts(counting("f = Div(late, many)  places = Div(f, many)", 2000))
    exact = 2000 * 24 * 24 // STEP
    assert exact > FIRST_CALLS and found.calls is not None and not found.is_exact
    assert exact <= found.calls < 4 * exact
    assert words_of(found).startswith("at most ")


def test_indices_of_data_as_well_are_no_promise() -> None:
    lowered = counting("places = Add(late, kind)", 100, more=", int64[batch,4] kind")
    (found,) = lookups_by_counts(lowered)
    assert found.beside == "kind" and found.calls is None and "follows from kind as well" in words_of(found)


def test_what_is_moved_on_by_a_constant_is_a_count() -> None:
    lowered = counting("places = Identity(late)", 10)
    assert counts_of(lowered) == {"offset": STEP}
    assert counts_of(counting("places = Identity(late)", 10, "int32")) == {"offset": STEP}


def test_the_first_end_counts() -> None:
    assert shortest([Lookup("a", "", 9, 7), Lookup("b", "", 9), Lookup("c", "", 9, 5)]) == 5
    assert shortest([Lookup("b", "", 9)]) is None
    assert (
        words_of(Lookup("a", "m.py:3", 9, 7))
        == "7 calls, then it leads behind the end of a table of 9 entries at m.py:3"
    )
