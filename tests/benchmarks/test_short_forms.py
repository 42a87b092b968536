"""Every command of the page of benchmarks runs in a form that is short: what nobody runs for months still runs then."""

import importlib
import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir
import pytest

from benchmarks.serving import __main__ as serving
from compiler.base.cache import store
from tests.docs import pages
from tests.kit.models.project import Project, tiny_project
from tests.kit.models.tiny_graph import STREAM_RECIPE, STREAM_TEXT
from tests.runtime_lite.bundles import write_open_bundle
from tests.runtime_lite.token_bundle import write_token_bundle
from tests.runtime_lite.voice_bundle import write_voice_bundle

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "benchmarks" / "README.md"

OPEN = "open_bundle"
"""Folder of a bundle that was written by hand, and whose rows are open."""

ON_OPEN = f"--bundle {OPEN} --graph streaming --shortest --lanes 2 --period-ms"
"""What every part is given that serves it; the milliseconds from chunk to chunk follow."""

TOKEN_STEP = "token_bundle"
"""Folder of a bundle of a decoder of tokens, written by hand."""

VOICE = "voice_bundle"
"""Folder of a bundle of a voice, written by hand."""

OF_TINY = "--recipe tiny.yaml --cache cache"

MEASURED = "--recipe tiny_edge.yaml --cache cache"

ROUNDED = "--recipe tiny_edge.yaml --cache cache --task"

CALIBRATION = """

def calibration():
    return (one_stream(seed) for seed in (7, 8))
"""

FEATURES = """import numpy as np


def streams(frames):
    random = np.random.default_rng(frames)
    for _ in range(2):
        yield [{"features": random.standard_normal((1, each, 80)).astype(np.float32)} for each in frames]


def chunks():
    return streams([67] * 6)


def utterances():
    return streams([80, 131])
"""

WHOLE_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
whole (float[batch,time,80] features) => (float[batch,time,80] logits) { logits = Relu(features) }
"""

WHOLE_RECIPE = """\
name: whole
graphs:
  net:
    source: {onnx: whole.onnx}
    inputs: {features: {shape: [batch, time, 80], dtype: float32}}
    outputs: [logits]
    axes:
      batch: {buckets: [1, 2]}
      time:  {buckets: [80, 144], length_input: time_length}
data:
  verification: {feeds: "recogniser_data:utterances", count: 2}
targets: [{kind: onnx_static}]
gates: {parity: {net: {max_abs: 1.0e-5, chained_steps: 2}}}
"""

QUICK = (
    f"benchmarks.voices {VOICE} --input text --text 1,2,3 --prompt 2 --tokens 6 --voices 1 2 --rounds 2",
    f"benchmarks.voices {VOICE} --input text --text 1,2,3 --prompt 2 --tokens 6 --voices 1 --rounds 1 --processor-time",
    f"benchmarks.generation {TOKEN_STEP} --tokens tokens --scores scores --sequences 1 2 --steps 3 --rounds 2",
    "benchmarks.cache_updates --rows 1 --calls 2",
    "benchmarks.ring_steps --slots 8 --rows 1 --layers 1 --width 16 --rounds 2",
    "benchmarks.simplify --graphs 1 --only simplify --nodes 100",
    "benchmarks.scheduling --quick --only decide,costs --seconds 0.2",
)

SLOW = (
    f"benchmarks.aot_inductor {OF_TINY} --rows 1 --rounds 2",
    f"benchmarks.one_pass {OF_TINY} --without select_states --size batch=1 --rounds 2 --threads 1",
    "benchmarks.decoder_step --folder decoder --layers 1 --width 64 --slots 8 --rows 1 2 --rounds 1 --write step.svg",
    "benchmarks.serving --quick --shortest --only overhead --json serving.json",
    f"benchmarks.serving --only overload {ON_OPEN} 20",
    f"benchmarks.pages {OPEN} --graph streaming --rounds 1 --calls 2",
    "benchmarks.serving --only source_ratios --bundle steps --offline whole --graph net --shortest --period-ms 20",
    f"benchmarks.serving --only full_load {ON_OPEN} 20",
    f"benchmarks.serving --only real_time {ON_OPEN} 5",
    f"benchmarks.serving --only crash {ON_OPEN} 20",
    f"benchmarks.serving --only planner {ON_OPEN} 20",
    f"benchmarks.serving --only steady {ON_OPEN} 20",
    f"benchmarks.serving --only moves {ON_OPEN} 20",
    "benchmarks.decoder_step --folder decoder --layers 1 --width 64 --slots 8 --rows 1 --rounds 1 --coded",
    f"benchmarks.memory {OPEN} --quick --rounds 1",
    f"benchmarks.analysis_time {OF_TINY} --rounds 1 --sizes 25 50 --write times.svg",
    f"benchmarks.precision {ROUNDED} --streams 1 --set data.calibration.count=1",
    f"benchmarks.quantization {ROUNDED} --rows 1 2 --rounds 2 --streams 1 --calls 4",
    f"benchmarks.compression {MEASURED} --times 0.9 --tile 2 --rounds 2 --streams 1 --calls 4",
    f"benchmarks.cpu_runtimes {ROUNDED} --rows 1 2 --rounds 2 --streams 1 --calls 4",
)

ELSEWHERE = {
    ("benchmarks.serving", "triton"): "installs a server; tests/runtime_lite/hosting runs what is compared with it",
    ("benchmarks.serving", "latency"): "tests/benchmarks/serving/test_latency.py",
    ("benchmarks.serving", "closed_loop"): "tests/benchmarks/serving/test_closed_loop.py",
    ("benchmarks.serving", "transcripts"): "tests/examples/streaming_asr/test_bundle.py, of the trained recogniser",
    ("benchmarks.chunk_step", ""): "tests/benchmarks/test_chunk_step.py, but for the processes of its contenders",
    ("benchmarks.engines", ""): "tests/benchmarks/test_engines.py, and with the builder tests/rtx/test_recipes.py",
    ("benchmarks.kernels", ""): "tests/benchmarks/test_kernels.py",
    ("benchmarks.levers", ""): "tests/benchmarks/test_levers.py",
    ("benchmarks.streaming_conformer", ""): "tests/zoo/streams/test_conformer.py",
    ("benchmarks.cpu_runtimes", "--nncf"): "an environment of its own with another quantiser",
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
    Project(folder, folder / "cache").forget_modules()  # another test may have imported others of these names
    main = importlib.import_module(name).main
    assert not main()
    return printed.readouterr().out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the bundle lies, and the recipe of the recogniser of one screen."""
    folder = tmp_path_factory.mktemp("short")
    write_open_bundle(folder / OPEN)
    write_token_bundle(folder / TOKEN_STEP)
    write_voice_bundle(folder / VOICE)
    yield folder
    for module in [name for name in sys.modules if name.startswith("tiny_")]:
        del sys.modules[module]


@pytest.fixture(scope="module")
def project(folder: Path) -> Project:
    """The recogniser of one screen, and a recipe of it that rounds."""
    project = tiny_project(folder, folder / "cache")
    project.write("tiny_data.py", (folder / "tiny_data.py").read_text() + CALIBRATION)
    project.write("tiny_edge.yaml", (folder / "tiny.yaml").read_text())
    project.replace("tiny_edge.yaml", "data:\n", 'data:\n  calibration: {feeds: "tiny_data:calibration", count: 2}\n')
    project.replace("tiny_edge.yaml", "chained_steps: 8}", "chained_steps: 8, lossy: {max_abs: 9.0}}")
    project.replace("tiny_edge.yaml", "      - pack_states\n", "      - quantize_static: {pins: []}\n")
    return project


@pytest.fixture(scope="module")
def recogniser(folder: Path) -> None:
    """Bundles of a stream and of whole utterances that take what the trained recogniser takes."""
    project = Project(folder, folder / "cache")
    project.write("recogniser_data.py", FEATURES)
    ir.save(
        ir.from_onnx_text(wide(STREAM_TEXT).format(extra="", attended="next_keys", domains="")), folder / "steps.onnx"
    )
    ir.save(ir.from_onnx_text(WHOLE_TEXT), folder / "whole.onnx")
    steps = wide(STREAM_RECIPE).replace("stream.onnx", "steps.onnx").replace(", files: [level.txt]", "")
    steps = steps.replace("window: 8", "window: 80")
    project.write("steps.yaml", steps.replace("tiny_data:verification", "recogniser_data:chunks"))
    project.write("whole.yaml", WHOLE_RECIPE)
    for name in ("steps", "whole"):
        ended = project.build(recipe=f"{name}.yaml", out=name)
        assert ended.code == 0, ended.err


def wide(text: str) -> str:
    """The stream of one screen in the sizes of the recogniser's features."""
    return re.sub(r",( ?)8\]", r",\g<1>80]", re.sub(r"batch,( ?)4", r"batch,\g<1>67", text))


@pytest.mark.parametrize("form", QUICK)
def test_a_command_runs(
    form: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = time.monotonic_ns
    assert "Error" not in runs_here(form, folder, monkeypatch, capsys)
    assert time.monotonic_ns is clock, "what a benchmark counts time by is its own"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning:onnxruntime.quantization")
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
    if "--offline" in form:
        request.getfixturevalue("recogniser")
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
