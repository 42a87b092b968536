"""Environments of their own for servers and clients that are not the project's, made once below a cache folder."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(__file__).parents[3] / ".cache"


class AbsentError(Exception):
    """There is no such environment; the message has the reason."""


def environment(folder: Path, wanted: Sequence[str], made_by: str | None) -> Path:
    """Return the interpreter of an environment.

    Args:
        folder: where it lies.
        wanted: requirements of what it holds.
        made_by: the module whose command makes it; None to make it here, which needs a network.

    Raises:
        AbsentError: there is none, or it cannot be made.
    """
    python, complete, held = folder / "bin" / "python", folder / "complete", "\n".join(wanted)
    if complete.is_file() and complete.read_text(encoding="utf-8") == held:
        return python
    if made_by is not None:
        raise AbsentError(f"python -m {made_by} has not installed {wanted[0]} here")
    shutil.rmtree(folder, ignore_errors=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    for command in ([sys.executable, "-m", "venv", str(folder)], install):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            raise AbsentError(f"{wanted[0]} could not be installed: {last}")
    complete.write_text(held, encoding="utf-8")
    return python
