"""The TensorRT target: what it writes everywhere, and what stands for an engine where none can be built."""

import ast
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compiler.base.pieces import write_files
from compiler.errors import RecipeError, Refused
from compiler.graph.stages import Lowered
from compiler.targets.base import Built, Part
from compiler.targets.onnx_static import OnnxStatic
from compiler.targets.static_graphs import write_static
from compiler.targets.tensorrt.lint import Unbuildable
from compiler.targets.tensorrt.operators import (
    TYPES_BY_OPERATOR,
    VERSION_BY_OPERATOR,
    VERSION_BY_OPSET,
    needed_version,
)
from compiler.targets.tensorrt.target import SCRIPTS, Tensorrt, standalone
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors.cuda import Device
from tests.kit.graphs import parse

NO_DRIVER = EngineAbsent("CUDA: expected a CUDA device, got none; buy one")


@pytest.fixture(autouse=True)
def without_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Device:
        raise NO_DRIVER

    monkeypatch.setattr("compiler.targets.tensorrt.target.cuda.probe", refuse)


def lowered(body: str = "y = MatMul(h, w)") -> Lowered:
    text = f"(float[batch,4] x, float16[4,4] w) => (float16[batch,4] y) {{ h = Cast<to = 10>(x)  {body} }}"
    weights = {"w": (np.arange(16).reshape(4, 4) * 100).astype(np.float16)}
    return Lowered("net", parse(text, weights), batch_axis="batch")


def emitted(**options: object) -> Built:
    return Tensorrt(**options).emit(lowered(), {"batch": (1, 4)})  # type: ignore[arg-type]


def plan_of(built: Built) -> dict[str, object]:
    plan: dict[str, object] = json.loads(bytes(built.files["tensorrt/net.build_plan.json"]))
    return plan


def test_graphs_are_the_static_ones_and_the_engine_is_said_not_to_be_built() -> None:
    built = emitted()
    static = write_static(OnnxStatic(), lowered(), {"batch": (1, 4)})
    assert {name: built.files[name] for name in static.files} == static.files
    assert [artifact.file for artifact in built.artifacts] == [artifact.file for artifact in static.artifacts]
    assert built.engine is not None
    assert (built.engine.status, built.engine.files) == ("not built", {})
    assert built.engine.reason == "CUDA: expected a CUDA device, got none"
    assert sorted(name for name in built.files if name.startswith("tensorrt/")) == [
        "tensorrt/build_engine.py",
        "tensorrt/net.build_plan.json",
        "tensorrt/net.trtexec.txt",
        "tensorrt/slipway_atomic_file.py",
        "tensorrt/slipway_cuda.py",
        "tensorrt/slipway_device_run.py",
        "tensorrt/slipway_errors.py",
        "tensorrt/slipway_tensorrt_engine.py",
        "tensorrt/verify_t4.py",
    ]


def test_where_a_builder_that_ships_nothing_refuses_there_is_a_way_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*asked: object) -> None:
        raise Refused("graphs/net.batch1.onnx: expected an engine", cure="change the graph")

    monkeypatch.setattr("compiler.targets.tensorrt.target.trial_part", lambda is_needed: Part("builder", "1", ""))
    monkeypatch.setattr("compiler.targets.tensorrt.target.trial.built_trial", refuse)
    build = Tensorrt().trial_builder(tmp_path)
    assert build is not None
    with pytest.raises(Refused) as caught:
        build(tmp_path, emitted().artifacts[:1])
    assert caught.value.cure == (
        "change the graph; where the limit is one of TensorRT-RTX alone, set try_builder: false in the target"
    )
    assert Tensorrt(try_builder=False).trial_builder(tmp_path) is None


def test_the_plan_names_every_flag_and_every_engine() -> None:
    plan = plan_of(emitted(version_compatible=True, exclude_lean_runtime=True, refit=True, workspace_mb=64))
    assert plan["network"] == {"flags": ["STRONGLY_TYPED"]}
    assert plan["builder"] == {
        "cleared_flags": ["TF32"],
        "flags": ["EXCLUDE_LEAN_RUNTIME", "REFIT", "VERSION_COMPATIBLE"],
        "hardware_compatibility": "NONE",
        "optimization_level": 3,
        "parser_flags": ["NATIVE_INSTANCENORM"],
        "profiling_verbosity": "DETAILED",
        "workspace_bytes": 64 * 2**20,
    }
    assert plan["engines"] == [
        {
            "buckets": [f"batch={rows}"],
            "engine": f"engines/net.batch{rows}.plan",
            "graph": f"graphs/net.batch{rows}.onnx",
            "profiles": [{"x": [[rows, 4]] * 3}],
            "reads": ["graphs/net.weights"],
        }
        for rows in (1, 4)
    ]
    assert plan["timing_cache_key"] == ["TensorRT version", "device name", "driver version"]


def test_no_precision_flag_is_ever_set() -> None:
    for name, content in emitted(version_compatible=True, refit=True).files.items():
        if name.endswith((".json", ".txt")):
            words = bytes(content).decode().lower()
            assert "fp16" not in words
            assert "int8" not in words
            assert "bf16" not in words


def test_an_engine_is_for_the_device_that_builds_it_unless_asked_otherwise() -> None:
    assert '"hardware_compatibility": "NONE"' in bytes(emitted().files["tensorrt/net.build_plan.json"]).decode()


TRTEXEC = """#!/bin/sh
echo "$@" >> calls.txt
for each in "$@"; do case $each in
  --saveEngine=*) echo engine > "${each#--saveEngine=}" ;;
  --onnx=*) test -f "${each#--onnx=}" ;;
esac || exit 1; done
"""
"""Makes no folder, as the vendor's."""


@pytest.mark.parametrize("inside", [True, False])
def test_trtexec_builds_the_same_engines_in_any_folder(inside: bool, tmp_path: Path) -> None:
    bundle = tmp_path / "a bundle"
    write_files(bundle, emitted(version_compatible=True, refit=True, workspace_mb=64).files)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/trtexec").write_text(TRTEXEC)
    (tmp_path / "bin/trtexec").chmod(0o755)
    folder = bundle if inside else tmp_path
    script = bundle / "tensorrt/net.trtexec.txt"
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    done = subprocess.run(["sh", str(script)], cwd=folder, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in (folder / "engines").iterdir()) == ["net.batch1.plan", "net.batch4.plan"]
    first, second = (folder / "calls.txt").read_text().splitlines()
    assert f"--onnx={bundle}/graphs/net.batch1.onnx --stronglyTyped --saveEngine=engines/net.batch1.plan" in first
    words = first.split()
    assert {"--memPoolSize=workspace:64", "--noTF32", "--refit", "--versionCompatible"} <= set(words)
    assert not any(word.startswith("--minShapes") for word in words), "trtexec refuses shapes of a static graph"
    assert "hardwareCompatibility" not in first
    assert "graphs/net.batch4.onnx" in second


def test_trtexec_is_told_the_other_devices() -> None:
    script = bytes(emitted(hardware_compatibility="SAME_COMPUTE_CAPABILITY").files["tensorrt/net.trtexec.txt"]).decode()
    assert script.count("--hardwareCompatibilityLevel=sameComputeCapability") == 2


@pytest.mark.parametrize(
    ("opset", "body", "needed"),
    [
        (20, "y = Relu(x)", "10.9"),
        (17, "y = Relu(x)", "10.9"),
        (21, "y = Relu(x)", "10.15"),
        (24, "y = Relu(x)", "10.15"),
        (23, "s = Constant<value = float[2] {1.0, 1.0}>() y = RMSNormalization(x, s)", "10.15"),
        (25, "y = Relu(x)", "11.5"),
    ],
)
def test_the_version_that_is_needed_follows_from_the_graph(opset: int, body: str, needed: str) -> None:
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> g (float[batch,2] x) => (float[batch,2] y) {{ {body} }}'
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    assert needed_version(model) == needed


def test_the_plan_and_the_script_say_the_version_that_is_needed() -> None:
    built = emitted()
    versions = plan_of(built)["versions"]
    assert isinstance(versions, dict)
    assert versions["tensorrt"] == "10.9"
    assert "needs TensorRT 10.9 or later" in bytes(built.files["tensorrt/net.trtexec.txt"]).decode()


def test_every_version_that_is_named_has_an_operator_or_an_opset() -> None:
    assert VERSION_BY_OPERATOR.keys() <= TYPES_BY_OPERATOR.keys()
    assert max(VERSION_BY_OPSET) >= 25, "the largest that the option `opset` takes"


def test_bytes_are_the_same_every_time() -> None:
    assert emitted().files == emitted().files


def test_a_graph_that_would_not_be_built_is_refused_with_all_reasons_and_nothing_is_written() -> None:
    wrong = lowered(
        "k = Det(w)  m = MatMul(h, w)  d = Cast<to = 11>(m)  s = Sin(d)  e = Cast<to = 10>(s)  y = Mul(e, k)"
    )
    with pytest.raises(Unbuildable) as caught:
        Tensorrt().emit(wrong, {"batch": (1, 4)})
    assert {violation.rule for violation in caught.value.violations} == {"operator", "element-type"}


def test_what_stands_for_an_engine_rounds_half_precision_where_the_graph_says_so(tmp_path: Path) -> None:
    built = Tensorrt().emit(lowered("squared = Mul(h, h)  y = Sub(squared, h)"), {"batch": (1,)})
    write_files(tmp_path, built.files)
    session = Tensorrt().open(tmp_path / "graphs/net.batch1.onnx")
    (y,) = session.run(None, {"x": np.full((1, 4), 300, np.float32)})
    assert y.dtype == np.float16
    assert np.isinf(y).all(), "300 * 300 is beyond half precision on every device"


def test_external_weights_are_read(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model = parse("(float[batch,64] x, float[64,64] w) => (float[batch,64] y) { y = MatMul(x, w) }", {"w": w})
    built = Tensorrt().emit(Lowered("big", model, batch_axis="batch"), {"batch": (1,)})
    proto = onnx.load_model_from_string(bytes(built.files["graphs/big.batch1.onnx"]))
    assert [tensor.data_location for tensor in proto.graph.initializer] == [onnx.TensorProto.EXTERNAL]
    (tmp_path / "graphs").mkdir()
    for name in ("graphs/big.batch1.onnx", "graphs/big.weights"):
        (tmp_path / name).write_bytes(bytes(built.files[name]))
    x = np.ones((1, 64), np.float32)
    (y,) = Tensorrt().open(tmp_path / "graphs/big.batch1.onnx").run(None, {"x": x})
    np.testing.assert_allclose(y, x @ w, rtol=1e-4, atol=1e-4)


WRONG = [
    ({"compute_capability": "7.0"}, "compute_capability: expected"),
    ({"compute_capability": "sm_75"}, "compute_capability: expected"),
    ({"opset": 8}, "opset: expected from 9 to 25, got 8"),
    ({"workspace_mb": 0}, "workspace_mb: expected"),
    ({"optimization_level": 6}, "optimization_level: expected from 0 to 5, got 6"),
    ({"hardware_compatibility": "ALL"}, "hardware_compatibility: expected one of NONE"),
    ({"hardware_compatibility": "AMPERE_PLUS"}, "expected SAME_COMPUTE_CAPABILITY or NONE before 8.0"),
    ({"exclude_lean_runtime": True}, "expected false without version_compatible"),
]


@pytest.mark.parametrize(("options", "sentence"), WRONG)
def test_wrong_options_are_named(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Tensorrt(**options)  # type: ignore[arg-type]
    assert sentence in str(caught.value)


def test_lengths_that_a_model_clips_are_taken() -> None:
    text = '(float[batch,4] x, int64[batch] n, int64 most) => (int64[batch] y) { y = Clip(n, "", most) }'
    clipped = Lowered("net", parse(text, {"most": np.array(3)}), batch_axis="batch")
    (artefact,) = Tensorrt().emit(clipped, {"batch": (1,)}).artifacts
    assert [node.op_type for node in artefact.lowered.model.graph] == ["Min"]


def test_slots_that_a_model_marks_are_taken() -> None:
    text = "(bool[batch,4] x, int64[1,1] i, bool[1,4] u) => (bool[batch,4] y) { y = ScatterND(x, i, u) }"
    (artefact,) = Tensorrt().emit(Lowered("net", parse(text), batch_axis="batch"), {"batch": (2,)}).artifacts
    assert [node.op_type for node in artefact.lowered.model.graph] == ["Cast", "Cast", "ScatterND", "Cast"]


def test_the_later_devices_may_have_what_a_t4_lacks() -> None:
    assert Tensorrt(compute_capability="8.6", hardware_compatibility="AMPERE_PLUS")
    model = parse("(float[batch,2] x) => (bfloat16[batch,2] y) { y = Cast<to = 16>(x) }")
    graph = Lowered("net", model, batch_axis="batch")
    assert Tensorrt(compute_capability="8.6").emit(graph, {"batch": (1,)}).artifacts
    with pytest.raises(Unbuildable, match="BFLOAT16"):
        Tensorrt().emit(dataclasses.replace(graph, model=model.clone()), {"batch": (1,)})


def test_a_device_of_another_capability_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.targets.tensorrt.target.cuda.probe", lambda: Device("A10", "8.6", "12.4"))
    monkeypatch.setattr("compiler.targets.tensorrt.target.parts_here", lambda: (Part("driver", "A10"),))
    assert Tensorrt().absent() == "expected a device of compute capability 7.5, got A10 of 8.6"
    assert Tensorrt(compute_capability="8.6").absent() is None


def test_scripts_need_nothing_of_ours_but_each_other() -> None:
    for name, module in SCRIPTS.items():
        tree = ast.parse(standalone(module))
        found = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not {each for each in found if each and each.split(".")[0] in ("compiler", "runtime_lite")}, name


@pytest.mark.parametrize("script", ["build_engine.py", "verify_t4.py"])
def test_scripts_run_beside_each_other_and_end_with_our_sentence_where_there_is_no_device(
    script: str, tmp_path: Path
) -> None:
    for name, module in SCRIPTS.items():
        (tmp_path / name).write_bytes(standalone(module))
    (tmp_path / "sitecustomize.py").write_text(
        "import ctypes\n"
        "class NoDriver(ctypes.CDLL):\n"
        "    def __init__(self, name, *rest, **more):\n"
        "        if name == 'libcuda.so.1': raise OSError(name)\n"
        "        super().__init__(name, *rest, **more)\n"
        "ctypes.CDLL = NoDriver\n"
    )
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, str(tmp_path / script), "--bundle", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (5, "")
    expected = "error: CUDA: expected a CUDA device, got no CUDA driver (libcuda.so.1)"
    assert done.stderr == f"{expected}; run it on the machine with the device\n"


def test_opsets_beyond_the_parser_are_refused() -> None:
    model = parse("(float[batch,2] x) => (float[batch,2] y) { y = Relu(x) }")
    with pytest.raises(Unbuildable, match="expected opset 9 to 19"):
        Tensorrt(opset=19).emit(Lowered("net", model, batch_axis="batch"), {"batch": (1,)})


def test_the_graph_itself_is_left_alone() -> None:
    graph = lowered()
    before = ir.serde.serialize_model(graph.model).SerializeToString(deterministic=True)
    Tensorrt().emit(graph, {"batch": (1, 4)})
    assert ir.serde.serialize_model(graph.model).SerializeToString(deterministic=True) == before


def test_one_engine_has_a_profile_per_number_of_rows() -> None:
    built = emitted(one_engine=True)
    assert {artifact.file for artifact in built.artifacts} == {"graphs/net.batch.onnx"}
    assert plan_of(built)["engines"] == [
        {
            "buckets": ["batch=1", "batch=4"],
            "graph": "graphs/net.batch.onnx",
            "reads": ["graphs/net.weights"],
            "engine": "engines/net.batch.plan",
            "profiles": [{"x": [[1, 4]] * 3}, {"x": [[4, 4]] * 3}],
        }
    ]
    command = bytes(built.files["tensorrt/net.trtexec.txt"]).decode().splitlines()[-1]
    assert "--profile=0 --minShapes=x:1x4 --optShapes=x:1x4 --maxShapes=x:1x4 --profile=1 --minShapes=x:4x4" in command


def test_a_graph_that_reads_its_rows_has_an_engine_per_number_of_rows() -> None:
    reads = lowered(
        "s = Shape(h)  f = Cast<to = 10>(s)  g = ReduceMax<keepdims = 0>(f)  p = Mul(h, g)  y = MatMul(p, w)"
    )
    built = Tensorrt(one_engine=True).emit(reads, {"batch": (1, 4)})
    assert len({artifact.file for artifact in built.artifacts}) == 2
    assert built.refused and "it reads the number of rows" in built.refused[0]


def test_the_linter_sees_graphs_with_open_rows() -> None:
    bits = lowered("i = Cast<to = 6>(h)  b = BitwiseNot(i)  c = Cast<to = 10>(b)  y = MatMul(c, w)")
    with pytest.raises(Unbuildable, match="BitwiseNot"):
        Tensorrt(one_engine=True).emit(bits, {"batch": (1, 4)})
