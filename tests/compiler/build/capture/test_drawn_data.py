"""Feeds are drawn once, known by their digests, and have one role each."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from compiler.base.cache.results import StageResults
from compiler.build.capture.drawn_data import DrawnData
from compiler.build.report.progress import Progress
from compiler.errors import DataError
from compiler.recipe.load import LoadedRecipe, load_recipe
from compiler.recipe.record import Feeds
from compiler.recipe.stage_inputs import for_data, surroundings_of
from tests.kit.models.project import tiny_project


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadedRecipe]:
    project = tiny_project(tmp_path, tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    project.forget_modules()
    yield load_recipe("tiny.yaml")
    project.forget_modules()


def drawn(loaded: LoadedRecipe, **roles: Feeds) -> DrawnData:
    spec = for_data(loaded.recipe.graphs["net"])
    data = DrawnData(loaded.location, "net", spec, StageResults(None, loaded.path.parent))
    progress = Progress(Console(quiet=True))
    for purpose, feeds in roles.items():
        data.draw(purpose, feeds, 6, surroundings_of(loaded), progress)
    return data


def test_streams_are_drawn_once_and_the_longest_comes_first(loaded: LoadedRecipe) -> None:
    data = drawn(loaded, verification=loaded.recipe.data.verification)
    streams = data.drawn("verification")
    assert [len(stream) for stream in streams] == [8, 7, 6] and data.drawn("verification") is streams
    assert set(data.digests) == {"verification"}


def test_files_that_feeds_are_made_from_are_known(loaded: LoadedRecipe) -> None:
    folder = loaded.path.absolute().parent
    (folder / "recordings").mkdir()
    (folder / "recordings" / "one.npy").touch()
    feeds = loaded.recipe.data.verification.model_copy(update={"files": ("recordings",)})
    data = drawn(loaded, verification=feeds)
    assert data.is_data(str(folder / "recordings" / "one.npy"))
    assert not data.is_data(str(folder / "recordings_of_others"))


def test_feeds_that_differ_from_those_of_the_beginning_are_refused(loaded: LoadedRecipe) -> None:
    data = drawn(loaded, verification=loaded.recipe.data.verification)
    data.digests["verification"] = "other"
    data._streams.clear()
    with pytest.raises(DataError, match="to yield what it yielded before"):
        data.drawn("verification")


def test_no_feed_has_two_roles(loaded: LoadedRecipe) -> None:
    feeds = loaded.recipe.data.verification
    assert drawn(loaded, verification=feeds).calibration(None, lambda: None) is None  # type: ignore[arg-type, return-value]
    data = drawn(loaded, verification=feeds, calibration=feeds)
    with pytest.raises(DataError, match="expected data that no other role has"):
        data.calibration(None, lambda: None)  # type: ignore[arg-type, return-value]
    apart = [[{"features": np.full((1, 4, 8), 3.25, np.float32) + np.arange(8, dtype=np.float32)}]]
    data.check_apart(apart, "gates", "task", "recordings")
    assert dataclasses.is_dataclass(data.inputs["calibration"])
