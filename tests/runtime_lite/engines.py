"""A bundle whose engine is built, for the doubles of tests/kit/vendor.py, and the doubles in this process."""

import contextlib
import dataclasses
import functools
import importlib.machinery
import json
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest

from runtime_lite.executors.cuda import Device
from runtime_lite.executors.onnx_cuda import OnnxCudaExecutor, Provider
from runtime_lite.format.golden import Golden, npz_from_golden
from runtime_lite.format.graph_contract import contract_of, with_contract
from runtime_lite.format.manifest import Engine, Graph, static_shape
from runtime_lite.format.manifest_json import json_from_manifest
from tests.kit import vendor
from tests.runtime_lite.bundles import (
    FRONT_END,
    entry_of,
    graph_files,
    manifest_of,
    open_files,
    open_graph,
    plain_golden,
    plain_graph,
    streaming_golden,
    streaming_graph,
    write_bundle,
)
from tests.runtime_lite.in_place_graph import WRITTEN_IN_PLACE, in_place_files, in_place_golden, in_place_graph

BUILT_WITH = {"tensorrt": "10.99.0", "compute capability": "7.5", "device": "T4"}
BUILT_WITH_RTX = {"tensorrt_rtx": "1.7.1.116", "compute capabilities": "8.6, 8.9"}
BY_TARGET = {"tensorrt": BUILT_WITH, "tensorrt_rtx": BUILT_WITH_RTX}
PLAN = "tensorrt/plain.build_plan.json"
GRAPHS: dict[str, tuple[Callable[[], Graph], Callable[[], Golden]]] = {
    "plain": (plain_graph, plain_golden),
    "streaming": (streaming_graph, streaming_golden),
    "open": (open_graph, streaming_golden),
    **{kind.update: (functools.partial(in_place_graph, kind=kind), in_place_golden) for kind in WRITTEN_IN_PLACE},
}
"""Graphs by the name that `write_engine_bundle` takes, which is also the name in the bundle."""
REASON = "CUDA: expected a CUDA device, got no CUDA driver"


def engine_of(
    model: onnx.ModelProto, flags: tuple[str, ...] = (), shapes: Sequence[Mapping[str, tuple[int, ...]]] = ()
) -> bytes:
    """What the double of the builder makes of a graph, with a profile for each of several sets of shapes."""
    network = vendor.Network(0)
    network.model = model
    logger = vendor.ILogger()
    config = vendor.BuilderConfig()
    config.flags = set(flags)
    for shapes_of_bucket in shapes if len(shapes) > 1 else ():
        profile = vendor.OptimizationProfile()
        for name, shape in shapes_of_bucket.items():
            profile.set_shape(name, shape, shape, shape)
        config.add_optimization_profile(profile)
    content = vendor.Builder(logger).build_serialized_network(network, config)
    assert content is not None
    return content


def with_engine(graph: Graph, *, built: bool, target: str = "tensorrt") -> Graph:
    """The graph with its engines entered, or with the reason why there are none."""
    files = {item.file: f"engines/{Path(item.file).stem}.plan" for item in graph.artifacts}
    engine = (
        Engine("built", None, PLAN, files, BY_TARGET[target]) if built else Engine("not built", REASON, PLAN, {}, {})
    )
    return dataclasses.replace(graph, target=target, engine=engine)


def write_engine_bundle(
    directory: Path,
    *,
    built: bool = True,
    flags: tuple[str, ...] = (),
    compatibility: str = "NONE",
    target: str = "tensorrt",
    name: str = "plain",
) -> Path:
    """Write a bundle of the stateless graph, or of a streaming one, with engines or without."""
    record, golden = GRAPHS[name]
    graph = with_engine(record(), built=built, target=target)
    files = {**graph_files(), **open_files(), **in_place_files()}
    named = {path for item in graph.artifacts for path in (item.file, *item.files)} | {graph.certificate}
    kept = {name: files[name] for name in named} | {graph.golden: npz_from_golden(golden())}
    kept |= {"receipts.json": b"{}\n", "recipe.yaml": f"name: tiny\ntargets: [{{kind: {target}}}]\n".encode()}
    digest = entry_of(kept[graph.certificate]).sha256
    for item in {item.file: item for item in graph.artifacts}.values():
        kept[item.file] = with_contract(kept[item.file], contract_of(name, graph, item, FRONT_END, digest))
    kept[PLAN] = json.dumps({"builder": {"flags": list(flags), "hardware_compatibility": compatibility}}).encode()
    for path, content in kept.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)
    assert graph.engine is not None
    for source, target in graph.engine.files.items():
        sizes = [item.sizes for item in graph.artifacts if item.file == source]
        shapes = [{tensor.name: static_shape(tensor.shape, each) for tensor in graph.inputs} for each in sizes]
        kept[target] = engine_of(onnx.load(directory / source), flags, shapes)
        (directory / target).parent.mkdir(exist_ok=True)
        (directory / target).write_bytes(kept[target])
    (directory / "manifest.json").write_bytes(json_from_manifest(manifest_of({name: graph}, kept)))
    return directory


def write_cuda_bundle(directory: Path, name: str = "streaming") -> Path:
    """Write a bundle of a graph for ONNX Runtime on a CUDA device."""
    record, golden = GRAPHS[name]
    graph = dataclasses.replace(record(), target="onnx_cuda")
    files = {**graph_files(), **in_place_files(), graph.golden: npz_from_golden(golden())}
    return write_bundle(directory, {name: graph}, files)


class CapturingSession(onnxruntime.InferenceSession):  # type: ignore[misc, unused-ignore]
    """A session that launches what it has captured under a number, whatever is bound, and releases nothing of it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.captured: dict[str, Any] = {}

    def run_with_iobinding(self, binding: Any, options: Any) -> None:
        number = "-1"
        with contextlib.suppress(RuntimeError):  # a session that captures nothing is not told a number
            number = options.get_run_config_entry("gpu_graph_id")
        super().run_with_iobinding(binding if number == "-1" else self.captured.setdefault(number, binding), options)


def use_cpu_for_cuda(monkeypatch: pytest.MonkeyPatch, capability: str = "9.0", driver: str = "13.0") -> None:
    """Let the provider for CPUs stand in for that of a device, whose memory is that of the double of CUDA."""
    monkeypatch.setattr("runtime_lite.executors.onnx_cuda.probe", lambda: Device("H100", capability, driver))
    monkeypatch.setattr("onnxruntime.InferenceSession", CapturingSession)
    monkeypatch.setattr(OnnxCudaExecutor, "provider", Provider("CPUExecutionProvider", "cpu"))


def use_doubles(
    monkeypatch: pytest.MonkeyPatch,
    capability: str = "7.5",
    name: str = "T4",
    *,
    target: str = "tensorrt",
    driver: str = "12.4",
) -> types.ModuleType:
    """Let this process find a device, cuda-python and TensorRT, or its sister; the library's module."""
    library = vendor.plain_library()
    bindings = types.ModuleType("cuda.bindings")
    vars(bindings).update(runtime=vendor.CudaRuntime(), utils=types.SimpleNamespace(get_cuda_native_handle=int))
    found = {target: library, "cuda": types.ModuleType("cuda"), "cuda.bindings": bindings}
    found["cuda.bindings.runtime"] = types.ModuleType("cuda.bindings.runtime")
    for path, module in found.items():
        module.__spec__ = importlib.machinery.ModuleSpec(path, None, origin="a double")
        monkeypatch.setitem(sys.modules, path, module)
    monkeypatch.setattr(f"runtime_lite.executors.{target}.probe", lambda: Device(name, capability, driver))
    monkeypatch.setattr("runtime_lite.executors.tensorrt.try_engine", lambda *_: None)
    return library
