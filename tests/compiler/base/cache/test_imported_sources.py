"""imported_sources: which files stand behind a reference, and which packages may read what nobody sees."""

import importlib
import shutil
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from unittest import mock

import _cffi_backend  # type: ignore[import-untyped]
import pytest

from compiler.base.cache import dependencies
from compiler.base.cache.dependencies import holds
from compiler.base.cache.heard_imports import HeardImports
from compiler.base.cache.imported_sources import Imported, imported_by

roots = dependencies._installed_roots()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/', 1)}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    importlib.invalidate_caches()


def imported(reference: str, folder: Path, deaf: tuple[str, ...] = ()) -> Imported:
    return imported_by([reference], folder, HeardImports(lambda module: None), deaf)


def test_files_are_followed_through_imports_of_every_kind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two", "three", "four", "stranger", "pack"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    write(folder, one="import two\nfrom three import x as y", two="def f():\n  import four", three="x = 1", four="")
    write(folder, stranger="import one")
    write(folder, pack____init__="from . import inner", pack__inner="import one", pack__outer="")
    importlib.import_module("pack.inner")
    importlib.import_module("stranger")
    importlib.import_module("four")
    found = imported("pack.inner:build", folder)
    files = {each for each in found.reads if each.startswith("file ")}
    expected = ("pack/__init__.py", "pack/inner.py", "one.py", "two.py", "three.py", "four.py")
    assert files == {f"file {name}" for name in expected}
    assert found.unseen == () and found.newest_s > 0
    (folder / "three.py").write_text("x = 2")
    assert not holds(found.reads)


@pytest.mark.parametrize(
    ("text", "unseen"),
    [
        ("import numpy, torch, math, json\nfrom torch.nn import functional", ()),
        ("import onnxruntime, packaging.version, yaml, soundfile, sentencepiece, ctypes, sqlite3", ()),
        ("def build():\n    from safetensors.torch import load_file", ()),
        ("import _cffi_backend", ("_cffi_backend",)),
        ("import pure_package", ("native_package",)),
        ("import importlib\nimportlib.import_module('native_package')", ("native_package",)),
    ],
)
def test_packages_that_may_read_unseen_are_named(
    text: str, unseen: tuple[str, ...], folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    installed = tmp_path_factory.mktemp("site-packages")
    library = installed / f"native_package{EXTENSION_SUFFIXES[0]}"
    shutil.copyfile(_cffi_backend.__file__, library)
    (installed / "pure_package.py").touch()
    native, pure = ModuleType("native_package"), ModuleType("pure_package")
    native.__file__, pure.__file__ = str(library), str(installed / "pure_package.py")
    vars(pure)["used"] = native
    write(folder, factory=text)
    with (
        mock.patch.dict(sys.modules, native_package=native, pure_package=pure),
        mock.patch.object(dependencies, "_installed_roots", return_value=(*roots, f"{installed}/")),
    ):
        importlib.import_module("factory")
        assert imported("factory:build", folder).unseen == unseen


def test_a_package_that_lacks_a_call_is_answered_for_by_nobody(folder: Path) -> None:
    write(folder, factory="import safetensors.torch")
    importlib.import_module("factory")
    assert imported("factory:build", folder, deaf=("safetensors",)).unseen == ("safetensors",)


def test_a_module_in_the_place_of_the_standard_library_is_followed(folder: Path) -> None:
    write(folder, factory="import colorsys", colorsys="")
    sys.modules.pop("colorsys", None)
    importlib.import_module("factory")
    assert "file colorsys.py" in imported("factory:build", folder).reads


@pytest.mark.slow
def test_a_module_named_at_run_time_may_be_any(folder: Path) -> None:
    write(folder, factory="import importlib\nNAME = 'hid' + 'den'\nimportlib.import_module(NAME)", hidden="")
    importlib.import_module("factory")
    assert "file hidden.py" in imported("factory:build", folder).reads


def test_a_module_that_appears_is_noticed(folder: Path) -> None:
    write(folder, factory="try:\n    import extra_weights\nexcept ImportError: pass")
    importlib.import_module("factory")
    reads = imported("factory:build", folder).reads
    assert holds(reads)
    write(folder, extra_weights="")
    assert not holds(reads)


def test_a_part_of_a_package_that_appears_is_noticed(folder: Path) -> None:
    write(folder, pack____init__="try:\n    from . import extra\nexcept ImportError: pass")
    importlib.import_module("pack")
    reads = imported("pack:build", folder).reads
    assert holds(reads)
    write(folder, pack__extra="")
    assert not holds(reads)
