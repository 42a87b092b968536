"""References of a recipe: what they name, and what the user's code may do when it is called."""

import json
import sys
from pathlib import Path

import pytest

from compiler.errors import DataError, RecipeError
from compiler.recipe.user_code.callables import call, function_name, importable, portable_source, resolve, shown_path

WHERE = "r.yaml:3: data.feeds"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module that no other test has."""
    (tmp_path / "made_for_references.py").write_text(
        "import os.path as path\n\n\ndef one():\n    return 1\n\n\nTWO = 2\n"
    )
    monkeypatch.delitem(sys.modules, "made_for_references", raising=False)
    return tmp_path


def test_reference_names_a_callable_of_a_module_in_a_folder(folder: Path) -> None:
    before = list(sys.path)
    found = resolve("made_for_references:one", [folder], WHERE)
    assert found() == 1
    assert function_name(found) == "made_for_references:one"
    assert sys.path == before


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("made_for_references:ono", ["nothing called 'ono'", "did you mean 'one'? known: one"]),
        ("made_for_references:TWO", ["int 'TWO'"]),
        ("absent_for_references:one", ["'absent_for_references'", "check the name"]),
    ],
)
def test_wrong_reference_is_refused(reference: str, words: list[str], folder: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        resolve(reference, [folder], WHERE)
    assert str(caught.value).startswith(WHERE)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("statement", ["raise ValueError('no')", "raise SystemExit(3)", "import absent_x", "1 +"])
def test_module_that_does_not_import_is_refused(statement: str, tmp_path: Path) -> None:
    (tmp_path / "broken_for_references.py").write_text(statement + "\n")
    with pytest.raises(RecipeError, match="broken_for_references"):
        resolve("broken_for_references:one", [tmp_path], WHERE)


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(2), RecursionError("deep")])
def test_whatever_the_users_code_raises_is_one_message_with_its_line(raised: BaseException) -> None:
    def users() -> None:
        raise raised

    with pytest.raises(DataError) as caught:
        call(lambda: users(), WHERE, DataError, named=users)
    assert "users to return, got " + type(raised).__name__ in str(caught.value)
    assert "test_callables.py:" in str(caught.value)
    assert "lambda" not in str(caught.value)


def test_errors_of_ours_and_interrupts_pass_through() -> None:
    def refuse() -> None:
        raise RecipeError("mine")

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(RecipeError, match="mine"):
        call(refuse, WHERE, DataError)
    with pytest.raises(KeyboardInterrupt):
        call(interrupt, WHERE, DataError)


def test_import_path_is_restored_and_not_doubled(tmp_path: Path) -> None:
    before = list(sys.path)
    with importable([tmp_path, Path(before[-1])]):
        assert sys.path[0] == str(tmp_path)
        assert sys.path.count(before[-1]) == before.count(before[-1])
    assert sys.path == before


def test_paths_are_shown_without_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_path(tmp_path / "a" / "b.py") == "a/b.py"
    assert shown_path(Path("/usr/lib/somewhere/b.py")) == "somewhere/b.py"


def test_a_source_file_is_named_by_its_module() -> None:
    assert portable_source(__file__) == "tests/compiler/recipe/user_code/test_callables.py"
    assert portable_source(str(Path(json.__file__))) == "json/__init__.py"
    assert portable_source("/somewhere/that/is/no/module.py") == "module.py"
