"""A command ends with an exit code, and with one sentence where its caller can mend what went wrong."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime_lite.ending import exit_code_of
from runtime_lite.errors import BadInput, ExecutorFailed, InternalError
from tests.runtime_lite.bundles import write_streaming_bundle


class OtherError(Exception):
    """An error of somebody else's that has an exit code."""

    exit_code = 4


def failing(error: BaseException) -> Callable[[], None]:
    def main() -> None:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BadInput("x: expected A, got B; do C"), 2, "error: x: expected A, got B; do C\n"),
        (ExecutorFailed("why", "hang"), 5, "error: why\n"),
        (OtherError("gate"), 4, "error: gate\n"),
        (
            OSError(28, "No space left on device", "a.npz"),
            2,
            "error: a.npz: No space left on device; check the path, permissions and free space\n",
        ),
        (
            OSError(5, "No answer"),
            2,
            "error: standard output or a temporary file: No answer; check the path, permissions and free space\n",
        ),
        (OSError(113, "No route"), 2, "error: No route; check the path, permissions and free space\n"),
        (OSError("speak: expected a program, got none"), 2, "error: speak: expected a program, got none\n"),
        (KeyboardInterrupt(), 130, "stopped\n"),
    ],
)
def test_what_can_be_mended_is_one_sentence(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(failing(error), "stopped", (BadInput, ExecutorFailed, OtherError)) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("error", [InternalError("x"), KeyError("x"), OtherError("x")])
def test_a_bug_and_what_nobody_named_keep_their_traceback(error: Exception) -> None:
    with pytest.raises(type(error)):
        exit_code_of(failing(error), "stopped")


@pytest.mark.parametrize(("given", "code"), [(None, 0), (0, 0), (3, 3)])
def test_what_main_returns_is_the_exit_code(given: int | None, code: int) -> None:
    assert exit_code_of(lambda: given, "stopped") == code


@pytest.mark.parametrize(
    ("redirect", "said"),
    [
        (">&-", "error: standard output: expected an open one, got a closed one; redirect it, to /dev/null perhaps"),
        (
            ">/dev/full",
            "error: standard output or a temporary file: No space left on device; check the path, permissions and "
            "free space",
        ),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("program", ["-m runtime_lite inspect", "build.py inspect"])
def test_a_standard_output_that_takes_nothing_is_told(
    program: str, redirect: str, said: str, unbuffered: str, tmp_path: Path
) -> None:
    bundle = write_streaming_bundle(tmp_path / "bundle")
    line = f"{sys.executable} {program} {bundle} {redirect}"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=os.environ | {"PYTHONUNBUFFERED": unbuffered}
    )
    assert (done.returncode, done.stderr.splitlines()[:1]) == (2, [said])
