"""Stores the results of build stages under hashes of their inputs, so that an unchanged stage is not run again.

An entry is a folder of files under a key; the key is a hash of everything the result depends on, so an entry never
becomes wrong, only unused. What cannot be in the key, because it is known only after the stage has run (the files that
a factory's code is in and reads), is recorded beside the entry and compared before use, like a compiler's depfile.

    key = stage_key("capture", torch.__version__, factory, checkpoint_sha256)
    folder = cache.get_with_dependencies(key)
    if folder is None: folder = cache.put_with_dependencies(key, files, {"file model.py": "9f86d081..."})

Guarantees: an entry is complete or absent (written aside, then renamed); every file is checked against its recorded
SHA-256 before use and a damaged entry is dropped; builders may share a folder; the store stays below `max_bytes`, least
recently used entries leave first, except those used within `keep_s`, which another builder may be reading.
It does not store failures: a stage that raises puts nothing.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from compiler.base.cache.dependencies import hash_file, holds
from compiler.base.pieces import Content, write_content

FOLDER_VARIABLE = "SLIPWAY_CACHE"
DEFAULT_FOLDER = Path(".cache") / "slipway"
DEFAULT_MAX_BYTES = 4 << 30
DEFAULT_KEEP_S = 600.0

ABANDONED_S = 86_400.0
"""A folder still being written after a day belongs to a builder that was killed."""

_DIGESTS = "digests.json"
_PARTIAL = "partial"


def stage_key(*parts: bytes | str) -> str:
    """Return SHA-256 over parts, with their boundaries and types: `("ab", "c")` and `("a", "bc")` differ."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(f"{type(part).__name__}:{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


def default_folder() -> Path:
    """Return `$SLIPWAY_CACHE`, or `.cache/slipway` in the current directory."""
    return Path(os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER)


def distrust(folder: Path) -> str:
    """Return why a folder must not be read as a cache, as others may write to it; empty where it may.

    Args:
        folder: folder of the cache.
    """
    if os.name != "posix" or not folder.exists():
        return ""
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user, {_name_of_user(status.st_uid)}"
    if status.st_mode & stat.S_IWOTH:
        return "every user may write to it"
    if status.st_mode & stat.S_IWGRP and not _is_of_one_user(status.st_gid, status.st_uid):
        return "other users of its group may write to it"
    for above in folder.resolve().parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"every user may put another in its place, as all may write to {above}"
    return ""


def open_cache(folder: Path | None, tell: Callable[[str], None], *, knows_code: bool = True) -> "StageCache | None":
    """Return the cache in a folder, or None with a notice where others may have written to it.

    A missing folder is created first, for its owner alone: if it were checked before, it could be another's by then.

    Args:
        folder: the folder; None for the default one.
        tell: called with the text of the notice.
        knows_code: as in `StageCache`.
    """
    chosen = folder or default_folder()
    with contextlib.suppress(OSError):  # it cannot be written to: nothing is kept, and there is nothing to read
        _make(chosen)
    why = distrust(chosen)
    if why:
        tell(f"{chosen}: not used as a cache, as {why}; name a folder of your own with --cache, or remove this one")
    return None if why else StageCache(chosen, knows_code=knows_code)


def _make(folder: Path) -> None:
    """Create a folder and those above it, for their owner alone."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _name_of_user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _is_of_one_user(group: int, user: int) -> bool:
    """Whether a group is the private group that systems create for each user."""
    import grp
    import pwd

    try:
        owner = pwd.getpwuid(user)
        return owner.pw_gid == group and set(grp.getgrgid(group).gr_mem) <= {owner.pw_name}
    except KeyError:
        return False


class StageCache:
    """A store of stage results.

    Args:
        folder: where entries lie; made when the first one is stored.
        max_bytes: upper bound of all entries together; 0 keeps only the entries in use.
        keep_s: entries used within this time are not evicted.
        now: seconds since the epoch, replaced in tests.
        knows_code: whether code that a recipe names does in this process what its files say. Where a program calls a
            build it may have changed modules, and read what nobody saw: nothing with dependencies is found then.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        keep_s: float = DEFAULT_KEEP_S,
        now: Callable[[], float] = time.time,
        knows_code: bool = True,
    ) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.keep_s = keep_s
        self._now = now
        self.knows_code = knows_code

    def get(self, key: str) -> Path | None:
        """Return the folder of an entry whose files are all intact, or None."""
        entry = self._entry(key)
        if not entry.is_dir():
            return None
        record = _read_digests(entry)
        if record is None or not _is_intact(entry, record):
            self._drop(entry)
            return None
        with contextlib.suppress(OSError):  # a read-only store still answers
            os.utime(entry / _DIGESTS, (self._now(), self._now()))
        return entry

    def put(self, key: str, files: Mapping[str, Content | Path]) -> Path:
        """Store a result.

        Args:
            key: from `stage_key`.
            files: content by relative name; a path is copied.

        Returns:
            The entry's folder.

        Raises:
            OSError: the files cannot be read or written (for example, the disk is full); nothing is left behind.
        """
        return self._store(key, files, {})

    def get_with_dependencies(self, key: str) -> Path | None:
        """Return the folder of an intact entry whose recorded dependencies are unchanged, or None."""
        entry = self.get(key)
        record = _read_digests(entry) if entry else None
        if record is None or (record["dependencies"] and not self.knows_code):
            return None
        return entry if holds(record["dependencies"]) else None

    def put_with_dependencies(
        self, key: str, files: Mapping[str, Content | Path], dependencies: Mapping[str, str]
    ) -> Path:
        """Store a result with the state of everything else it depends on; replaces the entry under the key.

        Args:
            key: hash of everything known before the stage has run.
            files: as in `put`.
            dependencies: states of the files and variables that the stage has read, as in `dependencies.py`.

        Returns:
            The entry's folder.

        Raises:
            OSError: as in `put`.
        """
        self._drop(self._entry(key))
        return self._store(key, files, dependencies)

    def total_bytes(self) -> int:
        """Return the total size of all entries."""
        return sum(size for _, size, _ in self._entries())

    def _entry(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _store(self, key: str, files: Mapping[str, Content | Path], dependencies: Mapping[str, str]) -> Path:
        entry = self._entry(key)
        with self._partial() as partial:
            digests = {name: _write(partial, name, content) for name, content in sorted(files.items())}
            record = {"files": digests, "dependencies": dict(sorted(dependencies.items()))}
            (partial / _DIGESTS).write_text(json.dumps(record, indent=1), encoding="utf-8")
            os.utime(partial / _DIGESTS, (self._now(), self._now()))
            entry.parent.mkdir(parents=True, exist_ok=True)
            if self.get(key) is None:
                _rename_unless_taken(partial, entry)
        self._evict(entry)
        return entry

    @contextlib.contextmanager
    def _partial(self) -> Iterator[Path]:
        """Yield a folder to write into, which is removed afterwards unless it was renamed."""
        _make(self.folder)
        partial = self.folder / _PARTIAL / uuid.uuid4().hex
        partial.mkdir(parents=True)
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _drop(self, entry: Path) -> None:
        """Remove an entry, which is renamed first so that nobody sees half of it."""
        with contextlib.suppress(OSError), self._partial() as partial:  # absent, or a store that cannot be written
            entry.rename(partial / "dropped")

    def _entries(self) -> list[tuple[float, int, Path]]:
        """Return last use, size and folder of every entry."""
        found = []
        for digests in self.folder.glob(f"??/*/{_DIGESTS}"):
            with contextlib.suppress(OSError):  # another builder may be dropping it
                size = sum(file.stat().st_size for file in digests.parent.rglob("*") if file.is_file())
                found.append((digests.stat().st_mtime, size, digests.parent))
        return found

    def _evict(self, newest: Path) -> None:
        """Remove the least recently used entries until the store fits, and folders that killed builds left."""
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for used_s, size, entry in entries:
            if total <= self.max_bytes or self._now() - used_s < self.keep_s:
                break
            if entry != newest:
                self._drop(entry)
                total -= size
        for partial in (self.folder / _PARTIAL).glob("*"):
            with contextlib.suppress(OSError):
                if self._now() - partial.stat().st_mtime > ABANDONED_S:
                    shutil.rmtree(partial, ignore_errors=True)


def _rename_unless_taken(partial: Path, entry: Path) -> None:
    """Move a finished entry into place; where another build was first, its entry stays."""
    try:
        partial.rename(entry)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _write(folder: Path, name: str, content: Content | Path) -> dict[str, Any]:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()) or name == _DIGESTS:
        raise ValueError(f"cache file name: expected a relative name below the entry, got {name!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copyfile(content, path)
    else:
        with path.open("wb") as file:
            write_content(file, content)
    return {"bytes": path.stat().st_size, "sha256": hash_file(path)}


def _read_digests(entry: Path) -> dict[str, Any] | None:
    """Return the entry's record, or None if it is damaged."""
    try:
        record = json.loads((entry / _DIGESTS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    well_formed = isinstance(record, dict) and all(
        isinstance(record.get(key), dict) for key in ("files", "dependencies")
    )
    return record if well_formed else None


def _is_intact(entry: Path, record: dict[str, Any]) -> bool:
    try:
        present = {file.relative_to(entry).as_posix() for file in entry.rglob("*") if file.is_file()} - {_DIGESTS}
        return present == record["files"].keys() and all(
            (entry / name).stat().st_size == known["bytes"] and hash_file(entry / name) == known["sha256"]
            for name, known in record["files"].items()
        )
    except (OSError, TypeError, KeyError):
        return False
