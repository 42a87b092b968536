"""Writes a file so that an error, a full disk or Ctrl-C never leaves a half-written one."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Error numbers of writes to a full or broken disk."""


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block succeeds, and is deleted when it raises.

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
    """Add the name of the file to errors of a full disk, which the system reports without a name."""
    try:
        yield path
    except OSError as error:
        if error.errno in NO_ROOM and error.filename is None:
            raise _about(path, error) from error
        raise


def _about(path: Path, error: OSError) -> OSError:
    """Return the error with the name of the requested file in place of the temporary one."""
    return OSError(error.errno, error.strerror, str(path))
