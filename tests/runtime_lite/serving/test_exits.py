"""A process that ends with work in flight ends well: runs come back before the interpreter goes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import write_streaming_bundle

ROOT = Path(__file__).parents[3]

BEGIN = """
import sys, threading, time
from runtime_lite import BULK, Dropped, Overloaded, Runtime
from tests.runtime_lite.bundles import random_chunks
chunk = {"x": random_chunks(1)[0]}
runtime = Runtime(workers=2)
model = runtime.load(sys.argv[1])
"""

QUEUED = """
tickets = [model.submit(chunk, service=BULK) for _ in range(500)]
streams = [model.open_stream(idle_s=60) for _ in range(8)]
tickets += [stream.submit(chunk, deadline_ms=1e4) for stream in streams for _ in range(8)]
print("end")
sys.exit(3)
"""

CALLERS = """
def call():
    while True:
        try:
            model.run(chunk)
        except (Dropped, Overloaded):
            return

for _ in range(4):
    threading.Thread(target=call, daemon=True).start()
time.sleep(0.05)
print("end")
"""

LOADING = """
from runtime_lite.executors.executor import make_executor

def executors(bundle, name, threads):
    running.set()
    while True:
        try:
            runtime.load(sys.argv[1]).close()
        except Overloaded as error:
            print(error.reason, flush=True)
            return make_executor(bundle, name, threads)

running = threading.Event()
threading.Thread(target=lambda: runtime.load(sys.argv[1], executors=executors, warm_up=True), daemon=True).start()
running.wait()
print("end", flush=True)
"""

SCRIPTS = {
    "queued": (QUEUED, 3, ["end"]),
    "callers": (CALLERS, 0, ["end"]),
    "loading": (LOADING, 0, ["end", "the process ends"]),
}


@pytest.mark.parametrize(("script", "code", "lines"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_that_closes_nothing_ends_with_its_own_exit_code(
    script: str, code: int, lines: list[str], tmp_path: Path
) -> None:
    bundle = write_streaming_bundle(tmp_path / "bundle")
    command = [sys.executable, "-c", BEGIN + script, str(bundle)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (code, lines, "")
