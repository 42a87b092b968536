"""Our TensorRT code against the genuine bindings of three versions, without a device and without the libraries.

Names, signatures, enumerations and loggers are the vendor's own; what calls do is a double's. Results, times and the
vendor's errors are not covered: `verify_t4.py` in a bundle covers them on a device.
"""

import ast
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.base.pieces import write_files
from compiler.graph.stages import Array, Lowered
from compiler.targets.tensorrt import builder, verify
from compiler.targets.tensorrt.target import Tensorrt
from runtime_lite.executors import tensorrt_engine
from runtime_lite.format.arrays import npz_from_arrays
from tests.contract_tensorrt.doubles import Parameter, signatures
from tests.contract_tensorrt.genuine import VERSIONS
from tests.contract_tensorrt.wheels import unpacked
from tests.kit.graphs import parse

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="the bindings are for x86-64 Linux"
)

ALWAYS_REFUSED = {
    "set_flag(1)": "TypeError",
    "set_memory_pool_limit without pool_size": "TypeError",
    "set_memory_pool_limit with a text": "TypeError",
    "create_network with a flag": "TypeError",
    "build of a number": "TypeError",
    "builder without logger": "TypeError",
    "profiling_verbosity = 2": "TypeError",
    "builder_optimization_level = '3'": "TypeError",
    "max_workspace_size": "AttributeError",
    "deserialize of a text": "TypeError",
    "execute_async": "AttributeError",
    "enqueue": "AttributeError",
    "execute_async_v3 without stream": "TypeError",
    "set_tensor_address with a pointer object": "TypeError",
    "max_batch_size": "AttributeError",
}

REMOVED_IN_11 = {
    "supports_model": "AttributeError",
    "int8_calibrator": "AttributeError",
    "platform_has_fast_fp16": "AttributeError",
    "device_memory_size": "AttributeError",
    "the flag FP16": "BuildRefused",
    "the flag INT8": "BuildRefused",
}


def written(folder: Path) -> Path:
    """A bundle's graphs, plan and recorded feeds, and one graph that the parser's double refuses."""
    text = "(float[batch,2] x, float16[2] w) => (float16[batch,2] y) { h = Cast<to = 10>(x)  y = Mul(h, w) }"
    target = Tensorrt(version_compatible=True, exclude_lean_runtime=True, refit=True)
    built = target.emit(
        Lowered("net", parse(text, {"w": -np.ones(2, np.float16)}), batch_axis="batch"), {"batch": (1,)}
    )
    x = np.ones((1, 2), np.float32)
    arrays: dict[str, Array] = {
        "tolerance": np.array(0, np.float32),
        "batch=1/feed/x": x,
        "batch=1/output/y": -x.astype(np.float16),
    }
    unknown = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => (float[n] y) { y = Unique(x) }'
    ).SerializeToString()
    files = {**built.files, "tensorrt/net.feeds.npz": npz_from_arrays(arrays), "graphs/unknown.onnx": unknown}
    write_files(folder, files)
    return folder


@pytest.fixture(scope="module", params=VERSIONS)
def found(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> dict[str, Any]:
    """What one version says, from a process of its own: a library that is loaded stays."""
    assert pytestconfig.cache is not None
    wheel = unpacked(request.param, pytestconfig.cache.mkdir("tensorrt_bindings"))
    if isinstance(wheel, str):
        pytest.skip(f"CONTRACT NOT CHECKED: needs tensorrt-cu12-bindings=={request.param}, {wheel}")
    scratch = tmp_path_factory.mktemp("contract")
    bundle = written(scratch / "bundle")
    command = [sys.executable, "-m", "tests.contract_tensorrt.in_child", str(wheel), str(scratch), str(bundle)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert answer["version"] == request.param
    return answer


def test_our_code_runs_from_graph_to_output_on_the_names_of_every_version(found: dict[str, Any]) -> None:
    assert found["failed"] == []
    assert found["steps"] == 10
    assert found["parser refusal"] == "BuildRefused"


def test_everything_we_call_was_called_and_checked(found: dict[str, Any]) -> None:
    assert set(found["calls"]) == {
        "Builder.__init__", "Builder.build_serialized_network", "Builder.create_builder_config",
        "Builder.create_network", "EngineInspector.get_engine_information",
        "IBuilderConfig.builder_optimization_level =",
        "IBuilderConfig.clear_flag", "IBuilderConfig.create_timing_cache", "IBuilderConfig.get_timing_cache",
        "IBuilderConfig.hardware_compatibility_level =", "IBuilderConfig.profiling_verbosity =",
        "IBuilderConfig.set_flag", "IBuilderConfig.set_memory_pool_limit", "IBuilderConfig.set_timing_cache",
        "ICudaEngine.create_engine_inspector", "ICudaEngine.create_execution_context",
        "ICudaEngine.device_memory_size_v2", "ICudaEngine.get_tensor_dtype", "ICudaEngine.get_tensor_mode",
        "ICudaEngine.get_tensor_name", "ICudaEngine.get_tensor_shape", "ICudaEngine.num_io_tensors",
        "IExecutionContext.execute_async_v3", "IExecutionContext.infer_shapes",
        "IExecutionContext.set_tensor_address", "INetworkDefinition.get_input", "INetworkDefinition.num_inputs",
        "ITensor.name", "ITensor.shape", "ITimingCache.serialize", "OnnxParser.__init__", "OnnxParser.get_error",
        "OnnxParser.get_subgraph_nodes", "OnnxParser.is_subgraph_supported", "OnnxParser.num_errors",
        "OnnxParser.num_subgraphs", "OnnxParser.parse_from_file", "OnnxParser.set_flag",
        "OnnxParser.supports_model_v2", "OnnxParserRefitter.__init__", "OnnxParserRefitter.refit_from_file",
        "ParserError.desc", "ParserError.node_name", "ParserError.node_operator",
        "Refitter.__init__", "Refitter.get_all_weights", "Refitter.get_weights_prototype",
        "Refitter.refit_cuda_engine", "Refitter.set_named_weights", "Runtime.__init__",
        "Runtime.deserialize_cuda_engine", "Runtime.load_runtime", "Weights.dtype", "Weights.size",
    }  # fmt: skip


def test_wrong_calls_are_refused(found: dict[str, Any]) -> None:
    assert {name: found["refused"][name] for name in ALWAYS_REFUSED} == ALWAYS_REFUSED


def test_what_version_11_removed_is_seen_there_and_only_there(found: dict[str, Any]) -> None:
    got = {name: found["refused"][name] for name in REMOVED_IN_11}
    is_11 = found["version"].startswith("11.")
    assert got == (REMOVED_IN_11 if is_11 else dict.fromkeys(REMOVED_IN_11, "accepted"))


def test_genuine_objects_without_a_library_end_with_our_sentence(found: dict[str, Any]) -> None:
    assert (
        "expected its libraries, got 'pybind11::init(): factory function returned nullptr'"
        in (found["genuine"]["builder"])
    )
    assert f"engine that TensorRT {found['version']} opens, got 'pybind11::init()" in found["genuine"]["runtime"]


REMOVED_NAMES = {
    "EXPLICIT_BATCH", "FP16", "BF16", "INT8", "FP8", "OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS",
    "platform_has_fast_fp16", "platform_has_fast_int8", "int8_calibrator", "set_calibration_profile",
    "dynamic_range", "set_output_type", "supports_model", "device_memory_size", "weight_streaming_budget",
    "create_execution_context_without_device_memory", "has_implicit_batch_dimension", "all_shape_inputs_specified",
    "max_workspace_size", "max_batch_size", "build_engine", "get_binding_shape",
}  # fmt: skip


@pytest.mark.parametrize("module", [builder, tensorrt_engine, verify])
def test_no_removed_name_is_in_our_code(module: Any) -> None:
    tree = ast.parse(Path(module.__file__).read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert used & REMOVED_NAMES == set()


def test_signatures_are_read_as_pybind_writes_them() -> None:
    text = """f(*args, **kwargs)
Overloaded function.

1. f(self: a.B, name: str, shape: tuple[int, int] = (1, 2)) -> bool
2. f(self: a.B, kind: a.E = <E.STATIC: 0>) -> list[str]
"""
    first, second = signatures("f", text)
    assert first.parameters == (Parameter("name", "str", False), Parameter("shape", "tuple[int, int]", True))
    assert second.parameters == (Parameter("kind", "a.E", True),)
    assert (first.returns, second.returns) == ("bool", "list[str]")
