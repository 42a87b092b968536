"""What is open stays what it was: beside other readers, beside a rebuild, and however large a header claims to be."""

import collections
import os
import resource
import shutil
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler.build.bundle.staged_folder import check_bundle_or_nothing, staged
from runtime_lite import BadInput, BundleRefused, Runtime, read_bundle, write_tar
from runtime_lite.executors.child import in_child
from runtime_lite.format.bundle_files import MAX_ENTRIES, TarFiles
from tests.runtime_lite.bundles import write_double_bundle, write_streaming_bundle


def rebuild(source: Path, out: Path) -> None:
    with staged(out, check_bundle_or_nothing) as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    write_double_bundle(tmp_path / "double")
    write_streaming_bundle(tmp_path / "streaming")
    rebuild(tmp_path / "double", tmp_path / "out")
    return tmp_path / "out"


def test_threads_read_one_tar_at_once(tmp_path: Path) -> None:
    write_tar(write_double_bundle(tmp_path / "bundle"), tmp_path / "bundle.tar")
    ends: collections.Counter[str] = collections.Counter()
    with read_bundle(tmp_path / "bundle.tar") as bundle:

        def read(name: str) -> None:
            for _ in range(30):
                try:
                    bundle.read_file(name)
                    ends["right"] += 1
                except BundleRefused as error:
                    ends[str(error)] += 1

        names = list(bundle.manifest.files)[:6]
        threads = [threading.Thread(target=read, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ends == {"right": 30 * len(names)}


def test_a_tar_is_read_without_the_position_that_forks_share(tmp_path: Path) -> None:
    write_tar(write_double_bundle(tmp_path / "bundle"), tmp_path / "bundle.tar")
    files = TarFiles(tmp_path / "bundle.tar")
    before = os.lseek(files.fileno(), 0, os.SEEK_CUR)
    with files.open("recipe.yaml") as file, files.open("manifest.json") as other:
        assert file.read(3) + other.read(1) + file.read() == other_order(tmp_path / "bundle")
    assert os.lseek(files.fileno(), 0, os.SEEK_CUR) == before
    files.close()


def other_order(bundle: Path) -> bytes:
    recipe, manifest = (bundle / "recipe.yaml").read_bytes(), (bundle / "manifest.json").read_bytes()
    return recipe[:3] + manifest[:1] + recipe[3:]


def test_an_open_bundle_stays_what_it_was_while_another_takes_its_place(out: Path, tmp_path: Path) -> None:
    with read_bundle(out) as bundle:
        rebuild(tmp_path / "streaming", out)
        assert all(bundle.read_file(name) for name in bundle.manifest.files)
        with read_bundle(out) as other:
            assert (len(bundle.manifest.graphs), len(other.manifest.graphs)) == (2, 1)
        bundle.copy_to(tmp_path / "copy")
    assert sorted(read_bundle(tmp_path / "copy").manifest.graphs) == ["plain", "streaming"]


def test_what_nobody_reads_any_more_is_removed_by_the_next_build(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compiler.build.bundle.staged_folder.SWEEP_AFTER_S", 0.0)

    def left() -> int:
        return sum(path.name.startswith(".") for path in tmp_path.iterdir())

    with read_bundle(out) as bundle:
        for _ in range(2):
            rebuild(tmp_path / "streaming", out)
            assert left() == 1
        assert bundle.read_file("recipe.yaml")
    rebuild(tmp_path / "streaming", out)
    assert left() == 0


def test_a_load_beside_rebuilds_gets_one_bundle_or_the_other(out: Path, tmp_path: Path) -> None:
    """The builder takes over between any two files that are read."""
    bundles = [tmp_path / "streaming", tmp_path / "double"]
    seen = set()
    for number in range(10):
        with read_bundle(out) as bundle:
            for at, name in enumerate(bundle.manifest.files):
                if at == number:
                    rebuild(bundles[number % 2], out)
                bundle.read_file(name)
            seen.add(len(bundle.manifest.graphs))
    assert seen == {1, 2}


def test_a_process_of_its_own_opens_the_bundle_that_was_loaded(out: Path, tmp_path: Path) -> None:
    with read_bundle(out) as bundle:
        rebuild(tmp_path / "streaming", out)
        executor = in_child()(bundle, "plain", 1)
        executor.close()


def test_a_closed_folder_reads_nothing(out: Path) -> None:
    bundle = read_bundle(out)
    bundle.close()
    bundle.close()
    with pytest.raises(BadInput, match="expected an open bundle, got a closed one"):
        bundle.read_file("recipe.yaml")


def test_entries_of_a_tar_without_end_are_counted_whatever_they_are_called(tmp_path: Path) -> None:
    block = tarfile.TarInfo("./")
    block.type = tarfile.DIRTYPE
    (tmp_path / "many.tar").write_bytes(block.tobuf() * (MAX_ENTRIES + 1) + bytes(1024))
    with pytest.raises(BundleRefused, match=f"expected at most {MAX_ENTRIES} files and folders, got more"):
        read_bundle(tmp_path / "many.tar")


@pytest.fixture
def no_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def test_without_descriptors_the_limit_is_named_and_not_the_bundle(out: Path, no_descriptors: None) -> None:
    with pytest.raises(BundleRefused, match="got Too many open files; raise the limit of open files"):
        read_bundle(out)


def test_what_could_not_be_opened_is_let_go_of(out: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    (out / "extra").write_bytes(b"")
    for _ in range(3):
        with pytest.raises(BundleRefused), Runtime() as runtime:
            runtime.load(out)
    (out / "manifest.json").unlink()
    (out / "extra").unlink()
    (out / "link").symlink_to("/")
    with pytest.raises(BundleRefused):
        read_bundle(out)
    assert len(os.listdir("/proc/self/fd")) == before
