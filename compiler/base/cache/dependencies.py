"""Records the files, variables and modules that a stage's result depends on, and checks whether they have changed.

A dependency is a text that names what was read; its state is a text as well: the hash of a content, or `absent`.

    file weights.pt          content of a file, or what else is there
    link latest.pt           where a link leads
    times weights.pt         size of a file, and when it was changed
    attributes weights.pt    extended attributes of a file
    folder corpus            names in a folder
    kinds corpus             names in a folder, and which of them are folders
    entries corpus           names in a folder, with sizes and times
    variable MODEL_SIZE      hash of an environment variable
    variables                names of all environment variables
    arguments                what the command was given
    module my_model (.)      where the import system finds a module, the recipe's folder in brackets

Paths below the current directory are written relative to it, so that checkouts may share a store.
"""

import errno
import functools
import hashlib
import os
import re
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import compiler
import runtime_lite
from compiler.base.cache.module_search import places_of

ABSENT = "absent"

SLIPWAY_DIR = Path(compiler.__file__).resolve().parents[1]
"""Where the compiler lies, and in a checkout `build.py` and `recipes/`."""

OWN_CODE = tuple(Path(file).resolve().parent for file in (compiler.__file__, runtime_lite.__file__))
"""Slipway's own code; its hash is part of every key."""


def file_at(path: str) -> str:
    """Return the dependency on a file's content."""
    return f"file {portable(path)}"


def folder_at(path: str) -> str:
    """Return the dependency on the names in a folder."""
    return f"folder {portable(path)}"


def link_at(path: str) -> str:
    """Return the dependency on a link's target, and on whether it is a link."""
    return f"link {portable(path)}"


def times_at(path: str) -> str:
    """Return the dependency on the size and modification time of a file."""
    return f"times {portable(path)}"


def attributes_at(path: str) -> str:
    """Return the dependency on the extended attributes of a file."""
    return f"attributes {portable(path)}"


def kinds_at(path: str) -> str:
    """Return the dependency on the names in a folder, and on which of them are folders."""
    return f"kinds {portable(path)}"


def entries_at(path: str) -> str:
    """Return the dependency on the names in a folder, with sizes and times."""
    return f"entries {portable(path)}"


def variable_named(name: str) -> str:
    """Return the dependency on an environment variable."""
    return f"variable {name}"


def names_of_variables(_: str = "") -> str:
    """Return the dependency on the names of all environment variables."""
    return "variables"


def arguments_given(_: str = "") -> str:
    """Return the dependency on the command's arguments, without its name."""
    return "arguments"


def module_named(name: str, folder: Path) -> str:
    """Return the dependency on where a module is found, for a recipe in a folder."""
    return f"module {name} ({portable(str(folder))})"


def holds(recorded: Mapping[str, str]) -> bool:
    """Whether every dependency still has its recorded state."""
    return all(state_of(dependency) == state for dependency, state in recorded.items())


def state_of(dependency: str) -> str:
    """Return the present state of a dependency."""
    kind, _, rest = dependency.partition(" ")
    if kind in _STATES_OF_PATHS:
        return _STATES_OF_PATHS[kind](Path(rest))
    if kind == "variable":
        value = os.environ.get(rest)
        return ABSENT if value is None else _hashed(value)
    if kind == "variables":
        return _hashed("\0".join(sorted(os.environ)))
    if kind == "arguments":
        return _hashed("\0".join(map(str, sys.argv[1:])))
    match = re.fullmatch(r"(\S+) \((.*)\)", rest)
    return ABSENT if kind != "module" or match is None else _state_of_module(match[1], Path(match[2]))


def portable(path: str) -> str:
    """Return a path as dependencies write it; links are not followed, since another target is another content."""
    here, absolute = os.getcwd(), os.path.join(os.getcwd(), path)
    below = absolute.startswith(os.path.join(here, ""))
    return os.path.relpath(absolute, here) if below else "." if absolute == here else absolute


def hash_file(path: Path) -> str:
    """Return SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_path(path: Path) -> str:
    """Return SHA-256 of a file, or of the names and contents of all files below a folder, through links too.

    Raises:
        FileNotFoundError: there is nothing at the path; the hash of nothing would be the same for every mistake.
    """
    if path.is_file():
        return hash_file(path)
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: expected a file or folder to hash, got nothing")
    digest = hashlib.sha256()
    for file in _files_below(path):
        name = file.relative_to(path).as_posix().encode()
        digest.update(f"{len(name)}:".encode() + name + hash_file(file).encode())
    return digest.hexdigest()


def _files_below(folder: Path) -> list[Path]:
    """Return all files but bytecode, in order; a link to a folder above is not followed."""
    paths: list[Path] = []
    for here, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        folders[:] = [
            name
            for name in folders
            if name != "__pycache__"
            and not f"{real}{os.sep}".startswith(f"{os.path.realpath(Path(here, name))}{os.sep}")
        ]
        paths += [path for name in files if (path := Path(here, name)).is_file()]
    return sorted(paths)


def code_digest(folders: Iterable[Path] = OWN_CODE) -> str:
    """Return a hash of all of Slipway's own code.

    Raises:
        FileNotFoundError: a part of it is missing.
    """
    return _hashed("".join(map(hash_path, folders)))


def is_installed(path: str) -> bool:
    """Whether a file belongs to Python or to an installed package; their versions are part of every key."""
    return path.startswith(_installed_roots())


def is_own(path: str) -> bool:
    """Whether a file belongs to Slipway."""
    return path.startswith(_own_roots())


def installed_packages() -> tuple[str, ...]:
    """Return `name-version` of every installed package, as its metadata folder is called."""
    folders = {Path(folder) for folder in (*sys.path, *_installed_folders()) if folder}
    names = {entry for folder in folders if folder.is_dir() for entry in os.listdir(folder)}
    return tuple(sorted(name for name in names if name.endswith((".dist-info", ".egg-info"))))


def _installed_folders() -> tuple[str, ...]:
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return (*folders, sys.prefix) if sys.prefix != sys.base_prefix else tuple(folders)


@functools.cache
def _installed_roots() -> tuple[str, ...]:
    return _prefixes(_installed_folders())


@functools.cache
def _own_roots() -> tuple[str, ...]:
    return _prefixes(map(str, (*OWN_CODE, SLIPWAY_DIR / "build.py")))


def _prefixes(folders: Iterable[str]) -> tuple[str, ...]:
    """Return folders as prefixes of paths, as written and with links resolved."""
    found = (each for folder in folders for each in (folder, os.path.realpath(folder)))
    return tuple(each if os.path.isfile(each) else os.path.join(each, "") for each in found)


def _state_of_file(path: Path) -> str:
    try:
        return hash_file(path)
    except IsADirectoryError:
        return "folder"
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError as error:
        return f"error {error.errno}"


def _state_of_link(path: Path) -> str:
    try:
        return _hashed(os.readlink(path))
    except OSError as error:
        return "no link" if error.errno == errno.EINVAL else ABSENT


def _state_of_times(path: Path) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return ABSENT
    return f"{found.st_size} {found.st_mtime_ns}"


def _state_of_attributes(path: Path) -> str:
    try:
        names = sorted(os.listxattr(path))
        return _hashed("\0".join(f"{name}={os.getxattr(path, name).hex()}" for name in names))
    except OSError:
        return ABSENT


def _state_of_folder(path: Path) -> str:
    return _listed(path, lambda entry: entry.name)


def _state_of_kinds(path: Path) -> str:
    return _listed(path, lambda entry: os.path.join(entry.name, "") if entry.is_dir() else entry.name)


def _state_of_entries(path: Path) -> str:
    return _listed(path, lambda entry: f"{entry.name} {entry.is_dir()} {_state_of_times(Path(entry.path))}")


def _listed(path: Path, shown: Callable[[os.DirEntry[str]], str]) -> str:
    try:
        with os.scandir(path) as entries:
            return _hashed("\0".join(sorted(map(shown, entries))))
    except OSError:
        return ABSENT


_STATES_OF_PATHS = {
    "file": _state_of_file,
    "link": _state_of_link,
    "times": _state_of_times,
    "attributes": _state_of_attributes,
    "folder": _state_of_folder,
    "kinds": _state_of_kinds,
    "entries": _state_of_entries,
}


def _state_of_module(name: str, folder: Path) -> str:
    """Return where a module would be imported from now, without the path of installed packages."""
    places = places_of(name, (Path.cwd(), folder))
    return " ".join("installed" if is_installed(place) else portable(place) for place in places) or ABSENT


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
