"""Streams on a real Ray Serve, whose environment is made below a cache folder.

    python -m tests.runtime_lite.hosting.against_ray

Needs a network when it runs for the first time; prints what came of every event, and ends in 1 if a promise is broken.
"""

import argparse
import importlib.metadata
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from runtime_lite import Runtime
from runtime_lite.hosting.ray_application import write_application
from runtime_lite.hosting.ray_replica import RayOptions
from tests.runtime_lite.bundles import random_chunks, write_streaming_bundle
from tests.runtime_lite.hosting.own_environment import CACHE, AbsentError, environment

ROOT = Path(__file__).parents[3]
MADE_BY = "tests.runtime_lite.hosting.against_ray"
WANTED = ("ray[serve]==2.60.0", *(f"{name}=={importlib.metadata.version(name)}" for name in ("numpy", "onnxruntime")))

STREAMS, CHUNKS = 24, 40
"""Streams of an application, and chunks of each whose answers are known."""

OPTIONS = RayOptions(
    max_streams=26, idle_s=600.0, answer_s=3.0, min_replicas=2, max_replicas=3, leave_after_s=5.0, cpus=0.2
)
"""24 streams fit one replica, so that all of them go on when the other is killed; 40 are too many for two of them."""

SNAPSHOT_EVERY = 3


def measured(python: Path, scratch: Path, who: str, snapshot_every: int = 0) -> dict[str, Any]:
    """Run the events of `real_ray.py` in Ray's environment and return what came of them."""
    bundle = write_streaming_bundle(scratch / f"bundle {who} {snapshot_every}")
    chunks = np.stack([random_chunks(CHUNKS, seed=seed) for seed in range(STREAMS)])
    with Runtime() as runtime:
        model = runtime.load(bundle)
        truth = np.stack(
            [[stream.push({"x": chunk})["y"] for chunk in own] for own in chunks for stream in [model.open_stream()]]
        )
    known = scratch / "known.npz"
    np.savez(known, chunks=chunks, truth=truth)
    options = RayOptions(**{**vars(OPTIONS), "snapshot_every": snapshot_every})
    folder = write_application(bundle, scratch / f"application {who} {snapshot_every}", options)
    out = scratch / f"{who}{snapshot_every}.json"
    command = [python, "-m", "tests.runtime_lite.hosting.real_ray", folder, known, out, who]
    subprocess.run([str(word) for word in command], cwd=ROOT, check=True, timeout=900)
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def main() -> int:
    """Run the events on our application with and without snapshots, on Ray's router, and without us."""
    parser = argparse.ArgumentParser(description="Streams on a real Ray Serve.")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the environment is kept")
    options = parser.parse_args()
    try:
        python = environment(options.cache.absolute() / "ray", WANTED, None)
    except AbsentError as error:
        print(f"skipped: {error}")
        return 5
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for who, every in (("ours", SNAPSHOT_EVERY), ("ours", 0), ("rule", 0), ("naive", 0)):
            found = measured(python, Path(scratch), who, every)
            print(json.dumps({"who": who, "snapshot_every": every, **found}, indent=1), flush=True)
            wrong += found["counts"]["wrong"] if who != "naive" else 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
