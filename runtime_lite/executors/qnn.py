"""Runs the compiled contexts of one graph of a bundle on Qualcomm's HTP, or in its simulator where there is no HTP.

A context is an ONNX file of one node, compiled for one SoC; it is opened at the first use of its bucket, from the bytes
whose hash was checked. The provider is a plug-in of ONNX Runtime. On a device it is installed beside this runtime;
elsewhere it lives in the environment of the vendor's toolchain, and a process there executes the contexts in the
simulator: the numbers of the device to the vendor's knowledge, at a time that says nothing of it.
"""

import functools
import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from runtime_lite.errors import FRONT_DOOR, BundleRefused, EngineAbsent, InternalError, show
from runtime_lite.executors.programs import ProgramExecutor
from runtime_lite.executors.toolchain_folder import interpreter_in, toolchains_folder
from runtime_lite.format.arrays import Array
from runtime_lite.format.checked_json import JsonValue, refuse
from runtime_lite.format.manifest import Artifact, Engine, bucket_name, static_shape
from runtime_lite.format.reader import Bundle

PACKAGE, PROVIDER = "onnxruntime_qnn", "QNNExecutionProvider"

TOOLCHAIN = "qnn"
"""Name of the environment that has the provider."""

TYPES = {"float16": "float16", "float32": "float", "float64": "double"}
"""Element types whose name in ONNX Runtime is another."""

MOST_SOCS = 2**16
"""No SoC has a larger number."""

FATAL = 4
"""Severity of the log: errors reach the caller as exceptions, once."""


def has_provider() -> bool:
    """Whether the provider is installed beside this runtime."""
    return importlib.util.find_spec(PACKAGE) is not None


def toolchain_python() -> Path:
    """Return the interpreter of the environment that has the provider, which may not exist."""
    return interpreter_in(toolchains_folder() / TOOLCHAIN)


def absent(where: str) -> EngineAbsent:
    """Return the error of a machine that has neither the provider nor the vendor's toolchain.

    Args:
        where: the bundle and the graph.
    """
    return EngineAbsent(
        f"{where}: expected the package onnxruntime-qnn of a device, or the vendor's simulator in "
        f"{toolchains_folder() / TOOLCHAIN}, got neither; install one: `{FRONT_DOOR} doctor --install {TOOLCHAIN}`"
    )


@functools.cache
def _provider() -> tuple[Any, str, tuple[Any, ...]]:
    """Load the provider once per process; return ONNX Runtime, the HTP library and the devices.

    Raises:
        EngineAbsent: it does not load.
    """
    try:
        onnxruntime, package = importlib.import_module("onnxruntime"), importlib.import_module(PACKAGE)
        onnxruntime.set_default_logger_severity(FATAL)
        onnxruntime.register_execution_provider_library(PROVIDER, package.get_library_path())
        devices = tuple(each for each in onnxruntime.get_ep_devices() if each.ep_name == PROVIDER)
    except (ImportError, OSError, RuntimeError) as error:
        raise EngineAbsent(f"expected the package onnxruntime-qnn, got {show(str(error))}; install it") from error
    if not devices:
        raise EngineAbsent("expected a device of the provider QNN, or its simulator, got none; use another machine")
    return onnxruntime, str(package.get_qnn_htp_path()), devices


class QnnExecutor(ProgramExecutor[Any]):
    """Contexts of one graph, by bucket, in this process.

    Args:
        bundle: an open bundle.
        name: graph name in it.
        threads: threads of a session, which computes nothing on the CPU itself.

    Attributes:
        simulates: whether the vendor's simulator computes: the provider reports a CPU where there is no HTP.

    Raises:
        EngineAbsent: the provider does not load.
        BundleRefused: the contexts are for another SoC than the bundle was built for.
    """

    def __init__(self, bundle: Bundle, name: str, threads: int) -> None:
        """Load the provider; no context is opened yet."""
        super().__init__(bundle, name, threads)
        self._inputs = [tensor.name for tensor in self._graph.inputs]
        self._outputs = [tensor.name for tensor in self._graph.outputs]
        self._onnxruntime, self._htp, self._devices = _provider()
        self._soc = soc_of(bundle, self._engine)
        self.simulates = all("CPU" in str(each.device.type) for each in self._devices)

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Run one bucket; runs follow each other.

        Args:
            sizes: bucket of every axis.
            inputs: every input of the graph, in exactly the bucket's static shape.
            outputs: what every output is written to, in the bucket's static shape.

        Raises:
            BundleRefused: the context is none, or its inputs and outputs are not what the manifest says.
            InternalError: the provider failed.
        """
        bucket = bucket_name(sizes)
        with self._lock:
            session = self._program(bucket)
            feed = {name: np.ascontiguousarray(inputs[name]) for name in self._inputs}
            try:
                found = session.run(self._outputs, feed)
            except Exception as error:  # the library has no error of its own
                raise InternalError(f"{self._where}: bucket {bucket}: {show(str(error))}") from error
        for name, array in zip(self._outputs, found, strict=True):
            np.copyto(outputs[name], array, casting="no")

    def _open(self, artifact: Artifact) -> Any:
        file = self._engine.files[artifact.file]
        where = f"{self._bundle.path}: {file}"
        options = self._onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.log_severity_level = FATAL
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        options.add_session_config_entry("session.load_model_format", "ONNX")
        told = {"backend_path": self._htp, "soc_model": self._soc, "offload_graph_io_quantization": "0"}
        options.add_provider_for_devices(list(self._devices), told)
        try:
            session = self._onnxruntime.InferenceSession(self._bundle.read_file(file), options)
        except BundleRefused:
            raise
        except Exception as error:
            raise BundleRefused(
                f"{where}: expected a context of Qualcomm's HTP, got {show(str(error))}; build it again, with the "
                "version that is installed here"
            ) from error
        self._check_signature(where, session, artifact)
        return session

    def _check_signature(self, where: str, session: Any, artifact: Artifact) -> None:
        for side, found, expected in (
            ("inputs", session.get_inputs(), self._graph.inputs),
            ("outputs", session.get_outputs(), self._graph.outputs),
        ):
            wanted = {
                each.name: (f"tensor({TYPES.get(each.dtype, each.dtype)})", static_shape(each.shape, artifact.sizes))
                for each in expected
            }
            got = {each.name: (each.type, tuple(each.shape)) for each in found}
            if got != wanted:
                name = next(name for name in sorted({*got, *wanted}) if got.get(name) != wanted.get(name))
                refuse(where, f"{side} as the manifest lists {name!r} ({show(wanted.get(name))})", show(got.get(name)))


def soc_of(bundle: Bundle, engine: Engine) -> str:
    """Return the number of the SoC that a graph's contexts are for.

    Args:
        bundle: an open bundle.
        engine: engine of the graph.

    Raises:
        BundleRefused: plan and contexts disagree.
    """
    number = JsonValue.parse(bundle.read_file(engine.plan), engine.plan).key("soc").key("number").integer(1, MOST_SOCS)
    built = engine.built_with.get("soc", "")
    if built != str(number):
        raise BundleRefused(
            f"{bundle.path}: {engine.plan}: expected contexts for SoC {number}, got those for {show(built)}; build the "
            "bundle again"
        )
    return built
