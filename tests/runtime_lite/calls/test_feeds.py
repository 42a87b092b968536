"""A wrong feed is answered with what is right and how to get there; a right one is taken as it is."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from runtime_lite import BadInput, Model, Runtime
from runtime_lite.calls import feeds as feeds_module
from runtime_lite.calls.feeds import Feed, FeedCheck, check_feed, check_ragged_feed, part_of_feed
from tests.runtime_lite.bundles import (
    SHORTEST,
    plain_graph,
    ragged_graph,
    random_chunks,
    random_row,
    truth_of_plain,
    write_double_bundle,
)

X = random_chunks(1, 2)[0]  # [2, 3, 2]
SHIFT = np.array([1, 2])


def with_nan(value: float) -> Any:
    x = X.copy()
    x[1, 2, 0] = value
    return x


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with Runtime() as runtime:
        yield runtime.load(write_double_bundle(tmp_path_factory.mktemp("double")))


def strided() -> Any:
    wide = np.zeros((2, 3, 4), np.float32)
    wide[:, :, ::2] = X
    return wide[:, :, ::2]


@pytest.mark.parametrize(
    "x",
    [X, np.asfortranarray(X), strided(), X[:, ::-1][:, ::-1], np.broadcast_to(X[:1, :1], X.shape), X.view(np.memmap)],
    ids=["plain", "fortran", "strided", "reversed", "broadcast", "memmap"],
)
def test_any_memory_layout_is_accepted(model: Model, x: Any) -> None:
    output = model.run({"x": x, "shift": SHIFT}, graph="plain")["y"]
    np.testing.assert_allclose(output, truth_of_plain(np.array(x), SHIFT), atol=2e-6)


def test_a_read_only_array_is_accepted(model: Model) -> None:
    frozen = X.copy()
    frozen.setflags(write=False)
    model.run({"x": frozen, "shift": SHIFT}, graph="plain")


WRONG = {
    "nothing": ({}, "expected the inputs 'x', 'shift', got no 'x'; add 'x', float32 of shape [batch, frames, 2]"),
    "not a mapping": ([X], "expected a mapping of input names to arrays, got a list; write {'name': array}"),
    "missing": ({"x": X}, "got no 'shift'; add 'shift', int64 of shape [batch]"),
    "misspelt": ({"x": X, "shfit": SHIFT}, "got unknown input 'shfit'; did you mean 'shift'?"),
    "wrong case": ({"X": X, "shift": SHIFT}, "got unknown input 'X'; did you mean 'x'?"),
    "extra": ({"x": X, "shift": SHIFT, "noise": X}, "got unknown input 'noise'; leave it out"),
    "name not a text": ({"x": X, "shift": SHIFT, 7: X}, "got unknown input 7; leave it out"),
    "list": ({"x": X.tolist(), "shift": SHIFT}, "got list; convert it with numpy.asarray(x, numpy.float32)"),
    "none": (
        {"x": None, "shift": SHIFT},
        "'x': expected a NumPy array, float32 of shape [batch, frames, 2], got NoneType",
    ),
    "scalar": ({"x": X, "shift": np.int64(1)}, "got numpy.int64; convert it with numpy.asarray(shift, numpy.int64)"),
    "masked": ({"x": np.ma.masked_array(X), "shift": SHIFT}, "got numpy.ma.MaskedArray; convert it"),
    "float64": (
        {"x": X.astype(np.float64), "shift": SHIFT},
        "expected float32 of shape [batch, frames, 2], got dtype float64; convert it with x.astype(numpy.float32)",
    ),
    "float16": (
        {"x": X.astype(np.float16), "shift": SHIFT},
        "got dtype float16; convert it with x.astype(numpy.float32)",
    ),
    "int32": ({"x": X, "shift": SHIFT.astype(np.int32)}, "got dtype int32; convert it with shift.astype(numpy.int64)"),
    "object": ({"x": X.astype(object), "shift": SHIFT}, "got dtype object; convert it with x.astype(numpy.float32)"),
    "text": ({"x": X.astype(str), "shift": SHIFT}, "got dtype <U"),
    "byte order": ({"x": X.astype(">f4"), "shift": SHIFT}, "got dtype >f4; convert it with x.astype(numpy.float32)"),
    "rank": (
        {"x": X[0], "shift": SHIFT},
        "expected 3 dimensions [batch, frames, 2], got 2 dimensions [3, 2]; add the missing axis",
    ),
    "rank above": ({"x": X[None, None], "shift": SHIFT}, "got 5 dimensions [1, 1, 2, 3, 2]; reshape it"),
    "fixed size": (
        {"x": X[:, :, :1], "shift": SHIFT},
        "expected size 2 on axis 2 of [batch, frames, 2], got 1; feed exactly 2",
    ),
    "bucket": (
        {"x": X[:, :1], "shift": SHIFT},
        "expected one of the sizes 2, 3 on axis 1 of [batch, frames, 2], got 1; feed a size that was built",
    ),
    "over-length": ({"x": np.concatenate([X, X], 1), "shift": SHIFT}, "expected one of the sizes 2, 3 on axis 1"),
    "no rows": ({"x": X[:0], "shift": SHIFT[:0]}, "expected at least 1 row on axis 0 of [batch, frames, 2], got 0"),
    "no frames": ({"x": X[:, :0], "shift": SHIFT}, "expected one of the sizes 2, 3 on axis 1"),
    "unequal rows": (
        {"x": X, "shift": SHIFT[:1]},
        "'shift': expected size 2 on axis 0 of [batch] like 'x', got 1; feed the same size on axis 'batch' everywhere",
    ),
    "nan": ({"x": with_nan(np.nan), "shift": SHIFT}, "expected finite values, got nan at [1, 2, 0] (1 such values)"),
    "inf": ({"x": with_nan(-np.inf), "shift": SHIFT}, "expected finite values, got -inf at [1, 2, 0]"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_feed_is_refused_with_the_cure(model: Model, case: str) -> None:
    feeds, sentence = WRONG[case]
    with pytest.raises(BadInput) as refusal:
        model.run(feeds, graph="plain")  # type: ignore[call-overload]
    message = str(refusal.value)
    assert message.startswith("plain.run: ")
    assert sentence in message
    assert "\n" not in message
    assert not message.endswith(".")


def checked(check: FeedCheck, arrays: Any, rows: int = 1) -> Feed:
    return check.check("test", arrays, rows, {})


@pytest.mark.parametrize("case", WRONG)
def test_what_passed_before_changes_no_refusal(case: str) -> None:
    check = FeedCheck(plain_graph(), True)
    checked(check, {"x": X, "shift": SHIFT})
    checked(check, {"x": X[:, :2], "shift": SHIFT})
    with pytest.raises(BadInput) as refusal:
        checked(check, WRONG[case][0])
    assert WRONG[case][1] in str(refusal.value)


def test_kinds_that_passed_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds_module, "MOST_KINDS", 1)
    graph = plain_graph()
    check, asked = FeedCheck(graph, True), []

    def asks(*said: Any) -> Feed:
        asked.append(said)
        return check_feed(*said)

    monkeypatch.setattr(feeds_module, "check_feed", asks)
    for frames in (3, 3, 2, 2, 3):
        x = np.ascontiguousarray(X[:, :frames])
        found = checked(check, {"shift": SHIFT, "x": x})
        assert (found.sizes, found.rows, list(found.arrays)) == ({"batch": 2, "frames": frames}, 2, ["x", "shift"])
        assert found.arrays["x"] is x
    assert len(asked) == 3  # the second kind is one too many to remember


def test_rows_that_no_input_tells_are_no_part_of_what_passed() -> None:
    inputs = (dataclasses.replace(plain_graph().inputs[0], shape=(3, 2)),)
    graph = dataclasses.replace(plain_graph(), inputs=inputs, axes={"batch": plain_graph().axes["batch"]})
    check = FeedCheck(graph, True)
    assert [checked(check, {"x": X[0]}, rows).rows for rows in (3, 1, 3)] == [3, 1, 3]


@pytest.mark.parametrize(("name", "role"), [("keys", "state"), ("real_length", "length"), ("mask", "mask")])
def test_what_the_runtime_fills_cannot_be_fed(model: Model, name: str, role: str) -> None:
    with model.open_stream("streaming") as stream, pytest.raises(BadInput) as refusal:
        stream.push({"x": X[:1], name: np.zeros(1)})
    expected = (
        f"streaming.push: expected only the inputs 'x', got {name!r} (role {role}); leave it out, the runtime fills it"
    )
    assert str(refusal.value) == expected


RAGGED = ragged_graph()


def rows_of(*lengths: int, room: int = 8) -> dict[str, Any]:
    """Return a feed of the ragged graph with NaN and absurd tokens behind the true lengths."""
    feed = {"x": np.full((len(lengths), room, 2), np.nan, np.float32)}
    feed |= {"tokens": np.full((len(lengths), room), 2**40)}
    for row, length in enumerate(lengths):
        for name, array in random_row(length, row).items():
            feed[name][row, :length] = array[0]
    return feed


@pytest.mark.parametrize(
    "form", [list, tuple, np.array, lambda n: np.array(n, np.uint8), lambda n: [np.int32(i) for i in n]]
)
def test_rows_of_a_feed_are_cut_to_their_lengths(form: Any) -> None:
    lengths = [5, 8, SHORTEST]
    feeds = check_ragged_feed("test", RAGGED, rows_of(*lengths), {"time": form(lengths)}, True)
    assert [dict(feed.sizes) for feed in feeds] == [{"batch": 1, "time": length} for length in lengths]
    for row, feed in enumerate(feeds):
        for name, array in random_row(lengths[row], row).items():
            np.testing.assert_array_equal(feed.arrays[name], array)


def test_arrays_may_have_more_room_than_any_bucket() -> None:
    (feed,) = check_ragged_feed("test", RAGGED, rows_of(7, room=100), {"time": [7]}, True)
    assert feed.sizes == {"batch": 1, "time": 7}


def test_an_axis_without_lengths_is_full_in_every_row() -> None:
    feeds = check_ragged_feed("test", RAGGED, rows_of(8, 8), {}, True)
    assert [feed.sizes["time"] for feed in feeds] == [8, 8]
    with pytest.raises(BadInput, match=r"expected at most 8 on axis 1 of .*, got 9"):
        check_ragged_feed("test", RAGGED, rows_of(9, room=9), {}, True)


WRONG_LENGTHS: dict[str, tuple[Any, str]] = {
    "not a mapping": ([3, 4], "test: expected lengths as a mapping, got a list; write {'axis': [length of every row]}"),
    "unknown axis": ({"frames": [3, 4]}, "expected lengths of the axes 'time', got 'frames'; correct the name"),
    "name of the input": ({"time_length": [3, 4]}, "expected lengths of the axes 'time', got 'time_length'"),
    "exact axis": ({"batch": [3, 4]}, "expected lengths of the axes 'time', got 'batch'"),
    "too few": ({"time": [3]}, "lengths['time']: expected 2 integers, one per row, got [3]; give the number of valid"),
    "too many": ({"time": [3, 4, 5]}, "expected 2 integers, one per row, got [3, 4, 5]"),
    "none": ({"time": []}, "expected 2 integers, one per row, got []"),
    "one number": ({"time": 4}, "expected 2 integers, one per row, got 4"),
    "text": ({"time": "34"}, "expected 2 integers, one per row, got '34'"),
    "nothing": ({"time": None}, "expected 2 integers, one per row, got None"),
    "floats": ({"time": [3.0, 4.0]}, "expected 2 integers, one per row, got [3.0, 4.0]"),
    "float array": ({"time": np.array([3.0, 4.0])}, "expected 2 integers, one per row, got float64 of shape [2]"),
    "booleans": ({"time": [True, True]}, "expected 2 integers, one per row, got [True, True]"),
    "boolean array": ({"time": np.array([True, True])}, "got bool of shape [2]"),
    "column": ({"time": np.array([[3], [4]])}, "got int64 of shape [2, 1]"),
    "nested": ({"time": [[3], [4]]}, "expected 2 integers, one per row, got [[3], [4]]"),
    "below the minimum": (
        {"time": [4, 2]},
        "lengths['time'][1]: expected from 3 to 8, got 2; 3 is the smallest",
    ),
    "zero": ({"time": [0, 4]}, "lengths['time'][0]: expected from 3 to 8, got 0"),
    "negative": ({"time": [4, -1]}, "lengths['time'][1]: expected from 3 to 8, got -1"),
    "beyond the arrays": (
        {"time": [4, 9]},
        "expected from 3 to 8, got 9; 3 is the smallest length that is proved, 8",
    ),
    "beyond 64 bits": ({"time": [4, 2**70]}, "expected from 3 to 8, got 1180591620717411303424"),
}


@pytest.mark.parametrize("case", WRONG_LENGTHS)
def test_wrong_lengths_are_refused_with_the_cure(case: str) -> None:
    lengths, sentence = WRONG_LENGTHS[case]
    with pytest.raises(BadInput) as refusal:
        check_ragged_feed("test", RAGGED, rows_of(8, 8), lengths, True)
    assert sentence in str(refusal.value)
    assert str(refusal.value).isprintable()


def test_a_length_beyond_the_largest_bucket_is_refused_whatever_the_room() -> None:
    with pytest.raises(BadInput, match=r"\[0\]: expected from 3 to 8, got 9; .* 8 the largest of the buckets \(4, 8\)"):
        check_ragged_feed("test", RAGGED, rows_of(8, room=20), {"time": [9]}, True)


def test_only_what_is_valid_must_be_finite() -> None:
    feed = rows_of(5, 5)
    feed["x"][1, 4, 0] = np.inf
    assert len(check_ragged_feed("test", RAGGED, feed, {"time": [5, 4]}, True)) == 2
    with pytest.raises(BadInput, match=r"test: row 1: 'x': expected finite values, got inf at \[0, 4, 0\] \(1 such"):
        check_ragged_feed("test", RAGGED, feed, {"time": [5, 5]}, True)
    assert len(check_ragged_feed("test", RAGGED, feed, {"time": [5, 5]}, False)) == 2


def test_a_graph_without_such_an_axis_takes_no_lengths() -> None:
    with pytest.raises(BadInput, match="expected a graph with rows and lengths of their own, got one without; lea"):
        check_ragged_feed("test", plain_graph(), {"x": X, "shift": SHIFT}, {"frames": [3, 3]}, True)
    alone = dataclasses.replace(RAGGED, axes={"time": RAGGED.axes["time"]}, batch_axis=None)
    with pytest.raises(BadInput, match="got one whose rows have the same length; leave lengths out"):
        check_ragged_feed("test", alone, rows_of(5), {"time": [5]}, True)


@pytest.mark.parametrize(
    ("length", "sentence"),
    [
        (2, "'x': expected at least 3 on axis 1 of [batch, time, 2], got 2; pad the input as the model was trained to"),
        (
            9,
            "expected at most 8 on axis 1 of [batch, time, 2] (buckets 4, 8), got 9; feed less at a time or build",
        ),
    ],
)
def test_a_feed_must_be_as_long_as_was_proved_and_no_longer_than_a_bucket(length: int, sentence: str) -> None:
    with pytest.raises(BadInput) as refusal:
        check_feed("test", RAGGED, random_row(length), True)
    assert sentence in str(refusal.value)


def test_without_independent_rows_a_feed_has_one_row() -> None:
    graph = dataclasses.replace(RAGGED, rows_independent=False)
    check_feed("test", graph, random_row(5), True)
    expected = r"expected 1 row on axis 0 of .*, got 2; feed them one after the other, the bundle does not prove"
    with pytest.raises(BadInput, match=expected):
        check_feed("test", graph, rows_of(8, 8), True)


def test_a_part_of_a_feed_keeps_whole_what_has_none_of_its_axes() -> None:
    inputs = (*plain_graph().inputs[:1], dataclasses.replace(plain_graph().inputs[1], shape=(2,)))
    graph = dataclasses.replace(plain_graph(), inputs=inputs)
    part = part_of_feed(graph, check_feed("test", graph, {"x": X, "shift": SHIFT}, True), {"batch": slice(1, 2)})
    assert (part.sizes, part.rows) == ({"batch": 1, "frames": 3}, 1)
    np.testing.assert_array_equal(part.arrays["x"], X[1:2])
    np.testing.assert_array_equal(part.arrays["shift"], SHIFT)


def test_rows_that_no_input_tells_are_those_of_the_stream() -> None:
    inputs = (dataclasses.replace(plain_graph().inputs[0], shape=(3, 2)),)
    graph = dataclasses.replace(plain_graph(), inputs=inputs, axes={"batch": plain_graph().axes["batch"]})
    assert check_feed("test", graph, {"x": X[0]}, True, rows=3).rows == 3
    assert check_feed("test", plain_graph(), {"x": X, "shift": SHIFT}, True, rows=3).rows == 2


@pytest.mark.parametrize(("tokens", "refused"), [([0, 2], ""), ([-1, 0], r"-1 at \[0\]"), ([2, 3], r"3 at \[1\]")])
def test_numbers_out_of_the_range_of_their_input_are_refused(tokens: list[int], refused: str) -> None:
    graph = plain_graph()
    shift = dataclasses.replace(next(each for each in graph.inputs if each.name == "shift"), range=(0, 2))
    graph = dataclasses.replace(graph, inputs=(graph.inputs[0], shift))
    check = FeedCheck(graph, False)
    checked(check, {"x": X, "shift": np.array([0, 1])})
    for _ in range(2):  # a kind that passed before is looked at, too
        if not refused:
            checked(check, {"x": X, "shift": np.array(tokens)})
            continue
        with pytest.raises(BadInput, match=rf"'shift': expected numbers from 0 to 2, .* got {refused}"):
            checked(check, {"x": X, "shift": np.array(tokens)})


def test_a_range_lets_nan_be_where_nobody_looks_for_it() -> None:
    graph = plain_graph()
    x = dataclasses.replace(graph.inputs[0], range=(-10.0, 10.0))
    graph = dataclasses.replace(graph, inputs=(x, *graph.inputs[1:]))
    check_feed("test", graph, {"x": with_nan(np.nan), "shift": SHIFT}, False)
    with pytest.raises(BadInput, match=r"from -10\.0 to 10\.0"):
        check_feed("test", graph, {"x": with_nan(np.inf), "shift": SHIFT}, False)


def test_a_copy_is_made_before_values_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who writes at that moment, in another thread, changes nothing of what was checked."""
    graph, given = plain_graph(), {"x": X.copy(), "shift": SHIFT}
    looked = np.isfinite

    def write(array: Any) -> Any:
        given["x"][...] = np.nan
        return looked(array)

    monkeypatch.setattr(np, "isfinite", write)
    for _ in range(2):
        given["x"][...] = X
        feed = FeedCheck(graph, True).check("test", given, 1, {}, copy=True)
        assert np.isfinite(feed.arrays["x"]).all()
    lengths = {"time": [5, 8]}
    given = rows_of(5, 8)
    copies = check_ragged_feed("test", RAGGED, given, lengths, False, copy=True)
    assert not any(np.shares_memory(each.arrays[name], given[name]) for each in copies for name in given)
