"""Builds the engines of a bundle in a child process of `compiler.targets.toolchain`, which the library may end.

Reads `builder`, the file that ships as `build_engine.py`, `path`, where it finds modules, and its arguments.
"""

import json
import runpy
import sys


def main() -> None:
    """Run the builder with the output folder given to this script."""
    request = json.load(sys.stdin)
    out = sys.argv[1]
    sys.path[:] = request["path"]
    sys.argv[:] = [request["builder"], "--out", out]
    for option in ("bundle", "timing-cache"):
        sys.argv += [f"--{option}", request[option]]
    runpy.run_path(request["builder"], run_name="__main__")


if __name__ == "__main__":
    main()
