"""A kind of state is added with a file and its line in the table; then it is read, run, kept and gone on from."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

TESTED = (
    "calls/test_in_place.py",
    "states/test_kind.py",
    "format/test_manifest_check.py",
    "format/test_manifest_json.py",
)
CHOSEN = "endless and (goes_on or random_lives or in_order or beside_others or kinds_of)"


def test_a_file_and_a_line_are_a_kind(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "runtime_lite", tmp_path / "runtime_lite", ignore=shutil.ignore_patterns("__pycache__"))
    states = tmp_path / "runtime_lite" / "states"
    shutil.copyfile(Path(__file__).with_name("toy_kind.py"), states / "endless.py")
    table = (states / "__init__.py").read_text()
    assert table.count("KINDS: tuple[StateKind, ...] = (") == 1
    table = table.replace("KINDS: tuple[StateKind, ...] = (", "KINDS: tuple[StateKind, ...] = (Endless(), ")
    (states / "__init__.py").write_text(f"from runtime_lite.states.endless import Endless\n{table}")
    files = [f"tests/runtime_lite/{name}" for name in TESTED]
    options = ["-p", "no:cacheprovider", "-k", CHOSEN, "-rA", "-o", f"pythonpath={tmp_path}"]
    command = [sys.executable, "-m", "pytest", *options, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") >= 6
