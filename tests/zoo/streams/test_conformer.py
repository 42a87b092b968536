"""A Conformer of stacked caches, a cut inside, an offset and no batch, exported plainly, goes through a build."""

import pytest

from benchmarks.streaming_conformer import main


@pytest.mark.slow
def test_a_conformer_for_one_row_is_built_at_the_first_try(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--layers", "2", "--steps", "30"]) == 0, capsys.readouterr().err
