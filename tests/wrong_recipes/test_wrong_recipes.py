"""Every wrong recipe is refused before the export, with the message that the page shows; the good one builds."""

from pathlib import Path

import pytest

from build import main
from tests.wrong_recipes.good import FILES
from tests.wrong_recipes.mended import MENDED, mended
from tests.wrong_recipes.refused import EXPORTED, PAGE, page, told
from tests.wrong_recipes.wrong import WRONG


def test_the_good_recipe_goes_on_to_the_export(tmp_path: Path) -> None:
    assert told(FILES, tmp_path) == EXPORTED


def test_every_wrong_recipe_is_told_what_the_page_shows(tmp_path: Path) -> None:
    written = page(tmp_path)
    assert EXPORTED not in written, "something wrong is exported"
    assert written == PAGE.read_text(encoding="utf-8"), "python -m tests.wrong_recipes writes the page again"


def test_what_is_mended_from_the_message_alone_goes_on_to_the_export(tmp_path: Path) -> None:
    by_name = {wrong.what: wrong for wrong in WRONG}
    for number, what in enumerate(MENDED):
        place = tmp_path / str(number)
        place.mkdir()
        assert told(mended(by_name[what]), place) == EXPORTED, what


@pytest.mark.slow
def test_the_good_recipe_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["--recipe", "mine.yaml", "--out", str(tmp_path / "bundle"), "--no-cache"]) == 0
