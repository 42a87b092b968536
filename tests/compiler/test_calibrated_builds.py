"""Whole builds with passes that measure: limits, data that serve two ends, what is reported."""

import math
from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import pytest

import runtime_lite
from compiler.graph.stages import Lowered, Outcome, Pass
from compiler.passes.lower_precision import LowerPrecision
from compiler.passes.rescale_residuals import RescaleResiduals
from tests.kit.graphs import parse
from tests.kit.models.project import Project
from tests.kit.pruning import ATTENDING, attending_weights, weigh_graphs

HALF = 'graphs.net.passes=[standard, rescale_residuals, lower_precision: {float32: ["op:Softmax"]}]'
DATA = 'data.calibration={feeds: "tiny_data:calibration", count: 2}'
LIMITS = "gates.parity.net.lossy={max_abs: 0.01, sqnr_db: 40.0}"
TASK = "gates.task.identical=false"


def settings(*values: str) -> list[str]:
    return [part for value in values for part in ("--set", value)]


def with_calibration(project: Project, seed: int = 7) -> Project:
    path = project.folder / "tiny_data.py"
    text = f"""

def calibration():
    for seed in ({seed}, {seed + 1}):
        numbers = np.random.default_rng(seed).standard_normal((9, 1, 4, 8)).astype(np.float32)
        yield [{{"features": chunk}} for chunk in numbers]
"""
    path.write_text(path.read_text() + text)
    return project


@pytest.mark.slow
def test_a_build_in_half_precision_says_what_it_kept(project: Project) -> None:
    ended = with_calibration(project).build(*settings(HALF, DATA, LIMITS, TASK, "gates.task.max_increase=0.05"))
    assert ended.code == 0, ended.err
    lowered = next(stage for stage in ended.report["stages"] if stage["stage"] == "lower_precision")
    assert lowered["rewritten"] == lowered["matched"] - 2, "a softmax in each of two layers"
    assert "2 stay float32" in lowered["detail"] and lowered["max_abs"] > 0
    noise = [row for row in ended.report["gates"] if row["gate"] == "parity.sqnr_db"]
    assert {row["limit"] for row in noise} == {40.0} and all(row["measured"] > 40 for row in noise)


BOTH = ["rescale_residuals", "lower_precision"]


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the passes that calibrate, whenever one is applied."""
    names: list[str] = []
    for kind in (RescaleResiduals, LowerPrecision):
        monkeypatch.setattr(kind, "apply", _counted(kind.name, kind.apply, names))
    return names


@pytest.mark.slow
def test_calibration_is_not_repeated_when_the_bundle_is_made_anew(project: Project, applied: list[str]) -> None:
    recipe = settings(HALF, DATA, LIMITS, TASK, "gates.task.max_increase=0.05")
    assert with_calibration(project).build(*recipe, "--report-html", "page.html").code == 0
    assert applied == BOTH, "the page draws the graph before rounding and after it"
    anew = project.build(*recipe, *settings("gates.budget.size_mb=9"), out="anew")
    assert anew.code == 0 and "net:verify" in anew.stages(cached=False), anew.err
    assert applied == BOTH
    for file in sorted((project.folder / "bundle" / "graphs").iterdir()):
        assert (project.folder / "anew" / "graphs" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.slow
def test_calibration_is_repeated_when_a_file_of_the_task_is_another(project: Project, applied: list[str]) -> None:
    """Native code may read it while a pass chooses, which nobody sees; its content is in the key."""
    project.write("words.txt", "one")
    recipe = settings(HALF, DATA, LIMITS, TASK, "gates.task.max_increase=0.05", "gates.task.files=[words.txt]")
    assert with_calibration(project).build(*recipe).code == 0
    project.write("words.txt", "two")
    assert project.build(*recipe, out="anew").code == 0
    assert applied == BOTH * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rescale_residuals", "smooth_channels"])
def test_a_bundle_whose_exact_passes_have_measured_is_verified_without_their_data(project: Project, name: str) -> None:
    recipe = settings(f"graphs.net.passes=[standard, {name}]", DATA, TASK, "gates.task.max_increase=0.05")
    assert with_calibration(project).build(*recipe).code == 0
    verified = project.run("verify", "bundle")
    assert verified.code == 0, verified.err
    assert f"not checkable here: what {name} made of the proved graph on measured data" in verified.out


@pytest.mark.slow
def test_calibration_is_not_repeated_to_explain_or_without_a_cache(project: Project, applied: list[str]) -> None:
    recipe = settings(HALF, DATA, LIMITS, TASK, "gates.task.max_increase=0.05")
    page = ("--report-html", "page.html")
    assert with_calibration(project).build(*recipe).code == 0
    assert project.build(*recipe, *page).code == 0, "everything is known but the page"
    assert project.build(*recipe, *page, *settings("gates.budget.max_time_ratio=1.0e-9"), out="failed").code == 4
    explained = project.run("--cache", str(project.cache), *recipe, "explain", "net", "--recipe", "tiny.yaml")
    assert explained.code == 0, explained.err
    assert applied == BOTH
    assert project.build(*recipe, *page, out="alone", cached=False).code == 0
    assert applied == BOTH * 2


def _counted(name: str, apply: Callable[..., Outcome], calls: list[str]) -> Callable[..., Outcome]:
    def counted(made: Pass, lowered: Lowered) -> Outcome:
        calls.append(name)
        return apply(made, lowered)

    return counted


def test_a_pass_that_rounds_needs_limits_of_its_own(project: Project) -> None:
    ended = with_calibration(project).build(*settings(HALF, DATA))
    assert ended.code == 2 and "expected gates.parity.net.lossy, as lower_precision rounds on purpose" in ended.err


@pytest.mark.slow
def test_noise_beyond_the_limit_fails_the_build(project: Project) -> None:
    tight = "gates.parity.net.lossy={max_abs: 0.01, sqnr_db: 90.0}"
    ended = with_calibration(project).build(*settings(HALF, DATA, tight, TASK))
    assert ended.code == 4 and "dB above its rounding noise" in ended.err
    assert not (project.folder / "bundle").exists()


def test_calibration_data_must_not_serve_the_gates(project: Project) -> None:
    same = 'data.calibration={feeds: "tiny_data:verification", count: 2}'
    ended = project.build(*settings(HALF, same, LIMITS, TASK))
    assert ended.code == 2
    assert "data.verification: expected data that no other role has, got feed 0 of stream 0 of --set: " in ended.err
    assert "data.calibration again" in ended.err


@pytest.mark.slow
def test_recordings_of_the_task_must_not_calibrate(project: Project) -> None:
    ended = with_calibration(project, seed=100).build(*settings(HALF, DATA, LIMITS, TASK))
    assert ended.code == 2 and "gates.task.recordings: expected data that no other role has" in ended.err
    assert "data.calibration again" in ended.err


def with_development(project: Project, seed: int = 40) -> Project:
    """Calibration data, and development data of the same kind."""
    path = with_calibration(project).folder / "tiny_data.py"
    path.write_text(path.read_text() + f"\n\ndef development():\n    yield one_stream({seed})\n")
    return project


DEVELOPMENT = 'data.development={feeds: "tiny_data:development", count: 1}'


@pytest.mark.parametrize(
    ("feeds", "where"),
    [("calibration", "data.calibration again"), ("verification", "data.development again")],
)
def test_development_data_have_no_other_role(project: Project, feeds: str, where: str) -> None:
    same = DEVELOPMENT.replace('development"', f'{feeds}"')
    ended = with_development(project).build(*settings(HALF, DATA, same, LIMITS, TASK))
    assert ended.code == 2 and "expected data that no other role has" in ended.err and where in ended.err


@pytest.mark.slow
def test_recordings_of_the_task_must_not_be_chosen_on(project: Project) -> None:
    ended = with_development(project, seed=100).build(*settings(HALF, DATA, DEVELOPMENT, LIMITS, TASK))
    assert ended.code == 2 and "gates.task.recordings: expected data that no other role has" in ended.err
    assert "data.development again" in ended.err


def test_development_data_need_calibration_data(project: Project) -> None:
    ended = with_development(project).build(*settings(DEVELOPMENT))
    assert ended.code == 2 and "data.development: expected data.calibration beside it" in ended.err


FEWER = """
name: attending
graphs:
  net:
    source: {onnx: attending.onnx}
    inputs:
      x:      {shape: [batch, 4, 8], dtype: float32}
      keys:   {shape: [batch, cache, 8], dtype: float32, state: next_keys}
      values: {shape: [batch, 4, cache, 2], dtype: float32, state: next_values}
    outputs: [y, next_keys, next_values]
    axes:
      batch: {buckets: [1, 2]}
      cache: {window: 8}
    passes: [standard, compress: {time: 0.85, tile: 1}]
data:
  calibration:  {feeds: "attending_data:calibration", count: 5}
  verification: {feeds: "attending_data:verification", count: 1}
targets: [{kind: onnx_static}]
gates: {parity: {net: {max_abs: 1.0e-4, chained_steps: 8, lossy: {max_abs: 9.0}}}}
"""

FEWER_DATA = """import numpy as np


def streams(seeds):
    for seed in seeds:
        numbers = np.random.default_rng(seed).standard_normal((9, 1, 4, 8)).astype(np.float32)
        yield [{"x": chunk} for chunk in numbers]


def calibration():
    return streams(range(1, 6))


def verification():
    return streams([100])
"""


@pytest.mark.slow
def test_a_build_with_fewer_heads_ships_smaller_caches_and_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weigh_graphs(monkeypatch)
    (tmp_path / "project").mkdir()
    project = Project(tmp_path / "project", tmp_path / "cache")
    ir.save(parse(ATTENDING, attending_weights()), project.folder / "attending.onnx")
    project.write("attending.yaml", FEWER)
    project.write("attending_data.py", FEWER_DATA)
    ended = project.build("--report-html", "page.html", recipe="attending.yaml")
    assert ended.code == 0, ended.err
    taken = next(stage for stage in ended.report["stages"] if stage["stage"] == "compress")["compression"]
    assert taken["measured"]["time"] <= 0.86 and [(cut["before"], cut["after"]) for cut in taken["cuts"]] == [(8, 6)]
    assert "Channels taken out" in (project.folder / "page.html").read_text()
    with runtime_lite.read_bundle(project.folder / "bundle") as bundle:
        states = bundle.manifest.graphs["net"].states
    sizes = [math.prod(size for size in state.shape if isinstance(size, int)) for state in states]
    assert sizes == [8 * 6] * 2, "8 frames of 3 heads of 2 channels each"
    assert project.run("verify", "bundle").code == 0
    again = project.build(recipe="attending.yaml", out="again")
    assert again.code == 0 and "net:compress" in again.stages(cached=True)
    anew = project.build(*settings("gates.budget.size_mb=9"), recipe="attending.yaml", out="anew")
    assert anew.code == 0, anew.err
    for file in sorted((project.folder / "bundle" / "graphs").iterdir()):
        assert (project.folder / "anew" / "graphs" / file.name).read_bytes() == file.read_bytes()
