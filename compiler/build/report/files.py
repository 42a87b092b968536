"""Checks where a report may be written: to a new file, or over a report of an earlier build."""

import contextlib
import json
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from compiler.errors import RecipeError

GENERATOR = '<meta name="generator" content="Slipway"/>'
"""In the head of every page, by which an earlier one is known."""

HEAD_BYTES = 4096


def require_place(option: str, path: Path, is_ours: Callable[[bytes], bool]) -> None:
    """Require that a report can be written to a path, before the work; creates the folder.

    Args:
        option: the option that names the file, for messages.
        path: the file.
        is_ours: returns whether a file's content is such a report.

    Raises:
        RecipeError: the path is no plain file, the folder cannot be written, or there is another file.
    """
    if path.is_dir():
        raise RecipeError(f"{option}: expected a file, got the folder {path}", cure="name a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
        is_plain = stat.S_ISREG(path.lstat().st_mode) if path.exists() or path.is_symlink() else True
        content = path.read_bytes() if is_plain and path.exists() else b""
    except OSError as error:
        raise RecipeError(
            f"{option}: expected a place that can be written, got {path}: {error.strerror}",
            cure="check the path and its permissions",
        ) from None
    if not is_plain:
        raise RecipeError(f"{option}: expected a plain file, got {path}, a link or a device", cure="name another file")
    if content and not is_ours(content):
        raise RecipeError(
            f"{option}: expected a new name or an earlier report, got {path}, which is something else",
            cure="name another file, or remove it first",
        )


def is_json_report(content: bytes) -> bool:
    """Whether a file is a build's report as JSON."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(content)
        return isinstance(found, dict) and {"recipe", "bundle", "stages"} <= found.keys()
    return False


def is_page(content: bytes) -> bool:
    """Whether a file is a page of Slipway."""
    return GENERATOR.encode() in content[:HEAD_BYTES]
