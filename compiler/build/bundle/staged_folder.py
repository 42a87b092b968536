"""Writes a folder atomically: fills a temporary folder, which then replaces the old one."""

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from compiler.base.interruption import shielded
from compiler.base.records.build_report import SpeedRow
from compiler.errors import RecipeError
from runtime_lite.errors import BundleRefused
from runtime_lite.format.atomic_file import naming
from runtime_lite.format.costs import Cost, json_from_costs
from runtime_lite.format.manifest import COSTS_FILE, MANIFEST_FILE
from runtime_lite.format.reader import check_bundle_alone

AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Constants of Linux's renameat2."""


def check_replaceable(out: Path) -> None:
    """Refuse to write over anything that is not a bundle.

    Raises:
        RecipeError: `out` is a file, a folder with other content than a bundle's, or its parent cannot be written to.
    """
    parent = out.absolute().parent
    try:
        check_bundle_or_nothing(out)
        parent = next(folder for folder in out.absolute().parents if folder.exists())
        with shielded():
            Path(tempfile.mkdtemp(dir=parent, prefix=_prefix(out))).rmdir()
    except OSError as error:
        raise RecipeError(
            f"{out}: expected a folder in which a bundle can be written, got {error.strerror!r} in {parent}",
            cure="check the path and its permissions, or choose another --out",
        ) from error


def check_bundle_or_nothing(out: Path) -> None:
    """Refuse to remove anything but a bundle.

    Raises:
        RecipeError: `out` is a file, or a folder with other content than a bundle's.
        OSError: the path is not accessible.
    """
    got = "a file" if out.exists() or out.is_symlink() else ""
    if out.is_dir():
        got = f"another folder, {fault}" if any(out.iterdir()) and (fault := _foreign(out)) else ""
    if got:
        raise RecipeError(
            f"{out}: expected a bundle to replace or nothing, got {got}", cure="choose another --out, or remove it"
        )


def _foreign(folder: Path) -> str:
    """Return why a folder is not just a bundle; empty where it is."""
    try:
        check_bundle_alone(folder)
    except BundleRefused as error:
        return str(error).removeprefix(f"{folder}: ").rpartition("; ")[0]
    return ""


def check_folder(out: Path) -> None:
    """Refuse to write bundles into anything but a folder of bundles.

    Raises:
        RecipeError: `out` is a file, or a bundle itself.
    """
    if out.is_file() or (out / MANIFEST_FILE).exists():
        raise RecipeError(
            f"{out}: expected a folder for a bundle of each target, got {'a file' if out.is_file() else 'a bundle'}",
            cure="choose another --out, or remove it",
        )


SWEEP_AFTER_S = 60.0
"""A younger folder may belong to a build that has not locked it yet."""


@contextlib.contextmanager
def staged(out: Path, check: Callable[[Path], None]) -> Iterator[Path]:
    """Yield a folder that replaces `out` if the block succeeds, and is removed if it fails.

    The replaced folder is removed, or left to the next build while a process reads it (`FolderFiles`).

    Args:
        out: the folder to write or replace.
        check: raises where the existing folder must not be removed; called at the end, when it may have changed.

    Raises:
        OSError: the folder cannot be created or renamed; a previous bundle is unchanged.
    """
    out = out.resolve()  # a link stays, what it names is replaced
    out.parent.mkdir(parents=True, exist_ok=True)
    prefix = _prefix(out)
    _sweep(out.parent, prefix)
    with contextlib.ExitStack() as cleanup:
        with shielded():
            folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=prefix))
            cleanup.callback(_remove, folder)  # what is there then: nothing, a part, or a bundle that somebody reads
            held = os.open(folder, os.O_RDONLY)
            cleanup.callback(os.close, held)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield folder
        with shielded():
            folder.chmod(0o755)
            check(out)
            os.utime(folder)  # young: no sweep takes it while nobody holds it
            fcntl.flock(held, fcntl.LOCK_UN)  # readers hold what lies at `out`, and another builder may replace it
            _put_in_place(folder, out)
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder that no process holds, also while signals arrive."""
    try:
        with shielded():
            _remove_unless_held(folder)
    except KeyboardInterrupt:
        _remove_unless_held(folder)
        raise


def _remove_unless_held(folder: Path) -> None:
    with contextlib.suppress(OSError):  # held by a builder or a reader, or gone already
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


def _prefix(out: Path) -> str:
    """Return the prefix of temporary folders for `out`; a name may have 255 bytes, and a letter four."""
    return f".{out.name[:40]}.partial-"


def _sweep(parent: Path, prefix: str) -> None:
    """Remove folders of killed builds and readers that no process holds any more."""
    for folder in parent.iterdir():
        with contextlib.suppress(OSError):  # gone already
            if folder.name.startswith(prefix) and time.time() - folder.stat().st_mtime >= SWEEP_AFTER_S:
                _remove_unless_held(folder)


def _put_in_place(folder: Path, out: Path) -> None:
    """Move a folder to `out`, or exchange it with the bundle there: at every moment `out` is one of the two."""
    while True:
        try:
            os.rename(folder, out)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return
        with contextlib.suppress(FileNotFoundError):  # another builder is replacing it at this moment
            _exchange(folder, out)
            return


def _exchange(folder: Path, out: Path) -> None:
    """Swap two folders in one step, or in two where the system cannot, undone if the second fails."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None and rename(AT_FDCWD, os.fsencode(folder), AT_FDCWD, os.fsencode(out), RENAME_EXCHANGE) == 0:
        return
    code = ctypes.get_errno() if rename is not None else errno.ENOSYS
    if code not in (errno.ENOSYS, errno.EINVAL):
        raise OSError(code, os.strerror(code), str(out))
    aside = folder.with_name(f"{folder.name}.previous")
    os.rename(out, aside)
    try:
        os.rename(folder, out)
    except BaseException:
        os.rename(aside, out)
        raise
    os.rename(aside, folder)


def copy_files(source: Path, folder: Path) -> None:
    """Copy every file below a folder to below another.

    `shutil.copytree` continues after a file that fails, and ends in an error that does not mention a full disk.

    Raises:
        OSError: a file cannot be read or written.
    """
    for path in sorted(source.rglob("*")):
        if path.is_file():
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def write_costs(folder: Path, speed: Iterable[SpeedRow]) -> None:
    """Write the measured times, outside of everything that is hashed."""
    costs: dict[str, dict[str, Cost]] = {}
    for row in speed:
        costs.setdefault(row.graph, {})[row.sizes] = Cost(row.threads, row.p50_ms, row.p95_ms)
    with naming(folder / COSTS_FILE) as path:
        path.write_bytes(json_from_costs(costs))
