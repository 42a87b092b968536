"""The graph as capture hands it on."""

import contextlib
from unittest import mock

import pytest

from compiler.build.capture.initial_graph import initial_graph, states_of, step_frames
from compiler.errors import Refused
from compiler.graph.model import infer_shapes
from compiler.graph.stages import State
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, Input, Source
from tests.kit.graphs import parse
from tests.kit.models.project import Project


def test_states_of_a_recipe_know_their_frames_axis() -> None:
    spec = Graph(
        source=Source(factory="m:f"),
        inputs={
            "x": Input(shape=("batch", 2), dtype="float32"),
            "cache": Input(shape=("batch", 4, "frames"), dtype="float32", state="next_cache"),
            "context": Input(shape=("batch", 4, 2), dtype="float32", state="next_context"),
        },
        outputs=("y", "next_cache", "next_context"),
        axes={"batch": Axis(buckets=(1,)), "frames": Axis(window=6)},
        passes=(),
    )
    assert states_of(spec) == (State("cache", "next_cache", 2, "frames"), State("context", "next_context", None))


@pytest.mark.slow
def test_parity_that_never_sees_the_window_overflow_is_a_wrong_recipe(project: Project) -> None:
    ended = project.build("--set", "gates.parity.net.chained_steps=3")
    assert ended.code == 2
    assert "chained_steps: expected at least 4 steps, so that a window of 8 frames overflows at 4 per call" in ended.err


@pytest.mark.slow
def test_a_window_smaller_than_a_call_is_a_wrong_recipe(project: Project) -> None:
    ended = project.build("--set", "graphs.net.axes.cache.window=3")
    assert ended.code == 2
    assert (
        "axes.cache.window: expected at least 4 slots, as every call adds 4 frames, got 3; write 4 or more" in ended.err
    )


def test_a_state_that_comes_back_in_another_type_is_refused_by_its_types() -> None:
    text = "(float[1,2] x, float[1,2] c) => (float[1,2] y, double[1,2] d) { y = Add(x, c) d = Cast<to = 11>(y) }"
    spec = Graph(
        source=Source(factory="m:f"),
        inputs={
            "x": Input(shape=(1, 2), dtype="float32"),
            "c": Input(shape=(1, 2), dtype="float32", state="d"),
        },
        outputs=("y", "d"),
        passes=(),
    )
    with pytest.raises(Refused, match="'c' goes in as float32 and comes back from 'd' as float64; cast it to float32"):
        initial_graph(mock.Mock(), "net", spec, (parse(text, {}), None), 1, {})


def test_a_state_that_comes_back_with_fewer_axes_is_refused_before_its_frames_are_counted() -> None:
    text = """(float[batch,2,4] x, float[batch,cached,4] c) => (float[batch,2,4] y, float[batch,4] d)
        <int64[1] one = {1}> { y = Add(x, x) d = ReduceMean<keepdims = 0>(c, one) }"""
    spec = Graph(
        source=Source(factory="m:f"),
        inputs={
            "x": Input(shape=("batch", 2, 4), dtype="float32"),
            "c": Input(shape=("batch", 4, "cached"), dtype="float32", state="d"),
        },
        outputs=("y", "d"),
        axes={"batch": Axis(buckets=(1,)), "cached": Axis(window=6)},
        passes=(),
    )
    with pytest.raises(Refused, match=r"state 'c' goes in as .* and comes back from 'd' as .batch, 4.; feed back"):
        initial_graph(mock.Mock(), "net", spec, (parse(text, {}), None), 1, {})


def test_new_frames_are_told_from_what_another_cache_holds() -> None:
    """Joined to two caches at once, the new frames alone are what is left; a cache may be cut before it is joined."""
    model = parse(
        """(float[batch,2,4] x, float[batch,bank,4] memory, float[batch,cached,4] past)
        => (float[batch,q,4] y, float[batch,r,4] next_memory, float[batch,s,4] next_past)
        <int64[1] newest = {-5}, int64[1] end = {9223372036854775807}, int64[1] one = {1}>
        {
            y = Concat<axis = 1>(memory, past, x)  m = ReduceMean(x, one)  next_memory = Concat<axis = 1>(memory, m)
            kept = Slice(past, newest, end, one)  next_past = Concat<axis = 1>(kept, x)
        }"""
    )
    infer_shapes(model)
    states = (State("memory", "next_memory", 1, "bank"), State("past", "next_past", 1, "cached"))
    assert [step_frames(model, states, (), axis, "net") for axis in ("bank", "cached")] == [1, 2]


LOOK_AHEAD = """(float[batch,6,4] x, float[batch,cached,4] past) => (float[batch,q,4] y, float[batch,r,4] next_past)
    <int64[1] first = {0}, int64[1] ahead = {-2}, int64[1] newest = {-8}, int64[1] end = {9223372036854775807},
     int64[1] one = {1}>
    {
        y = Concat<axis = 1>(past, x)
        BODY
    }"""
CUT = "heard = Slice(x, first, ahead, one)  all = Concat<axis = 1>(past, heard)" + (
    "  next_past = Slice(all, newest, end, one)"
)


@pytest.mark.parametrize(
    "body",
    [
        "heard = Slice(x, first, ahead, one)  next_past = Concat<axis = 1>(past, heard)",
        CUT,
        "next_past = Slice(y, first, ahead, one)",
    ],
    ids=["whole", "cut to the newest", "cut from what is attended to"],
)
def test_frames_of_a_look_ahead_are_attended_to_and_not_kept(body: str) -> None:
    model = parse(LOOK_AHEAD.replace("BODY", body))
    infer_shapes(model)
    assert step_frames(model, (State("past", "next_past", 1, "cached"),), (), "cached", "net") == 4


def test_caches_of_one_axis_that_grow_differently_are_refused_by_both_names() -> None:
    # regression: the first of them told how far both go, and the frames of the other were counted wrongly
    model = parse(
        """(float[batch,4,2] x, float[batch,2,2] m, float[batch,cached,2] past, float[batch,cached,2] memory)
        => (float[batch,r,2] next_past, float[batch,s,2] next_memory)
        { next_past = Concat<axis = 1>(past, x)  next_memory = Concat<axis = 1>(memory, m) }"""
    )
    infer_shapes(model)
    states = (State("past", "next_past", 1, "cached"), State("memory", "next_memory", 1, "cached"))
    with pytest.raises(Refused, match="adds 4 frames to 'past' and 2 to 'memory', which lie along one axis 'cached'"):
        step_frames(model, states, (), "cached", "net")


def test_a_cut_to_as_many_frames_as_a_call_adds_hides_nothing() -> None:
    model = parse(LOOK_AHEAD.replace("BODY", CUT).replace("newest = {-8}", "newest = {-4}"))
    infer_shapes(model)
    assert step_frames(model, (State("past", "next_past", 1, "cached"),), (), "cached", "net") == 4


def test_new_frames_whose_number_no_size_tells_are_refused_by_what_takes_them() -> None:
    # regression: the message named a size that inference had made up, and a cure that was followed already
    model = parse(
        """(float[1,4,2] x, bool[4] heard, float[1,cached,2] past) => (float[1,r,2] next_past)
        { found = Compress<axis = 1>(x, heard)  doubled = Add(found, found)
          next_past = Concat<axis = 1>(past, doubled) }"""
    )
    spec = Graph(
        source=Source(factory="m:f"),
        inputs={
            "x": Input(shape=(1, 4, 2), dtype="float32"),
            "heard": Input(shape=(4,), dtype="bool"),
            "past": Input(shape=(1, "cached", 2), dtype="float32", state="next_past"),
        },
        outputs=("next_past",),
        axes={"cached": Axis(window=6)},
        passes=(),
    )
    with pytest.raises(Refused, match="depends on what Compress gives here; let their number follow from shapes"):
        initial_graph(mock.Mock(), "net", spec, (model, None), 9, {})


@pytest.mark.parametrize(
    ("given", "back", "is_refused"),
    [
        (("batch", 3, 4), "d = Concat<axis = 1>(c, x)", True),
        (("batch", 3, 4), "e = Concat<axis = 1>(c, x) d = Slice(e, m, all, one)", False),
        (("batch", 3, 4), "d = Transpose<perm = [1, 0, 2]>(c)", True),
        (("batch", 3, 4), "d = Transpose<perm = [0, 2, 1]>(c)", True),
        (("batch", 3, 4), "d = Tanh(c)", False),
    ],
    ids=["grows", "cut", "rows elsewhere", "turned", "same"],
)
def test_a_state_of_one_size_is_refused_where_it_comes_back_in_another(
    given: tuple[str | int, ...], back: str, is_refused: bool
) -> None:
    # regression: sizes that chunks or rows have a part in were not compared, and the checker quarrelled
    text = f"""(float[batch,chunk,4] x, float[batch,3,4] c) => (float[batch,chunk,4] y, float[batch,q,4] d)
        <int64[1] one = {{1}}, int64[1] m = {{-3}}, int64[1] all = {{9223372036854775807}}> {{ y = Tanh(x) {back} }}"""
    spec = Graph(
        source=Source(factory="m:f"),
        inputs={
            "x": Input(shape=("batch", "chunk", 4), dtype="float32"),
            "c": Input(shape=given, dtype="float32", state="d"),
        },
        outputs=("y", "d"),
        axes={"batch": Axis(buckets=(1, 2)), "chunk": Axis(buckets=(4,), length_input="frames")},
        passes=(),
    )
    models = parse(text, {}), None
    refused = pytest.raises(Refused, match=r"'c' goes in as .* feed back a state")
    with refused if is_refused else contextlib.nullcontext():
        initial_graph(mock.Mock(), "net", spec, models, 1, {"batch": 2, "chunk": 4})
