"""A sound bundle opens as a directory and as a `.tar`, and equal directories give equal `.tar` files."""

import hashlib
import os
import tarfile
from pathlib import Path

import pytest

from runtime_lite import BadInput, BundleRefused, read_bundle, write_tar
from runtime_lite.format.costs import Cost, json_from_costs
from tests.runtime_lite.bundles import replace_hashed, write_double_bundle


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_double_bundle(tmp_path / "bundle")


def test_a_directory_opens_with_everything_checked(directory: Path) -> None:
    with read_bundle(directory) as bundle:
        assert bundle.manifest.name == "tiny"
        assert sorted(bundle.manifest.graphs) == ["plain", "streaming"]
        assert bundle.manifest_sha256 == hashlib.sha256((directory / "manifest.json").read_bytes()).hexdigest()
        assert bundle.costs == {}
        for name in bundle.manifest.files:
            assert bundle.read_file(name) == (directory / name).read_bytes()


def test_a_relative_path_a_text_and_a_link_to_a_bundle_are_fine(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory.parent / "current").symlink_to(directory)
    monkeypatch.chdir(directory.parent)
    for path in ("bundle", "current", directory / "../bundle"):
        read_bundle(path).close()


def test_a_second_hard_link_on_disk_is_fine(directory: Path) -> None:
    os.link(directory / "recipe.yaml", directory.parent / "twin")
    read_bundle(directory).close()


def test_a_tar_holds_the_same_and_is_deterministic(directory: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.tar", tmp_path / "second.tar"
    write_tar(directory, first)
    os.utime(directory / "recipe.yaml", (1, 1))
    (directory / "recipe.yaml").chmod(0o600)
    copy = write_double_bundle(tmp_path / "copy")
    write_tar(copy, second)
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == sorted(member.name for member in members)
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in members} == {(0, 0, 0, "", "", 0o644)}
    with read_bundle(first) as packed, read_bundle(directory) as plain:
        assert packed.manifest == plain.manifest
        assert packed.manifest_sha256 == plain.manifest_sha256
        for name in plain.manifest.files:
            assert packed.read_file(name) == plain.read_file(name)


def test_paths_of_any_allowed_length_are_packed(directory: Path, tmp_path: Path) -> None:
    name = "/".join(["a" * 90, "b" * 90, "c" * 58])
    (directory / name).parent.mkdir(parents=True)
    replace_hashed(directory, name, b"deep")
    write_tar(directory, tmp_path / "out.tar")
    write_tar(directory, tmp_path / "again.tar")
    assert (tmp_path / "out.tar").read_bytes() == (tmp_path / "again.tar").read_bytes()
    with read_bundle(tmp_path / "out.tar") as bundle:
        assert bundle.read_file(name) == b"deep"


def test_an_unsound_directory_is_not_packed_and_nothing_is_left(directory: Path, tmp_path: Path) -> None:
    (directory / "extra").write_bytes(b"")
    with pytest.raises(BundleRefused, match="expected only files listed"):
        write_tar(directory, tmp_path / "out.tar")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle"]


def test_a_tar_inside_its_own_bundle_is_refused(directory: Path) -> None:
    with pytest.raises(BadInput, match="expected a file outside the bundle directory, got one inside"):
        write_tar(directory, directory / "graphs" / "self.tar")


def test_a_failed_write_leaves_the_previous_tar(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.tar"
    write_tar(directory, target)
    before = target.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_tar(directory, target)
    assert target.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "out.tar"]


def test_costs_lie_apart_from_the_hashes(directory: Path, tmp_path: Path) -> None:
    costs = {"streaming": {"batch=1": Cost(2, 1.5, 2.5)}}
    (directory / "costs.json").write_bytes(json_from_costs(costs))
    with read_bundle(directory) as bundle:
        assert bundle.costs == costs
    write_tar(directory, tmp_path / "out.tar")
    with read_bundle(tmp_path / "out.tar") as bundle:
        assert bundle.costs == costs


def test_a_closed_tar_reads_nothing(directory: Path, tmp_path: Path) -> None:
    write_tar(directory, tmp_path / "out.tar")
    bundle = read_bundle(tmp_path / "out.tar")
    bundle.close()
    bundle.close()
    with pytest.raises(BadInput, match="expected an open bundle, got a closed one"):
        bundle.read_file("recipe.yaml")


@pytest.mark.parametrize(
    ("name", "content"), [("manifest.json", b"{}"), ("manifest.json", b"["), ("costs.json", b"[]")]
)
def test_what_is_refused_in_its_files_names_the_bundle(name: str, content: bytes, directory: Path) -> None:
    (directory / name).write_bytes(content)
    with pytest.raises(BundleRefused) as caught:
        read_bundle(directory)
    assert str(caught.value).startswith(f"{directory}: {name}")
