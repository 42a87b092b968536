"""Streams as they come from a user's generator: accepted as they are, or refused with the place and the cure."""

from pathlib import Path

import numpy as np
import pytest

from compiler.errors import DataError
from compiler.graph.stages import Feed
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, Input, Source
from compiler.recipe.load import LoadedRecipe, load_recipe
from compiler.recipe.user_code.streams import check_stream, check_streams, digest_of, draw_streams, locate_files
from tests.kit.models.project import tiny_project

SPEC = Graph(
    source=Source(factory="m:build"),
    inputs={
        "x": Input(shape=("batch", "frames", 2), dtype="float32"),
        "past": Input(shape=("batch", 2), dtype="float32", state="next"),
    },
    outputs=("y", "next"),
    axes={"batch": Axis(buckets=(1, 4)), "frames": Axis(fixed=3)},
)

RIGHT = np.zeros((1, 3, 2), np.float32)


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedRecipe:
    tiny_project(tmp_path, tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    return load_recipe("tiny.yaml")


def test_count_streams_are_drawn_from_an_endless_generator(loaded: LoadedRecipe) -> None:
    feeds, spec = loaded.recipe.data.verification, loaded.recipe.graphs["net"]
    streams = draw_streams(loaded, "verification", feeds, "net", spec)
    assert [len(stream) for stream in streams] == [8, 7, 6]
    assert digest_of(streams) == digest_of(draw_streams(loaded, "verification", feeds, "net", spec))


def test_fewer_streams_than_the_recipe_counts_are_refused(loaded: LoadedRecipe) -> None:
    feeds, spec = loaded.recipe.data.verification, loaded.recipe.graphs["net"]
    (loaded.path.parent / "two.py").write_text(
        "import numpy as np\n"
        "def streams():\n"
        "    yield from ([{'features': np.zeros((1, 4, 6), np.float32)}] for _ in range(2))\n"
    )
    few = feeds.model_copy(update={"feeds": "two:streams", "count": 3})
    with pytest.raises(DataError, match=r"expected 3 streams from two:streams, got 2; write count: 2"):
        draw_streams(loaded, "verification", few, "net", spec)


def test_files_are_found_or_named(loaded: LoadedRecipe) -> None:
    feeds = loaded.recipe.data.verification
    assert [path.name for path in locate_files(loaded, feeds.files, "data", "verification")] == ["level.txt"]
    (loaded.path.parent / "level.txt").unlink()
    with pytest.raises(DataError, match=r"tiny\.yaml:27: data\.verification\.files.* got nothing at level\.txt; check"):
        locate_files(loaded, feeds.files, "data", "verification")


def test_right_stream_is_accepted() -> None:
    assert len(check_stream([{"x": RIGHT}, {"x": RIGHT + 1}], SPEC, "here")) == 2


@pytest.mark.parametrize(
    ("feed", "words"),
    [
        ({}, "expected inputs ['x'], got []"),
        ({"x": RIGHT, "past": np.zeros((1, 2), np.float32)}, "leave past out, or change what the recipe says"),
        ({"x": RIGHT, 3: RIGHT}, "got ['3', 'x']; leave 3 out, or list it under inputs"),
        ({"y": RIGHT}, "write one name for the same input in the recipe and in the feeds"),
        ({}, "yield x in every feed; or write state: OUTPUT"),
        ([RIGHT], "yield dictionaries"),
        ({"x": [[0.0]]}, "expected a numpy array, got list"),
        (
            {"x": RIGHT.astype(np.float16)},
            "expected float32, got float16; use .astype('float32'), or write dtype: float16",
        ),
        ({"x": RIGHT[:, :2]}, "got [1, 2, 2]"),
        ({"x": RIGHT[0]}, "got [3, 2]; yield one row in front, array[None]"),
        ({"x": RIGHT[None]}, "got [1, 1, 3, 2]; yield as many axes"),
        ({"x": RIGHT[:0]}, "got [0, 3, 2]; yield at least one entry"),
        ({"x": np.repeat(RIGHT, 2, 0)}, "whole chunks of one row"),
        ({"x": RIGHT - np.inf}, "NaN or infinity"),
    ],
)
def test_wrong_feed_is_refused_with_its_place(feed: object, words: str) -> None:
    with pytest.raises(DataError) as caught:
        check_stream([{"x": RIGHT}, feed], SPEC, "here")
    assert str(caught.value).startswith("here, feed 1")
    assert words in str(caught.value)


def test_digest_sees_names_types_shapes_contents_and_boundaries() -> None:
    one: Feed = {"x": RIGHT}
    variants: list[list[list[Feed]]] = [
        [[one, one]],
        [[one], [one]],
        [[one]],
        [[{"y": RIGHT}]],
        [[{"x": RIGHT.astype(np.float64)}]],
        [[{"x": RIGHT.reshape(3, 2, 1)}]],
        [[{"x": RIGHT + 1}]],
        [[{"x": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(1, 3, 2))}]],
    ]
    assert len({digest_of(streams) for streams in variants}) == len(variants)
    ordered = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    assert digest_of([[{"x": ordered}]]) == digest_of(variants[-1])


def test_data_must_be_long_enough_for_the_gate() -> None:
    check_streams([[{}] * 3], 3, "net")
    for streams, words in (([], "got none"), ([[]], "stream 0"), ([[{}]], "at least 3 chunks")):
        with pytest.raises(DataError, match=words):
            check_streams(streams, 3, "net")
