"""Runs the TensorRT-RTX engines of one graph of a bundle on the machine's CUDA device.

An engine is for several compute capabilities, and its kernels are compiled when it is opened: what was compiled is kept
in a folder of this machine, `$SLIPWAY_CACHE` or `.cache/slipway`, and never in the bundle. The library looks itself
whether kept kernels fit version, device and driver, and compiles anew where they do not.
"""

import contextlib
import dataclasses
import hashlib
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from runtime_lite.errors import EngineAbsent, show
from runtime_lite.executors.cuda import Device, probe
from runtime_lite.executors.tensorrt import TensorrtExecutor
from runtime_lite.executors.tensorrt_engine import HostCode, OpenedEngine, import_tensorrt
from runtime_lite.format.atomic_file import replace_file
from runtime_lite.format.reader import Bundle

LEAST_DRIVER = (12, 9)
"""The oldest CUDA version that NVIDIA documents for TensorRT-RTX."""

NAME = "TensorRT-RTX"


class TensorrtRtxExecutor(TensorrtExecutor):
    """Engines of one graph, by bucket.

    Args:
        bundle: an open bundle.
        name: graph name in it.

    Raises:
        EngineAbsent: this machine has no driver, an older one, or a device that the engines are not for.
    """

    def __init__(self, bundle: Bundle, name: str) -> None:
        """Ask for the device; no engine is opened yet."""
        self._kernels: dict[Path, Any] = {}
        super().__init__(bundle, name)

    def _accept(self, allow_host_code: bool) -> HostCode:
        self._device = probe()
        self._require_device(self._device)
        return HostCode.RTX

    def _require_device(self, device: Device) -> None:
        """Refuse a device or a driver that the engines are not for.

        Raises:
            EngineAbsent: names both.
        """
        wanted = self._engine.built_with.get("compute capabilities", "")
        if device.capability not in wanted.split(", "):
            raise EngineAbsent(
                f"{self._where}: expected a device of compute capability {show(wanted)}, which its engines were built "
                f"for, got {device.name} of {device.capability}; build the bundle again with that among the target's "
                "compute_capabilities"
            )
        if _number(device.driver) < LEAST_DRIVER:
            least = ".".join(map(str, LEAST_DRIVER))
            raise EngineAbsent(
                f"{self._where}: expected a driver for CUDA {least} or later, got one for {device.driver}; install a "
                "newer NVIDIA driver"
            )

    def _library(self) -> ModuleType:
        """The installed library, of the version that built the engines.

        Raises:
            EngineAbsent: there is none, or it is of another version.
        """
        library = import_tensorrt(HostCode.RTX)
        built, here = self._engine.built_with.get("tensorrt_rtx", ""), str(library.__version__)
        if here != built:
            raise EngineAbsent(
                f"{self._where}: expected {NAME} {show(built)}, which built its engines, got {here}; install that "
                f"version, or build the bundle again"
            )
        return library

    def _with_kernels(self, opened: OpenedEngine, content: bytes) -> OpenedEngine:
        """The engine with the kernels that were compiled for it earlier, where the library takes them."""
        kernels = opened.engine.create_runtime_config().create_runtime_cache()
        opened.require(kernels is not None, "a cache of kernels", "none")
        file = kernel_file(content, self._device)
        if file.is_file():
            kernels.deserialize(file.read_bytes())  # False where they are of another machine: all are compiled anew
        self._kernels[file] = kernels
        return dataclasses.replace(opened, kernels=kernels)

    def close(self) -> None:
        """Keep the compiled kernels, and close all engines, then the device; a second call does nothing."""
        kept, self._kernels = self._kernels, {}
        if self._cuda is not None:
            with self._cuda.active(), contextlib.suppress(OSError):  # a full disk costs the next start its time
                for file, kernels in kept.items():
                    _keep(file, bytes(memoryview(kernels.serialize())))
        super().close()


def _keep(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(file) as written:
        written.write(content)


def kernel_file(engine: bytes, device: Device) -> Path:
    """Where the compiled kernels of an engine are kept on this machine.

    Args:
        engine: its content.
        device: what they are compiled for.
    """
    folder = Path(os.environ.get("SLIPWAY_CACHE") or Path(".cache") / "slipway")
    label = re.sub(r"[^A-Za-z0-9.]+", "-", f"{device.name}_{device.driver}")
    return folder / "kernels" / f"{hashlib.sha256(engine).hexdigest()[:32]}_{label}.cache"


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
