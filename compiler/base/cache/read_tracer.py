"""Traces what user code reads while it runs, so that a cached result is reused only if none of this has changed.

Seen are files opened, mapped, asked for or listed, links, extended attributes, modules looked for, environment
variables and arguments: by audit events (`audit_events.py`), and by listeners in front of calls that raise none
(`unheard_calls.py`). Packages whose native code opens files by itself are listed by `imported_sources.py`. The network
and other processes cannot be traced: the build reports them, and a result that depends on them is not kept.

    with READ_TRACER.watching():
        module = factory()
    READ_TRACER.reads()       # {"file weights.pt": "9f86...", "variable MODEL_SIZE": "absent"}
    READ_TRACER.unseen()      # ("the network (socket.connect)",)

There is one tracer per process, as modules are imported and their memories filled once per process: what any code of
the recipe has read may reach all that runs after it. An audit hook cannot be taken away again; it does nothing unless
watching.
"""

import contextlib
import importlib
import inspect
import os
import stat
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

from compiler.base.cache import audit_events, dependencies
from compiler.base.cache.heard_arguments import listening_to_arguments
from compiler.base.cache.heard_imports import HeardImports
from compiler.base.cache.heard_variables import listening_to_variables
from compiler.base.cache.unheard_calls import Arguments, Listeners, argument

SPECIAL = ("/proc/", "/sys/", "/dev/")
"""Files whose content is made when it is read."""

IMPORT_SYSTEM = "<frozen importlib"

LOOK_AT_PATHS = (os.path.__name__, os.path.exists.__module__, inspect.__name__)
"""Modules whose functions ask for files in the name of who calls them."""

METADATA = os.path.join(os.path.dirname(importlib.__file__), "metadata", "")
"""Where Python looks for the metadata of packages."""

FINDS_AND_LOADS = "_find_and_load"
"""The function of the import system that imports; what else of it runs reads a file for its caller."""

ASK_FOR_TIMES = frozenset({"getmtime", "getctime", "getatime"})

State = tuple[int, ...] | None


class ReadTracer:
    """Collects the reads between the beginning and the end of `watching`.

    Attributes:
        imports: which modules were looked for, and by whom.
        listeners: in front of calls that raise no event.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside = threading.local()
        self._watching = 0
        self._hooked = False
        self.listeners = Listeners(self._call)
        self.imports = HeardImports(self.listeners.imported)
        self.forget()

    def forget(self) -> None:
        """Forget all reads, as in a new process."""
        self.began_s = time.time()
        self.imports.forget()
        self._files: dict[str, State] = {}
        self._states: dict[tuple[Callable[[str], str], str], str] = {}
        self._written: set[str] = set()
        self._made: set[str] = set()
        self._set_variables: set[str] = set()
        self._unseen: list[str] = []
        self._unseen_on_import: list[str] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Record every read that happens inside the body of the with statement."""
        with self._lock:
            if not self._hooked:
                sys.addaudithook(self._hear)
                self._hooked = True
            self._watching += 1
            if self._watching == 1:
                self.listeners.begin()
                self._restore_variables = listening_to_variables(self._see_variable, self._see_all_variables)
                self._restore_arguments = listening_to_arguments(self._see_arguments)
                sys.meta_path.insert(0, self.imports)
        try:
            yield
        finally:
            with self._lock:
                self._watching -= 1
                if not self._watching:
                    sys.meta_path.remove(self.imports)
                    self._restore_arguments()
                    self._restore_variables()
                    self.listeners.end()

    def reads(self, without: Callable[[str], bool] = lambda path: False) -> dict[str, str] | None:
        """Return the state of everything that was read, or None if some of it has changed since.

        Args:
            without: returns whether a path is left out.
        """
        states = self._states.items()
        present_states = {dependency(name): state for (dependency, name), state in states if not without(name)}
        for path, seen in self._files.items():
            if without(path):
                continue
            dependency = dependencies.file_at(path)
            present_states[dependency] = dependencies.state_of(dependency)
            if _identity(path) != seen:
                return None
        return present_states

    def unseen(self) -> tuple[str, ...]:
        """Return the actions whose reads could not be tracked."""
        return tuple(dict.fromkeys((*self._unseen_on_import, *self._unseen)))

    def answer_for(self) -> None:
        """Drop untracked actions, except those on import, as the caller vouches for their result."""
        self._unseen.clear()

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Handle an audit event of the interpreter."""
        if not self._watching:
            return
        if event == audit_events.OPENS:
            self._note(self._open, arguments)
        elif event in audit_events.TAKEN_IN:
            self._note(lambda frame, given: self._take_in(event, frame, given), arguments)
        elif audit_events.leads_out(event):
            self._note(self._lead_out, audit_events.words_of(event))

    def _call(self, call: str, given: Arguments) -> None:
        """Handle a call that raises no audit event."""
        self._note(lambda frame, _: self._take_in_call(call, frame, given), call)

    def _note(self, see: Callable[[types.FrameType, Any], None], what: Any) -> None:
        """Record one action of the caller's caller; errors never reach the code that reads.

        Args:
            see: records the action, given its frame.
            what: the action.
        """
        if not self._watching or getattr(self._inside, "busy", False):
            return
        self._inside.busy = True  # what the tracer itself looks at is not noted
        try:
            with contextlib.suppress(OSError, ValueError, TypeError):
                see(_asking(sys._getframe(2)), what)
        finally:
            self._inside.busy = False

    def _take_in(self, event: str, frame: types.FrameType, arguments: tuple[Any, ...]) -> None:
        """Record an audit event other than the opening of a file."""
        first = arguments[0]
        if event in (audit_events.LISTS, audit_events.SCANS):
            if not (_is_import_system(frame) or _looks_for_packages(frame)):
                self._list(first, shows_kinds=event == audit_events.SCANS, shows_times=_is_users(frame))
        elif event == audit_events.MAPS:
            self._see_file(first, frame)
        elif event in audit_events.READS_ATTRIBUTES:
            self._see_state(dependencies.attributes_at, first)
        elif event == audit_events.SETS_VARIABLE:
            self._set_variables.add(os.fsdecode(first))
        elif event == audit_events.MAKES_FOLDER:
            name = _name_of(first)
            if name is not None and not os.path.lexists(name):
                self._made.add(os.path.join(name, ""))
        elif event == audit_events.RENAMES:
            before, after = map(_name_of, arguments[:2])
            if before is not None and after is not None and self._is_product(before) and after not in self._files:
                self._written.add(after)

    def _take_in_call(self, call: str, frame: types.FrameType, given: Arguments) -> None:
        """Record a call that raises no audit event."""
        means, _, name = call.partition(" ")
        if means == "out":
            self._lead_out(frame, audit_events.words_of(name))
        elif means in ("stat", "lstat", "access", "readlink", "open"):
            if not (_is_import_system(frame) or _looks_for_modules(frame)):
                self._ask(means, frame, given)
        elif means == "session":
            model = argument(given, 2)
            if isinstance(model, str | os.PathLike):
                self._see_file(model, frame)
                for beside in _weights_beside(os.fspath(model)):
                    self._see_file(beside, frame)
        elif means == "recording":
            mode = given[0][2] if len(given[0]) > 2 else given[1].get("mode", "r")
            if mode is None or "r" in str(mode):
                self._see_file(argument(given, 1), frame)
        else:
            self._see_file(argument(given, ("first", "second").index(means)), frame)

    def _ask(self, means: str, frame: types.FrameType, given: Arguments) -> None:
        """Record a query of a file's state, or a file opened relative to an open folder."""
        folder = given[1].get("dir_fd")
        path = argument(given, 0)
        if folder is not None and not os.path.isabs(os.fsdecode(path)):  # type: ignore[arg-type]
            path = os.path.join(os.fsencode(_name_of(folder) or "/"), os.fsencode(path))  # type: ignore[arg-type]
        elif means == "open":
            return  # its event has the whole path
        if means in ("lstat", "readlink") or given[1].get("follow_symlinks") is False:
            self._see_state(dependencies.link_at, path)
        if means != "readlink":
            self._see_file(path, frame)
        if means in ("stat", "lstat") and _asks_for_times(frame):
            self._see_state(dependencies.times_at, path)

    def _open(self, frame: types.FrameType, arguments: tuple[Any, ...]) -> None:
        path, _, flags = arguments
        if _is_being_imported(frame):
            return  # `imported_sources.py` follows modules
        access = flags & os.O_ACCMODE if isinstance(flags, int) else os.O_RDONLY
        name = _name_of(path)
        fresh = isinstance(flags, int) and flags & (os.O_TRUNC | os.O_EXCL)
        if name is not None and access != os.O_RDONLY and (fresh or not os.path.exists(name)):
            if name not in self._files:
                self._written.add(name)
        elif access != os.O_WRONLY:
            self._see_file(path, frame)

    def _list(self, path: object, *, shows_kinds: bool, shows_times: bool) -> None:
        path = "." if path is None else path
        if shows_kinds and shows_times:
            self._see_state(dependencies.entries_at, path)
        else:
            self._see_state(dependencies.kinds_at if shows_kinds else dependencies.folder_at, path)

    def _see_file(self, path: object, frame: types.FrameType) -> None:
        """Record a file that is opened for reading, or queried."""
        name = _name_of(path)
        if name is None or self._is_product(name) or _is_covered(name):
            return
        if name.startswith(SPECIAL):
            if name != os.devnull:
                self._lead_out(frame, name)
            return
        self._files.setdefault(name, _identity(name))

    def _see_state(self, kind: Callable[[str], str], path: object) -> None:
        """Record a state of a path other than a file's content."""
        name = _name_of(path)
        if name is None or self._is_product(name) or _is_covered(name) or name.startswith(SPECIAL):
            return
        self._look_at(kind, name)

    def _look_at(self, kind: Callable[[str], str], name: str) -> None:
        if (kind, name) not in self._states:
            self._states[kind, name] = dependencies.state_of(kind(name))

    def _is_product(self, name: str) -> bool:
        """Whether the code has written a file itself, or the folder that it lies in."""
        return name in self._written or any(os.path.join(name, "").startswith(folder) for folder in self._made)

    def _see_variable(self, name: object) -> None:
        self._note(lambda _, name: self._take_in_variable(name), name)

    def _see_all_variables(self) -> None:
        self._note(lambda _, __: self._take_in_all_variables(), None)

    def _take_in_variable(self, name: object) -> None:
        text = os.fsdecode(name) if isinstance(name, bytes) else str(name)
        if text not in self._set_variables:
            self._look_at(dependencies.variable_named, text)

    def _take_in_all_variables(self) -> None:
        if not self._set_variables:
            self._look_at(dependencies.names_of_variables, "")
        for name in os.environ:
            self._take_in_variable(name)

    def _see_arguments(self) -> None:
        self._note(lambda _, __: self._look_at(dependencies.arguments_given, ""), None)

    def _lead_out(self, frame: types.FrameType, what: str) -> None:
        if not _imports_package(frame):
            on_import = _importing(frame) is not None
            (self._unseen_on_import if on_import else self._unseen).append(what)


def _asking(frame: types.FrameType) -> types.FrameType:
    """Return the frame of the code that reads, behind those of the tracer."""
    below = frame
    while below.f_back is not None and str(below.f_globals.get("__name__")).startswith("compiler.base.cache."):
        below = below.f_back
    return below


def _is_import_system(frame: types.FrameType) -> bool:
    return frame.f_code.co_filename.startswith(IMPORT_SYSTEM)


def _looks_for_packages(frame: types.FrameType) -> bool:
    """Whether the import path is searched for installed packages, whose versions are in the key."""
    return frame.f_code.co_filename.startswith(METADATA)


def _looks_for_modules(frame: types.FrameType | None) -> bool:
    """Whether `inspect` looks up the files of all modules, as it does at its first use."""
    while frame is not None and frame.f_globals.get("__name__") in LOOK_AT_PATHS:
        if frame.f_code is inspect.getmodule.__code__:
            return True
        frame = frame.f_back
    return False


def _is_being_imported(frame: types.FrameType | None) -> bool:
    """Whether the import system reads a module to import it."""
    while frame is not None and _is_import_system(frame):
        if frame.f_code.co_name == FINDS_AND_LOADS:
            return True
        frame = frame.f_back
    return False


def _is_users(frame: types.FrameType) -> bool:
    """Whether a line of the user's own code reads."""
    file = frame.f_code.co_filename
    return not (file.startswith("<frozen") or dependencies.is_installed(file) or dependencies.is_own(file))


def _asks_for_times(frame: types.FrameType) -> bool:
    """Whether the code that queries a file may use its times: user code, or functions that return nothing else."""
    if frame.f_code.co_name in ASK_FOR_TIMES:
        return True
    if frame.f_code.co_name in ("stat", "lstat") and os.path.basename(frame.f_code.co_filename) == "pathlib.py":
        return frame.f_back is not None and _is_users(frame.f_back)
    return _is_users(frame)


def _imports_package(frame: types.FrameType) -> bool:
    """Whether an installed package is being imported; its version stands for all that it reads then."""
    module = _importing(frame)
    return module is not None and dependencies.is_installed(module.f_code.co_filename)


def _importing(frame: types.FrameType | None) -> types.FrameType | None:
    """Return the frame of the innermost module that is being imported; the main program does not count."""
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    above = None if frame is None else frame.f_back
    return frame if above is not None and above.f_code.co_filename.startswith(IMPORT_SYSTEM) else None


def _name_of(path: object) -> str | None:
    """Return the absolute path of a name or an open file; None where there is none."""
    if isinstance(path, int):
        try:
            name = os.readlink(f"/proc/self/fd/{path}")
        except OSError:
            return None
        return name if os.path.isabs(name) and os.path.exists(name) else None
    if not isinstance(path, str | bytes | os.PathLike):
        return None
    return os.path.normpath(os.path.join(os.getcwd(), os.fsdecode(path)))


def _weights_beside(model: str) -> list[str]:
    """Return the files in which an ONNX file keeps weights."""
    import onnx
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    try:
        tensors = _tensors_in(onnx.load(model, load_external_data=False))
        names = {ExternalDataInfo(tensor).location for tensor in tensors if uses_external_data(tensor)}
    except Exception:  # noqa: BLE001 - what is no ONNX file fails where it is opened
        return []
    return [os.path.join(os.path.dirname(model), name) for name in sorted(names)]


def _tensors_in(message: Any) -> Iterator[Any]:
    """Yield the tensors in a message of ONNX, wherever they stand in it."""
    import onnx

    if isinstance(message, onnx.TensorProto):
        yield message
        return
    for field, content in message.ListFields():
        if field.message_type is not None:
            for part in [content] if hasattr(content, "ListFields") else content:
                yield from _tensors_in(part)


def _is_covered(name: str) -> bool:
    """Whether the hash of our code, or the versions of packages, stand for a file."""
    if os.path.basename(name).startswith("<") or dependencies.is_own(name):
        return True
    return dependencies.is_installed(name) and (name.endswith((".py", ".pyc", ".so")) or not os.path.isfile(name))


def _identity(path: str) -> State:
    """Return what changes with a file: inode, size and times; None where there is no file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(found.st_mode):
        return (found.st_ino,)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


READ_TRACER = ReadTracer()
"""Of this process."""
