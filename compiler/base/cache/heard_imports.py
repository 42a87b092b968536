"""Records which modules the import system looks for, and for whom, with a finder at the front of `sys.meta_path`."""

import importlib
import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Sequence

from compiler.base.cache import dependencies
from compiler.base.cache.unheard_calls import MODULES

IMPORT_SYSTEM = ("<frozen importlib", os.path.join(importlib.__path__[0], ""))
"""Beginnings of the files that the import system consists of."""


class HeardImports:
    """The recorded look-ups.

    Args:
        imported: called with a module that gets listeners, once it is imported.

    Attributes:
        searched: modules that the user's code has looked for.
        by_string: those of them that no import statement of a source file names.
        by_package: what installed packages have looked for.
    """

    def __init__(self, imported: Callable[[str], None]) -> None:
        self._imported = imported
        self.forget()

    def forget(self) -> None:
        """Forget all recorded look-ups."""
        self.searched: set[str] = set()
        self.by_string: set[str] = set()
        self.by_package: dict[str, set[str]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Record a module that the import system searches; return a spec only for modules that get listeners."""
        self._hear(name)
        if name not in MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            self._listen_afterwards(spec.loader, name)
        return spec

    def _hear(self, name: str) -> None:
        frame: types.FrameType | None = sys._getframe(2)
        by_statement = True
        while frame is not None and frame.f_code.co_filename.startswith(IMPORT_SYSTEM):
            by_statement = by_statement and frame.f_code.co_filename.startswith("<frozen importlib._bootstrap")
            frame = frame.f_back
        file = "" if frame is None else frame.f_code.co_filename
        if frame is None or dependencies.is_own(file):
            return
        if dependencies.is_installed(file):
            package = str(frame.f_globals.get("__name__")).partition(".")[0]
            self.by_package.setdefault(package, set()).add(name)
            return
        self.searched.add(name)
        if file.startswith("<") or not by_statement:
            self.by_string.add(name)

    def _listen_afterwards(self, loader: object, name: str) -> None:
        run = loader.exec_module  # type: ignore[attr-defined]

        def exec_module(module: types.ModuleType) -> None:
            run(module)
            self._imported(name)

        loader.exec_module = exec_module  # type: ignore[attr-defined]
