"""Checks whether OpenVINO is installed and starts on this machine, and in which types the processor computes."""

from collections.abc import Callable
from typing import Any

from compiler.targets.base import Part
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors.openvino_graph import import_openvino

INSTALL = "pip install --no-deps openvino==2026.4.1"
"""As pyproject.toml pins it; NumPy, which it needs, is here."""


def parts_of(find: Callable[[], Any] = import_openvino) -> tuple[Part, ...]:
    """Return the library as a part, started, with its version and the types that the processor computes in.

    Args:
        find: returns the package; raises EngineAbsent.
    """
    try:
        package = find()
        core = package.Core()
        types = sorted(set(core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")) & {"BF16", "FP16", "FP32", "INT8"})
    except (EngineAbsent, RuntimeError) as error:
        return (Part("OpenVINO", str(error).partition("; ")[0].strip(), INSTALL),)
    version = str(package.__version__).partition("-")[0]
    return (Part("OpenVINO", f"{version}, {core.get_property('CPU', 'FULL_DEVICE_NAME')}: {' '.join(types)}"),)
