"""stage_results: a result is found while all that it follows from is unchanged, and not kept if nobody can know."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler.base.cache.read_tracer import READ_TRACER
from compiler.base.cache.results import ANEW, StageResults
from compiler.base.cache.store import StageCache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("some_factory", None)
    READ_TRACER.forget()


def run(folder: Path, text: str) -> StageResults:
    (folder / "some_factory.py").write_text(text)
    READ_TRACER.forget()
    importlib.invalidate_caches()
    with READ_TRACER.watching():
        importlib.import_module("some_factory").build()
    return StageResults(StageCache(folder / "cache"), folder)


READ = "from pathlib import Path\n\ndef build():\n    return Path('weights.txt').read_text()\n"


def test_a_result_is_found_while_code_and_reads_are_unchanged(folder: Path) -> None:
    (folder / "weights.txt").write_text("1")
    results = run(folder, READ)
    assert results.keep("k" * 64, {"a": b""}, {"some_factory:build": False}) == ""
    assert results.find("k" * 64) is not None and results.find("l" * 64) is None
    (folder / "weights.txt").write_text("2")
    assert results.find("k" * 64) is None
    (folder / "weights.txt").write_text("1")
    assert results.find("k" * 64) is not None
    (folder / "some_factory.py").write_text(READ + "#")
    assert results.find("k" * 64) is None


def test_paths_that_the_key_holds_are_no_dependencies(folder: Path) -> None:
    (folder / "weights.txt").write_text("1")
    results = run(folder, READ)
    results.keep("k" * 64, {"a": b""}, {"some_factory:build": False}, lambda path: path.endswith("weights.txt"))
    (folder / "weights.txt").write_text("2")
    assert results.find("k" * 64) is not None


@pytest.mark.parametrize("named", [False, True])
def test_code_that_may_read_unseen_is_kept_only_if_the_recipe_names_its_files(named: bool, folder: Path) -> None:
    results = run(folder, "import _cffi_backend\ndef build(): pass\n")
    said = results.keep("k" * 64, {"a": b""}, {"some_factory:build": named})
    assert (said == "") == named and ("_cffi_backend" in said) != named
    assert (results.find("k" * 64) is not None) == named


def test_sources_that_changed_while_they_ran_are_not_kept(folder: Path) -> None:
    results = run(folder, "def build(): pass\n")
    READ_TRACER.began_s -= 100
    assert "changed while they were read" in results.keep("k" * 64, {"a": b""}, {"some_factory:build": False})


def test_without_a_cache_nothing_is_kept(folder: Path) -> None:
    results = StageResults(None, folder)
    assert results.keep("k" * 64, {}, {}) == "" and results.find("k" * 64) is None


def test_where_a_program_calls_code_is_not_known_by_its_files(folder: Path) -> None:
    """What hangs on code is neither found nor kept; what follows from its key alone is."""
    (folder / "weights.txt").write_text("1")
    results = run(folder, READ)
    assert results.keep("k" * 64, {"a": b""}, {"some_factory:build": False}) == ""
    called = StageResults(StageCache(folder / "cache", knows_code=False), folder)
    assert called.find("k" * 64) is None and results.find("k" * 64) is not None
    why = called.keep("l" * 64, {"a": b""}, {"some_factory:build": True})
    assert why == f"{ANEW}, as it is not known what the calling program has done to the code"
    assert called.find("l" * 64) is None and results.find("l" * 64) is None
    assert called.keep("m" * 64, {"a": b""}, {}) == ""
    assert called.find("m" * 64) is not None
