"""Modules are found where Python would find them, without a line of them run."""

from pathlib import Path

import pytest

from compiler.base.cache.module_search import places_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Modules that end the process when they are imported."""
    for name in ("one.py", "pack/__init__.py", "pack/inner/two.py", "spread/three.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit")
    (tmp_path / "pack/notes.txt").write_text("no module")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("one", "one.py"),
        ("pack", "pack/__init__.py"),
        ("pack.inner", "pack/inner"),
        ("pack.inner.two", "pack/inner/two.py"),
        ("spread.three", "spread/three.py"),
    ],
)
def test_modules_are_found(name: str, place: str, folder: Path) -> None:
    assert places_of(name, [folder]) == (str(folder / place),)


@pytest.mark.parametrize(
    "name", ["two", "pack.two", "pack.notes", "one.more", "pack.inner.two.more", "sys.path", "pack."]
)
def test_what_is_not_there(name: str, folder: Path) -> None:
    # regression: any file of that stem counted as a module, whatever it holds
    assert places_of(name, [folder]) == ()


def test_the_first_folder_comes_first_and_installed_ones_last(folder: Path) -> None:
    assert places_of("one", [folder / "spread", folder]) == (str(folder / "one.py"),)
    assert places_of("three", [folder / "spread", folder]) == (str(folder / "spread/three.py"),)
    assert places_of("sys", [folder]) == ("built-in",)
    (numpy,) = places_of("numpy", [folder])
    assert numpy.endswith("numpy/__init__.py")
