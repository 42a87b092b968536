"""The vendor's own Python bindings, imported without the libraries behind them.

`tensorrt.so` asks the loader for nine functions of three libraries. A placeholder of each library, one function that
returns 0 under nine names, lets the unmodified file load: all classes, enums and signatures are the genuine ones, and
nothing can be built or run. One version per process, because a loaded library stays.
"""

import ctypes
import importlib
import re
import sys
from pathlib import Path
from typing import Any

from tests.kit.placeholder import RETURN_0, shared_library

VERSIONS = ("10.9.0.34", "10.16.1.11", "11.4.0.106")

NEEDED = (
    "createInferBuilder_INTERNAL",
    "createInferRuntime_INTERNAL",
    "createInferRefitter_INTERNAL",
    "createNvOnnxParser_INTERNAL",
    "createNvOnnxParserRefitter_INTERNAL",
    "getBuilderPluginRegistry",
    "getPluginRegistry",
    "getNvOnnxParserVersion",
    "initLibNvInferPlugins",
)


def needed_libraries(binary: Path) -> list[str]:
    """The vendor's libraries that a file asks for."""
    found = re.findall(rb"lib(?:nvinfer|nvonnxparser)[A-Za-z_]*\.so\.\d+", binary.read_bytes())
    return sorted({name.decode() for name in found})


def import_genuine(wheel: Path, scratch: Path) -> Any:
    """Import the bindings of an unpacked wheel into this process.

    Args:
        wheel: the folder of the unpacked wheel.
        scratch: where placeholders go.
    """
    for soname in needed_libraries(wheel / "tensorrt_bindings" / "tensorrt.so"):
        path = scratch / soname
        path.write_bytes(shared_library(soname, dict.fromkeys(NEEDED, RETURN_0)))
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    sys.path.insert(0, str(wheel))
    return importlib.import_module("tensorrt_bindings")
