"""What goes wrong on the machine in the middle of a build: the previous bundle stays, nothing half-written is left."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compiler.base.pieces import Content
from compiler.build.report import progress
from tests.kit.models.project import ALWAYS, TIMES, Project, digest_of
from tests.kit.models.shared import shared_project
from tests.kit.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def project(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that is built already, with a cache of its own."""
    shared = shared_project(tmp_path_factory)
    copy = shared.copy_to(tmp_path / "project")
    shutil.copytree(shared.folder / "bundle", copy.folder / "bundle")
    return copy


@pytest.fixture
def untouched(project: Project) -> Iterator[None]:
    """Whatever the test does, the previous bundle is as it was, verifies, and has nothing unfinished beside it."""
    before = digest_of(project.folder / "bundle")
    yield
    assert digest_of(project.folder / "bundle") == before
    assert project.run("verify", "bundle").code == 0
    assert [path.name for path in project.folder.iterdir() if path.name.startswith(".")] == []


def process(project: Project, script: str, *options: str) -> "subprocess.Popen[str]":
    """The front door in a process of its own, after a few lines of Python."""
    command = ["--recipe", "tiny.yaml", "--out", "bundle", "--cache", str(project.cache), *options]
    lines = f"import os, signal, sys\nimport build\n{script}\nsys.exit(build.main())"
    return subprocess.Popen(
        [sys.executable, "-c", lines, *command],
        cwd=project.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# A full disk


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of a few kilobytes."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs the right to mount a small file system (root)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_full_disk_leaves_the_previous_bundle(project: Project, tmp_path: Path) -> None:
    pages = sum(-(-file.stat().st_size // 4096) + 1 for file in (project.folder / "bundle").rglob("*"))
    with small_disk(tmp_path / "disk", f"{6 * pages}k") as disk:  # one bundle and a half
        shutil.copytree(project.folder / "bundle", disk / "bundle")
        before = digest_of(disk / "bundle")
        for options in ((), ("--set", "front_end.hop=6")):  # from the cache, and made anew
            ended = project.build(*options, out=str(disk / "bundle"))
            assert ended.code == 2, ended.err
            assert "got a full disk; free some, or choose --out elsewhere" in ended.message
            assert [path.name for path in disk.iterdir()] == ["bundle"]
            assert digest_of(disk / "bundle") == before
        assert project.run("verify", str(disk / "bundle")).code == 0


def test_full_cache_leaves_the_previous_bundle(project: Project, tmp_path: Path, untouched: None) -> None:
    with small_disk(tmp_path / "disk", "16k") as disk:
        ended = Project(project.folder, disk / "cache").build(recipe="stream.yaml")
        assert ended.code == 2, ended.err
        assert "got a full disk" in ended.message


@pytest.mark.parametrize("count", [0, 3])
def test_disk_that_fills_up_while_files_are_written(
    count: int, project: Project, untouched: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the right to mount: the same through a write that fails."""
    written: list[str] = []

    def write_some(folder: Path, files: dict[str, Content]) -> None:
        for name, content in files.items():
            if len(written) == count:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written.append(name)
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(bytes(content))

    monkeypatch.setattr("compiler.build.assembly.write_files", write_some)
    ended = project.build("--set", "front_end.hop=7")
    assert ended.code == 2
    assert "got a full disk" in ended.message


# Ctrl-C


@pytest.mark.parametrize(
    ("stage", "options"),
    [
        ("data", ("--no-cache",)),
        pytest.param("capture", ("--no-cache",), marks=pytest.mark.slow),
        pytest.param("simplify", ("--set", "gates.parity.net.max_abs=1.1e-5"), marks=pytest.mark.slow),
        ("pad_axes", ("--set", "gates.parity.net.max_abs=1.2e-5")),
        pytest.param("onnx_static", ("--set", "front_end.hop=1"), marks=pytest.mark.slow),
        pytest.param("verify", ("--set", "front_end.hop=2"), marks=pytest.mark.slow),
        pytest.param("invariance", ("--set", "front_end.hop=3"), marks=pytest.mark.slow),
        pytest.param("replay", ("--set", "front_end.hop=8"), marks=pytest.mark.slow),
        ("task", ("--set", "front_end.hop=5")),
        pytest.param("speed", ("--set", "front_end.hop=6"), marks=pytest.mark.slow),
        ("bundle", ()),
    ],
)
@pytest.mark.parametrize("when", ["begins", "ends"])
def test_interrupt_in_a_stage_is_one_line(
    stage: str, when: str, options: tuple[str, ...], project: Project, untouched: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = progress.Progress.stage

    @contextlib.contextmanager
    def interrupted(self: progress.Progress, graph: str, name: str) -> Iterator[progress.StageHandle]:
        with real(self, graph, name) as handle:
            if (name, when) == (stage, "begins"):
                raise KeyboardInterrupt
            yield handle
            if (name, when) == (stage, "ends"):
                raise KeyboardInterrupt

    monkeypatch.setattr(progress.Progress, "stage", interrupted)
    ended = project.build(*options)
    assert ended.code == 130
    assert ended.err.splitlines()[0] == "error: interrupted; nothing was left half-written"
    assert len(ended.err.splitlines()) == 2


def test_interrupt_by_a_signal_in_the_exporter(project: Project, untouched: None) -> None:
    started = process(project, "", "--no-cache")
    assert started.stdout is not None
    while "capture" not in (line := started.stdout.readline()) and "data" not in line:
        assert line, "the build ended before its first stage"
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=PATIENCE_S)
    assert started.returncode == 130, err
    assert err.startswith("error: interrupted; nothing was left half-written\nrepeat with: python build.py --recipe ")
    assert len(err.splitlines()) == 2


SIGNAL_IN_AN_IMPORT = """
class Sends:
    def find_spec(self, name, path=None, target=None):
        if name == "torch.distributed":
            os.kill(os.getpid(), signal.SIGINT)
        if name == "compiler.build.capture.torch_module":
            open("went on", "w").close()
sys.meta_path.insert(0, Sends())
"""


def test_interrupt_by_a_signal_while_the_framework_is_imported(project: Project, untouched: None) -> None:
    """The import goes on to its end: code in C++ that is loaded in it ends the process where it meets an exception."""
    _, err = (ended := process(project, SIGNAL_IN_AN_IMPORT, "--no-cache")).communicate(timeout=PATIENCE_S)
    assert ended.returncode == 130, err
    assert (project.folder / "went on").exists()
    assert err.startswith("error: interrupted; nothing was left half-written\nrepeat with: python build.py --recipe ")
    assert len(err.splitlines()) == 2


# kill -9

KILL_AT = {
    "before the first file": "import compiler.build.bundle.kept_bundle as b\nb.KeptBundle.recall = die",
    "before the exchange": "import compiler.build.bundle.staged_folder as b\nb._put_in_place = die",
    "after the exchange": "import compiler.build.bundle.staged_folder as b\nb.shutil.rmtree = die",
}


@pytest.mark.parametrize("moment", KILL_AT)
def test_killed_while_writing_leaves_a_whole_bundle(moment: str, project: Project) -> None:
    before = digest_of(project.folder / "bundle")
    script = f"def die(*given, **named): os.kill(os.getpid(), signal.SIGKILL)\n{KILL_AT[moment]}"
    started = process(project, script)
    started.communicate(timeout=PATIENCE_S)
    assert started.returncode == -signal.SIGKILL
    assert digest_of(project.folder / "bundle") == before
    assert project.run("verify", "bundle").code == 0
    assert project.build().code == 0
    assert digest_of(project.folder / "bundle") == before


# Damaged and shared caches


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(flip, id="one bit flipped"),
        pytest.param(lambda path: path.write_bytes(b""), id="emptied", marks=pytest.mark.slow),
        pytest.param(Path.unlink, id="file removed", marks=pytest.mark.slow),
    ],
)
def test_damaged_results_are_made_again(damage: Callable[[Path], object], project: Project) -> None:
    files = [path for path in project.cache.rglob("*") if path.is_file() and path.stat().st_size]
    for path in files:
        if damage is Path.unlink or not (path.parent / "later.onnx").exists():  # capturing takes long: once is enough
            damage(path)
    before = digest_of(project.folder / "bundle", TIMES)
    ended = project.build()
    assert ended.code == 0, ended.err
    assert "net:verify" in ended.stages(cached=False)
    assert digest_of(project.folder / "bundle", TIMES) == before
    assert project.build().stages(cached=False) == ALWAYS


def finish(*started: "subprocess.Popen[str]") -> None:
    for each in started:
        _, err = each.communicate(timeout=PATIENCE_S)
        assert (each.returncode, err) == (0, "")


@pytest.mark.slow
def test_two_builders_at_once_share_cache_and_bundle(project: Project) -> None:
    finish(*(process(project, "", "--set", "front_end.hop=9") for _ in range(2)))
    assert project.run("verify", "bundle").code == 0
    assert [path.name for path in project.folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.slow
def test_two_builders_at_once_start_from_an_empty_cache(project: Project) -> None:
    shutil.rmtree(project.cache)
    shutil.rmtree(project.folder / "bundle")
    finish(*(process(project, "") for _ in range(2)))
    assert project.run("verify", "bundle").code == 0
    assert project.build().stages(cached=False) == ALWAYS


def test_file_system_without_exchange_still_replaces(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda *given, **named: object())
    ended = project.build("--set", "front_end.hop=10")
    assert ended.code == 0, ended.err
    assert "hop: 10" in (project.folder / "bundle" / "recipe.yaml").read_text()
    assert [path.name for path in project.folder.iterdir() if path.name.startswith(".")] == []
