"""Where a bundle goes and how it gets there; its content is tested by whole builds."""

import errno
import fcntl
import functools
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compiler.base.interruption import signals_interrupt
from compiler.base.pieces import write_files
from compiler.build.bundle import staged_folder
from compiler.build.bundle.staged_folder import check_bundle_or_nothing, check_replaceable, copy_files, staged
from compiler.errors import RecipeError
from tests.runtime_lite.bundles import write_streaming_bundle


def anything(out: Path) -> None:
    """Whatever lies there may be replaced."""


FILES = {"manifest.json": b"{}\n", "graphs/a.onnx": b"a" * 100}


def test_bundle_appears_whole_and_replaces_the_previous_one(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    for mark in (b"1", b"2"):
        with staged(out, anything) as folder:
            write_files(folder, FILES | {"mark": mark})
            assert folder.parent == out.parent
        assert (out / "mark").read_bytes() == mark
        assert oct(out.stat().st_mode)[-3:] == "755"
        assert [path.name for path in out.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full"), RuntimeError("bug")])
def test_failure_leaves_what_was_there(error: BaseException, tmp_path: Path) -> None:
    with staged(tmp_path / "out", anything) as folder:
        write_files(folder, FILES)

    def fail() -> None:
        with staged(tmp_path / "out", anything) as half:
            write_files(half, {"manifest.json": b"half"})
            raise error

    with pytest.raises(type(error)):
        fail()
    assert (tmp_path / "out" / "manifest.json").read_bytes() == FILES["manifest.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_link_stays_and_what_it_names_is_replaced(tmp_path: Path) -> None:
    write_streaming_bundle(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    check_replaceable(tmp_path / "link")
    with staged(tmp_path / "link", anything) as folder:
        write_files(folder, FILES | {"mark": b"new"})
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "mark").read_bytes() == b"new"


@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "two renames"])
def test_exchange_of_two_folders(exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not exchange:
        monkeypatch.setattr("ctypes.CDLL", lambda *given, **named: object())
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    staged_folder._exchange(tmp_path / "a", tmp_path / "b")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == ["a", "a/b", "b", "b/a"]


def test_failed_second_rename_brings_the_first_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda *given, **named: object())
    (tmp_path / "out").mkdir()
    with pytest.raises(FileNotFoundError):
        staged_folder._exchange(tmp_path / "absent", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_reader_sees_a_whole_bundle_while_two_builders_write(tmp_path: Path) -> None:
    out, stop, seen = tmp_path / "out", threading.Event(), list[set[bytes]]()

    def build(mark: bytes) -> None:
        for _ in range(40):
            with staged(out, anything) as folder:
                for name in ("a", "manifest.json"):
                    (folder / name).write_bytes(mark)

    def read() -> None:
        while not (stop.is_set() and seen):  # at least once, however late this thread gets to it
            descriptor = os.open(out, os.O_RDONLY | os.O_DIRECTORY)  # one bundle, whatever the name means later
            try:
                marks = {_read(descriptor, name) for name in ("a", "manifest.json")}
            except FileNotFoundError:  # that bundle has been replaced and is being removed
                continue
            finally:
                os.close(descriptor)
            seen.append(marks)

    with staged(out, anything) as folder:
        write_files(folder, {"a": b"0", "manifest.json": b"0"})
    failures: list[BaseException] = []
    reader = threading.Thread(target=_keeping(read, failures))
    marks = (b"1", b"2")
    builders = [threading.Thread(target=_keeping(functools.partial(build, mark), failures)) for mark in marks]
    for thread in (reader, *builders):
        thread.start()
    for thread in builders:
        thread.join()
    stop.set()
    reader.join()
    assert failures == []
    assert all(len(marks) == 1 for marks in seen)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def _read(folder: int, name: str) -> bytes:
    file = os.open(name, os.O_RDONLY, dir_fd=folder)
    try:
        return os.read(file, 10)
    finally:
        os.close(file)


def _keeping(function: Callable[[], None], failures: list[BaseException]) -> Callable[[], None]:
    def run() -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001  (a thread's exception is shown by the test)
            failures.append(error)

    return run


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: p.write_text("x"), "got a file"),
        (lambda p: (p.mkdir(), (p / "mine").touch()), "got another folder"),
        (lambda p: p.symlink_to("nowhere"), "got a file"),
        (
            lambda p: write_files(p, {"manifest.json": b'{"manifest_version": 3}', "src/work.txt": b"years"}),
            "'schema_ver",
        ),
        (lambda p: write_files(write_streaming_bundle(p), {"notes.txt": b"mine"}), "got 'notes.txt' beside them"),
        (
            lambda p: write_files(write_streaming_bundle(p), {".git/config": b"mine"}),
            r"got '\.git', which has a part",
        ),
        (lambda p: (write_streaming_bundle(p) / "more").symlink_to("/"), "got 'more', a symbolic link"),
    ],
)
def test_what_is_not_a_bundle_is_not_replaced(make: object, words: str, tmp_path: Path) -> None:
    make(tmp_path / "out")  # type: ignore[operator]
    with pytest.raises(RecipeError, match=words):
        check_replaceable(tmp_path / "out")


def test_a_bundle_is_replaced_a_damaged_one_too(tmp_path: Path) -> None:
    out = write_streaming_bundle(tmp_path / "out")
    check_replaceable(out)
    (out / "recipe.yaml").unlink()
    check_replaceable(out)


def test_what_comes_to_lie_there_during_the_build_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def build() -> None:
        with staged(out, check_bundle_or_nothing) as folder:
            write_files(folder, FILES)
            write_files(out, {"notes.txt": b"mine"})

    with pytest.raises(RecipeError, match=r"got another folder, expected manifest\.json, got none"):
        build()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in out.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["n" * 300, "n" * 300 + "/deep", "n" * 250])
def test_a_name_that_no_folder_can_have_is_told_before_the_build(tmp_path: Path, name: str) -> None:
    if len(name) > 255:
        with pytest.raises(RecipeError, match="in which a bundle can be written, got 'File name too long'"):
            check_replaceable(tmp_path / name)
    else:
        with staged(tmp_path / name, anything):
            pass


def test_place_that_cannot_be_written_is_found_before_the_build(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecipeError, match="expected a folder in which a bundle can be written"):
        check_replaceable(tmp_path / "file" / "out")
    check_replaceable(tmp_path / "new" / "deep" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_build_left_is_swept_but_not_what_a_running_one_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compiler.build.bundle.staged_folder.SWEEP_AFTER_S", 0.0)
    left, foreign = tmp_path / ".bundle.partial-left", tmp_path / ".other.partial-left"
    for folder in (left, foreign):
        folder.mkdir()
        (folder / "weights").write_bytes(b"half")
    with staged(tmp_path / "bundle", anything) as running:
        assert not left.exists()
        assert foreign.exists()
        with staged(tmp_path / "bundle", anything):
            assert running.exists()


@pytest.mark.parametrize("moment", ["mkdtemp", "open", "flock", "chmod", "exchange", "rmtree"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment_leaves_no_partial_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, moment: str
) -> None:
    """The signal comes right behind each step of making, exchanging and removing the folder."""
    out = tmp_path / "bundle"
    out.mkdir()
    (out / "old").write_text("old")
    owner: Any
    owner, name = {
        "mkdtemp": (tempfile, "mkdtemp"),
        "open": (os, "open"),
        "flock": (fcntl, "flock"),
        "chmod": (Path, "chmod"),
        "exchange": (staged_folder, "_put_in_place"),
        "rmtree": (shutil, "rmtree"),
    }[moment]
    real = getattr(owner, name)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        found = real(*arguments, **options)
        os.kill(os.getpid(), number)
        return found

    def replace() -> None:
        with staged(out, anything) as folder:
            (folder / "new").write_text("new")

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        replace()
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    assert [path.name for path in out.iterdir()] in (["old"], ["new"])


def test_copying_ends_at_the_first_file_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the error of the system, by which a full disk is known."""
    write_files(tmp_path / "from", FILES)
    copy_files(tmp_path / "from", tmp_path / "to")
    assert {name: (tmp_path / "to" / name).read_bytes() for name in FILES} == FILES

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError) as caught:
        copy_files(tmp_path / "from", tmp_path / "other")
    assert caught.value.errno == errno.ENOSPC
