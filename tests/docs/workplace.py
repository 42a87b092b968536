"""A reader's folder: Slipway's checkout linked into it, the files that a page shows, and its commands run there."""

import dataclasses
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT, Block

NOT_RUN = {
    "make test": "runs this test",
    "make lock": "changes the checkout",
    "python3.11 -m venv": "installs for minutes; tests/test_distributions.py runs what the wheels hold",
    "building/bin/": "needs that environment",
    "running/bin/": "needs that environment",
    "make build RECIPE=full_cpu.yaml": "builds for minutes, and the measurements behind it are not run",
    "make build RECIPE=full_edge.yaml": "builds for minutes, and the measurements behind it are not run",
    ".venv/bin/python build.py --recipe full_edge.yaml": "builds for minutes",
    ".venv/bin/python build.py --recipe gpu.yaml": "builds for minutes",
    ".venv/bin/python build.py --recipe t4.yaml": "builds for minutes",
    ".venv/bin/python -m tests.device.crossing": "takes that bundle; tests/device/test_crossing.py counts small ones",
    ".venv/bin/python build.py doctor --install ethos_u": "fetches 286 MB and installs for minutes",
    ".gpu/bin/": "needs a device, and an environment for it",
    ".venv/bin/pip": "changes the environment",
    ".venv/bin/python -m pip": "changes the environment",
    ".venv/bin/python -m benchmarks.": "measures for minutes",
    ".venv/bin/python build.py bench int8/": "times what a benchmark builds for minutes",
    ".venv/bin/python -m examples.streaming_asr.evaluate": "decodes all recordings, for minutes",
    ".venv/bin/python -m examples.codec_tts.recordings": "speaks with a synthesizer that not every machine has",
    ".venv/bin/python -m examples.codec_tts.train_": "trains for half an hour",
    ".venv/bin/python -m examples.codec_tts.evaluate": "judges for minutes, on recordings that are not shipped",
    ".venv/bin/python build.py --recipe tts_ar": "builds for minutes; tests/examples/codec_tts/test_bundle.py does",
    ".venv/bin/python -m examples.codec_tts.say": "takes that bundle; the same test speaks with it",
    ".venv/bin/python -m tests.property.": "searches for minutes; a short run of each is a test",
    ".venv/bin/python -m tests.zoo.engines": "builds hundreds of engines; tests/rtx builds a few",
    ".venv/bin/python -m tests.replay": "traces for half an hour; tests/replay traces a few graphs",
    ".venv/bin/python -m tests.runtime_lite.hosting.against_triton": "installs a server; the same rows are a test",
    ".venv/bin/python -m tests.runtime_lite.hosting.against_ray": "installs Ray; slow tests run it where it is",
    ".venv/bin/python -m runtime_lite open-inference": "serves until Ctrl-C; a slow test asks it by tritonclient",
    ".venv/bin/python -m tests.runtime_lite.hosting.against_open_inference": "installs a client; a slow test, too",
    "serve run": "needs Ray; tests/runtime_lite/hosting/test_ray_application.py starts it where it is",
    ".venv/bin/python build.py --recipe captions.yaml": "builds for minutes; tests/examples/captions/test_page.py does",
    ".venv/bin/python -m examples.captions.": "serves until Ctrl-C; the same test opens the page where a browser is",
    ".venv/bin/python -m tests.examples.captions.against_browser": "needs a browser; the same test",
    ".venv/bin/python -m tests.soak": "measures for minutes; a short run of each row is a test",
    ".venv/bin/python -m tests.docs.recipe_page": "writes a page; tests/docs/test_recipe_page.py compares it",
    ".venv/bin/python -m tests.docs.bundle_page": "writes a page; tests/docs/test_bundle_page.py compares it",
    ".venv/bin/python -m compiler.proof.coverage": "writes a page; its own test compares it",
}
"""Commands that pages name and no test runs, by how they begin, and why."""

FEWER = "--set gates.task=null --set graphs.encoder.axes.batch.buckets=[1] --set data.verification.count=1"
"""Given to `make build` as ARGS: the same build with less data."""


def why_not_run(command: str) -> str | None:
    """The reason for which a command is named only; None where it is run."""
    return next((why for start, why in NOT_RUN.items() if command.startswith(start)), None)


@dataclasses.dataclass
class Workplace:
    """Runs one page's commands, one after the other, as its reader would.

    Attributes:
        folder: the checkout's entries as links, and what the commands write.
    """

    folder: Path

    @classmethod
    def at(cls, folder: Path) -> "Workplace":
        """Links in place of a copy; what builds write lies beside them."""
        folder.mkdir(parents=True, exist_ok=True)
        for entry in ROOT.iterdir():
            if entry.name not in {".git", ".cache", "dist"}:
                (folder / entry.name).symlink_to(entry)
        (folder / "slipway").symlink_to(folder)
        return cls(folder)

    def write(self, block: Block) -> None:
        """A file that the page shows."""
        if block.name is not None:
            (self.folder / block.name).write_text(block.text, encoding="utf-8")

    def run(self, command: str, code: int = 0) -> str:
        """What a command prints; it must end with an exit code."""
        environment = os.environ | {
            "HOME": str(self.folder),
            "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "ARGS": FEWER,
            "COLUMNS": "160",
        }
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


def missing_lines(shown: str, printed: str) -> list[str]:
    """Lines that a page shows and the commands above it did not print; numbers and spaces may differ."""
    real = set(_comparable(printed))
    return [line for line in _comparable(shown) if line not in real and line != "..."]


def _comparable(text: str) -> Iterator[str]:
    for line in text.splitlines():
        words = re.sub(r"\d[\d,]*(\.\d+)?(e[+-]?\d+)?", "#", line).split()
        if words:
            yield " ".join(words)
