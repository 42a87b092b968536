"""runtime_lite needs numpy and onnxruntime, and nothing else of this project or of the compiler's dependencies."""

import subprocess
import sys
from pathlib import Path

from tests.runtime_lite.bundles import write_streaming_bundle

PROGRAM = """
import importlib, pkgutil, sys

REFUSED = "build compiler examples onnx onnx_ir onnxscript pydantic rich safetensors sympy tests torch yaml".split()

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ImportError(f"runtime_lite reached for {name}")

sys.meta_path.insert(0, Refuse())
import runtime_lite
from runtime_lite.bench import feed_arrays
for module in pkgutil.iter_modules(runtime_lite.__path__):
    importlib.import_module(f"runtime_lite.{module.name}")
assert all(hasattr(runtime_lite, name) for name in runtime_lite.__all__)
with runtime_lite.Runtime() as runtime:
    model = runtime.load(sys.argv[1], warm_up=True)
    before = set(sys.modules)
    for name in model.bundle.manifest.graphs:
        graph = model.runner(name).graph
        model.run(feed_arrays(graph, graph.artifacts[0].sizes), name)
    print(model.bundle.manifest.name, *sorted(set(sys.modules) - before))
"""


def test_runtime_lite_works_without_the_compiler_and_a_first_request_imports_nothing(tmp_path: Path) -> None:
    directory = write_streaming_bundle(tmp_path / "bundle")
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(directory)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "tiny\n"), done.stderr
