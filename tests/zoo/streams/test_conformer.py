"""A Conformer of stacked caches, a cut inside, an offset and no batch, exported plainly, goes through a build."""

from pathlib import Path

import pytest

from benchmarks.streaming_conformer import main


@pytest.mark.slow
def test_a_conformer_for_one_row_is_built_at_the_first_try(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = str(tmp_path / "bundle")
    assert main(["--layers", "2", "--steps", "30", "--out", bundle]) == 0, capsys.readouterr().err
    assert main(["--layers", "2", "--steps", "12", "--bundle", bundle]) == 0, "rows of all ages, in every bucket"
    told = capsys.readouterr().out
    assert all(f"{rows:2} rows, 12 calls" in told for rows in (1, 4, 16))
