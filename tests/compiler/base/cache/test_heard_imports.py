"""heard_imports: who looks for which module, and what is done once one is imported."""

import importlib
import sys
from pathlib import Path

import pytest

from compiler.base.cache import heard_imports
from compiler.base.cache.heard_imports import HeardImports


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("looked_for", "by_name"):
        (tmp_path / f"{name}.py").touch()
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    return tmp_path


def test_searches_of_the_user_are_heard(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = HeardImports(lambda module: None)
    monkeypatch.setattr(sys, "meta_path", [heard, *sys.meta_path])
    exec(compile("import looked_for", str(folder / "users.py"), "exec"))
    assert (heard.searched, heard.by_string) == ({"looked_for"}, set())
    assert importlib.import_module("by_name") and importlib.util.find_spec("nowhere_to_be_found") is None
    assert heard.by_string == {"by_name", "nowhere_to_be_found"} and heard.by_package == {}
    with pytest.raises(ModuleNotFoundError):
        exec(compile("import absent_module", pytest.__file__, "exec"), {"__name__": "pytest.inner"})
    assert heard.by_package == {"pytest": {"absent_module"}}


def test_who_wants_to_listen_is_told_once_a_module_is_imported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[str]()
    monkeypatch.setattr(heard_imports, "MODULES", {"looked_for"})
    heard = HeardImports(lambda module: told.append(f"{module} {module in sys.modules}"))
    monkeypatch.setattr(sys, "meta_path", [heard, *sys.meta_path])
    module = importlib.import_module("looked_for")
    assert told == ["looked_for True"] and module.__file__ == str(folder / "looked_for.py")
