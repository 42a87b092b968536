"""The request of a build becomes the command line of the script that ships."""

import json
import subprocess
import sys
from pathlib import Path

from compiler.targets.tensorrt import compile_engines


def test_the_builder_gets_its_arguments_and_our_modules(tmp_path: Path) -> None:
    builder = tmp_path / "builder.py"
    builder.write_text("import json, sys\nprint(json.dumps([__name__, sys.argv, sys.path]))\n")
    request = {"builder": str(builder), "path": [*sys.path, "/b"], "bundle": "the bundle", "timing-cache": "caches"}
    done = subprocess.run(
        [sys.executable, compile_engines.__file__, "out"], input=json.dumps(request), capture_output=True, text=True
    )
    name, arguments, path = json.loads(done.stdout)
    assert name == "__main__"
    assert arguments == [str(builder), "--out", "out", "--bundle", "the bundle", "--timing-cache", "caches"]
    assert path == [*sys.path, "/b"]
