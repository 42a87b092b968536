"""The front door: every ending has one message, its documented exit code and the command that repeats it."""

import dataclasses
import errno
import json
import re
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

import build
import runtime_lite
from compiler import errors
from compiler.base.cache.store import StageCache
from compiler.base.records.build_report import BuildReport
from compiler.base.records.findings import at_most
from compiler.build.report.page import report_page
from compiler.build.report.progress import Progress
from compiler.recipe.load import LoadedRecipe
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import edit_manifest, write_streaming_bundle

RECIPE = """\
name: tiny
graphs:
  net:
    source: {factory: "model:build"}
    inputs: {x: {shape: [1, 2], dtype: float32}}
    outputs: [y]
data: {verification: {feeds: "data:streams", count: 1}}
targets: [{kind: "null"}]
gates: {parity: {net: {max_abs: 1.0e-5, chained_steps: 1}}}
"""


@dataclasses.dataclass(frozen=True)
class BuildOptions:
    out: Path
    strict: bool
    cache: StageCache | None
    report: Path | None
    page: Path | None


@dataclasses.dataclass
class FakePipeline:
    """Stands in for `compiler.build.pipeline`: records its call and ends as told."""

    ending: BaseException | None = None
    calls: list[tuple[LoadedRecipe, BuildOptions]] = dataclasses.field(default_factory=list)

    def build(self, loaded: LoadedRecipe, options: BuildOptions, progress: Progress) -> BuildReport:
        self.calls.append((loaded, options))
        with progress.stage("net", "capture"):
            if self.ending is not None:
                raise self.ending
        holds = at_most("parity.max_abs", "net", "y", limit=1e-5, measured=0.0)
        return BuildReport(str(loaded.path), str(options.out), gates=(holds,))


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePipeline:
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    fake, module = FakePipeline(), types.ModuleType("compiler.build.pipeline")
    vars(module).update(build=fake.build, BuildOptions=BuildOptions)
    monkeypatch.setitem(sys.modules, "compiler.build.pipeline", module)
    monkeypatch.setattr("compiler.build.pipeline", module, raising=False)
    return fake


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = build.main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_build_shows_stages_parity_and_the_bundle(pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--recipe", "tiny.yaml")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0].startswith("net: capture 0.0")
    assert "parity.max_abs net y 0 1e-05 holds" in lines
    assert lines[-1] == "bundle: dist/tiny"


def test_bundle_is_named_after_recipe_and_file(pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]) -> None:
    Path("tiny.yaml").rename("cpu_of_mine.yaml")
    assert run(capsys, "--recipe", "cpu_of_mine.yaml")[1].endswith("bundle: dist/tiny-cpu_of_mine\n")


def test_options_reach_the_pipeline(pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "--recipe", "tiny.yaml", "--set", "name=other", "--checkpoint", "c.bin", "--strict", "--out", "o")
    loaded, options = pipeline.calls[0]
    assert loaded.recipe.name == "other"
    assert loaded.recipe.graphs["net"].source.checkpoint == "c.bin"
    assert (options.out, options.strict) == (Path("o"), True)
    assert options.cache is not None
    assert options.cache.folder == Path(".cache/slipway")


@pytest.mark.parametrize(
    ("arguments", "folder"), [(["--no-cache"], None), (["--cache", "here"], Path("here")), ([], Path("fromenv"))]
)
def test_cache_is_chosen_by_option_then_environment(
    arguments: list[str],
    folder: Path | None,
    pipeline: FakePipeline,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", "fromenv")
    run(capsys, "--recipe", "tiny.yaml", *arguments)
    cache = pipeline.calls[0][1].cache
    assert (cache.folder if cache else None) == folder


def test_reports_are_left_to_the_pipeline_and_the_page_named_at_the_end(
    pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = ("--report", "r/report.json", "--report-html", "pages/page.html")
    code, out, _ = run(capsys, "--recipe", "tiny.yaml", *reports)
    assert code == 0
    options = pipeline.calls[0][1]
    assert (options.report, options.page) == (Path("r/report.json"), Path("pages/page.html"))
    assert out.endswith("page: pages/page.html\n")
    assert Path("pages").is_dir()


@pytest.mark.parametrize("option", ["--report", "--report-html"])
def test_a_report_never_overwrites_a_file_that_is_none(
    option: str, pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path("tiny.yaml").read_text()
    code, _, err = run(capsys, "--recipe", "tiny.yaml", option, "tiny.yaml")
    assert code == 2
    assert f"{option}: expected a new name or an earlier report, got tiny.yaml" in err
    assert Path("tiny.yaml").read_text() == before
    assert pipeline.calls == []


PLACE = errors.Location("pad_axes", "net", "node_7", "Softmax", "scores", source="model.py:12 in forward")
ENDINGS = [
    pytest.param(
        errors.RecipeError("r.yaml:1: expected a, got b", cure="write a"),
        2,
        "r.yaml:1: expected a, got b; write a",
        id="recipe",
    ),
    pytest.param(errors.CheckpointError("expected w"), 2, "expected w", id="checkpoint"),
    pytest.param(errors.DataError("expected streams"), 2, "expected streams", id="data"),
    pytest.param(
        errors.Refused("expected a rule, got none", cure="write one", place=PLACE),
        3,
        "stage pad_axes, graph net, node node_7, op Softmax, tensor scores, source model.py:12 in forward: "
        "expected a rule, got none; write one",
        id="refused",
    ),
    pytest.param(errors.GateFailed("expected at most 1e-5, got 1"), 4, "expected at most 1e-5, got 1", id="gate"),
    pytest.param(errors.ToolchainAbsent("expected trtexec"), 5, "expected trtexec", id="toolchain"),
    pytest.param(
        errors.InternalError("expected one, got two"),
        1,
        "expected one, got two; this is a bug of Slipway, please report it with the output of -v",
        id="internal",
    ),
    pytest.param(
        KeyError("x"),
        1,
        "KeyError: 'x'; this is a bug of Slipway, please report it with the output of -v",
        id="unexpected",
    ),
    pytest.param(
        OSError(errno.ENOSPC, "No space left on device", "dist/x"),
        2,
        "dist/x: expected free space, got a full disk; free some, or choose --out elsewhere",
        id="disk full",
    ),
    pytest.param(
        OSError(errno.ENOSPC, "No space left on device"),
        2,
        "disk: expected free space, got a full disk; free some, or choose --out elsewhere",
        id="disk full, place unknown",
    ),
    pytest.param(
        PermissionError(errno.EACCES, "Permission denied", "dist"),
        2,
        "dist: expected access, got 'Permission denied'; check the path and its permissions",
        id="not allowed",
    ),
    pytest.param(
        PermissionError(errno.EPERM, "Not permitted"),
        1,
        "PermissionError: [Errno 1] Not permitted; this is a bug of Slipway, please report it with the output of -v",
        id="not allowed, place unknown",
    ),
    pytest.param(
        FileNotFoundError(errno.ENOENT, "Absent", "x"),
        1,
        "FileNotFoundError: [Errno 2] Absent: 'x'; this is a bug of Slipway, please report it with the output of -v",
        id="file of ours",
    ),
    pytest.param(
        MemoryError(),
        2,
        "expected enough memory, got none; close other programs, or build with smaller buckets",
        id="memory",
    ),
    pytest.param(
        SystemExit(0),
        2,
        "expected code named in the recipe to return, got sys.exit(0); let it raise or return",
        id="exit in the user's code",
    ),
    pytest.param(KeyboardInterrupt(), 130, "interrupted; nothing was left half-written", id="interrupt"),
]


@pytest.mark.parametrize(("ending", "code", "message"), ENDINGS)
def test_every_ending_is_one_message_and_its_exit_code(
    ending: BaseException, code: int, message: str, pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.ending = ending
    got, _, err = run(capsys, "--recipe", "tiny.yaml", "--set", "front_end.window=a b")
    assert got == code
    assert err == f"error: {message}\nrepeat with: python build.py --recipe tiny.yaml --set 'front_end.window=a b'\n"


@pytest.mark.parametrize("ending", [errors.Refused("expected a"), KeyError("x")])
def test_traceback_is_shown_on_request(
    ending: Exception, pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.ending = ending
    assert "Traceback (most recent call last)" in run(capsys, "--recipe", "tiny.yaml", "-v")[2]


def test_wrong_recipe_is_answered_before_the_pipeline(
    pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "--recipe", "tiny.yaml", "--set", "name=3.10")
    assert code == 2
    assert err.startswith(
        'error: --set: name: expected text, got 3.10; YAML reads 3.10 as a number; write "3.10" in quotes\n'
    )
    assert pipeline.calls == []


def test_the_report_of_an_earlier_build_does_not_stand_for_one_with_a_wrong_recipe(
    pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    report, page = Path("report.json"), Path("page.html")
    report.write_text(BuildReport("tiny.yaml", "dist/tiny").to_json())
    page.write_text(report_page(BuildReport("tiny.yaml", "dist/tiny"), {}))
    reports = ("--report", str(report), "--report-html", str(page))
    code, _, err = run(capsys, "--recipe", "tiny.yaml", "--set", "name=3.10", *reports)
    found = json.loads(report.read_text())
    assert (code, found["verdict"], found["failure"]["exit_code"]) == (2, "wrong input", 2)
    assert found["failure"]["message"] in err and "name: expected text, got 3.10" in found["failure"]["message"]
    assert "wrong input" in page.read_text() and "expected text, got 3.10" in page.read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--recipe", "tiny.yaml", "doctor"],
        ["--recipe"],
        ["--recipes", "x"],
        ["inspekt", "x"],
        ["diff", "x"],
        ["inspect"],
    ],
)
def test_wrong_arguments_are_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        build.main(arguments)
    assert caught.value.code == 2
    assert re.search(r"^build.py.*: error: ", capsys.readouterr().err, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--recipes", "x"], "expected a known option, got --recipes; did you mean '--recipe'?"),
        (["explian", "x"], "did you mean 'explain'?"),
        (["simplify", "a.onnx", "b.onnx", "--set-sise", "batch=1"], "did you mean '--set-size'?"),
        (["inspect", "x", "--jsn"], "did you mean '--json'?"),
    ],
)
def test_a_wrong_option_or_command_is_answered_with_the_nearest(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        build.main(arguments)
    assert words in capsys.readouterr().err


# Commands on bundles


def test_inspect_and_verify_a_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = str(write_streaming_bundle(tmp_path / "bundle"))
    assert run(capsys, "inspect", bundle)[0] == 0
    code, out, err = run(capsys, "verify", bundle)  # its certificate is `{}`, which no build has written
    assert code == 2
    assert "max abs error" in out and "expected a certificate with 'graph' and 'records', got {}" in err


@pytest.mark.parametrize("command", ["inspect", "verify", "finish"])
def test_altered_bundle_is_refused(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = write_streaming_bundle(tmp_path / "bundle")
    (bundle / "receipts.json").write_bytes(b"[]\n")
    code, _, err = run(capsys, command, str(bundle))
    assert code == 2
    assert err.startswith("error: ")
    assert "receipts.json" in err


def test_diff_shows_differences_and_has_an_exit_code_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (write_streaming_bundle(tmp_path / name) for name in ("first", "second"))
    assert run(capsys, "diff", str(first), str(second))[:2] == (0, "no difference\n")
    edit_manifest(second, lambda plain: plain["front_end"].update(dither=0.0))
    code, out, _ = run(capsys, "diff", str(first), str(second))
    assert code == 6
    assert "manifest: front_end.dither" in out


def test_diff_of_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "diff", str(tmp_path / "no"), str(tmp_path / "no"))
    assert code == 2
    assert "expected a bundle directory or .tar file" in err


def test_finish_says_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = str(write_streaming_bundle(tmp_path / "bundle"))
    assert run(capsys, "finish", bundle)[:2] == (
        0,
        f"{bundle}: nothing to finish; onnx_static needs no vendor compiler\n",
    )


def test_a_recipe_is_checked_without_a_capture(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", "cpu.yaml")
    assert code == 0 and re.search(r"no mistake found: graph encoder, \d+ passes; target onnx_static\n", out)
    assert "found: 4 files, 6 functions by their modules; nothing was captured or run\n" in out
    for given in (["--set", "graphs.encoder.passes.0=simplfy", "check", "cpu.yaml"],
                  ["check", "cpu.yaml", "--set", "graphs.encoder.passes.0=simplfy"]):  # fmt: skip
        code, _, err = run(capsys, *given)
        assert code == 2 and "simplfy" in err and "did you mean 'simplify'" in err
    for given in (["--checkpoint", "gone.safetensors", "check", "cpu.yaml"],
                  ["check", "cpu.yaml", "--checkpoint", "gone.safetensors"]):  # fmt: skip
        code, _, err = run(capsys, *given)
        assert code == 2 and "expected a file, got nothing at gone.safetensors" in err


def test_changes_behind_a_command_come_after_those_in_front_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    wrong, right = "gates.budget.size_mb=many", "gates.budget.size_mb=30"
    assert run(capsys, "--set", wrong, "check", "cpu.yaml", "--set", right)[0] == 0
    assert run(capsys, "--set", right, "check", "cpu.yaml", "--set", wrong)[0] == 2
    code, _, err = run(capsys, "explain", "encoder", "--recipe", "cpu.yaml", "--set", wrong)
    assert code == 2 and "size_mb" in err


def test_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build.main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"slipway-compiler {runtime_lite.__version__}\n")


def test_doctor_lists_targets_and_versions(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    assert "onnx_static" in out
    assert "onnxruntime" in out


def test_doctor_installs_no_toolchain_that_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "doctor", "--install", "abacus")
    assert (code, "expected the name of a toolchain, got 'abacus'" in err) == (2, True)


# As a process

STALLING_PIPELINE = """
import sys, time, types
import build
module = types.ModuleType("compiler.build.pipeline")
def stall(loaded, options, progress):
    with progress.stage("net", "capture"):
        print("ready", flush=True)
        for _ in range(1000):
            time.sleep(0.1)
            print("x" * 100, flush=True)
module.build, module.BuildOptions = stall, dict
sys.modules["compiler.build.pipeline"] = module
import compiler
compiler.build.pipeline = module
sys.exit(build.main())
"""


def start(script: str, tmp_path: Path) -> "subprocess.Popen[str]":
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    command = [sys.executable, "-c", script, "--recipe", str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until_ready(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_is_one_line_and_exit_code_130(tmp_path: Path, number: signal.Signals) -> None:
    process = start(STALLING_PIPELINE, tmp_path)
    wait_until_ready(process)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert err.startswith("error: interrupted; nothing was left half-written\nrepeat with: python build.py --recipe ")
    assert not (tmp_path / "out").exists()


def test_reader_that_goes_away_is_no_error_message(tmp_path: Path) -> None:
    process = start(STALLING_PIPELINE, tmp_path)
    wait_until_ready(process)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=PATIENCE_S) == 141
    assert err == ""


def imported(script: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{script}\nprint(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_front_door_opens_without_large_imports() -> None:
    imports = "import build, compiler.base.cache.store, compiler.build.report.progress, compiler.recipe.load as r"
    modules = imported(f"{imports}\nr.load_recipe('cpu.yaml')")
    assert not modules & {"torch", "onnx", "onnxscript"}
