"""simplify on random files with If, Loop and Scan."""

from pathlib import Path

from tests.property.bodies import outcome


def test_files_with_bodies_are_simplified(tmp_path: Path) -> None:
    assert {seed: found for seed in range(8) if (found := outcome(seed, tmp_path))} == {}
