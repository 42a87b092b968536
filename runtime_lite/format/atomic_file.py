"""Writes a file so that a reader, a full disk or Ctrl-C never leaves a half-written one."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What a write may end in."""


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` that takes its place when the block ends well and vanishes when it does not.

    Args:
        path: the file to write or replace; its folder must exist.

    Yields:
        The open temporary file.

    Raises:
        OSError: the folder is missing or not writable, or the disk is full; the previous file is untouched.
    """
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _about(path, error) from error
    try:
        with naming(path), os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        try:
            os.replace(temporary, path)
        except OSError as error:
            raise _about(path, error) from error
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def naming(path: Path) -> Iterator[Path]:
    """Let what the system says of a full disk name the file that is written: of a write, it names none."""
    try:
        yield path
    except OSError as error:
        if error.errno in NO_ROOM and error.filename is None:
            raise _about(path, error) from error
        raise


def _about(path: Path, error: OSError) -> OSError:
    """An error that names the file that was asked for, not the temporary one."""
    return OSError(error.errno, error.strerror, str(path))
