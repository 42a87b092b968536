"""Which source files a callable named in a recipe consists of, and which packages it leaves Python's sight through.

The files are followed through their import statements, wherever these stand. A module that is imported by a name made
at run time could be any: then every source file loaded so far counts.
"""

import ast
import dataclasses
import functools
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from compiler.cache import dependencies

SEEN_PACKAGES = frozenset({"einops", "numpy", "onnx", "sympy", "torch", "typing_extensions", "yaml"})
"""Installed packages that open files through Python; any other may hold native code that opens them by itself."""

UNSEEN_LIBRARIES = frozenset({"ctypes", "dbm", "shelve", "sqlite3"})
"""Parts of the standard library that do not."""

UNSEEN_CALLS = frozenset({("jit", "load"), ("UntypedStorage", "from_file"), ("torch", "from_file")})
"""What of a seen package opens files by itself."""


@dataclasses.dataclass(frozen=True)
class Imported:
    """What the code behind references consists of.

    Attributes:
        reads: state of every source file, and where every module was found.
        unseen: packages and calls that may read files which nobody sees.
        newest_s: when the youngest of the source files was changed.
    """

    reads: dict[str, str]
    unseen: tuple[str, ...]
    newest_s: float


def imported_by(references: Iterable[str], folder: Path) -> Imported:
    """Follow references such as `package.module:callable`, whose modules are loaded.

    Args:
        references: as in the recipe.
        folder: the recipe's, in which modules are found.
    """
    closure = _Closure()
    for reference in references:
        closure.enter(reference.partition(":")[0])
    if closure.any_module:
        for name in _own_modules():
            closure.enter(name)
    files = sorted(closure.files | closure.wanted)
    reads = {each: dependencies.state_of(each) for each in map(dependencies.file_at, files)}
    places = (dependencies.module_named(name, folder) for name in sorted(closure.tops))
    reads |= {each: dependencies.state_of(each) for each in places}
    newest_s = max((os.stat(file).st_mtime for file in closure.files), default=0.0)
    return Imported(reads, tuple(sorted(closure.unseen)), newest_s)


class _Closure:
    """Modules reached so far."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.wanted: set[str] = set()
        self.tops: set[str] = set()
        self.unseen: set[str] = set()
        self.any_module = False
        self._entered: set[str] = set()

    def enter(self, name: str) -> None:
        """A module and the packages around it."""
        top = name.partition(".")[0]
        if name in self._entered or not name:
            return
        self._entered.add(name)
        if top in sys.stdlib_module_names:
            self.unseen |= {name} if top in UNSEEN_LIBRARIES else set()
            return
        self.tops.add(top)
        parent, _, last = name.rpartition(".")
        self.enter(parent)
        module = sys.modules.get(name)
        if module is None:
            self._enter_missing(parent, last)
            return
        file = getattr(module, "__file__", None)
        if file is None or not os.path.isfile(file) or dependencies.is_own(os.path.abspath(file)):
            return
        if dependencies.is_installed(os.path.abspath(file)):
            self.unseen |= set() if top in SEEN_PACKAGES else {top}
            return
        self.files.add(os.path.abspath(file))
        if not file.endswith(".py"):
            self.unseen.add(name)
            return
        self._follow(Path(file), module)

    def _enter_missing(self, parent: str, last: str) -> None:
        """A module that was not there, or not needed: whether it appears beside its package."""
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
            elif isinstance(node, ast.Call):
                self._call(node)
            if isinstance(node, ast.Attribute | ast.ImportFrom):
                self.unseen |= {f"torch.{a}.{b}" for a, b in _pairs(node) if (a, b) in UNSEEN_CALLS}

    def _call(self, node: ast.Call) -> None:
        """`importlib.import_module` and `__import__`."""
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
def _nodes_that_import(source: bytes) -> tuple[ast.Import | ast.ImportFrom | ast.Call | ast.Attribute, ...]:
    """What a closure looks at, in order; every stage asks for the same files again."""
    kinds = (ast.Import, ast.ImportFrom, ast.Call, ast.Attribute)
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))


def _absolute(node: ast.ImportFrom, module: ModuleType) -> str:
    if not node.level:
        return node.module or ""
    package = (module.__package__ or "").split(".")
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def _pairs(node: ast.Attribute | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """The last two words of `torch.jit.load`, also where it is imported."""
    if isinstance(node, ast.ImportFrom):
        yield from (((node.module or "").rpartition(".")[2], alias.name) for alias in node.names)
    elif isinstance(node.value, ast.Attribute | ast.Name):
        yield (node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id, node.attr)


def _own_modules() -> list[str]:
    """All modules loaded so far, without Python's own, installed ones and Slipway itself."""
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    paths = {name: os.path.abspath(file) for name, file in files.items() if file}
    return [n for n, path in paths.items() if not dependencies.is_installed(path) and not dependencies.is_own(path)]
