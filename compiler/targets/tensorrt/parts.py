"""What TensorRT needs on the machine that builds and runs its engines."""

import importlib.util
from collections.abc import Callable

from compiler.targets.base import Part
from compiler.targets.tensorrt import builder
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors import cuda
from runtime_lite.executors.cuda import Device

INSTALL_ENGINES = "pip install cuda-python==12.9.10 tensorrt-cu12==10.16.1.11"
"""As pyproject.toml pins them: CUDA bindings and TensorRT for drivers from r535 on."""

BINDINGS = {"cuda.bindings.runtime": "cuda-python", "pycuda.driver": "pycuda"}
"""Distribution by the module that we import of it."""


def has_module(name: str) -> bool:
    """Whether a module can be imported; a folder of that name without code, as other packages leave, is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def engine_parts(
    ask_driver: Callable[[], Device], ask_builder: Callable[[], str], find: Callable[[str], object] = has_module
) -> tuple[Part, ...]:
    """What engines need, in the order in which it is needed.

    Args:
        ask_driver: the CUDA device; raises EngineAbsent.
        ask_builder: starts a builder, its version; raises EngineAbsent.
        find: whether a module is installed.
    """
    try:
        device = ask_driver()
        driver = Part("driver", f"{device.name}, compute capability {device.capability}")
    except EngineAbsent as error:
        driver = Part("driver", _reason(error), "install the NVIDIA driver, r535 or later")
    bindings = [name for module, name in BINDINGS.items() if find(module)]
    memory = (
        Part("CUDA bindings", ", ".join(bindings))
        if bindings
        else Part("CUDA bindings", "neither cuda-python nor pycuda", INSTALL_ENGINES)
    )
    is_installed = bool(find("tensorrt"))
    names = (
        Part("TensorRT bindings", "installed")
        if is_installed
        else Part("TensorRT bindings", "no package tensorrt", INSTALL_ENGINES)
    )
    what = "TensorRT builder and runtime"
    if driver.cure or not is_installed:
        lacking = driver if driver.cure else names
        libraries = Part(what, f"not tried without {lacking.name}", lacking.cure)
    else:
        try:
            libraries = Part(what, f"{ask_builder()}, both start")
        except EngineAbsent as error:
            libraries = Part(what, _reason(error), "install the version that fits the driver")
    return driver, memory, names, libraries


def parts_here() -> tuple[Part, ...]:
    """The parts on this machine."""
    return engine_parts(cuda.probe, builder.probe_builder)


def _reason(error: EngineAbsent) -> str:
    return str(error).split("; ")[0]
