"""Every command of the page of benchmarks runs in a form that is short: what nobody runs for months still runs then."""

import importlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.serving import __main__ as serving
from compiler.cache import store
from tests.docs import pages
from tests.kit.models.project import Project, tiny_project
from tests.runtime_lite.bundles import write_open_bundle

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "benchmarks" / "README.md"

OPEN = "open_bundle"
"""Folder of a bundle that was written by hand, and whose rows are open."""

ON_OPEN = f"--bundle {OPEN} --graph streaming --shortest --period-ms 20 --lanes 2"

QUICK = (
    "benchmarks.cache_updates --rows 1 --calls 2",
    "benchmarks.simplify --graphs 1 --only simplify --nodes 100",
    "benchmarks.scheduling --quick --only decide,costs --seconds 0.2",
)

SLOW = (
    "benchmarks.one_pass --recipe tiny.yaml --without select_states --size batch=1 --rounds 2 --threads 1",
    "benchmarks.decoder_step --folder decoder --layers 1 --width 64 --slots 8 --rows 1 2 --rounds 1 --write step.svg",
    "benchmarks.serving --quick --shortest --only overhead --json serving.json",
    f"benchmarks.serving --only overload {ON_OPEN}",
    f"benchmarks.pages {OPEN} --graph streaming --rounds 1 --calls 2",
)

UNTRIED = "its short form has not been tried yet"

ELSEWHERE = {
    ("benchmarks.serving", "triton"): "installs a server; tests/runtime_lite/hosting runs what is compared with it",
    ("benchmarks.serving", "latency"): "tests/benchmarks/serving/test_latency.py",
    ("benchmarks.serving", "closed_loop"): "tests/benchmarks/serving/test_closed_loop.py",
    ("benchmarks.serving", "transcripts"): "tests/examples/streaming_asr/test_bundle.py, of the trained recogniser",
    ("benchmarks.serving", "source_ratios"): UNTRIED,
    ("benchmarks.serving", "--offline"): "the trained recogniser, for `source_ratios`",
    ("benchmarks.serving", "full_load"): UNTRIED,
    ("benchmarks.serving", "real_time"): UNTRIED,
    ("benchmarks.serving", "crash"): UNTRIED,
    ("benchmarks.serving", "planner"): UNTRIED,
    ("benchmarks.serving", "steady"): UNTRIED,
    ("benchmarks.chunk_step", ""): "tests/benchmarks/test_chunk_step.py, but for the processes of its contenders",
    ("benchmarks.engines", ""): "tests/benchmarks/test_engines.py, and with the builder tests/rtx/test_recipes.py",
    ("benchmarks.levers", ""): "tests/benchmarks/test_levers.py",
    ("benchmarks.streaming_conformer", ""): "tests/zoo/streams/test_conformer.py",
    ("benchmarks.decoder_step", "--coded"): UNTRIED,
    ("benchmarks.memory", ""): UNTRIED,
    ("benchmarks.precision", ""): UNTRIED,
    ("benchmarks.quantization", ""): UNTRIED,
    ("benchmarks.cpu_runtimes", ""): UNTRIED,
    ("benchmarks.analysis_time", ""): UNTRIED,
    ("benchmarks.shared_heads", ""): "on recordings that are not shipped; tests/examples/codec_tts merges such heads",
}
"""Commands, parts and options of the page that have no form here, and why."""


def runs_here(form: str, folder: Path, monkeypatch: pytest.MonkeyPatch, printed: pytest.CaptureFixture[str]) -> str:
    """Run a form in a folder; return what it prints."""
    module, *words = shlex.split(form)
    name = f"{module}.__main__" if module == "benchmarks.serving" else module
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [module, *words])
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{folder}")  # of processes that it starts
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(folder / "cache"))
    main = importlib.import_module(name).main
    assert not main()
    return printed.readouterr().out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the bundle lies, and the recipe of the recogniser of one screen."""
    folder = tmp_path_factory.mktemp("short")
    write_open_bundle(folder / OPEN)
    yield folder
    for module in [name for name in sys.modules if name.startswith("tiny_")]:
        del sys.modules[module]


@pytest.fixture(scope="module")
def project(folder: Path) -> Project:
    """The recogniser of one screen."""
    return tiny_project(folder, folder / "cache")


@pytest.mark.parametrize("form", QUICK)
def test_a_command_runs(
    form: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "Error" not in runs_here(form, folder, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("form", SLOW)
def test_a_command_runs_for_seconds(
    form: str,
    folder: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if ".yaml" in form:
        request.getfixturevalue("project")
    assert "Error" not in runs_here(form, folder, monkeypatch, capsys)


def named(command: str) -> set[tuple[str, str]]:
    """The module of a command, its options and the parts that it names, each with the module."""
    words = shlex.split(command)
    options = {word for word in words if word.startswith("--")}
    parts = {part for word in words for part in word.split(",") if part in serving.PARTS}
    return {(words[0], each) for each in {"", *options, *parts}}


def shown() -> set[tuple[str, str]]:
    """What the commands of the page name."""
    commands = [line for block in pages.blocks(PAGE) if block.language == "sh" for line, _ in block.commands]
    found = {each for line in commands if " -m benchmarks." in line for each in named(line.partition(" -m ")[2])}
    return found | {("benchmarks.serving", part) for part in serving.PARTS}


def test_every_command_of_the_page_has_a_short_form() -> None:
    short = {each for form in (*QUICK, *SLOW) for each in named(form)}
    without = shown() - short
    assert {each for each in without if each not in ELSEWHERE and (each[0], "") not in ELSEWHERE} == set()
    assert {each for each in ELSEWHERE if each not in without} == set(), "one that has a short form is excused"
