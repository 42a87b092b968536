"""Runs the TensorRT engines of one graph of a bundle on the machine's CUDA device.

One engine per artifact (bucket), opened at its first use from the bytes whose hash was checked. Before the first one is
opened here a process of its own has opened it, so that a driver or a version that does not fit is a sentence and no
crash. Runs follow each other. States that lie on the device are read and written there; everything else is copied from
the caller's arrays and into them. Runs at the same addresses are launched as CUDA graphs, unless the environment says
`RUNTIME_LITE_CUDA_GRAPHS=0`; pycuda has none.
"""

import os
import threading
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from runtime_lite.errors import FRONT_DOOR, BundleRefused, EngineAbsent, show
from runtime_lite.executors.cuda import Cuda, Device, DeviceArray, open_cuda, probe
from runtime_lite.executors.device_memory import DeviceMemory
from runtime_lite.executors.tensorrt_engine import (
    GRAPHS_SWITCH,
    EngineTensor,
    HostCode,
    OpenedEngine,
    StaticEngine,
    host_code_of,
    import_tensorrt,
    open_engine,
    try_engine,
)
from runtime_lite.format.checked_json import JsonValue, refuse
from runtime_lite.format.manifest import Artifact, Engine, Graph, bucket_name, static_shape
from runtime_lite.format.reader import Bundle

AMPERE = (8, 0)


class TensorrtExecutor:
    """Engines of one graph, by bucket.

    Args:
        bundle: an open bundle.
        name: graph name in it.
        allow_host_code: whether engines may run code that they carry.

    Raises:
        BundleRefused: the engines carry code, and that is not allowed.
        EngineAbsent: this machine has no device for the engines, or another than they were built for.
    """

    def __init__(self, bundle: Bundle, name: str, allow_host_code: bool = False) -> None:
        """Ask for the device; no engine is opened yet."""
        self._bundle = bundle
        self._graph: Graph = bundle.manifest.graphs[name]
        assert self._graph.engine is not None
        self._engine: Engine = self._graph.engine
        self._where = f"{bundle.path}: graph {name!r}"
        self._artifacts = {bucket_name(artifact.sizes): artifact for artifact in self._graph.artifacts}
        self._opened: dict[str, StaticEngine] = {}
        self._lock = threading.RLock()
        self._trt: ModuleType | None = None
        self._cuda: Cuda | None = None
        self.memory = DeviceMemory(self._opened_device, self._lock)
        self._host_code = self._accept(allow_host_code)

    def _accept(self, allow_host_code: bool) -> HostCode:
        """Where the code comes from that runs the engines, which this machine's device opens.

        Raises:
            BundleRefused: from the engines themselves, and that is not allowed.
            EngineAbsent: they are for another device.
        """
        builder = JsonValue.parse(self._bundle.read_file(self._engine.plan), self._engine.plan).key("builder")
        host_code = host_code_of([flag.text() for flag in builder.key("flags").items()])
        if host_code is HostCode.ENGINE and not allow_host_code:
            raise BundleRefused(
                f"{self._where}: expected engines without code of their own, got version-compatible ones, which carry "
                "code that would run with your rights; load it with allow_host_code=True (--allow-host-code) if you "
                "trust who made it"
            )
        self._check_device(probe(), builder.key("hardware_compatibility").text())
        return host_code

    def _check_device(self, device: Device, compatibility: str) -> None:
        """Refuse a device that the engines were not made for: by its name, unless they are for others, too.

        Raises:
            EngineAbsent: names both.
        """
        built_with = self._engine.built_with
        name, capability = built_with.get("device", ""), built_with.get("compute capability", "")
        fits = {
            "SAME_COMPUTE_CAPABILITY": device.capability == capability,
            "AMPERE_PLUS": _number(device.capability) >= AMPERE,
        }
        if not fits.get(compatibility, (device.name, device.capability) == (name, capability)):
            raise EngineAbsent(
                f"{self._where}: expected a device as the one that its engines were built on, {show(name)} of compute "
                f"capability {show(capability)} (hardware compatibility {show(compatibility)}), got {device.name} of "
                f"{device.capability}; run `{FRONT_DOOR} finish` on this machine"
            )

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Run one bucket.

        Args:
            sizes: bucket of every axis.
            inputs: every input of the graph, in exactly the bucket's static shape.
            outputs: what every output is written to, in the bucket's static shape.

        Raises:
            EngineAbsent: the engine cannot be opened on this machine.
            BundleRefused: its inputs and outputs are not what the manifest says.
            InternalError: the device failed.
        """
        bucket = bucket_name(sizes)
        on_device = {name: place for name, place in outputs.items() if isinstance(place, DeviceArray)}
        with self._lock:
            cuda = self._opened_device()
            with cuda.active():
                if bucket not in self._opened:
                    self._opened[bucket] = self._open(self._artifacts[bucket])
                found, _ = self._opened[bucket].run(inputs, on_device)
        self.memory.count(inputs.values(), outputs.values())
        for name, array in found.items():
            np.copyto(outputs[name], array, casting="no")

    def close(self) -> None:
        """Close all engines, then the device; a second call does nothing."""
        with self._lock:
            self.memory.close()
            cuda, self._cuda = self._cuda, None
            if cuda is not None:
                with cuda.active():
                    while self._opened:
                        self._opened.popitem()[1].close()
                cuda.close()

    def _opened_device(self) -> Cuda:
        """The device, opened with the library at the first use; the lock is held."""
        if self._cuda is None:
            self._trt, self._cuda = self._library(), open_cuda()
        return self._cuda

    def _library(self) -> ModuleType:
        return import_tensorrt(self._host_code)

    def _open(self, artifact: Artifact) -> StaticEngine:
        file = self._engine.files[artifact.file]
        where = f"{self._bundle.path}: {file}"
        content = self._bundle.read_file(file)
        if not self._opened:
            try_engine(content, self._host_code, where)
        assert self._cuda is not None
        opened = self._with_kernels(open_engine(self._trt, content, self._host_code, where), content)
        _check_signature(where, opened.tensors, self._graph, artifact)
        captures = self._cuda.captures and os.environ.get(GRAPHS_SWITCH) != "0"
        return StaticEngine(self._cuda, opened, self.memory.stream, captures)

    def _with_kernels(self, opened: OpenedEngine, content: bytes) -> OpenedEngine:
        """The engine as contexts are made of it."""
        return opened


def _number(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split("."))


def _check_signature(where: str, found: tuple[EngineTensor, ...], graph: Graph, artifact: Artifact) -> None:
    wanted = {
        tensor.name: (static_shape(tensor.shape, artifact.sizes), np.dtype(tensor.dtype), tensor in graph.inputs)
        for tensor in graph.inputs + graph.outputs
    }
    got = {tensor.name: (tensor.shape, tensor.dtype, tensor.is_input) for tensor in found}
    if got != wanted:
        name = next(name for name in sorted({*got, *wanted}) if got.get(name) != wanted.get(name))
        refuse(where, f"{name!r} as the manifest lists it ({show(wanted.get(name))})", show(got.get(name)))
