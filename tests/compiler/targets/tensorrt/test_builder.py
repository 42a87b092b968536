"""The builder, on doubles of the vendor's library: what it is told, what it refuses, and what it leaves behind."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import onnx
import pytest

from compiler.targets.tensorrt import builder
from compiler.targets.tensorrt.builder import (
    BUILDER_NAMES,
    BuildRefused,
    build_all,
    build_one,
    main,
    probe_builder,
    start_builder,
    timing_cache_name,
)
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors.cuda import Device
from runtime_lite.executors.tensorrt_engine import require_names
from tests.kit import vendor

T4 = Device("Tesla T4", "7.5", "12.4")

PLAN: dict[str, Any] = {
    "workspace_bytes": 2**20,
    "optimization_level": 4,
    "profiling_verbosity": "DETAILED",
    "hardware_compatibility": "SAME_COMPUTE_CAPABILITY",
    "flags": ["REFIT", "VERSION_COMPATIBLE"],
    "cleared_flags": ["TF32"],
    "parser_flags": ["NATIVE_INSTANCENORM"],
}

ENGINE = {
    "graph": "graphs/g.onnx",
    "engine": "engines/g.plan",
    "profiles": [{"x": [[2, 3]] * 3}],
    "buckets": ["static"],
}


@pytest.fixture
def trt() -> types.ModuleType:
    vendor.Builder.made.clear()
    return vendor.plain_library()


def written(folder: Path, op: str = "Relu") -> Path:
    text = f'<ir_version: 10, opset_import: ["" : 20]> g (float[2,3] x) => (float[2,3] y) {{ y = {op}(x) }}'
    (folder / "graphs").mkdir()
    onnx.save(onnx.parser.parse_model(text), folder / "graphs/g.onnx")
    return folder


def write_plan(folder: Path, capability: str = "7.5", **changed: Any) -> None:
    """A build plan of one engine."""
    plan = {"device": {"compute_capability": capability}, "builder": PLAN, "engines": [ENGINE]}
    plan |= {"versions": {"tensorrt": "10.9"}, **changed}
    (folder / "tensorrt").mkdir()
    (folder / "tensorrt/g.build_plan.json").write_text(json.dumps(plan))


def test_the_plan_is_what_the_builder_is_told(trt: Any, tmp_path: Path) -> None:
    content = build_one(trt, written(tmp_path), PLAN, ENGINE, tmp_path / "cache").content
    assert [tensor["name"] for tensor in json.loads(content)["tensors"]] == ["x", "y"]
    (config,) = vendor.Builder.made
    assert config.flags == {"REFIT", "VERSION_COMPATIBLE"}
    assert config.pools == {"WORKSPACE": 2**20}
    assert config.builder_optimization_level == 4
    assert config.profiling_verbosity == "DETAILED"
    assert config.hardware_compatibility_level == "SAME_COMPUTE_CAPABILITY"


@pytest.mark.parametrize(("bit", "flags"), [(1, 2), (0, 1), (None, 0)])
def test_strong_typing_is_asked_for_by_name_where_the_name_exists(
    bit: int | None, flags: int, trt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {} if bit is None else {"STRONGLY_TYPED": bit}
    trt.NetworkDefinitionCreationFlag = type("NetworkDefinitionCreationFlag", (), members)
    seen: list[int] = []

    def note(self: vendor.Builder, flags: int = 0) -> vendor.Network:
        seen.append(flags)
        return vendor.Network(flags)

    monkeypatch.setattr(vendor.Builder, "create_network", note)
    build_one(trt, written(tmp_path), PLAN, ENGINE, tmp_path / "cache")
    assert seen == [flags]


def test_the_timing_cache_is_read_and_grows(trt: Any, tmp_path: Path) -> None:
    cache = tmp_path / "caches/t4.cache"
    written(tmp_path)
    for expected in (b"t", b"tt"):
        build_one(trt, tmp_path, PLAN, ENGINE, cache)
        assert cache.read_bytes() == expected


def test_a_timing_cache_of_another_device_is_refused(trt: Any, tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"other device")
    with pytest.raises(BuildRefused, match="expected a timing cache of this device and version, got another"):
        build_one(trt, written(tmp_path), PLAN, ENGINE, tmp_path / "cache")


def test_a_graph_that_the_parser_refuses_is_named_by_node_and_operator(trt: Any, tmp_path: Path) -> None:
    with pytest.raises(BuildRefused) as caught:
        build_one(trt, written(tmp_path, "Unique"), PLAN, ENGINE, tmp_path / "cache")
    assert "Unique node_7: no importer for this operator; nodes that it does not take: [[7]]" in str(caught.value)


def test_a_graph_that_the_builder_refuses_comes_with_its_reason(trt: Any, tmp_path: Path) -> None:
    with pytest.raises(BuildRefused, match="expected an engine, got no tactic for Det"):
        build_one(trt, written(tmp_path, "Det"), PLAN, ENGINE, tmp_path / "cache")


def logging(severity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the builder log something before it gives an engine."""
    build = vendor.Builder.build_serialized_network

    def with_error(self: Any, network: Any, config: Any) -> Any:
        self.logger.log(self.logger.Severity[severity], "out of memory")
        return build(self, network, config)

    monkeypatch.setattr(vendor.Builder, "build_serialized_network", with_error)


def test_a_kernel_that_the_builder_skips_with_an_error_is_said_and_fails_nothing(
    trt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logging("ERROR", monkeypatch)
    built = build_one(trt, written(tmp_path), PLAN, ENGINE, tmp_path / "cache")
    assert built.content
    assert built.logged == ("out of memory",)
    assert (tmp_path / "cache").exists()
    write_plan(tmp_path)
    build_all(trt, T4, tmp_path, tmp_path / "out", tmp_path / "caches")
    assert "the builder logged 'out of memory'" in capsys.readouterr().out


def test_an_internal_error_is_a_failure_although_an_engine_comes(
    trt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logging("INTERNAL_ERROR", monkeypatch)
    with pytest.raises(BuildRefused, match="got out of memory"):
        build_one(trt, written(tmp_path), PLAN, ENGINE, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_timing_cache_is_the_one_before_or_the_one_after(
    trt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader beside it, or a builder that is ended, never meets half of one."""
    cache = tmp_path / "caches/t4.cache"
    build_one(trt, written(tmp_path), PLAN, ENGINE, cache)
    held = cache.open("rb")

    def full(self: Any, *rest: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("runtime_lite.format.atomic_file.os.fsync", full)
    with held, pytest.raises(OSError, match="no space"):
        build_one(trt, tmp_path, PLAN, ENGINE, cache)
    assert cache.read_bytes() == b"t"
    assert [path.name for path in cache.parent.iterdir()] == ["t4.cache"]


@pytest.mark.parametrize(("version", "holds"), [("10.15.1.29", True), ("11.0", True), ("10.14.1.48.post1", False)])
def test_a_library_older_than_the_graphs_need_is_refused_before_it_parses(
    version: str, holds: bool, trt: Any, tmp_path: Path
) -> None:
    write_plan(written(tmp_path), versions={"tensorrt": "10.15"})
    trt.__version__ = version
    if holds:
        assert build_all(trt, T4, tmp_path, tmp_path / "out", tmp_path / "caches")
        return
    with pytest.raises(EngineAbsent, match=rf"expected TensorRT 10.15 or later, which its graphs need, got {version}"):
        build_all(trt, T4, tmp_path, tmp_path / "out", tmp_path / "caches")


@pytest.mark.parametrize("profiles", [{"x": [[1, 3]] * 3}, {}, {"x": [[2, 3]] * 3, "z": [[1]] * 3}])
def test_a_graph_that_is_not_the_plans_is_refused(profiles: dict[str, Any], trt: Any, tmp_path: Path) -> None:
    with pytest.raises(BuildRefused, match=r"expected inputs .* as the build plan says, got"):
        build_one(trt, written(tmp_path), PLAN, {**ENGINE, "profiles": [profiles]}, tmp_path / "cache")


def test_a_flag_that_the_version_does_not_have_is_refused_by_name(trt: Any, tmp_path: Path) -> None:
    with pytest.raises(BuildRefused, match=r"expected BuilderFlag.FP16, got a version of TensorRT without it"):
        build_one(trt, written(tmp_path), {**PLAN, "flags": ["FP16"]}, ENGINE, tmp_path / "cache")


def test_every_engine_of_every_plan_is_built(trt: Any, tmp_path: Path) -> None:
    written(tmp_path)
    write_plan(tmp_path)
    built = build_all(trt, T4, tmp_path, tmp_path / "out", tmp_path / "caches")
    assert (tmp_path / "out/engines/g.plan").is_file()
    assert built == {
        "tensorrt/g.build_plan.json": {
            "files": {"graphs/g.onnx": "engines/g.plan"},
            "built_with": {
                "tensorrt": "10.99.0", "device": "Tesla T4", "compute capability": "7.5", "driver": "12.4",
            },
        }
    }  # fmt: skip
    with pytest.raises(BuildRefused, match=r"of compute capability 7.5, got A10 of 8.6"):
        build_all(trt, Device("A10", "8.6", "12.4"), tmp_path, tmp_path / "out", tmp_path / "caches")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("engine", "../evil.plan"),
        ("engine", "/tmp/evil.plan"),
        ("engine", "engines/../../x.plan"),
        ("engine", "x.plan"),
        ("graph", "../graphs/g.onnx"),
        ("graph", "/etc/passwd"),
        ("graph", "graphs/g.txt"),
    ],
)
def test_a_plan_that_names_other_files_is_refused(key: str, value: str, trt: Any, tmp_path: Path) -> None:
    written(tmp_path)
    write_plan(tmp_path, engines=[{**ENGINE, key: value}])
    with pytest.raises(BuildRefused, match=f"expected a {key} inside the bundle"):
        build_all(trt, T4, tmp_path, tmp_path / "out", tmp_path / "caches")
    assert not (tmp_path / "out").exists()


def test_timing_caches_are_kept_apart_by_version_device_and_driver() -> None:
    assert timing_cache_name("10.9.0", T4) == "10.9.0-Tesla-T4-12.4.cache"
    others = {timing_cache_name("11.4", T4), timing_cache_name("10.9.0", Device("A10", "8.6", "12.4"))}
    assert timing_cache_name("10.9.0", T4) not in others


def test_a_builder_that_does_not_start_is_a_sentence(trt: Any) -> None:
    start_builder(trt)

    def nothing(logger: Any) -> None:
        raise TypeError("factory function returned nullptr")

    trt.Builder, builder = nothing, trt.Builder
    with pytest.raises(EngineAbsent, match=r"expected Builder.create_network"):
        require_names(trt, BUILDER_NAMES)
    vars(nothing).update(dict.fromkeys(BUILDER_NAMES["Builder"]))
    with pytest.raises(EngineAbsent, match=r"expected its libraries, got .*nullptr"):
        start_builder(trt)

    class Complains(builder):  # type: ignore[misc, valid-type]
        def __init__(self, logger: Any) -> None:
            logger.log(logger.Severity.ERROR, "CUDA initialization failure with error: 35")

    trt.Builder = Complains
    with pytest.raises(EngineAbsent, match="error: 35"):
        start_builder(trt)


# In a process of its own


def test_a_builder_is_started_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(vendor.write_packages(tmp_path)))
    assert probe_builder() == "10.99.0"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "got a process ended by SIGSEGV"),
        ("raise ImportError('libnvinfer.so.10: cannot open')\n", "got 'libnvinfer.so.10: cannot open'"),
        ("", "expected Runtime.deserialize_cuda_engine, got version of unknown version without it"),
    ],
)
def test_what_keeps_a_builder_from_starting_is_a_sentence(
    text: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tensorrt.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EngineAbsent, match=sentence):
        probe_builder()


def test_no_tensorrt_is_a_sentence_and_never_our_own_module() -> None:
    with pytest.raises(EngineAbsent, match=r"expected the Python package tensorrt 10.9 or later, got .*No module"):
        probe_builder()


def test_a_builder_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tensorrt.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(builder, "START_S", 0.3)
    with pytest.raises(EngineAbsent, match="expected a builder, got none within"):
        probe_builder()


def test_the_script_ends_with_5_without_a_device_and_with_3_when_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> Device:
        raise EngineAbsent("CUDA: expected a CUDA device, got none; buy one")

    arguments = ["--bundle", str(tmp_path), "--out", str(tmp_path / "out"), "--timing-cache", str(tmp_path / "c")]
    monkeypatch.setattr(builder, "probe", refuse)
    assert main(arguments) == 5
    assert capsys.readouterr().err == "error: CUDA: expected a CUDA device, got none; buy one\n"
    monkeypatch.setattr(builder, "probe", lambda: T4)
    monkeypatch.setattr(builder, "probe_builder", lambda: "10.99.0")
    monkeypatch.setitem(sys.modules, "tensorrt", vendor.plain_library())
    assert main(arguments) == 0
    assert json.loads((tmp_path / "out/built.json").read_text()) == {}
    write_plan(tmp_path, "8.6")
    assert main(arguments) == 3
    assert "expected a device of compute capability 8.6" in capsys.readouterr().err


OPEN = {**ENGINE, "profiles": [{"x": [[rows, 3]] * 3} for rows in (1, 4)], "buckets": ["batch=1", "batch=4"]}


def written_open(folder: Path) -> Path:
    written(folder)
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[batch,3] x) => (float[batch,3] y) { y = Relu(x) }'
    )
    onnx.save(model, folder / "graphs/g.onnx")
    return folder


def test_an_engine_of_several_numbers_of_rows_has_a_profile_for_each(trt: Any, tmp_path: Path) -> None:
    content = build_one(trt, written_open(tmp_path), PLAN, OPEN, tmp_path / "cache").content
    assert json.loads(content)["profiles"] == OPEN["profiles"]


def test_a_profile_that_is_not_taken_is_named(trt: Any, tmp_path: Path) -> None:
    profiles = [{"x": [[rows, 3]] * 3} for rows in (0, 4)]
    with pytest.raises(BuildRefused, match=r"expected a profile \{'x': .*\} to be taken, got a refusal"):
        build_one(trt, written_open(tmp_path), PLAN, {**OPEN, "profiles": profiles}, tmp_path / "cache")


def test_sizes_in_which_profiles_agree_are_those_of_the_graph(trt: Any, tmp_path: Path) -> None:
    profiles = [{"x": [[rows, 5]] * 3} for rows in (1, 4)]
    with pytest.raises(BuildRefused, match=r"expected inputs \{'x': \(-1, 5\)\}, .*got \{'x': \(-1, 3\)\}"):
        build_one(trt, written_open(tmp_path), PLAN, {**OPEN, "profiles": profiles}, tmp_path / "cache")
