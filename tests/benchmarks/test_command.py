"""The benchmarks as commands: a mistake in what they are given is one sentence with an exit code, before any work."""

import errno
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import compiler.errors
from benchmarks import command
from runtime_lite import BadInput, InternalError, write_tar
from tests.runtime_lite.bundles import write_double_bundle, write_streaming_bundle

ROOT = Path(__file__).resolve().parents[2]


def ends(monkeypatch: pytest.MonkeyPatch, module: str, *arguments: object) -> int:
    """The exit code of a benchmark; any traceback comes through."""
    monkeypatch.setattr(sys, "argv", [module, *map(str, arguments)])
    for name in (module, f"{module}.__main__"):
        monkeypatch.delitem(sys.modules, name, raising=False)  # another test may have imported it
    with pytest.raises(SystemExit) as end:
        runpy.run_module(module, run_name="__main__")
    assert isinstance(end.value.code, int)
    return end.value.code


def of_no_bundle(folder: Path) -> Path:
    return folder / "nothing"


def of_a_broken_one(folder: Path) -> Path:
    bundle = write_streaming_bundle(folder / "bundle")
    (bundle / "manifest.json").write_text("{")
    return bundle


def of_two_graphs(folder: Path) -> Path:
    return write_double_bundle(folder / "bundle")


def of_a_file(folder: Path) -> Path:
    file = folder / "bundle.tar"
    write_tar(write_streaming_bundle(folder / "bundle"), file)
    return file


MISTAKES: list[Callable[[Path], Path]] = [of_no_bundle, of_a_broken_one, of_two_graphs, of_a_file]


@pytest.mark.parametrize("make", MISTAKES)
@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("benchmarks.memory", ()),
        ("benchmarks.chunk_step", ("--recipe", str(ROOT / "recipes" / "cpu.yaml"), "--bundle")),
        ("benchmarks.serving", ("--only", "crash", "--bundle")),
        ("benchmarks.serving", ("--graph", "plain", "--only", "crash", "--bundle")),
    ],
)
def test_a_wrong_bundle_is_a_message(
    make: Callable[[Path], Path],
    module: str,
    arguments: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle = make(tmp_path)
    assert ends(monkeypatch, module, *arguments, bundle) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and str(bundle) in said


def test_a_wrong_bundle_for_whole_utterances_is_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--bundle", write_streaming_bundle(tmp_path / "bundle"), "--graph", "streaming"]
    missing = tmp_path / "nothing"
    assert ends(monkeypatch, "benchmarks.serving", *given, "--offline", missing, "--only", "crash") == 2
    assert str(missing) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("benchmarks.precision", ()),
        ("benchmarks.quantization", ()),
        ("benchmarks.one_pass", ("--without", "simplify")),
        ("benchmarks.chunk_step", ()),
        ("benchmarks.analysis_time", ("--rounds", "0")),
    ],
)
def test_a_wrong_recipe_is_a_message(
    module: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(monkeypatch, module, *arguments, "--recipe", "nowhere.yaml") == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and "nowhere.yaml" in said


@pytest.mark.parametrize(
    ("module", "arguments", "named"),
    [
        ("benchmarks.one_pass", ("--without", "simplify", "--recipe", "cpu.yaml", "--graph", "decoder"), "'decoder'"),
        ("benchmarks.scheduling", ("--only", "mixd"), "'mixd'"),
        ("benchmarks.simplify", ("--only", "simplfy"), "'simplfy'"),
    ],
)
def test_a_wrong_name_is_a_message(
    module: str,
    arguments: tuple[str, ...],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ends(monkeypatch, module, *arguments) == 2
    assert named in capsys.readouterr().err


def failing(error: BaseException) -> Callable[[], None]:
    def main() -> None:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BadInput("x: expected A, got B"), 2, "error: x: expected A, got B\n"),
        (FileNotFoundError(errno.ENOENT, "No such file", "x.json"), 2, "error: x.json: No such file"),
        (OSError("x: expected a program, got none"), 2, "error: x: expected a program, got none\n"),
        (KeyboardInterrupt(), 130, "interrupted, no numbers were kept\n"),
    ],
)
def test_what_the_user_can_mend_is_told(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        command.run(failing(error))
    assert end.value.code == code
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize("error", [InternalError("x"), KeyError("x"), compiler.errors.InternalError("x")])
def test_a_bug_keeps_its_traceback(error: Exception) -> None:
    with pytest.raises(type(error)):
        command.run(failing(error))


@pytest.mark.parametrize(("given", "code"), [(None, 0), (0, 0), (1, 1)])
def test_the_exit_code_is_what_main_returns(given: int | None, code: int) -> None:
    with pytest.raises(SystemExit) as end:
        command.run(lambda: given)
    assert end.value.code == code


def test_what_a_contender_raises_names_it_and_that_it_is_absent_comes_through() -> None:
    named = "contender 'the other': TypeError: planted"
    with pytest.raises(command.ContenderFailed, match=named) as caught, command.contender("the other"):
        raise TypeError("planted")
    assert isinstance(caught.value.__cause__, TypeError)
    with pytest.raises(LookupError), command.contender("the other", but=LookupError):
        raise LookupError
