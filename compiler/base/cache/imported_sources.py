"""Lists the source files behind a callable named in a recipe, and the packages whose reads cannot be traced.

The files are followed through their import statements, wherever these stand. A module that is imported by a name made
at run time could be any: then every source file loaded so far counts. Installed packages are followed through what
their modules hold, down to their native libraries.
"""

import ast
import dataclasses
import functools
import os
import sys
from collections.abc import Container, Iterable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

from compiler.base.cache import dependencies
from compiler.base.cache.heard_imports import HeardImports
from compiler.base.cache.loaded_packages import contents_of_package, file_of
from compiler.base.cache.native_code import may_read
from compiler.base.cache.unheard_calls import PACKAGES


@dataclasses.dataclass(frozen=True)
class Imported:
    """The files, libraries and packages that the code behind references consists of.

    Attributes:
        reads: state of every source file, and the path of every module.
        unseen: packages whose native code may read files without a traced event.
        newest_s: time of the newest change of a source file, in seconds.
    """

    reads: dict[str, str]
    unseen: tuple[str, ...]
    newest_s: float


def imported_by(references: Iterable[str], folder: Path, heard: HeardImports, deaf: Container[str] = ()) -> Imported:
    """Return the source files that references such as `package.module:callable` import, from loaded modules.

    Args:
        references: references in the recipe.
        folder: the recipe's folder, in which modules are found.
        heard: modules that were searched while the code ran.
        deaf: packages whose installed versions are not verified to be safe.
    """
    closure = _Closure(heard, deaf)
    for name in (*(reference.partition(":")[0] for reference in references), *heard.by_string):
        closure.enter(name)
    if closure.any_module:
        for name in _own_modules():
            closure.enter(name)
    files = sorted(closure.files | closure.wanted)
    reads = {file: dependencies.state_of(file) for file in map(dependencies.file_at, files)}
    places = (dependencies.module_named(name, folder) for name in sorted(closure.tops | heard.searched))
    reads |= {place: dependencies.state_of(place) for place in places}
    newest_s = max((os.stat(file).st_mtime for file in closure.files), default=0.0)
    return Imported(reads, tuple(sorted(closure.unseen)), newest_s)


class _Closure:
    """Modules reached so far."""

    def __init__(self, heard: HeardImports, deaf: Container[str]) -> None:
        self.heard, self.deaf = heard, deaf
        self.files: set[str] = set()
        self.wanted: set[str] = set()
        self.tops: set[str] = set()
        self.unseen: set[str] = set()
        self.any_module = False
        self._entered: set[str] = set()
        self._packages: set[str] = set()

    def enter(self, name: str) -> None:
        """Add a module and its enclosing packages."""
        top = name.partition(".")[0]
        if name in self._entered or not name:
            return
        self._entered.add(name)
        self.tops.add(top)
        parent, _, last = name.rpartition(".")
        self.enter(parent)
        module = sys.modules.get(name)
        if module is None:
            self._enter_missing(parent, last)
            return
        file = file_of(module)
        if file is None or dependencies.is_own(file):
            return
        if dependencies.is_installed(file):
            self._enter_package(top)
            return
        self.files.add(file)
        if file.endswith(".py"):
            self._follow(Path(file), module)
        elif not file.endswith(tuple(EXTENSION_SUFFIXES)):
            self.any_module = True  # bytecode, or an archive
        elif may_read(file):
            self.unseen.add(name)

    def _enter_package(self, top: str) -> None:
        """Add an installed package: whether its native code, or that of packages it uses, may read files."""
        waiting = [top]
        while waiting:
            package = waiting.pop()
            is_known = package in sys.stdlib_module_names or (package in PACKAGES and package not in self.deaf)
            if package in self._packages or is_known:
                continue
            self._packages.add(package)
            package_contents = contents_of_package(package)
            if any(map(may_read, package_contents.libraries)) or package_contents.opens_libraries:
                self.unseen.add(package)
            waiting += package_contents.uses | {
                name.partition(".")[0] for name in self.heard.by_package.get(package, ())
            }

    def _enter_missing(self, parent: str, last: str) -> None:
        """Add the paths at which a module that was not found would appear in its package."""
        for folder in getattr(sys.modules.get(parent), "__path__", ()) if parent else ():
            if not dependencies.is_installed(os.path.join(folder, "")):
                self.wanted |= {os.path.join(folder, f"{last}.py"), os.path.join(folder, last, "__init__.py")}

    def _follow(self, file: Path, module: ModuleType) -> None:
        try:
            nodes = _nodes_that_import(file.read_bytes())
        except (SyntaxError, ValueError):  # changed since it was imported
            self.any_module = True
            return
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.enter(alias.name)
            elif isinstance(node, ast.ImportFrom):
                base = _absolute(node, module)
                self.enter(base)
                inner = (f"{base}.{alias.name}" for alias in node.names)
                for name in inner:
                    if name in sys.modules or not hasattr(sys.modules.get(base), name.rpartition(".")[2]):
                        self.enter(name)
            else:
                self._call(node)

    def _call(self, node: ast.Call) -> None:
        """Add the modules of `importlib.import_module`, `__import__` and similar calls."""
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called not in ("import_module", "__import__", "run_path", "spec_from_file_location"):
            return
        first = node.args[0] if node.args else None
        if (
            isinstance(first, ast.Constant)
            and isinstance(first.value, str)
            and called in ("import_module", "__import__")
        ):
            self.enter(first.value)
        else:
            self.any_module = True


@functools.lru_cache(maxsize=1024)
def _nodes_that_import(source: bytes) -> tuple[ast.Import | ast.ImportFrom | ast.Call, ...]:
    """Return the nodes of a source file that may import, in order; cached, as every stage reads the same files."""
    kinds = (ast.Import, ast.ImportFrom, ast.Call)
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))


def _absolute(node: ast.ImportFrom, module: ModuleType) -> str:
    if not node.level:
        return node.module or ""
    package = (module.__package__ or "").split(".")
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def _own_modules() -> list[str]:
    """Return all loaded modules, without Python's own, installed ones and Slipway itself."""
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    paths = {name: os.path.abspath(file) for name, file in files.items() if file}
    return [n for n, path in paths.items() if not dependencies.is_installed(path) and not dependencies.is_own(path)]
