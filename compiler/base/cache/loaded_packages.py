"""Lists the native libraries of an installed package's loaded modules, and the other packages that they use."""

import ctypes
import dataclasses
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType


@dataclasses.dataclass(frozen=True)
class PackageContents:
    """The contents of a package's loaded modules.

    Attributes:
        libraries: files of native modules.
        opens_libraries: whether one holds a library that ctypes has opened.
        uses: packages whose modules, or objects of whose types, they hold.
    """

    libraries: frozenset[str]
    opens_libraries: bool
    uses: frozenset[str]


def contents_of_package(package: str) -> PackageContents:
    """Return the files, libraries and used packages of the loaded modules `package` and `package.*`."""
    modules = [
        module for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and (name == package or name.startswith(f"{package}."))
    ]  # fmt: skip
    held = [value for module in modules for value in list(vars(module).values())]
    files = (file for module in modules if (file := file_of(module)) is not None)
    return PackageContents(
        frozenset(file for file in files if file.endswith(tuple(EXTENSION_SUFFIXES))),
        any(isinstance(value, ctypes.CDLL) for value in held),
        frozenset(name for value in held if (name := _package_of(value)) not in ("", package)),
    )


def file_of(module: ModuleType) -> str | None:
    """Return the file, or archive, that a module was loaded from; None where there is none."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    path = os.path.abspath(file)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path if os.path.isfile(path) else None


def _package_of(value: object) -> str:
    """Return the package of a module, of a class or function, or of the type of any other value."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0]
    own = getattr(value, "__module__", None) if callable(value) else type(value).__module__
    return own.partition(".")[0] if isinstance(own, str) else ""
