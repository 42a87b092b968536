"""Opens the files of a bundle, a folder or a `.tar` file, and keeps them open while they are read.

An open bundle does not change when it is replaced on disk: files are opened by the folder's descriptor, or read from
the descriptor of the `.tar`. Each reader has its own position, so that threads and forks of the process can read at the
same time. A folder is also locked for reading; a build that replaces it keeps the old one on disk until no one reads it
any more.

Links, devices, names that could leave the bundle and large headers are refused.
"""

import contextlib
import errno
import fcntl
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Protocol, cast

from runtime_lite.errors import BadInput, BundleRefused, show
from runtime_lite.format.checked_json import REBUILD, path_fault, refuse
from runtime_lite.format.manifest_check import MAX_TOTAL_BYTES

MAX_ENTRIES = 8192  # files and folders of a bundle
MAX_DEPTH = 16  # folders within folders
MAX_TAR_HEADER_BYTES = 64 * 2**10
COPY_AGAIN = "copy the bundle again, it was altered or truncated"
CURES = {
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "close files that other programs hold",
}
"""Cures by error number if the system has no descriptor left; after any other error the bundle is refused."""


class BundleFiles(Protocol):
    """Files by name, with sizes that are known before any file is read.

    Attributes:
        sizes: bytes of every file.
    """

    sizes: dict[str, int]

    def open(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class FolderFiles:
    """The files of a bundle directory.

    Args:
        root: the directory.

    Raises:
        BundleRefused: it cannot be read, or has entries that a bundle cannot have.
    """

    def __init__(self, root: Path) -> None:
        """List the files; none is read."""
        self._root = root
        self.sizes: dict[str, int] = {}
        self._held = self._hold()
        try:
            self._walk("", 0, [0])
        except BaseException:
            self.close()
            raise

    def _hold(self) -> int:
        """Return a descriptor of the folder, locked for reading if the file system can."""
        while True:
            held = self._opened(self._root)
            try:
                with contextlib.suppress(OSError):  # its builder is not done yet, or a file system without locks
                    fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(held), os.stat(self._root)):
                    return held
            except OSError:  # replaced in two steps, and this is between them
                pass
            except BaseException:
                os.close(held)
                raise
            os.close(held)

    def _opened(self, folder: str | Path, within: int | None = None) -> int:
        try:
            return os.open(
                folder, os.O_RDONLY | os.O_DIRECTORY | (0 if within is None else os.O_NOFOLLOW), dir_fd=within
            )
        except OSError as error:
            where = "" if within is None else f" at {show(folder)}"
            cure = CURES.get(error.errno or 0, "check its permissions")
            _refuse(self._root, "a readable folder", f"{error.strerror}{where}", cure)

    def _walk(self, folder: str, depth: int, seen: list[int]) -> None:
        if depth > MAX_DEPTH:
            _refuse(self._root, f"folders at most {MAX_DEPTH} deep", "deeper ones")
        descriptor = self._opened(folder or ".", self._held)
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    seen[0] += 1
                    self._add(f"{folder}/{entry.name}" if folder else entry.name, entry, depth, seen)
        except OSError as error:
            _refuse(self._root, "a readable folder", f"{error.strerror} at {show(folder)}", "check its permissions")
        finally:
            os.close(descriptor)

    def _add(self, name: str, entry: os.DirEntry[str], depth: int, seen: list[int]) -> None:
        _check_count(self._root, seen[0])
        _check_name(self._root, name)
        if entry.is_dir(follow_symlinks=False):
            self._walk(name, depth + 1, seen)
        elif entry.is_file(follow_symlinks=False):
            self.sizes[name] = entry.stat(follow_symlinks=False).st_size
        else:
            _refuse(
                self._root, "regular files and folders only", f"{name!r}, {_kind(entry.stat(follow_symlinks=False))}"
            )

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Open a listed file.

        Raises:
            BadInput: the bundle is closed.
            BundleRefused: it no longer exists, or is no regular file any more.
        """
        if self._held < 0:
            _refuse_closed(self._root)
        # O_NOFOLLOW, O_NONBLOCK: a file swapped for a link or a FIFO in the meantime neither redirects nor blocks us
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._held)
        except OSError as error:
            cure = CURES.get(error.errno or 0, REBUILD)
            _refuse(self._root, f"the readable file {name!r}", str(error.strerror), cure)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                _refuse(self._root, f"the regular file {name!r}", "something else")
            yield file

    def fileno(self) -> int:
        """Return the descriptor of the folder."""
        return self._held

    def close(self) -> None:
        """Close the folder; a second call does nothing."""
        held, self._held = self._held, -1
        if held >= 0:
            os.close(held)


class TarFiles:
    """The files of a `.tar`, read in place.

    Args:
        path: the file.

    Raises:
        BundleRefused: it cannot be read, is no `.tar`, or has entries that a bundle cannot have.
    """

    def __init__(self, path: Path) -> None:
        """List the files; none is read."""
        self._path = path
        self.sizes: dict[str, int] = {}
        self._offsets: dict[str, int] = {}
        try:
            self._file = open(path, "rb")  # noqa: SIM115, held until close
        except OSError as error:
            cure = CURES.get(error.errno or 0, "check its permissions")
            _refuse(path, "a readable file", str(error.strerror), cure)
        try:
            self._index()
        except BundleRefused:
            self._file.close()
            raise
        except (tarfile.TarError, ValueError, OverflowError, RecursionError, EOFError, OSError) as error:
            self._file.close()
            _refuse(path, "an uncompressed .tar file", show(str(error)))

    def _index(self) -> None:
        total_bytes = os.fstat(self._file.fileno()).st_size
        if total_bytes > 2 * MAX_TOTAL_BYTES:
            _refuse(self._path, f"at most {2 * MAX_TOTAL_BYTES} bytes", str(total_bytes))
        folders: set[str] = set()
        headers = cast(BinaryIO, _HeaderReads(self._path, self._file))  # tarfile reads with these three methods only
        with tarfile.open(fileobj=headers, mode="r:") as tar:
            for count, member in enumerate(tar, start=1):
                _check_count(self._path, count)
                name = member.name.removeprefix("./")
                if member.isdir() and name in (".", ""):
                    continue
                _check_name(self._path, name)
                if name in self.sizes or name in folders:
                    _refuse(self._path, "every entry once", f"{name!r} twice")
                if member.isdir():
                    folders.add(name)
                    continue
                if not member.isreg() or member.issparse():
                    _refuse(self._path, "regular files and folders only", f"{name!r}, {_member_kind(member)}")
                if member.size < 0 or member.offset_data < 0 or member.offset_data + member.size > total_bytes:
                    _refuse(self._path, f"{name!r} inside the file", f"{member.size} bytes beyond its end", COPY_AGAIN)
                self.sizes[name], self._offsets[name] = member.size, member.offset_data

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Open a listed file.

        Raises:
            BadInput: the bundle is closed.
        """
        if self._file.closed:
            _refuse_closed(self._path)
        with io.BufferedReader(_Part(self._file.fileno(), self._offsets[name], self.sizes[name])) as file:
            yield cast(BinaryIO, file)

    def fileno(self) -> int:
        """Return the descriptor of the file."""
        return self._file.fileno()

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()


class _Part(io.RawIOBase):
    """A range of bytes of a file, read without the file's position, which threads and forked processes share."""

    def __init__(self, descriptor: int, start: int, size: int) -> None:
        self._descriptor, self._next, self._end = descriptor, start, start + size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer).cast("B")[: self._end - self._next]
        count = os.preadv(self._descriptor, [room], self._next) if room else 0
        self._next += count
        return count


class _HeaderReads:
    """The file as `tarfile` reads it: a header larger than the limit is refused."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MAX_TAR_HEADER_BYTES:
            _refuse(self._path, f"headers of at most {MAX_TAR_HEADER_BYTES} bytes", f"one of {size}")
        return self._file.read(size)

    def seek(self, offset: int) -> int:
        return self._file.seek(offset)

    def tell(self) -> int:
        return self._file.tell()


def _refuse(path: Path, expected: str, got: str, cure: str = REBUILD) -> NoReturn:
    refuse(str(path), expected, got, cure)


def _refuse_closed(path: Path) -> NoReturn:
    raise BadInput(f"{path}: expected an open bundle, got a closed one; open it again with read_bundle")


def _check_count(path: Path, count: int) -> None:
    if count > MAX_ENTRIES:
        _refuse(path, f"at most {MAX_ENTRIES} files and folders", "more")


def _check_name(path: Path, name: str) -> None:
    if fault := path_fault(name):
        _refuse(path, "names that stay inside the bundle", f"{show(name)}, {fault}")


def _kind(status: os.stat_result) -> str:
    kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(status.st_mode), "a device")


def _member_kind(member: tarfile.TarInfo) -> str:
    if member.issym():
        return "a symbolic link"
    if member.islnk():
        return "a hard link"
    if member.isfifo():
        return "a FIFO"
    return "a sparse file" if member.issparse() else "a device or an unknown type"
