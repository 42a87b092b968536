"""Fetches the vendor's bindings at test time into a folder that git ignores; the repository keeps nothing of them."""

import functools
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

LIMIT_S = 60


@functools.cache
def unpacked(version: str, cache: Path) -> Path | str:
    """The folder of the unpacked wheel of one version, or why it cannot be had.

    Args:
        version: of `tensorrt-cu12-bindings`.
        cache: folder that is kept between runs.
    """
    folder = cache / version
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
        command += ["--disable-pip-version-check", "--retries", "0", "--timeout", "10", "--dest", scratch]
        try:
            done = subprocess.run(
                [*command, f"tensorrt-cu12-bindings=={version}"], capture_output=True, text=True, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return f"pip gave no answer within {LIMIT_S} s"
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or not wheels:
            return (done.stderr.strip().splitlines() or ["pip gave no wheel"])[-1]
        content = Path(scratch) / "content"
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(content)
        try:
            content.rename(folder)
        except OSError:  # another process was quicker
            if not folder.is_dir():
                raise
    return folder
