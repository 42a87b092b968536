"""The rows of `rows.py` through a real Triton server, whose environment is made below a cache folder.

    python -m tests.runtime_lite.hosting.against_triton

Needs a network when it runs for the first time, and glibc 2.35; ends in 1 if a row fails, in 5 if there is no server.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.serving.triton_server import Absent, Server, serving
from runtime_lite.hosting.triton_repository import write_repository
from tests.runtime_lite.bundles import random_chunks, truth_of_stream, write_streaming_bundle
from tests.runtime_lite.hosting import real_triton, real_triton_parts
from tests.runtime_lite.hosting.rows import PATIENCE_S
from tests.runtime_lite.hosting.test_rows import write_bundles
from tests.runtime_lite.voice_bundle import write_voice_bundle

ROOT = Path(__file__).parents[3]


def _ask(server: Server, module: str, *arguments: object) -> int:
    """Run a module with the server's client; return its exit code."""
    return subprocess.run([str(word) for word in (server.python, "-m", module, *arguments)], cwd=ROOT).returncode


def _recordings(file: Path) -> Path:
    """Write chunks of recordings, and what is right for each, float32 [10, 20, 1, 3, 2]."""
    chunks = [random_chunks(20, seed=seed) for seed in range(10)]
    right = [[output for output, _ in truth_of_stream(recording)] for recording in chunks]
    np.savez(file, chunks=np.stack(chunks), right=np.array(right, np.float32))
    return file


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
                failed = _ask(server, real_triton.__name__, *given)
            voice = write_voice_bundle(Path(scratch, "voice"))
            streaming = write_streaming_bundle(Path(scratch, "streaming"))
            recordings = _recordings(Path(scratch, "recordings.npz"))
            write_repository(voice, parts := Path(scratch, "parts"))
            write_repository(streaming, parts, recordings=True, workers=2)
            with serving(options.cache, parts, "tiny_recording") as server:
                return _ask(server, real_triton_parts.__name__, server.grpc, voice, recordings) or failed
        except Absent as error:
            print(f"skipped: {error}")
            return 5


if __name__ == "__main__":
    sys.exit(main())
