"""Every feed runs once, in a bucket that holds it, and never beside one that it may not share a run with."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.plan import bucket_fault, plan_runs, smallest_bucket
from runtime_lite.format.manifest import Axis, Graph
from tests.runtime_lite.bundles import ragged_graph, streaming_graph

AXES = {"batch": Axis((1, 2, 5)), "time": Axis((4, 8, 16), "time_length", 1), "width": Axis((2, 3))}
GRAPH = dataclasses.replace(ragged_graph(), axes=AXES)


def feed(time: int, width: int = 2, batch: int = 1) -> Feed:
    return Feed({}, {"batch": batch, "time": time, "width": width}, batch)


def lengths(graph: Graph, feeds: list[Feed]) -> list[list[int]]:
    return [[feeds[number].sizes["time"] for number in run] for run in plan_runs(graph, feeds)]


def test_a_run_holds_as_many_rows_as_the_largest_bucket_and_similar_lengths() -> None:
    feeds = [feed(time) for time in (3, 16, 1, 9, 2, 15, 4)]
    assert lengths(GRAPH, feeds) == [[16, 15, 9, 4, 3], [2, 1]]
    assert plan_runs(GRAPH, [feed(4), feed(4), feed(4)]) == [[0, 1, 2]], "equal lengths keep their order"
    assert plan_runs(GRAPH, []) == []


def test_feeds_of_several_rows_stay_whole() -> None:
    assert plan_runs(GRAPH, [feed(4, batch=5), feed(4, batch=3), feed(4, batch=2), feed(4)]) == [[0], [1, 2], [3]]


def test_axes_that_cannot_be_padded_never_mix() -> None:
    assert plan_runs(GRAPH, [feed(4, 3), feed(9, 2), feed(5, 3), feed(4, 2)]) == [[1, 3], [2, 0]]


def test_without_a_batch_axis_every_feed_runs_alone() -> None:
    graph = dataclasses.replace(GRAPH, axes={"time": AXES["time"]}, batch_axis=None)
    feeds = [Feed({}, {"time": time}) for time in (3, 5)]
    assert plan_runs(graph, feeds) == [[1], [0]]
    assert smallest_bucket(graph, feeds[:1]) == {"time": 4}


def test_the_smallest_bucket_holds_all_rows_and_the_longest_of_them() -> None:
    assert smallest_bucket(GRAPH, [feed(3, 3)]) == {"batch": 1, "time": 4, "width": 3}
    assert smallest_bucket(GRAPH, [feed(3), feed(5)]) == {"batch": 2, "time": 8, "width": 2}
    assert smallest_bucket(GRAPH, [feed(8), feed(4, batch=2)]) == {"batch": 5, "time": 8, "width": 2}
    assert smallest_bucket(streaming_graph(), [Feed({}, {"batch": 3}, 3)]) == {"batch": 4}


@given(st.lists(st.builds(feed, st.integers(1, 16), st.sampled_from([2, 3]), st.integers(1, 5)), max_size=20))
def test_any_feeds_run_once_each_in_a_bucket_that_holds_them(feeds: list[Feed]) -> None:
    runs = plan_runs(GRAPH, feeds)
    assert sorted(number for run in runs for number in run) == list(range(len(feeds)))
    for run in runs:
        together = [feeds[number] for number in run]
        bucket = smallest_bucket(GRAPH, together)
        assert {one.sizes["width"] for one in together} == {bucket["width"]}
        assert sum(one.rows for one in together) <= bucket["batch"]
        assert max(one.sizes["time"] for one in together) <= bucket["time"]
        assert bucket_fault(GRAPH, together, bucket) is None


def test_what_does_not_fit_into_a_bucket_is_named() -> None:
    bucket = {"batch": 2, "time": 8, "width": 3}
    assert bucket_fault(GRAPH, [feed(8, 3), feed(1, 3)], bucket) is None
    assert bucket_fault(GRAPH, [feed(8, 3), feed(1, 3, 2)], bucket) == "3 rows"
    assert bucket_fault(GRAPH, [feed(9, 3)], bucket) == "9 on axis 'time'"
    assert bucket_fault(GRAPH, [feed(8, 2)], bucket) == "2 on axis 'width'", "only rows and lengths are padded"
    assert bucket_fault(GRAPH, [feed(8, 3)], {**bucket, "batch": 3}) == "3 on axis 'batch', which was not built"
