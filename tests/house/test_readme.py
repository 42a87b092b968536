"""A stranger's own model builds and runs from the README alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def files_of_readme() -> dict[str, str]:
    """The code blocks that follow a file name, by that name."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"`(\w+\.\w+)`:\n\n```\w+\n(.*?)```", text, re.DOTALL))


def run(folder: Path, *command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_own_model_builds_and_runs_as_the_readme_says(tmp_path: Path) -> None:
    files = files_of_readme()
    assert list(files) == ["my_model.py", "my_data.py", "mine.yaml", "run.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert run(tmp_path, str(ROOT / "build.py"), "--recipe", "mine.yaml").endswith("bundle: dist/mine\n")
    assert run(tmp_path, "run.py") == "(1, 8, 30)\n"
    assert "differs" not in run(tmp_path, str(ROOT / "build.py"), "verify", "dist/mine").lower()
