"""The page in a real browser shows what its microphone hears, across a lost connection."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.captions.data import ALGORITHMIC_DELAY_MS
from examples.streaming_asr.metric import wer
from tests.examples.captions.against_browser import (
    MADE_BY,
    WANTED,
    browser,
    build,
    page_says,
    serving,
    spoken,
    tabs_say,
)
from tests.runtime_lite.hosting.own_environment import CACHE, AbsentError, environment

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        browser()
        return environment(CACHE / "captions", WANTED, MADE_BY)
    except AbsentError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def url(python: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, serving(python, build(Path(folder))) as address:
        yield address


def test_the_page_shows_what_the_microphone_hears_across_a_lost_connection(
    python: Path, url: str, tmp_path: Path
) -> None:
    said = page_says(python, url, tmp_path)
    assert not said["errors"]
    assert said["transient"] > 0 and len(said["lines"]) > 1
    assert said["generation"] == 2
    assert wer([" ".join(spoken())], [" ".join(said["lines"])]) < 0.4
    assert said["cells"]["chunk"].startswith(f"{ALGORITHMIC_DELAY_MS:.1f}")
    assert all(text != "-" for text in said["cells"].values())


def test_thirty_sessions_are_answered(python: Path, url: str) -> None:
    assert tabs_say(python, url, 30, 6.0).startswith("30 sessions of 6 s")
