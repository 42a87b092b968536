"""A user's folder with a recipe, a model, data and a checkpoint, and the front door run in it within this process."""

import contextlib
import dataclasses
import hashlib
import importlib
import io
import json
import linecache
import os
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import build
import runtime_lite
from compiler.base.cache.read_tracer import READ_TRACER
from tests.kit.models.tiny_graph import write_stream

HERE = Path(__file__).parent
FILES = ("tiny_asr.py", "tiny_data.py", "tiny_task.py", "tiny.yaml")

TIMES = ("costs.json",)
"""What may differ between equal builds."""

ALWAYS = [":budget"]
"""The stages of a build that nothing has changed for: budgets are held to whatever lies in the bundle at its end."""


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended: exit code, both outputs, and the report if it was written."""

    code: int
    out: str
    err: str
    report: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def message(self) -> str:
        """The error message, without the line that repeats the command."""
        first, _, _ = self.err.partition("\nrepeat with: ")
        return first

    def stages(self, *, cached: bool) -> list[str]:
        """Names of the stages that came from the cache, or of those that ran."""
        return [f"{stage['graph']}:{stage['stage']}" for stage in self.report["stages"] if stage["cached"] == cached]


class _Captured(io.TextIOWrapper):
    """Stands in for a standard stream and keeps what is written."""

    def __init__(self) -> None:
        self.content = io.BytesIO()
        super().__init__(self.content, encoding="utf-8", write_through=True)


@dataclasses.dataclass(frozen=True)
class Project:
    """A folder to build in.

    Attributes:
        folder: recipe, modules, data and checkpoint.
        cache: of build stages; moves with the project, because everything in it is named relative to the folder.
    """

    folder: Path
    cache: Path

    def build(self, *options: str, out: str = "bundle", recipe: str = "tiny.yaml", cached: bool = True) -> Ended:
        """Build the recipe."""
        kept = ["--cache", str(self.cache)] if cached else ["--no-cache"]
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        ended = self.run("--recipe", recipe, "--out", out, *kept, "--report", report.name, *options)
        found = json.loads(report.read_text()) if report.exists() else {}
        report.unlink(missing_ok=True)
        return dataclasses.replace(ended, report=found)

    def run(self, *arguments: str) -> Ended:
        """Run the front door in the folder, its modules imported anew."""
        self.forget_modules()
        out, err = _Captured(), _Captured()
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            with (
                contextlib.chdir(self.folder),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
                mock.patch.dict(os.environ),  # what libraries set for themselves ends with the process
            ):
                code = build.main(arguments)
        finally:
            sys.dont_write_bytecode = before
            self.forget_modules()
        return Ended(code, out.content.getvalue().decode(), err.content.getvalue().decode())

    def forget_modules(self) -> None:
        """As a new process would find them."""
        for file in self.folder.glob("*.py"):
            sys.modules.pop(file.stem, None)
        READ_TRACER.forget()
        importlib.invalidate_caches()
        linecache.checkcache()

    def write(self, name: str, content: str) -> None:
        """Write one file of the project."""
        (self.folder / name).write_text(content, encoding="utf-8")

    def replace(self, name: str, old: str, new: str) -> None:
        """Change one place of a file."""
        text = (self.folder / name).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {name}"
        self.write(name, text.replace(old, new))

    def copy_to(self, folder: Path) -> "Project":
        """The same project elsewhere, with a cache of its own; bundles stay behind."""
        folder.mkdir(parents=True, exist_ok=True)
        for file in self.folder.iterdir():
            if file.is_file():
                shutil.copyfile(file, folder / file.name)
        cache = folder.with_name(f"{folder.name}-cache")
        shutil.copytree(self.cache, cache)
        return Project(folder, cache)


def tiny_project(folder: Path, cache: Path) -> Project:
    """The recogniser of one screen with its checkpoint."""
    import safetensors.torch

    from tests.kit.models import tiny_asr

    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(HERE / name, folder / name)
    (folder / "level.txt").write_text("1.0\n")
    safetensors.torch.save_file(tiny_asr.build().state_dict(), folder / "tiny.safetensors")
    return Project(folder, cache)


def digest_of(folder: Path, leave_out: tuple[str, ...] = ()) -> dict[str, str]:
    """SHA-256 of every file below a folder by name."""
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and (name := path.relative_to(folder).as_posix()) not in leave_out
    }


def answers(bundle: Path, graph: str, chunks: list[dict[str, Any]], output: str = "logits") -> list[np.ndarray]:
    """What a user gets chunk by chunk."""
    with runtime_lite.Runtime() as runtime:
        model = runtime.load(bundle)
        with model.open_stream(graph) as opened:
            return [opened.push(chunk)[output] for chunk in chunks]


def largest_difference(got: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """Over all chunks."""
    return max(float(np.max(np.abs(a - b))) for a, b in zip(got, expected, strict=True))


def stream_project(folder: Path, cache: Path) -> Project:
    """A graph of one screen, `stream.yaml`, and the data that it is verified on."""
    folder.mkdir(parents=True, exist_ok=True)
    write_stream(folder)
    shutil.copyfile(HERE / "tiny_data.py", folder / "tiny_data.py")
    (folder / "level.txt").write_text("1.0\n")
    return Project(folder, cache)
