"""The process that builds one engine; what becomes of its end is tested with `trial`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from compiler.targets.tensorrt import build_trial, builder
from tests.kit.rtx_library import write_rtx


@pytest.mark.parametrize(
    ("library", "text", "code", "said"),
    [
        ("tensorrt_rtx", None, 0, ""),
        ("no_such_library", None, 5, "error: No module named 'no_such_library'"),
        (
            "broken",
            "raise OSError('libtensorrt_rtx.so.1: cannot open\\nshared object')",
            5,
            "cannot open shared object",
        ),
        ("old", "__version__ = '0.9'", 5, "expected Builder.create_network, got version 0.9 without it"),
    ],
)
def test_a_library_starts_or_the_last_line_says_why_not(
    library: str, text: str | None, code: int, said: str, tmp_path: Path
) -> None:
    site, out = write_rtx(tmp_path / "site"), tmp_path / "out"
    out.mkdir()
    if text is not None:
        (site / f"{library}.py").write_text(text)
    request = {"builder": builder.__file__, "path": [str(site), *sys.path], "library": library}
    command = [sys.executable, "-E", "-s", build_trial.__file__, str(out)]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    if code == 0:
        assert (out / "version.txt").read_text() == "1.7.1.116"
    else:
        assert said in done.stderr.strip().splitlines()[-1]
