"""A real Triton server: the binary of the nvidia-pytriton wheel, with its Python backend, in an environment of its own.

The environment is made once, below a cache folder, and needs a network then. For comparison there is a model that
echoes four numbers, with dynamic batching up to 64 rows.
"""

import contextlib
import importlib.metadata
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

from benchmarks.serving.triton_client import MODEL, WIDTH

WHEEL = "nvidia-pytriton==0.7.0"
BESIDE = ("numpy<2", "tritonclient[grpc]==2.73.0", f"onnxruntime=={importlib.metadata.version('onnxruntime')}")
"""numpy 2 in the environment of the Python backend gives other bytes without a word. ONNX Runtime is for models that
embed `runtime_lite`."""

START_S = 60.0

CONFIG = f"""
backend: "python"
max_batch_size: 64
input [{{ name: "x" data_type: TYPE_FP32 dims: [{WIDTH}] }}]
output [{{ name: "y" data_type: TYPE_FP32 dims: [{WIDTH}] }}]
instance_group [{{ kind: KIND_CPU count: 1 }}]
dynamic_batching {{}}
"""

ECHO = """
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        arrays = (utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests)
        return [utils.InferenceResponse([utils.Tensor("y", array)]) for array in arrays]
"""


class Absent(Exception):
    """There is no such server on this machine; the message has the reason."""


def environment(cache: Path) -> Path:
    """Return the interpreter of the environment with server and client, which is created if it does not exist.

    Raises:
        Absent: the wheel cannot be installed on this machine.
    """
    folder = cache / "triton"
    python = folder / "bin" / "python"
    complete, wanted = folder / "complete", "\n".join((WHEEL, *BESIDE))
    if complete.is_file() and complete.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [*install, "--no-deps", WHEEL],
        [*install, *BESIDE],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            raise Absent(f"{WHEEL} could not be installed: {last}")
    complete.write_text(wanted)
    return python


class Server(NamedTuple):
    """A running server.

    Attributes:
        process: its process.
        python: interpreter of its environment, which has a client, too.
        grpc: port on this machine.
    """

    process: "subprocess.Popen[bytes]"
    python: Path
    grpc: int


@contextlib.contextmanager
def serving(cache: Path, models: Path, name: str, *options: str) -> Iterator[Server]:
    """Yield a server of a folder of models; it ends with the block.

    Args:
        cache: folder of its environment.
        models: a model repository.
        name: a model in it to wait for.
        options: further options of the server.

    Raises:
        Absent: it cannot be had, or does not start.
    """
    python = environment(cache.absolute())
    packages = next((python.parents[1] / "lib").glob("python3.*/site-packages"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _copy_backend(folder / "backends" / "python", packages)
        http, grpc = _free_port(), _free_port()
        libraries = (sysconfig.get_config_var("LIBDIR"), str(packages / "nvidia_pytriton.libs"))
        surroundings = os.environ | {
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            "LD_LIBRARY_PATH": os.pathsep.join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")]),
        }
        command = [str(packages / "pytriton/tritonserver/bin/tritonserver"), f"--model-repository={models}"]
        command += [f"--backend-directory={folder / 'backends'}", "--allow-metrics=false", "--log-verbose=0"]
        command += ["--http-address=127.0.0.1", f"--http-port={http}"]
        command += ["--grpc-address=127.0.0.1", f"--grpc-port={grpc}", *options]
        with open(folder / "log", "wb") as log:
            server = subprocess.Popen(command, env=surroundings, stdout=log, stderr=log)
        try:
            _wait_until_ready(server, http, name, folder / "log")
            yield Server(server, python, grpc)
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(10.0)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


@contextlib.contextmanager
def triton(cache: Path) -> Iterator["TritonClient"]:
    """Yield a client in another process of a server with the echo model; both end with the block.

    Raises:
        Absent: it cannot be had, or does not start.
    """
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch, MODEL)
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(CONFIG)
        (model / "1" / "model.py").write_text(ECHO)
        with serving(cache, Path(scratch), MODEL) as server, TritonClient(server.python, server.grpc) as client:
            yield client


def _copy_backend(folder: Path, packages: Path) -> None:
    """Copy the Python backend, with the stub of this Python beside it."""
    home = packages / "pytriton/tritonserver"
    shutil.copytree(home / "backends/python", folder, ignore=shutil.ignore_patterns("__pycache__"))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy2(home / "python_backend_stubs" / version / "triton_python_backend_stub", folder)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


def _wait_until_ready(server: "subprocess.Popen[bytes]", port: int, name: str, log: Path) -> None:
    end = monotonic() + START_S
    while monotonic() < end and server.poll() is None:
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/{name}/ready", timeout=1.0).close()
            return
        sleep(0.1)
    last = (log.read_text(errors="replace").strip().splitlines() or ["no word"])[-1]
    raise Absent(f"the server did not start: {last}")


class TritonClient:
    """The client in its own process."""

    def __init__(self, python: Path, port: int) -> None:
        """Start the process and wait for its first answer."""
        command = [str(python), str(Path(__file__).with_name("triton_client.py")), str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._answer() == "ready"

    def round_trips_us(self, count: int) -> list[float]:
        """Return the microseconds of consecutive requests."""
        times: list[float] = self._ask("trip", count)
        return times

    def requests_per_s(self, in_flight: int, count: int) -> float:
        """Return the requests per second with `in_flight` requests at a time."""
        return float(self._ask("flight", in_flight, count))

    def _ask(self, *words: object) -> Any:
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Absent("the client ended without an answer")
        return json.loads(line)

    def __enter__(self) -> "TritonClient":
        """Return the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._process.communicate()
