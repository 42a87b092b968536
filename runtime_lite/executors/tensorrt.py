"""Runs the TensorRT engines of one graph of a bundle on the machine's CUDA device.

One engine per graph file, opened at its first use from the bytes whose hash was checked; where buckets that differ in
their rows share one, each has a context and a profile of its own, and they share the weights. Before the
first one is opened here a process of its own has opened it, so that a driver or a version that does not fit is a
sentence and no crash.
"""

import re
from types import ModuleType

from runtime_lite.errors import FRONT_DOOR, BundleRefused, EngineAbsent, show
from runtime_lite.executors.cuda import Cuda, Device, probe
from runtime_lite.executors.device_executor import DeviceExecutor, check_tensors
from runtime_lite.executors.tensorrt_engine import (
    HostCode,
    OpenedEngine,
    StaticEngine,
    host_code_of,
    import_tensorrt,
    open_engine,
    try_engine,
)
from runtime_lite.format.checked_json import JsonValue
from runtime_lite.format.manifest import Artifact, Engine, static_shape
from runtime_lite.format.reader import Bundle

AMPERE = (8, 0)


class TensorrtExecutor(DeviceExecutor):
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
        super().__init__(bundle, name)
        assert self._graph.engine is not None
        self._engine: Engine = self._graph.engine
        self._trt: ModuleType | None = None
        self._engines: dict[str, OpenedEngine] = {}
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

    def _start_library(self) -> None:
        self._trt = self._library()

    def _library(self) -> ModuleType:
        """The installed library, which opens engines of the version that built these.

        Raises:
            EngineAbsent: there is none, or its version is another.
        """
        library = import_tensorrt(self._host_code)
        built, here = self._engine.built_with.get("tensorrt", ""), str(library.__version__)
        is_compatible = self._host_code is not HostCode.LIBRARY
        if here != built and not (is_compatible and _opens(here, built)):
            later = f", or a later version {built.partition('.')[0]}" if is_compatible else ""
            raise EngineAbsent(
                f"{self._where}: expected TensorRT {show(built)}, which built its engines{later}, got {here}; install "
                f"that version, or run `{FRONT_DOOR} finish` on this machine"
            )
        return library

    def _open(self, artifact: Artifact, cuda: Cuda, captures: bool) -> StaticEngine:
        file = self._engine.files[artifact.file]
        if file not in self._engines:
            self._engines[file] = self._open_file(file)
        opened = self._engines[file]
        shapes = {tensor.name: static_shape(tensor.shape, artifact.sizes) for tensor in self._graph.inputs}
        run = StaticEngine(cuda, opened, self.memory.stream, captures, self._lock, shapes)
        try:
            check_tensors(opened.where, run.tensors, self._graph, artifact)
        except BundleRefused:
            run.close()
            raise
        return run

    def _open_file(self, file: str) -> OpenedEngine:
        where = f"{self._bundle.path}: {file}"
        content = self._bundle.read_file(file)
        if not self._engines:
            try_engine(content, self._host_code, where)
        return self._with_kernels(open_engine(self._trt, content, self._host_code, where), content)

    def close(self) -> None:
        """Close all contexts, then the engines and the device; a second call does nothing."""
        super().close()
        self._engines.clear()

    def _with_kernels(self, opened: OpenedEngine, content: bytes) -> OpenedEngine:
        """The engine as contexts are made of it."""
        return opened


def _opens(here: str, built: str) -> bool:
    """Whether a version opens version-compatible engines of another: later ones of the same major version do."""
    later, earlier = (tuple(map(int, re.findall(r"\d+", version))) for version in (here, built))
    return later[:1] == earlier[:1] and later >= earlier


def _number(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split("."))
