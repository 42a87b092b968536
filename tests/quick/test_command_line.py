"""The command: it names what stands near, and runs that."""

import subprocess
from pathlib import Path

import pytest

from tests.quick import __main__ as command
from tests.quick import within


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "compiler").mkdir()
    (tmp_path / "compiler" / "sizes.py").write_text("")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_sizes.py").write_text("import compiler.sizes\n")
    (tmp_path / "build.py").write_text("")
    as_someone = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], [*as_someone, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    return tmp_path


def test_what_changed_and_what_is_not_tracked_counts(repository: Path) -> None:
    assert command.changed_files(repository, "HEAD") == []
    (repository / "compiler" / "sizes.py").write_text("SIZE = 1\n")
    (repository / "compiler" / "more.py").write_text("")
    assert command.changed_files(repository, "HEAD") == [Path("compiler/more.py"), Path("compiler/sizes.py")]


def test_a_commit_that_git_does_not_know_is_named(repository: Path) -> None:
    with pytest.raises(SystemExit, match="expected a commit that git knows, got 'nowhere'"):
        command.main(["--since", "nowhere"])


def test_it_names_what_stands_near_and_runs_it(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[list[str], float]] = []

    def run(root: Path, files: list[str], seconds: float) -> int:
        ran.append((files, seconds))
        return 1

    monkeypatch.setattr(within, "run", run)
    assert command.main([]) == 0 and ran == []
    (repository / "compiler" / "sizes.py").write_text("SIZE = 1\n")
    assert command.main(["--list"]) == 0 and ran == []
    assert command.main(["--seconds", "3"]) == 1 and ran == [(["tests/test_sizes.py"], 3.0)]
    assert "1 files changed since HEAD; 1 files of tests stand near" in capsys.readouterr().out
