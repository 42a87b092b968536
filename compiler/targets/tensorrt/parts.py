"""Checks whether this machine has the driver and packages that build and run TensorRT engines."""

import dataclasses
import importlib.util
from collections.abc import Callable

from compiler.errors import SlipwayError
from compiler.targets.base import Part
from compiler.targets.tensorrt import builder, trial
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors import cuda
from runtime_lite.executors.cuda import Device

INSTALL_ENGINES = "pip install cuda-python==12.9.10 tensorrt-cu12==10.16.1.11"
"""As pyproject.toml pins them: CUDA bindings and TensorRT for drivers from r535 on."""

INSTALL_TRIAL = "pip install " + trial.REQUIREMENT
"""As pyproject.toml pins it, the builder of TensorRT-RTX, which needs no device and no driver."""

BINDINGS = {"cuda.bindings.runtime": "cuda-python", "pycuda.driver": "pycuda"}
"""Distribution by the module that we import of it."""


def has_module(name: str) -> bool:
    """Whether a module can be imported; a folder of that name without code, as other packages leave, does not count."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def engine_parts(
    ask_driver: Callable[[], Device], ask_builder: Callable[[], str], find: Callable[[str], object] = has_module
) -> tuple[Part, ...]:
    """Return the parts that engines need, in the order of need.

    Args:
        ask_driver: returns the CUDA device; raises EngineAbsent.
        ask_builder: starts a builder and returns its version; raises EngineAbsent.
        find: returns whether a module is installed.
    """
    driver = _driver(ask_driver)
    memory = _bindings(find)
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


def _driver(ask: Callable[[], Device]) -> Part:
    try:
        device = ask()
    except EngineAbsent as error:
        return Part("driver", _reason(error), "install the NVIDIA driver, r535 or later")
    return Part("driver", f"{device.name}, compute capability {device.capability}")


def _bindings(find: Callable[[str], object]) -> Part:
    """Return the bindings that allocate device memory, as a part."""
    found = [name for module, name in BINDINGS.items() if find(module)]
    if found:
        return Part("CUDA bindings", ", ".join(found))
    return Part("CUDA bindings", "neither cuda-python nor pycuda", INSTALL_ENGINES)


def trial_part(
    ask: Callable[[], str] = trial.builder_version, find: Callable[[str], object] = has_module, *, is_needed: bool
) -> Part:
    """Return the builder that needs no device, as a part; it is started.

    Args:
        ask: starts it and returns its version; raises SlipwayError.
        find: returns whether a module is installed.
        is_needed: whether engines cannot be built without it.
    """
    name = f"{trial.NAME} builder"
    if not find(trial.PACKAGE):
        return Part(name, f"no package {trial.PACKAGE}", INSTALL_TRIAL, is_needed)
    try:
        version = ask()
    except SlipwayError as error:
        return Part(name, error.message, INSTALL_TRIAL, is_needed)
    if version != trial.VERSION:
        return Part(name, f"expected version {trial.VERSION}, got {version}", INSTALL_TRIAL, is_needed)
    return Part(name, version, "", is_needed)


def parts_here() -> tuple[Part, ...]:
    """Return the parts found on this machine."""
    return (*engine_parts(cuda.probe, builder.probe_builder), trial_part(is_needed=False))


def _reason(error: EngineAbsent) -> str:
    return str(error).split("; ")[0]


def rtx_parts() -> tuple[Part, ...]:
    """Return the parts that engines of TensorRT-RTX need to be built, and to be run, on this machine."""
    to_run = (_driver(cuda.probe), _bindings(has_module))
    return (trial_part(is_needed=True), *(dataclasses.replace(part, is_needed=False) for part in to_run))
