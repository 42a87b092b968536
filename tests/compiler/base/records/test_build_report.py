"""What a build has found out, as records and as JSON."""

import errno
import json
import os
from pathlib import Path

import pytest

from compiler.base.records.build_report import (
    BuildReport,
    StageReport,
    describe_stage,
    write_report,
)
from tests.kit.build_report import REPORT


def test_what_a_stage_did_in_one_phrase() -> None:
    assert describe_stage(StageReport("g", "s", 0.0)) == "done"
    assert describe_stage(StageReport("g", "s", 0.0, cached=True, detail="opset 20")) == "cached, opset 20"
    measured = StageReport("g", "s", 0.0, matched=1, max_abs=1e-7, limit=1e-5)
    assert describe_stage(measured) == "0 of 1 rewritten, differs by 1.0e-07 (limit 1.0e-05)"


def test_report_as_json() -> None:
    plain = json.loads(REPORT.to_json())
    assert plain["stages"][1]["refused"] == ["[MatMul m1]: axis cache is summed"] * 2
    assert plain["gates"][1]["measured"] == "nan"
    assert (plain["gates"][2]["measured"], plain["gates"][2]["is_least"]) == (199, True)
    assert plain["sizes"]["graphs/encoder.weights"] == 5_000_000


def test_report_file_is_whole_or_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "report.json"
    write_report(REPORT, path)
    assert json.loads(path.read_text())["bundle"] == "dist/tiny-cpu"

    def fail(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_report(BuildReport("r.yaml", "dist/x"), path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["report.json"]
