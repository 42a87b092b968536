"""imported_sources: which files stand behind a reference, and what of them may read unseen."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import safetensors.torch

from compiler.cache.dependencies import holds
from compiler.cache.imported_sources import imported_by


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


def test_files_are_followed_through_imports_of_every_kind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two", "three", "four", "stranger", "pack"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    write(folder, one="import two\nfrom three import x as y", two="def f():\n  import four", three="x = 1", four="")
    write(folder, stranger="import one")
    write(folder, pack____init__="from . import inner", pack__inner="import one", pack__outer="")
    importlib.import_module("pack.inner")
    importlib.import_module("stranger")
    importlib.import_module("four")
    imported = imported_by(["pack.inner:build"], folder)
    files = {each for each in imported.reads if each.startswith("file ")}
    expected = ("pack/__init__.py", "pack/inner.py", "one.py", "two.py", "three.py", "four.py")
    assert files == {f"file {name}" for name in expected}
    assert imported.unseen == () and imported.newest_s > 0
    (folder / "three.py").write_text("x = 2")
    assert not holds(imported.reads)


@pytest.mark.parametrize(
    ("text", "unseen"),
    [
        ("import numpy, torch, math, json\nfrom torch.nn import functional", ()),
        ("import onnxruntime", ("onnxruntime",)),
        ("def build():\n    from safetensors.torch import load_file", ("safetensors",)),
        ("import torch\ndef build():\n    return torch.jit.load('m.pt')", ("torch.jit.load",)),
        ("from torch.jit import load", ("torch.jit.load",)),
        ("import torch\nf = torch.jit.script", ()),
        ("import ctypes", ("ctypes",)),
        ("import importlib\nimportlib.import_module('safetensors')", ("safetensors",)),
    ],
)
def test_packages_that_may_read_unseen_are_named(text: str, unseen: tuple[str, ...], folder: Path) -> None:
    write(folder, factory=text)
    importlib.import_module("factory")
    assert safetensors.torch.load_file is not None  # a package that is loaded already, too
    assert imported_by(["factory:build"], folder).unseen == unseen


def test_a_module_named_at_run_time_may_be_any(folder: Path) -> None:
    write(folder, factory="import importlib\nNAME = 'hid' + 'den'\nimportlib.import_module(NAME)", hidden="")
    importlib.import_module("factory")
    assert "file hidden.py" in imported_by(["factory:build"], folder).reads


def test_a_module_that_appears_is_noticed(folder: Path) -> None:
    write(folder, factory="try:\n    import extra_weights\nexcept ImportError: pass")
    importlib.import_module("factory")
    reads = imported_by(["factory:build"], folder).reads
    assert holds(reads)
    write(folder, extra_weights="")
    assert not holds(reads)


def test_a_part_of_a_package_that_appears_is_noticed(folder: Path) -> None:
    write(folder, pack____init__="try:\n    from . import extra\nexcept ImportError: pass")
    importlib.import_module("pack")
    reads = imported_by(["pack:build"], folder).reads
    assert holds(reads)
    write(folder, pack__extra="")
    assert not holds(reads)
