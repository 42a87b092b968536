"""loaded_packages: native libraries and packages that the loaded modules of a package hold."""

import ctypes
import sys
from pathlib import Path
from types import ModuleType

import pytest
import soundfile
import yaml

from compiler.base.cache.loaded_packages import contents_of_package, file_of


def test_libraries_and_packages_that_it_uses() -> None:
    found = contents_of_package("yaml")
    assert [Path(file).name.partition(".")[0] for file in found.libraries] == ["_yaml"] and yaml.__file__
    assert not found.opens_libraries
    assert {"_cffi_backend", "numpy"} <= contents_of_package("soundfile").uses and soundfile.__file__


def test_a_library_that_ctypes_has_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("holds_a_library")
    monkeypatch.setitem(sys.modules, "holds_a_library", module)
    assert not contents_of_package("holds_a_library").opens_libraries
    vars(module)["library"] = ctypes.CDLL(None)
    assert contents_of_package("holds_a_library").opens_libraries


def test_files_of_modules(tmp_path: Path) -> None:
    module = ModuleType("zipped")
    assert file_of(module) is None
    (tmp_path / "archive.zip").touch()
    module.__file__ = str(tmp_path / "archive.zip" / "zipped.py")
    assert file_of(module) == str(tmp_path / "archive.zip")
    module.__file__ = str(tmp_path / "gone.py")
    assert file_of(module) is None
