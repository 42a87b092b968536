"""`python -m tests.rtx.in_child BUNDLE`: the runtime on a bundle of engines, on what the genuine bindings allow.

Names, signatures and enumerations are those of TensorRT-RTX; what calls do is a double's, as there is no device. Prints
what was called, and whether the recorded outputs came back. It opens the bundle twice: kernels are kept for the second.
"""

import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any
from unittest import mock

from runtime_lite import Runtime
from runtime_lite.executors.cuda import Device
from runtime_lite.verify import verify_model
from tests.contract_tensorrt.doubles import Checked
from tests.kit import vendor


def main(bundle: Path) -> dict[str, Any]:
    """Open the engines and compare what they give."""
    genuine = importlib.import_module("tensorrt_rtx")
    checked = Checked(genuine)
    checked.library.__spec__ = genuine.__spec__
    bindings = types.ModuleType("cuda.bindings")
    vars(bindings).update(runtime=vendor.CudaRuntime(), utils=types.SimpleNamespace(get_cuda_native_handle=int))
    found = {"tensorrt_rtx": checked.library, "cuda": types.ModuleType("cuda"), "cuda.bindings": bindings}
    device = Device("RTX 4060", "8.9", "13.0")
    with (
        mock.patch.dict(sys.modules, found),
        mock.patch("runtime_lite.executors.tensorrt_rtx.probe", return_value=device),
        mock.patch("runtime_lite.executors.tensorrt.try_engine", return_value=None),
    ):
        held = [*_held(bundle), *_held(bundle)]
    return {"held": held, "calls": sorted(set(checked.calls))}


def _held(bundle: Path) -> list[bool]:
    with Runtime() as runtime:
        return [comparison.holds for comparison in verify_model(runtime.load(bundle))]


if __name__ == "__main__":
    print(f"\n{json.dumps(main(Path(sys.argv[1])))}")
