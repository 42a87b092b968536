"""The rows of `rows.py` through a real Triton server, whose environment is made below a cache folder.

    python -m tests.runtime_lite.hosting.against_triton

Needs a network when it runs for the first time, and glibc 2.35; ends in 1 if a row fails, in 5 if there is no server.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.serving.triton_server import Absent, serving
from runtime_lite.hosting.triton_repository import write_repository
from tests.runtime_lite.hosting import real_triton
from tests.runtime_lite.hosting.rows import PATIENCE_S
from tests.runtime_lite.hosting.test_rows import write_bundles

ROOT = Path(__file__).parents[3]


def main() -> int:
    """Start a server with the models of the rows and let its client drive them."""
    parser = argparse.ArgumentParser(description="Host parity on a real Triton server.")
    parser.add_argument("--cache", type=Path, default=Path(".cache"), help="where the environment is kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        bundles, repository = write_bundles(Path(scratch, "bundles")), Path(scratch, "models")
        models = write_repository(bundles.first, repository, name="tiny1", workers=2, idle_s=PATIENCE_S)
        names = [model.name for model in models]
        explicit = ["--model-control-mode=explicit", *(f"--load-model={name}" for name in names)]
        try:
            with serving(options.cache, repository, names[-1], *explicit) as server:
                given = [server.grpc, server.process.pid, repository, bundles.first, bundles.second, bundles.broken]
                command = [server.python, "-m", real_triton.__name__, *given]
                return subprocess.run([str(word) for word in command], cwd=ROOT).returncode
        except Absent as error:
            print(f"skipped: {error}")
            return 5


if __name__ == "__main__":
    sys.exit(main())
