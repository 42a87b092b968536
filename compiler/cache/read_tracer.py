"""Sees what code named in a recipe reads while it runs, so that results can be kept while that is unchanged.

Seen are files opened, asked for or listed through Python, and environment variables. Not seen are files that native
code opens by itself (`imported_sources.py` looks for such code). The network and other processes lead out of sight:
that is said, and a result that it went into is not kept.

    with READ_TRACER.watching():
        module = factory()
    READ_TRACER.reads()       # {"file weights.pt": "9f86...", "variable MODEL_SIZE": "absent"}
    READ_TRACER.unseen()      # ("socket.connect",)

There is one tracer per process, as modules are imported and their memories filled once per process: what any code of
the recipe has read may reach all that runs after it. An audit hook cannot be taken away again; it does nothing unless
watching.
"""

import contextlib
import inspect
import linecache
import os
import stat
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

from compiler.cache import dependencies

OPAQUE = (
    "socket.",
    "subprocess.",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "sqlite3.",
    "ctypes.dl",
)
"""Audit events, by their beginnings, of what leads out of sight."""

SPECIAL = ("/proc/", "/sys/", "/dev/")
"""Files whose content is made when it is read."""

LISTING = ("os.listdir", "os.scandir")

IMPORT_SYSTEM = "<frozen importlib"

State = tuple[int, ...] | None


class ReadTracer:
    """Collects what is read between the beginning and the end of `watching`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside = threading.local()
        self._watching = 0
        self._hooked = False
        self.forget()

    def forget(self) -> None:
        """Begin anew, as a new process would."""
        self.began_s = time.time()
        self._files: dict[str, State] = {}
        self._folders: dict[str, str] = {}
        self._variables: dict[str, str] = {}
        self._written: set[str] = set()
        self._unseen: list[str] = []
        self._unseen_on_import: list[str] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Take note of what is read in the body."""
        with self._lock:
            if not self._hooked:
                sys.addaudithook(self._hear)
                self._hooked = True
            self._watching += 1
            if self._watching == 1:
                self._restore = _put_in_front(self)
        try:
            yield
        finally:
            with self._lock:
                self._watching -= 1
                if not self._watching:
                    self._restore()

    def reads(self, without: Callable[[str], bool] = lambda path: False) -> dict[str, str] | None:
        """State of everything that was read, or None if some of it has changed since.

        Args:
            without: paths that are of no interest.
        """
        found = dict(self._variables)
        for path, seen in self._files.items():
            if without(path):
                continue
            dependency = dependencies.file_at(path)
            found[dependency] = dependencies.state_of(dependency)
            if _identity(path) != seen:
                return None
        folders = {path: names for path, names in self._folders.items() if not without(path)}
        return found | {dependencies.folder_at(path): names for path, names in folders.items()}

    def unseen(self) -> tuple[str, ...]:
        """What led out of sight."""
        return tuple(dict.fromkeys((*self._unseen_on_import, *self._unseen)))

    def answer_for(self) -> None:
        """Drop what led out of sight but on import: its result is known by what came of it."""
        self._unseen.clear()

    def see_file(self, path: object) -> None:
        """A file is opened for reading, or asked for."""
        name = _name_of(path)
        if name is None or name in self._written or _is_covered(name):
            return
        if name.startswith(SPECIAL):
            if name != os.devnull:
                self._lead_out(f"reading {name}")
            return
        self._files.setdefault(name, _identity(name))

    def see_variable(self, name: object) -> None:
        """An environment variable is read."""
        dependency = dependencies.variable_named(os.fsdecode(name) if isinstance(name, bytes) else str(name))
        self._variables.setdefault(dependency, dependencies.state_of(dependency))

    def note(self, see: Callable[[Any], None], what: Any, is_own: Callable[[types.FrameType | None], bool]) -> None:
        """Take note of one thing that the caller's caller does; never disturbs who reads.

        Args:
            see: takes it in.
            what: what it is.
            is_own: whether it is Python's own business, by the frame in which it happens.
        """
        if not self._watching or getattr(self._inside, "busy", False):
            return
        self._inside.busy = True  # what the tracer itself looks at is not noted
        try:
            with contextlib.suppress(OSError, ValueError, TypeError):
                if not is_own(sys._getframe(2)):
                    see(what)
        finally:
            self._inside.busy = False

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Called by the interpreter for every audit event of the process."""
        if event == "open":
            self.note(self._open, arguments, _is_bookkeeping)
        elif event in LISTING:
            self.note(self._list, arguments, _is_bookkeeping)
        elif event.startswith(OPAQUE):
            self.note(self._lead_out, event, _imports_package)

    def _open(self, arguments: tuple[Any, ...]) -> None:
        path, _, flags = arguments
        access = flags & os.O_ACCMODE if isinstance(flags, int) else os.O_RDONLY
        name = _name_of(path)
        fresh = isinstance(flags, int) and flags & (os.O_TRUNC | os.O_EXCL)
        if access == os.O_WRONLY or (access == os.O_RDWR and fresh):
            if name is not None and name not in self._files:
                self._written.add(name)
            return
        self.see_file(path)

    def _list(self, arguments: tuple[Any, ...]) -> None:
        name = _name_of("." if arguments[0] is None else arguments[0])
        if name is not None and not _is_covered(name):
            self._folders.setdefault(name, dependencies.state_of(dependencies.folder_at(name)))

    def _lead_out(self, what: str) -> None:
        on_import = _importing(sys._getframe(1)) is not None
        (self._unseen_on_import if on_import else self._unseen).append(what)


def _is_bookkeeping(frame: types.FrameType | None) -> bool:
    """Whether Python itself looks: for modules, their source files, or lines of a stack trace."""
    if frame is None or frame.f_code.co_filename.startswith(IMPORT_SYSTEM):
        return True
    above = (frame, frame.f_back, frame.f_back and frame.f_back.f_back)
    if any(each is not None and each.f_code.co_filename in (inspect.__file__, linecache.__file__) for each in above):
        return True
    return _imports_package(frame)


def _imports_package(frame: types.FrameType | None) -> bool:
    """Whether an installed package is being imported: its version stands for what it does meanwhile."""
    module = _importing(frame)
    return module is not None and dependencies.is_installed(module.f_code.co_filename)


def _importing(frame: types.FrameType | None) -> types.FrameType | None:
    """The innermost module that is being imported around a frame; the main program is not."""
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    above = None if frame is None else frame.f_back
    return frame if above is not None and above.f_code.co_filename.startswith(IMPORT_SYSTEM) else None


def _name_of(path: object) -> str | None:
    """An absolute path, or None for what is open already."""
    if not isinstance(path, str | bytes | os.PathLike):
        return None
    return os.path.join(os.getcwd(), os.fsdecode(path))


def _is_covered(name: str) -> bool:
    """Whether the hash of our code or the versions of packages stand for a file."""
    if os.path.basename(name).startswith("<") or dependencies.is_own(name):
        return True
    return dependencies.is_installed(name) and (name.endswith((".py", ".pyc", ".so")) or not os.path.isfile(name))


def _identity(path: str) -> State:
    """What changes with a file, or None if there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(found.st_mode):
        return (found.st_ino,)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _put_in_front(tracer: ReadTracer) -> Callable[[], None]:
    """Listen where the interpreter raises no event: questions for a file, and environment variables."""
    environ: Any = type(os.environ)
    stat_before, access_before, variable_before = os.stat, os.access, environ.__getitem__

    def stat_file(path: Any, *arguments: Any, **options: Any) -> Any:
        if options.get("dir_fd") is None:
            tracer.note(tracer.see_file, path, _is_bookkeeping)
        return stat_before(path, *arguments, **options)

    def access_file(path: Any, *arguments: Any, **options: Any) -> bool:
        if options.get("dir_fd") is None:
            tracer.note(tracer.see_file, path, _is_bookkeeping)
        return access_before(path, *arguments, **options)

    def variable(mapping: Any, name: Any) -> Any:
        tracer.note(tracer.see_variable, name, lambda frame: False)
        return variable_before(mapping, name)

    def restore() -> None:
        os.stat, os.access, environ.__getitem__ = stat_before, access_before, variable_before

    os.stat, os.access, environ.__getitem__ = stat_file, access_file, variable
    return restore


READ_TRACER = ReadTracer()
"""Of this process."""
