"""Finishing a bundle: built, entered, verified and timed on the machine that has the device, or untouched."""

import json
import platform
import re
import shutil
from pathlib import Path

import onnx
import pytest

import build
from compiler.base.records.build_report import SpeedRow
from compiler.build.bundle import finish as module
from compiler.build.bundle.finish import faster_graphs, finish_bundle, require_toolchain, unfinished
from compiler.errors import GateFailed, InternalError, Refused, ToolchainAbsent
from compiler.targets.tensorrt.target import Tensorrt
from runtime_lite import BadInput, Runtime, read_bundle
from runtime_lite.bench import Timing
from runtime_lite.errors import EngineAbsent
from runtime_lite.format.manifest import bucket_name, static_shape
from runtime_lite.verify import verify_model
from tests.kit.models.project import digest_of
from tests.kit.placeholder import shared_library
from tests.kit.vendor import DRIVER_CODE, write_packages
from tests.runtime_lite.bundles import plain_graph, replace_hashed
from tests.runtime_lite.engines import PLAN, use_doubles, write_engine_bundle

pytestmark = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="the driver's double is x86-64 machine code"
)

BUILDER_PLAN = {
    "workspace_bytes": 1, "optimization_level": 3, "profiling_verbosity": "DETAILED",
    "hardware_compatibility": "SAME_COMPUTE_CAPABILITY", "flags": [], "cleared_flags": ["TF32"],
    "parser_flags": ["NATIVE_INSTANCENORM"],
}  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A driver with one T4 and TensorRT, for processes of their own and for this one; the folder of its libraries."""
    folder = write_packages(tmp_path / "machine")
    (folder / "libcuda.so.1").write_bytes(shared_library("libcuda.so.1", DRIVER_CODE))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.syspath_prepend(str(folder))
    use_doubles(monkeypatch)
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    directory = write_engine_bundle(tmp_path / "bundle", built=False)
    engines = [
        {
            "buckets": [bucket_name(item.sizes)],
            "graph": item.file,
            "engine": f"engines/{Path(item.file).stem}.plan",
            "profiles": [{t.name: [static_shape(t.shape, item.sizes)] * 3 for t in plain_graph().inputs}],
        }
        for item in plain_graph().artifacts
    ]
    plan = {"graph": "plain", "device": {"compute_capability": "7.5"}, "builder": BUILDER_PLAN, "engines": engines}
    plan["versions"] = {"tensorrt": "10.9"}
    replace_hashed(directory, PLAN, json.dumps(plan).encode())
    return directory


def test_a_bundle_is_finished(bundle: Path, machine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = digest_of(bundle)
    assert build.main(["--cache", str(tmp_path), "finish", str(bundle)]) == 0
    buckets = [bucket_name(item.sizes) for item in plain_graph().artifacts]
    said = capsys.readouterr().out.splitlines()
    assert [line.split(": p50")[0] for line in said[:-1]] == [f"plain {bucket}" for bucket in buckets]
    assert said[-1] == f"{bundle}: engines of plain built, verified and timed"
    with read_bundle(bundle) as finished:
        engine = finished.manifest.graphs["plain"].engine
        assert unfinished(finished.manifest) == {}
        assert engine is not None
        files = {item.file: f"engines/{Path(item.file).stem}.plan" for item in plain_graph().artifacts}
        assert engine.files == files
        assert engine.built_with == {
            "tensorrt": "10.99.0", "device": "T4", "compute capability": "7.5", "driver": "12.4",
        }  # fmt: skip
        assert set(finished.costs["plain"]) == set(buckets)
    after = digest_of(bundle)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"manifest.json", "costs.json", *files.values()}
    assert [path.name for path in (tmp_path / "timing").iterdir()] == ["10.99.0-T4-12.4.cache"]


def test_without_a_device_the_bundle_is_untouched(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise EngineAbsent("CUDA: expected a CUDA device, got no CUDA driver; look elsewhere")

    monkeypatch.setattr("compiler.targets.tensorrt.parts.cuda.probe", refuse)
    before = digest_of(tmp_path)
    with pytest.raises(ToolchainAbsent) as caught:
        finish_bundle(bundle, tmp_path / "timing")
    assert caught.value.exit_code == 5
    assert str(caught.value) == (
        f"{bundle}: CUDA: expected a CUDA device, got no CUDA driver; run it on the machine with the device; "
        "`python build.py doctor` lists what is missing here"
    )
    assert digest_of(tmp_path) == before


CRASH = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"


def test_a_builder_that_crashes_at_its_start_is_absent(bundle: Path, machine: Path) -> None:
    (machine / "tensorrt/__init__.py").write_text(CRASH)
    with pytest.raises(ToolchainAbsent, match="expected a builder that starts, got a process ended by SIGSEGV"):
        require_toolchain(Tensorrt(), "here")


@pytest.mark.parametrize(
    ("body", "kind", "sentence"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", Refused, "got a process ended by SIGSEGV"),
        ("raise RuntimeError('odd')", InternalError, "compile_engines.py ended with 1 .*RuntimeError: odd"),
        ("self.logger.log(self.logger.Severity.ERROR, 'no tactic')", Refused, "expected an engine, got no tactic"),
        ("return None", Refused, "expected an engine, got none"),
    ],
)
def test_whatever_ends_the_builder_the_bundle_is_the_one_before(
    body: str, kind: type[Exception], sentence: str, bundle: Path, machine: Path, tmp_path: Path
) -> None:
    with (machine / "tensorrt/__init__.py").open("a") as library:
        library.write(
            f"class Builder(Builder):\n    def build_serialized_network(self, network, config):\n        {body}\n"
        )
    before = digest_of(bundle)
    with pytest.raises(kind, match=sentence):
        finish_bundle(bundle, tmp_path / "timing")
    assert digest_of(bundle) == before
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_a_plan_of_another_device_is_refused(bundle: Path, machine: Path, tmp_path: Path) -> None:
    plan = json.loads((bundle / PLAN).read_text())
    plan["device"]["compute_capability"] = "8.6"
    replace_hashed(bundle, PLAN, json.dumps(plan).encode())
    before = digest_of(bundle)
    with pytest.raises(Refused, match=r"expected a device of compute capability 8.6, got T4 of 7.5"):
        finish_bundle(bundle, tmp_path / "timing")
    assert digest_of(bundle) == before


def test_engines_that_answer_otherwise_are_not_shipped(
    bundle: Path, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Off:
        holds = False

    monkeypatch.setattr(module, "verify_model", lambda model: [Off()])
    before = digest_of(bundle)
    with pytest.raises(GateFailed, match="expected engines that reproduce the recorded outputs"):
        finish_bundle(bundle, tmp_path / "timing")
    assert digest_of(bundle) == before


@pytest.mark.parametrize(("limit", "holds"), [(1000.0, True), (0.00001, False)])
def test_the_budget_of_the_recipe_is_checked_on_the_device(
    limit: float, holds: bool, bundle: Path, machine: Path, tmp_path: Path
) -> None:
    replace_hashed(
        bundle,
        "recipe.yaml",
        f"name: tiny\ntargets: [{{kind: tensorrt}}]\ngates: {{budget: {{p95_ms: {limit:.5f}}}}}\n".encode(),
    )
    before = digest_of(bundle)
    if holds:
        assert finish_bundle(bundle, tmp_path / "timing").speed
        return
    with pytest.raises(GateFailed, match="expected a call within 1e-05 ms"):
        finish_bundle(bundle, tmp_path / "timing")
    assert digest_of(bundle) == before


def altered(bundle: Path, operator: str) -> dict[str, bytes]:
    """The graph files of a bundle, their answers behind one more operator."""
    files = {}
    for item in plain_graph().artifacts:
        model = onnx.load(bundle / item.file)
        (answer,) = model.graph.output
        last = next(node for node in model.graph.node if answer.name in node.output)
        last.output[list(last.output).index(answer.name)] = "before"
        model.graph.node.add(op_type=operator, input=["before"], output=[answer.name])
        files[item.file] = model.SerializeToString()
    return files


def timed(monkeypatch: pytest.MonkeyPatch, *p50_ms: float) -> None:
    """Let every bucket take so long, as planned and as altered."""
    times = iter(p50_ms)
    buckets = [bucket_name(item.sizes) for item in plain_graph().artifacts]

    def bench(*_: object) -> list[Timing]:
        time_ms = next(times)
        return [Timing("plain", bucket, 9.0, time_ms, time_ms, time_ms) for bucket in buckets]

    monkeypatch.setattr(module, "bench_model", bench)


@pytest.mark.parametrize(
    ("operator", "times", "is_taken", "choice"),
    [
        ("Identity", (2.0, 1.0), True, r"real numbers is faster and taken for plain 4\.000 ms against 8\.000 ms"),
        ("Identity", (1.0, 1.0), False, "real numbers is not faster"),
        ("Neg", (2.0, 1.0), False, "real numbers is not taken: expected engines that reproduce the recorded outputs"),
        ("Det", (2.0, 1.0), False, r"real numbers is not taken: .*no tactic for Det"),
    ],
)
def test_the_faster_of_two_engines_that_holds_is_shipped(
    operator: str,
    times: tuple[float, float],
    is_taken: bool,
    choice: str,
    bundle: Path,
    machine: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finish_bundle(shutil.copytree(bundle, tmp_path / "plain"), tmp_path / "timing")
    monkeypatch.setattr(Tensorrt, "alternatives", lambda self, folder: {"real numbers": altered(folder, operator)})
    timed(monkeypatch, *times)
    finished = finish_bundle(bundle, tmp_path / "timing")
    assert re.search(choice, " ".join(finished.choices))
    assert {row.p50_ms for row in finished.speed} == {times[is_taken]}
    with read_bundle(bundle) as ended, read_bundle(tmp_path / "plain") as planned:
        engine = ended.manifest.graphs["plain"].engine
        assert engine is not None
        assert engine.built_with.get("computes in") == ("real numbers" if is_taken else None)
        for file in engine.files.values():
            assert (ended.read_file(file) == planned.read_file(file)) != is_taken
        assert {cost.p50_ms for cost in ended.costs["plain"].values()} == {times[is_taken]}
    with Runtime() as runtime:
        assert all(comparison.holds for comparison in verify_model(runtime.load(bundle)))


def test_a_graph_whose_buckets_take_less_in_all_is_faster() -> None:
    def rows(**times: tuple[float, float]) -> list[SpeedRow]:
        return [
            SpeedRow(graph, f"batch={at}", time_ms, 9.0, 1)
            for graph, pair in times.items()
            for at, time_ms in enumerate(pair)
        ]

    planned = rows(encoder=(1.0, 2.0), decoder=(1.0, 1.0), joiner=(1.0, 1.0))
    other = rows(encoder=(1.5, 1.0), decoder=(0.5, 1.5), joiner=(0.5, 1.75))
    assert faster_graphs(planned, other) == {"encoder": (2.5, 3.0)}


def test_a_bundle_of_an_older_schema_is_refused_before_the_compiler_runs(tmp_path: Path) -> None:
    kept = Path("tests/golden/bundles/schema_3/streaming")
    with pytest.raises(BadInput, match="expected a bundle of schema 4 to finish, got schema 3; rebuild it"):
        finish_bundle(kept, tmp_path)


def test_a_tar_is_not_finished_in_place(tmp_path: Path) -> None:
    (tmp_path / "b.tar").write_bytes(b"")
    with pytest.raises(BadInput, match="expected a bundle directory to finish, got a file"):
        finish_bundle(tmp_path / "b.tar", tmp_path)
