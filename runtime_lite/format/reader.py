"""Opens a bundle, a directory or the same as one `.tar` file, and reads files of it only after their size and hash fit.

Guarantees of `read_bundle`: the manifest is capped before it is read and checked as a whole; every file on disk is
listed and every listed file is there, a regular file of the listed size whose SHA-256 fits; links, devices and names
that could leave the bundle are refused. `Bundle.read_file` checks the very bytes it returns again, so that what was
checked is what runs. Nothing is ever extracted from a `.tar`: its files are read in place.

On disk a second hard link to a file is accepted (deduplicating stores make them): the hash decides. In a `.tar` a hard
link is an entry without content and is refused.

Does not authenticate: whoever can write the manifest can write matching hashes.
"""

import contextlib
import hashlib
import os
import posixpath
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NoReturn, Protocol, TypeVar, cast

from runtime_lite.errors import BadInput, BundleRefused, show
from runtime_lite.format.atomic_file import replace_file
from runtime_lite.format.checked_json import REBUILD, path_fault, refuse
from runtime_lite.format.costs import MAX_COSTS_BYTES, Costs, costs_from_json
from runtime_lite.format.manifest import COSTS_FILE, MANIFEST_FILE, FileEntry, Manifest
from runtime_lite.format.manifest_check import MAX_TOTAL_BYTES
from runtime_lite.format.manifest_json import MAX_MANIFEST_BYTES, manifest_from_json

MAX_ENTRIES = 8192  # files and folders of a bundle
MAX_DEPTH = 16  # folders within folders
MAX_TAR_HEADER_BYTES = 64 * 2**10
CHUNK_BYTES = 2**20
COPY_AGAIN = "copy the bundle again, it was altered or truncated"


class _Source(Protocol):
    """Where the files of a bundle lie; sizes are known before anything is read."""

    sizes: dict[str, int]

    def open(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Bundle:
    """An open bundle that has passed every check; use it in a `with` block or close it.

    Attributes:
        path: the directory or `.tar` file.
        manifest: what it says about itself.
        manifest_sha256: identity of the bundle, hash of its manifest.
        costs: measured times, empty when there is no `costs.json`.
    """

    path: Path
    manifest: Manifest
    manifest_sha256: str
    costs: Costs
    _source: _Source

    def read_file(self, name: str) -> bytes:
        """Return the content of a listed file whose size and hash fit.

        Raises:
            BundleRefused: the file is not listed or has changed since the bundle was opened.
        """
        entry = self.manifest.files.get(name) if isinstance(name, str) else None
        if entry is None:
            _refuse(self.path, "a file listed in the manifest", show(name), "check the name")
        content = _whole(self.path, self._source, name, entry.bytes)
        _check_hash(self.path, name, entry, hashlib.sha256(content).hexdigest())
        return content

    def close(self) -> None:
        """Release the `.tar` file; a second call does nothing."""
        self._source.close()

    def __enter__(self) -> "Bundle":
        """Return the bundle."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the bundle."""
        self.close()


def read_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Open a bundle and check all of it.

    Args:
        path: a bundle directory, or a `.tar` file of one.

    Raises:
        BadInput: there is nothing at the path.
        BundleRefused: anything in it is not as the manifest says, or the manifest is not as it should be.
    """
    place = path_of("read_bundle", path)
    if not _exists(place):
        shown = place if str(place).isprintable() and len(str(place)) < 500 else show(str(place))
        raise BadInput(f"{shown}: expected a bundle directory or .tar file, got nothing at this path; check the path")
    if not place.is_dir() and not place.is_file():
        raise BadInput(f"{place}: expected a bundle directory or .tar file, got something else; check the path")
    source: _Source = _Directory(place) if place.is_dir() else _Tar(place)
    try:
        manifest_bytes = _small_file(place, source, MANIFEST_FILE, MAX_MANIFEST_BYTES)
        if manifest_bytes is None:
            inside = sorted(posixpath.dirname(name) for name in source.sizes if name.endswith(f"/{MANIFEST_FILE}"))
            got = f"none, and bundles in {', '.join(inside[:8])}" if inside else "none"
            cure = (
                f"point to one of them, e.g. {place / inside[0]}"
                if len(inside) > 1
                else "point to the folder that holds it"
            )
            _refuse(place, f"{MANIFEST_FILE} at the top of the bundle", got if len(inside) > 1 else "none", cure)
        manifest = _named(place, lambda: manifest_from_json(manifest_bytes))
        _check_listing(place, source.sizes, manifest)
        for name, entry in manifest.files.items():
            digest = hashlib.sha256()
            for chunk in _chunks(place, source, name, entry.bytes):
                digest.update(chunk)
            _check_hash(place, name, entry, digest.hexdigest())
        costs_bytes = _small_file(place, source, COSTS_FILE, MAX_COSTS_BYTES)
        costs: Costs = {} if costs_bytes is None else _named(place, lambda: costs_from_json(costs_bytes, manifest))
    except BaseException:
        source.close()
        raise
    return Bundle(place, manifest, hashlib.sha256(manifest_bytes).hexdigest(), costs, source)


_T = TypeVar("_T")


def _named(place: Path, read: Callable[[], _T]) -> _T:
    """What a file of a bundle says; a refusal of it names the bundle, too."""
    try:
        return read()
    except BundleRefused as error:
        raise BundleRefused(f"{place}: {error}") from error


def path_of(where: str, path: object) -> Path:
    """Return the path that a caller gave.

    Raises:
        BadInput: it is no path.
    """
    if isinstance(path, str) or (isinstance(path, os.PathLike) and isinstance(os.fspath(path), str)):
        return Path(path)
    raise BadInput(f"{where}: expected a path as text or pathlib.Path, got {show(path)}; give the bundle's path")


def _exists(place: Path) -> bool:
    try:
        return place.exists()
    except (OSError, ValueError):  # too long, or characters that no file name has
        return False


def write_tar(directory: str | os.PathLike[str], tar_path: str | os.PathLike[str]) -> None:
    """Write a bundle directory as one `.tar` file, atomically; equal directories give equal bytes.

    Args:
        directory: a bundle directory; it is checked as a whole first.
        tar_path: the file to write, outside the directory.

    Raises:
        BadInput: the file would lie inside the bundle.
        BundleRefused: the directory is not a sound bundle.
        OSError: the file cannot be written; a previous one is untouched.
    """
    source_path, target = path_of("write_tar", directory), path_of("write_tar", tar_path)
    if _exists(target) and not target.is_file():
        raise BadInput(f"{target}: expected a file to write, got something else; choose another path")
    for place in (source_path, target):
        try:
            place.resolve().exists()
        except (OSError, ValueError) as error:  # too long, or characters that no file name has
            got = show(str(error))
            raise BadInput(f"{show(str(place))}: expected the name of a file, got {got}; choose another path") from None
    if source_path.resolve() in target.resolve().parents:
        raise BadInput(f"{target}: expected a file outside the bundle directory, got one inside; choose another path")
    with read_bundle(source_path) as bundle, replace_file(target) as file:
        source = bundle._source
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name in sorted(source.sizes):
                member = tarfile.TarInfo(name)  # mtime, uid and gid are 0 and the owner is empty unless set
                member.size = source.sizes[name]
                with source.open(name) as content:
                    tar.addfile(member, content)


class _Directory:
    """The files of a bundle directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.sizes: dict[str, int] = {}
        self._walk("", 0, [0])

    def _walk(self, folder: str, depth: int, seen: list[int]) -> None:
        if depth > MAX_DEPTH:
            _refuse(self._root, f"folders at most {MAX_DEPTH} deep", "deeper ones")
        try:
            with os.scandir(self._root / folder) as entries:
                for entry in entries:
                    seen[0] += 1
                    self._add(f"{folder}/{entry.name}" if folder else entry.name, entry, depth, seen)
        except OSError as error:
            _refuse(self._root, "a readable folder", f"{error.strerror} at {show(folder)}", "check its permissions")

    def _add(self, name: str, entry: os.DirEntry[str], depth: int, seen: list[int]) -> None:
        _check_entry(self._root, name, seen[0])
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
        # O_NOFOLLOW, O_NONBLOCK: a file swapped for a link or a FIFO in the meantime neither redirects nor blocks us
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            descriptor = os.open(self._root / name, flags)
        except OSError as error:
            _refuse(self._root, f"the readable file {name!r}", str(error.strerror))
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                _refuse(self._root, f"the regular file {name!r}", "something else")
            yield file

    def close(self) -> None:
        """Nothing is held open."""


class _Tar:
    """The files of a `.tar`, read in place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.sizes: dict[str, int] = {}
        self._offsets: dict[str, int] = {}
        try:
            self._file = open(path, "rb")  # noqa: SIM115, held until close
        except OSError as error:
            _refuse(path, "a readable file", str(error.strerror), "check its permissions")
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
                name = member.name.removeprefix("./")
                if member.isdir() and name in (".", ""):
                    continue
                _check_entry(self._path, name, count)
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
        if self._file.closed:
            raise BadInput(f"{self._path}: expected an open bundle, got a closed one; open it again with read_bundle")
        self._file.seek(self._offsets[name])
        yield self._file

    def close(self) -> None:
        self._file.close()


class _HeaderReads:
    """What tarfile may see of the file: it reads headers whole, so one that claims to be large is refused."""

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


def _check_entry(path: Path, name: str, count: int) -> None:
    if count > MAX_ENTRIES:
        _refuse(path, f"at most {MAX_ENTRIES} files and folders", "more")
    if fault := path_fault(name):
        _refuse(path, "names that stay inside the bundle", f"{show(name)}, {fault}")


def _check_listing(path: Path, sizes: dict[str, int], manifest: Manifest) -> None:
    listed = set(manifest.files) | {MANIFEST_FILE, COSTS_FILE}
    if extra := sorted(set(sizes) - listed):
        _refuse(path, "only files listed in the manifest", f"{extra[0]!r} beside them", "remove it")
    if missing := sorted(set(manifest.files) - set(sizes)):
        _refuse(path, f"the file {missing[0]!r}", "a bundle without it", COPY_AGAIN)
    for name, entry in manifest.files.items():
        if sizes[name] != entry.bytes:
            _refuse(path, f"{name!r} of {entry.bytes} bytes", f"{sizes[name]} bytes", COPY_AGAIN)


def _check_hash(path: Path, name: str, entry: FileEntry, digest: str) -> None:
    if digest != entry.sha256:
        _refuse(path, f"{name!r} with SHA-256 {entry.sha256}", digest, COPY_AGAIN)


def _chunks(path: Path, source: _Source, name: str, size: int) -> Iterator[bytes]:
    """Yield exactly `size` bytes of a file; a short read is an error."""
    with source.open(name) as file:
        left = size
        while left:
            chunk = file.read(min(left, CHUNK_BYTES))
            if not chunk:
                _refuse(path, f"{name!r} of {size} bytes", f"{size - left} bytes", COPY_AGAIN)
            left -= len(chunk)
            yield chunk


def _whole(path: Path, source: _Source, name: str, size: int) -> bytes:
    """Return a file of exactly `size` bytes, which is in memory once: weights may take most of it."""
    with source.open(name) as file:
        content = file.read(size)
    if len(content) < size:
        _refuse(path, f"{name!r} of {size} bytes", f"{len(content)} bytes", COPY_AGAIN)
    return content


def _small_file(path: Path, source: _Source, name: str, limit: int) -> bytes | None:
    size = source.sizes.get(name)
    if size is None:
        return None
    if size > limit:
        _refuse(path, f"{name} of at most {limit} bytes", f"{size} bytes")
    return b"".join(_chunks(path, source, name, size))


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
