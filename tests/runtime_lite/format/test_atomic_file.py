"""A file is replaced whole or not at all."""

import contextlib
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime_lite.format.atomic_file import replace_file


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    for content in (b"first", b"second"):
        with replace_file(tmp_path / "file") as file:
            file.write(content)
        assert (tmp_path / "file").read_bytes() == content
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_previous_file_and_nothing_else(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "file").write_bytes(b"previous")

    def write_half() -> None:
        with replace_file(tmp_path / "file") as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        write_half()
    assert (tmp_path / "file").read_bytes() == b"previous"
    assert os.listdir(tmp_path) == ["file"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"), replace_file(tmp_path / "missing" / "file"):
        pass


@pytest.mark.parametrize("name", ["missing/file", "folder"])
def test_what_cannot_be_written_is_named_as_it_was_given(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory") as failure, replace_file(tmp_path / name) as file:
        file.write(b"x")
    assert failure.value.filename == str(tmp_path / name)
    assert os.listdir(tmp_path) == ["folder"]


@contextlib.contextmanager
def files_of_at_most(count: int) -> Iterator[None]:
    """A full disk: a write beyond a number of bytes fails, and the system's error names no file."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="large") as failure, files_of_at_most(100), replace_file(tmp_path / "f") as file:
        file.write(bytes(10**6))
    assert failure.value.filename == str(tmp_path / "f")
    assert os.listdir(tmp_path) == []


def test_what_fails_beside_the_writing_keeps_its_own_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as failure, replace_file(tmp_path / "f"):
        (tmp_path / "other").read_bytes()
    assert failure.value.filename == str(tmp_path / "other")
