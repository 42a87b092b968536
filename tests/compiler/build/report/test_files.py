"""report_file: a report replaces a report and nothing else."""

import json
import os
from pathlib import Path

import pytest

from compiler.base.records.build_report import BuildReport
from compiler.build.report.files import is_json_report, is_page, require_place
from compiler.build.report.page import report_page
from compiler.errors import RecipeError

REPORT = BuildReport("r.yaml", "dist/x")


def test_a_new_name_is_taken_and_its_folder_made(tmp_path: Path) -> None:
    require_place("--report", tmp_path / "deep" / "r.json", is_json_report)
    assert list((tmp_path / "deep").iterdir()) == []


def test_earlier_reports_and_empty_files_are_replaced(tmp_path: Path) -> None:
    for content, is_ours in ((REPORT.to_json(), is_json_report), (report_page(REPORT, {}), is_page)):
        for text in (content, ""):
            (tmp_path / "file").write_text(text)
            require_place("--report", tmp_path / "file", is_ours)


@pytest.mark.parametrize(
    "content", ["notes", "{}", json.dumps({"recipe": 1}), "[" * 100_000, report_page(REPORT, {}), "\0\xff"]
)
def test_other_files_are_not_overwritten(tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(RecipeError, match="expected a new name or an earlier report, got "):
        require_place("--report", path, is_json_report)
    assert path.read_text() == content


def test_a_page_is_no_place_for_another_page(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<!DOCTYPE html><html><head></head></html>")
    with pytest.raises(RecipeError, match="earlier report"):
        require_place("--report-html", tmp_path / "page.html", is_page)


def test_links_pipes_and_folders_that_take_no_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("elsewhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(RecipeError, match="plain file"):
            require_place("--report", tmp_path / name, is_json_report)
    for path in ("/proc/report.json", "/proc/self/new/report.json"):
        with pytest.raises(RecipeError, match="expected a place that can be written, got /proc"):
            require_place("--report", Path(path), is_json_report)
    with pytest.raises(RecipeError, match="folder"):
        require_place("--report", tmp_path, is_json_report)
