"""The Open Inference Protocol with a client that others wrote, whose environment is made below a cache folder.

    python -m tests.runtime_lite.hosting.against_open_inference

Needs a network when it runs for the first time; ends in 1 if an answer is wrong.
"""

import contextlib
import importlib.metadata
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from runtime_lite import Runtime
from runtime_lite.format.arrays import npz_from_arrays
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import random_row, write_ragged_bundle
from tests.runtime_lite.hosting.own_environment import CACHE, AbsentError, environment

ROOT = Path(__file__).parents[3]
MADE_BY = "tests.runtime_lite.hosting.against_open_inference"
WANTED = (
    "tritonclient[http]==2.73.0",
    "starlette==1.10.0",
    "uvicorn==0.54.0",
    *(f"{name}=={importlib.metadata.version(name)}" for name in ("numpy", "onnxruntime")),
)

CLIENT = """
import json, sys
import numpy as np
import tritonclient.http as http

port, known = sys.argv[1], np.load(sys.argv[2])
client = http.InferenceServerClient(f"127.0.0.1:{port}", concurrency=4)

def inputs_of(row, as_bytes):
    found = []
    for name, kind in (("x", "FP32"), ("tokens", "INT64")):
        array = known[f"{row}.{name}"]
        found.append(http.InferInput(name, list(array.shape), kind))
        found[-1].set_data_from_numpy(array, binary_data=as_bytes)
    return found

sent = []
for row in range(20):
    for as_bytes in (True, False):
        outputs = [http.InferRequestedOutput(name, binary_data=as_bytes) for name in ("y", "mean")]
        inputs = inputs_of(row, as_bytes)
        call = client.async_infer("tiny", inputs, outputs=outputs, request_id=f"{row}", timeout=60_000_000)
        sent.append((row, call))
right = 0
for row, call in sent:
    result = call.get_result()
    right += all(np.allclose(result.as_numpy(n), known[f"{row}.{n}"], rtol=1e-6, atol=2e-6) for n in ("y", "mean"))
refused = 0
wrong = inputs_of(0, True)
wrong[0].set_shape([1, 1, 2])
for model, inputs, timeout in (("other", inputs_of(0, True), 0), ("tiny", inputs_of(0, True)[:1], 0),
                               ("tiny", wrong, 0), ("tiny", inputs_of(0, True), -5)):
    try:
        client.infer(model, inputs, timeout=timeout)
    except http.InferenceServerException:
        refused += 1
about = client.get_model_metadata("tiny")
print(json.dumps({"answered": len(sent), "right": right, "refused": refused, "live": client.is_server_live(),
                  "ready": client.is_server_ready() and client.is_model_ready("tiny"),
                  "inputs": [tensor["name"] for tensor in about["inputs"]]}))
"""


def client_says(python: Path, bundle: Path, scratch: Path) -> dict[str, Any]:
    """Serve a bundle by the command and return what the client found; the server has ended then."""
    feeds = [random_row(length, seed) for seed in range(5) for length in (3, 4, 6, 8)]
    with Runtime() as runtime:
        model = runtime.load(bundle)
        answers = [model.run(feed) for feed in feeds]
    known = scratch / "known.npz"
    pairs = enumerate(zip(feeds, answers, strict=True))
    arrays = {f"{row}.{name}": array for row, both in pairs for part in both for name, array in part.items()}
    known.write_bytes(npz_from_arrays(arrays))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
    surroundings = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [str(python), "-m", "runtime_lite", "open-inference", str(bundle), "--port", port]
    server = subprocess.Popen(command, env=surroundings)
    try:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and server.poll() is None:
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=1.0).close()
                break
            time.sleep(0.1)
        done = subprocess.run([str(python), "-c", CLIENT, port, str(known)], capture_output=True, text=True)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(PATIENCE_S)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def main() -> int:
    """Make the environment if there is none, and let the client ask."""
    try:
        python = environment(CACHE / "open_inference", WANTED, None)
    except AbsentError as error:
        print(f"skipped: {error}")
        return 5
    with tempfile.TemporaryDirectory() as scratch:
        said = client_says(python, write_ragged_bundle(Path(scratch, "bundle")), Path(scratch))
    print(json.dumps(said))
    return 0 if said["right"] == said["answered"] and said["refused"] == 4 else 1


if __name__ == "__main__":
    sys.exit(main())
