"""Builds one engine without a device, in a child process of `compiler.targets.toolchain` that may crash.

Reads `builder`, the file that ships as `build_engine.py`, `path`, where it finds modules, `library`, the package that
has the builder, and either nothing else, then it writes `version.txt`, or `bundle`, `plan` and `engine`, then it writes
`engine.plan` and `layers.txt`.
"""

import importlib
import importlib.util
import json
import os
import pathlib
import sys
from typing import Any

REFUSED, ABSENT = 3, 5


def main() -> int:
    """Run a request from standard input; return an exit code."""
    request, out = json.load(sys.stdin), pathlib.Path(sys.argv[1])
    sys.path[:] = request["path"]
    builder = _module(request["builder"])
    try:
        library = importlib.import_module(request["library"])
        builder.require_names(library, builder.BUILDER_NAMES)
    except (ImportError, OSError, builder.EngineAbsent) as error:
        return _ended(error, ABSENT)
    if "engine" not in request:
        (out / "version.txt").write_text(str(library.__version__), encoding="utf-8")
        return 0
    os.chdir(request["bundle"])  # messages name files as the bundle does
    try:
        built = builder.build_one(library, pathlib.Path(), request["plan"], request["engine"], None)
    except builder.BuildRefused as error:
        return _ended(error, REFUSED)
    (out / "engine.plan").write_bytes(built.content)
    (out / "layers.txt").write_text(built.layers, encoding="utf-8")
    return 0


def _ended(error: Exception, code: int) -> int:
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    return code


def _module(file: str) -> Any:
    """Return the builder as a module of its own, as importing its package would import every target."""
    spec = importlib.util.spec_from_file_location("builder", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["builder"] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
