"""Captions in a real browser: a recording as its microphone, the text on the page, a lost connection, many pages.

    python -m tests.examples.captions.against_browser --pictures docs

Needs `chromium` from the system's packages, and a network when it runs for the first time. With `--pictures` it writes
the page at three moments into a folder. Ends in 1 if the page does not show what was spoken, in 5 without a browser.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import soundfile

from examples.streaming_asr.data import DEMO_FOLDER, read_manifest
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.hosting.own_environment import CACHE, AbsentError, environment

ROOT = Path(__file__).parents[3]
MADE_BY = "tests.examples.captions.against_browser"
WANTED = (
    "playwright==1.65.2",
    "starlette==1.10.0",
    "uvicorn==0.54.0",
    "websockets==17.4",
    *(
        f"{name}=={importlib.metadata.version(name)}"
        for name in ("numpy", "onnxruntime", "kaldi-native-fbank", "soundfile", "soxr", "rich")
    ),
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
RECORDING = "short.flac"

PAGE = """
import json, sys, time
from playwright.sync_api import sync_playwright

browser, url, wave, seconds, pictures = sys.argv[1:6]
flags = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
         f"--use-file-for-fake-audio-capture={wave}%noloop"]
found = {"transient": 0}
with sync_playwright() as playwright:
    chromium = playwright.chromium.launch(executable_path=browser, args=flags)
    page = chromium.new_page(viewport={"width": 800, "height": 620})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    page.click("#microphone")
    end, breaks, shots = time.monotonic() + float(seconds), 0, 0
    def shoot():
        if pictures:
            page.screenshot(path=f"{pictures}/captions_{shots + 1}.png")
    while time.monotonic() < end and page.text_content("#status") != "ended":
        grey, lines = page.text_content("#transient"), page.locator("#lines p").count()
        found["transient"] += bool(grey)
        if shots == 0 and len(grey.split()) > 2 or shots == 1 and lines == 1 and grey:
            shoot()
            shots += 1
        if lines == 1 and not breaks:  # the connection is lost in the middle
            breaks = 1
            page.evaluate("session.socket.close()")
        page.wait_for_timeout(50)
    page.click("#stop")
    page.wait_for_function("document.getElementById('status').textContent === 'ended'")
    page.wait_for_timeout(1200)
    shoot()
    found["lines"] = page.locator("#lines p").all_text_contents()
    found["generation"] = page.evaluate("session.generation")
    cells = ("first", "middle", "last", "chunk", "queue", "run")
    found["cells"] = {name: page.text_content(f"#{name}") for name in cells}
    found["errors"] = errors
    chromium.close()
print(json.dumps(found))
"""


def browser() -> str:
    """Return the path of a browser.

    Raises:
        AbsentError: there is none.
    """
    for name in BROWSERS:
        if (path := shutil.which(name)) is not None:
            return path
    raise AbsentError(f"none of {', '.join(BROWSERS)} is installed; take it from your system's packages")


@contextlib.contextmanager
def serving(python: Path, bundle: Path) -> Iterator[str]:
    """Serve a bundle by the command, and yield the address of its page."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [str(python), "-m", "examples.captions.serve", str(bundle), "--port", str(port)]
    server = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=ROOT)
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and server.poll() is None:
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(f"{url}/delays", timeout=1.0).close()
                break
            time.sleep(0.1)
        yield url
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(PATIENCE_S)


def page_says(python: Path, url: str, scratch: Path, pictures: Path | None = None) -> dict[str, Any]:
    """Open the page in a browser whose microphone plays a recording; return what the page shows."""
    samples, rate = soundfile.read(DEMO_FOLDER / RECORDING, dtype="int16")
    wave = scratch / "microphone.wav"
    soundfile.write(wave, samples, rate)
    seconds = len(samples) / rate + 3.0
    command = [str(python), "-c", PAGE, browser(), url, str(wave), str(seconds), str(pictures or "")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def tabs_say(python: Path, url: str, sessions: int, seconds: float) -> str:
    """Play many sessions by the command; return its table."""
    command = [str(python), "-m", "examples.captions.tabs", "--url", f"{url.replace('http', 'ws')}/captions"]
    command += ["--sessions", str(sessions), "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def spoken() -> list[str]:
    """Return the words of the recording."""
    (entry,) = (entry for entry in read_manifest(DEMO_FOLDER) if entry.file == RECORDING)
    return entry.text.split()


def build(folder: Path) -> Path:
    """Build the bundle of captions into a folder, from the cache if it was built before."""
    command = [sys.executable, "build.py", "--recipe", "captions.yaml", "--out", str(folder / "captions")]
    done = subprocess.run([*command, "--set", "gates.task=null"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "captions"


def main() -> int:
    """Let a browser listen to a recording, and print what it shows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, help="folder of the bundle; built by default")
    parser.add_argument("--pictures", type=Path, help="folder for three pictures of the page")
    parser.add_argument("--sessions", type=int, default=30)
    asked = parser.parse_args()
    try:
        browser()
        python = environment(CACHE / "captions", WANTED, None)
    except AbsentError as error:
        print(f"skipped: {error}")
        return 5
    with tempfile.TemporaryDirectory() as scratch:
        bundle = asked.bundle or build(Path(scratch))
        with serving(python, bundle) as url:
            said = page_says(python, url, Path(scratch), asked.pictures)
            print(json.dumps(said, indent=1))
            print(f"spoken: {' '.join(spoken())}")
            print(tabs_say(python, url, asked.sessions, 20.0))
    return 0 if said["lines"] and not said["errors"] else 1


if __name__ == "__main__":
    sys.exit(main())
