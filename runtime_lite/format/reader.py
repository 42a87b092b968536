"""Opens a bundle, a directory or a `.tar` file, and reads its files only if their size and hash are right.

`read_bundle` guarantees that the manifest is limited in size and checked as a whole; that every file on disk is listed,
and every listed file is a regular file of the listed size and SHA-256; and that there are no links, devices and names
that could leave the bundle. `Bundle.read_file` checks the bytes that it returns again. Files of a `.tar` are read in
place and never extracted. A bundle that is replaced on disk stays readable for those who have it open
(`bundle_files.py`).

On disk a second hard link to a file is accepted, as deduplicating stores make them. In a `.tar` a hard link is an entry
without content and is refused.

A bundle is not authenticated: anyone who can write the manifest can write matching hashes.
"""

import hashlib
import os
import posixpath
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn, TypeVar

from runtime_lite.errors import BadInput, BundleRefused, show
from runtime_lite.format.atomic_file import replace_file
from runtime_lite.format.bundle_files import COPY_AGAIN, BundleFiles, FolderFiles, TarFiles
from runtime_lite.format.checked_json import REBUILD, refuse
from runtime_lite.format.costs import MAX_COSTS_BYTES, Costs, costs_from_json
from runtime_lite.format.manifest import COSTS_FILE, MANIFEST_FILE, FileEntry, Manifest
from runtime_lite.format.manifest_json import MAX_MANIFEST_BYTES, manifest_from_json

CHUNK_BYTES = 2**20


@dataclass(frozen=True)
class Bundle:
    """An open bundle that has passed every check; use it in a `with` block or close it.

    Attributes:
        path: the directory or `.tar` file.
        manifest: the manifest of the bundle.
        manifest_sha256: identity of the bundle: the SHA-256 of its manifest.
        costs: measured times; empty without a `costs.json`.
    """

    path: Path
    manifest: Manifest
    manifest_sha256: str
    costs: Costs
    _source: BundleFiles

    def read_file(self, name: str) -> bytes:
        """Return the content of a listed file, after a check of its size and hash.

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
        """Close the folder or file; a second call does nothing."""
        self._source.close()

    def copy_to(self, folder: Path) -> None:
        """Write all files to a folder, as they were when the bundle was opened.

        Raises:
            BundleRefused: a file has changed since.
            OSError: a file cannot be written.
        """
        beside = [name for name in (MANIFEST_FILE, COSTS_FILE) if name in self._source.sizes]
        for name in (*self.manifest.files, *beside):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(target) as file:
                file.writelines(_chunks(self.path, self._source, name, self._source.sizes[name]))

    def fileno(self) -> int:
        """Return the descriptor of the folder or file, by which another process can open the same bundle."""
        return self._source.fileno()

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
        BundleRefused: a file differs from the manifest, or the manifest is invalid.
    """
    place = path_of("read_bundle", path)
    if not _exists(place):
        shown = place if str(place).isprintable() and len(str(place)) < 500 else show(str(place))
        raise BadInput(f"{shown}: expected a bundle directory or .tar file, got nothing at this path; check the path")
    if not place.is_dir() and not place.is_file():
        raise BadInput(f"{place}: expected a bundle directory or .tar file, got something else; check the path")
    source: BundleFiles = FolderFiles(place) if place.is_dir() else TarFiles(place)
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
    """Call `read`, and add the path of the bundle to the message of a refusal."""
    try:
        return read()
    except BundleRefused as error:
        raise BundleRefused(f"{place}: {error}") from error


def path_of(where: str, path: object) -> Path:
    """Return a caller's path as a `Path`.

    Raises:
        BadInput: it is neither text nor a path.
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
        directory: a bundle directory; all of it is checked first.
        tar_path: the file to write, outside the directory.

    Raises:
        BadInput: the file would lie inside the bundle.
        BundleRefused: the directory is not a valid bundle.
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


def _refuse(path: Path, expected: str, got: str, cure: str = REBUILD) -> NoReturn:
    refuse(str(path), expected, got, cure)


def check_bundle_alone(folder: Path) -> None:
    """Refuse a folder that contains other files than a bundle, so that removing it removes nothing else.

    Raises:
        BundleRefused: its manifest cannot be read, or there are files that it does not list.
    """
    source = FolderFiles(folder)
    try:
        content = _small_file(folder, source, MANIFEST_FILE, MAX_MANIFEST_BYTES)
        if content is None:
            _refuse(folder, MANIFEST_FILE, "none")
        _check_nothing_beside(folder, source.sizes, _named(folder, lambda: manifest_from_json(content)))
    finally:
        source.close()


def _check_nothing_beside(path: Path, sizes: dict[str, int], manifest: Manifest) -> None:
    if extra := sorted(set(sizes) - {*manifest.files, MANIFEST_FILE, COSTS_FILE}):
        _refuse(path, "only files listed in the manifest", f"{extra[0]!r} beside them", "remove it")


def _check_listing(path: Path, sizes: dict[str, int], manifest: Manifest) -> None:
    _check_nothing_beside(path, sizes, manifest)
    if missing := sorted(set(manifest.files) - set(sizes)):
        _refuse(path, f"the file {missing[0]!r}", "a bundle without it", COPY_AGAIN)
    for name, entry in manifest.files.items():
        if sizes[name] != entry.bytes:
            _refuse(path, f"{name!r} of {entry.bytes} bytes", f"{sizes[name]} bytes", COPY_AGAIN)


def _check_hash(path: Path, name: str, entry: FileEntry, digest: str) -> None:
    if digest != entry.sha256:
        _refuse(path, f"{name!r} with SHA-256 {entry.sha256}", digest, COPY_AGAIN)


def _chunks(path: Path, source: BundleFiles, name: str, size: int) -> Iterator[bytes]:
    """Yield exactly `size` bytes of a file; a short read is an error."""
    with source.open(name) as file:
        left = size
        while left:
            chunk = file.read(min(left, CHUNK_BYTES))
            if not chunk:
                _refuse(path, f"{name!r} of {size} bytes", f"{size - left} bytes", COPY_AGAIN)
            left -= len(chunk)
            yield chunk


def _whole(path: Path, source: BundleFiles, name: str, size: int) -> bytes:
    """Return a file of exactly `size` bytes with a single copy in memory, as weights may take most of it."""
    with source.open(name) as file:
        content = file.read(size)
    if len(content) < size:
        _refuse(path, f"{name!r} of {size} bytes", f"{len(content)} bytes", COPY_AGAIN)
    return content


def _small_file(path: Path, source: BundleFiles, name: str, limit: int) -> bytes | None:
    size = source.sizes.get(name)
    if size is None:
        return None
    if size > limit:
        _refuse(path, f"{name} of at most {limit} bytes", f"{size} bytes")
    return b"".join(_chunks(path, source, name, size))
