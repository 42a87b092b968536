"""within: files run in the order given, and no test begins late."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick import within

ROOT = Path(__file__).resolve().parents[2]
TESTS = "def test_one():\n    pass\n\n\ndef test_two():\n    assert False\n"


@pytest.mark.parametrize(("until", "code", "said"), [("0", 0, "the time is over"), ("1e12", 1, "1 failed, 1 passed")])
def test_a_test_that_would_begin_late_is_skipped(tmp_path: Path, until: str, code: int, said: str) -> None:
    (tmp_path / "test_both.py").write_text(TESTS)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.quick.within", "-rs", "--rootdir", str(tmp_path), "test_both.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {within.UNTIL: until, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ended.returncode == code and said in ended.stdout


def test_the_exit_code_is_that_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        ran.append((command, options))
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", run)
    assert within.run(ROOT, ["tests/test_b.py", "tests/test_a.py"], 5.0) == 1
    ((command, options),) = ran
    assert command[-2:] == ["tests/test_b.py", "tests/test_a.py"] and float(options["env"][within.UNTIL]) > 0  # type: ignore[index]
