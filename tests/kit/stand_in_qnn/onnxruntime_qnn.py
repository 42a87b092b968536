"""Stands for Qualcomm's provider, in an environment of its own: ONNX Runtime computes, results are in half precision.

Importing it changes ONNX Runtime for the process. `STAND_IN_QNN` says what is wrong with it: `wrong` numbers, a `leak`
of what is hidden, a `crash` of the compiler, `no devices`. Like the provider it names the nodes that it leaves to the
CPU in its log, and writes a context as an ONNX file.
"""

import os
import signal
import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime

__version__ = "2.7.0"

FAULT = os.environ.get("STAND_IN_QNN", "")

LEFT_TO_CPU = frozenset({"Erf", "If"})

CONTEXT, SOC = "stand_in.context", "stand_in.soc"


class Device:
    """The one device, a processor in the place of the NPU."""

    ep_name = "QNNExecutionProvider"

    class device:  # noqa: N801 - as the library has it
        """What the provider says of it."""

        type = "OrtHardwareDeviceType.CPU"


def get_library_path() -> str:
    """Return where the provider would be."""
    return "libonnxruntime_providers_qnn.so"


def get_qnn_htp_path() -> str:
    """Return where the HTP's library would be."""
    return "libQnnHtp.so"


_session = onnxruntime.InferenceSession


class Session:
    """A context that was opened."""

    def __init__(self, content: bytes) -> None:
        model = onnx.load_from_string(content)
        if not any(each.key == CONTEXT for each in model.metadata_props):
            raise RuntimeError("[ONNXRuntimeError] : 1 : FAIL : not a context")
        self._inner = _session(content, providers=["CPUExecutionProvider"])
        self.get_inputs, self.get_outputs = self._inner.get_inputs, self._inner.get_outputs

    def run(self, names: list[str], feed: dict[str, Any]) -> list[Any]:
        """Compute, and round."""
        found = self._inner.run(names, feed)
        rounded = [each.astype(np.float16).astype(each.dtype) if each.dtype.kind == "f" else each for each in found]
        if FAULT == "wrong":
            rounded = [each + 1 for each in rounded]
        if FAULT == "leak" and any(np.isnan(each).any() for each in feed.values() if each.dtype.kind == "f"):
            rounded = [np.full_like(each, np.nan) if each.dtype.kind == "f" else each for each in rounded]
        return rounded


def open_session(source: Any, options: Any) -> Session | None:
    """Compile a graph file, where a context is asked for, or open one."""
    if not _asked(options):
        return Session(source)
    if FAULT == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    model = onnx.load(source)
    left = [node for node in model.graph.node if node.op_type in LEFT_TO_CPU]
    if left:
        named = "".join(f"{{ name: {node.name}, type: {node.op_type} }}" for node in left)
        log = f"[E:onnxruntime:, qnn_execution_provider.cc:1 GetCapabilityImpl] Unsupported nodes in QNN EP: {named}\n"
        os.write(sys.stderr.fileno(), log.encode())
        raise RuntimeError("[ONNXRuntimeError] : 1 : FAIL : fallback to CPU EP has been explicitly disabled")
    model.metadata_props.add(key=CONTEXT, value=options.get_session_config_entry(SOC))
    onnx.save(model, options.get_session_config_entry("ep.context_file_path"))
    return None


def _asked(options: Any) -> bool:
    try:
        return str(options.get_session_config_entry("ep.context_enable")) == "1"
    except RuntimeError:
        return False


def _add_provider(options: Any, devices: list[Any], told: dict[str, str]) -> None:
    assert devices and told["backend_path"] == get_qnn_htp_path()
    assert options.get_session_config_entry("session.disable_cpu_ep_fallback") == "1"
    options.add_session_config_entry(SOC, told["soc_model"])


onnxruntime.register_execution_provider_library = lambda name, path: None
onnxruntime.get_ep_devices = lambda: [] if FAULT == "no devices" else [Device]
onnxruntime.SessionOptions.add_provider_for_devices = _add_provider
onnxruntime.InferenceSession = open_session
