"""Attacks through the files of a bundle, as a directory and as a `.tar`: altered, missing, extra, linked, lying."""

import gzip
import io
import os
import shutil
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime_lite import BadInput, BundleRefused, read_bundle, write_tar
from runtime_lite.format import bundle_files, reader
from runtime_lite.format.bundle_files import BundleFiles
from tests.attacks.edits import stopped
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import edit_manifest, write_streaming_bundle

GRAPH = "graphs/streaming.batch1.onnx"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_streaming_bundle(tmp_path / "bundle")


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def replace_with_link(path: Path) -> None:
    target = path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(target)


def replace_with_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_with_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def bind_socket(root: Path) -> None:
    here = os.getcwd()
    os.chdir(root)  # a socket's path may have 108 bytes only
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("s")
    finally:
        os.chdir(here)


def nest(root: Path) -> None:
    for _ in range(20):
        root = root / "d"
        root.mkdir()


DIRECTORY: dict[str, tuple[Callable[[Path], object], str]] = {
    "bit flipped": (lambda d: flip_bit(d / GRAPH), f"expected '{GRAPH}' with SHA-256 "),
    "bit flipped in the weights": (
        lambda d: flip_bit(d / "graphs/weights.bin"),
        "expected 'graphs/weights.bin' with SHA-256",
    ),
    "bit flipped in the golden feeds": (lambda d: flip_bit(d / "golden/streaming.npz"), "with SHA-256"),
    "truncated": (lambda d: (d / GRAPH).write_bytes((d / GRAPH).read_bytes()[:-1]), f"expected '{GRAPH}' of "),
    "emptied": (lambda d: (d / GRAPH).write_bytes(b""), "bytes, got 0 bytes; copy the bundle again"),
    "extended": (lambda d: (d / GRAPH).write_bytes((d / GRAPH).read_bytes() + b"x"), f"expected '{GRAPH}' of "),
    "deleted": (lambda d: (d / GRAPH).unlink(), f"expected the file '{GRAPH}', got a bundle without it"),
    "extra file": (
        lambda d: (d / "evil.so").write_bytes(b"x"),
        "expected only files listed in the manifest, got 'evil.so'",
    ),
    "hidden extra file": (lambda d: (d / "graphs/.evil").write_bytes(b"x"), "got 'graphs/.evil', which has a part"),
    "name that is not text": (lambda d: (d / os.fsdecode(b"\xff")).write_bytes(b"x"), "not printable ASCII"),
    "manifest deleted": (
        lambda d: (d / "manifest.json").unlink(),
        "expected manifest.json at the top of the bundle, got none",
    ),
    "symbolic link inside": (lambda d: replace_with_link(d / GRAPH), f"'{GRAPH}', a symbolic link"),
    "symbolic link to a device": (lambda d: (d / "zero").symlink_to("/dev/zero"), "'zero', a symbolic link"),
    "folder linked": (lambda d: (d / "more").symlink_to("/"), "'more', a symbolic link"),
    "manifest linked": (lambda d: replace_with_link(d / "manifest.json"), "'manifest.json', a symbolic link"),
    "fifo": (lambda d: replace_with_fifo(d / GRAPH), f"'{GRAPH}', a FIFO"),
    "socket": (bind_socket, "'s', a socket"),
    "folder instead of a file": (lambda d: replace_with_folder(d / GRAPH), f"expected the file '{GRAPH}'"),
    "folders without end": (nest, "expected folders at most 16 deep, got deeper ones"),
    "case-twin on disk": (
        lambda d: (d / "RECIPE.yaml").write_bytes(b"x"),
        "expected only files listed in the manifest",
    ),
    "oversized costs": (
        lambda d: (d / "costs.json").write_bytes(b" " * (2**20 + 1)),
        "expected costs.json of at most 1048576",
    ),
    "costs of no graph": (
        lambda d: (d / "costs.json").write_text('{"x": {}}'),
        "expected graphs and buckets of the bundle",
    ),
    "costs of no bucket": (
        lambda d: (d / "costs.json").write_text('{"streaming": {"batch=2": {"threads": 1, "p50_ms": 1, "p95_ms": 1}}}'),
        "expected graphs and buckets of the bundle, got 'streaming' with ['batch=2']; delete costs.json",
    ),
    "costs that are negative": (
        lambda d: (d / "costs.json").write_text(
            '{"streaming": {"batch=1": {"threads": 1, "p50_ms": -1, "p95_ms": 1}}}'
        ),
        "p50_ms: expected a number from 0.0",
    ),
    "costs whose slowest is no number": (
        lambda d: (d / "costs.json").write_text(
            '{"streaming": {"batch=1": {"threads": 1, "p50_ms": 1, "p95_ms": 1, "p99_ms": "1"}}}'
        ),
        "p99_ms: expected a number from 0.0",
    ),
}


@pytest.mark.parametrize("attack", DIRECTORY)
def test_hostile_directory(directory: Path, attack: str) -> None:
    alter, sentence = DIRECTORY[attack]
    alter(directory)
    assert sentence in stopped(directory)


def test_entries_without_end(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_files, "MAX_ENTRIES", 5)
    assert "expected at most 5 files and folders, got more" in stopped(directory)


def test_a_huge_file_is_refused_by_its_size_and_never_read(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.truncate(directory / GRAPH, 2**33)  # sparse: takes no space
    read: list[int] = []
    chunks = reader._chunks

    def count(path: Path, source: BundleFiles, name: str, size: int) -> Iterator[bytes]:
        read.append(size)
        return chunks(path, source, name, size)

    monkeypatch.setattr(reader, "_chunks", count)
    assert "bytes, got 8589934592 bytes" in stopped(directory)
    assert read == [os.path.getsize(directory / "manifest.json")]


def test_a_file_swapped_after_the_check_is_refused_when_it_is_used(directory: Path) -> None:
    with read_bundle(directory) as opened:
        flip_bit(directory / GRAPH)
        with pytest.raises(BundleRefused, match="with SHA-256"):
            opened.read_file(GRAPH)


@pytest.mark.parametrize("swap", [replace_with_link, replace_with_fifo], ids=["link", "fifo"])
def test_a_file_replaced_after_the_check_neither_redirects_nor_blocks(
    directory: Path, swap: Callable[[Path], None]
) -> None:
    refused: list[str] = []

    def read() -> None:
        try:
            opened.read_file(GRAPH)
        except BundleRefused as refusal:
            refused.append(str(refusal))

    with read_bundle(directory) as opened:
        swap(directory / GRAPH)
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
    assert len(refused) == 1


def test_a_file_cut_short_while_it_is_read_is_an_error(directory: Path) -> None:
    with read_bundle(directory) as opened:
        os.truncate(directory / GRAPH, 10)
        with pytest.raises(BundleRefused, match="bytes, got 10 bytes; copy the bundle again"):
            opened.read_file(GRAPH)


@pytest.mark.parametrize("name", ["../secret", "manifest.json", "/etc/passwd", ""])
def test_only_listed_files_can_be_read(directory: Path, name: str) -> None:
    with read_bundle(directory) as opened, pytest.raises(BundleRefused, match="expected a file listed in the manifest"):
        opened.read_file(name)


@pytest.mark.parametrize("path", ["nothing", "/dev/null", "nothing/at/all", "a\0b"])
def test_a_path_that_is_no_bundle_is_the_callers_mistake(path: str) -> None:
    with pytest.raises(BadInput, match=r"expected a bundle directory or \.tar file, got"):
        read_bundle(path)


# ---- the same as one file


def tar_of(directory: Path, edit: Callable[[tarfile.TarInfo], tarfile.TarInfo | None] = lambda member: member) -> Path:
    """Write a `.tar` of a bundle directory as an attacker would: member by member, each edited or dropped."""
    path = directory.with_suffix(".tar")
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for file in sorted(p for p in directory.rglob("*") if p.is_file()):
            member = edit(tar.gettarinfo(file, str(file.relative_to(directory))))
            if member is not None:
                tar.addfile(member, io.BytesIO(file.read_bytes()) if member.isreg() else None)
    return path


def add_member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> Callable[[Path], Path]:
    """Return an attack that appends one more member."""

    def attack(directory: Path) -> Path:
        path = tar_of(directory)
        with tarfile.open(path, "a") as tar:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, target, size
            tar.addfile(member, io.BytesIO(b"x" * size))
        return path

    return attack


def altered(edit: Callable[[bytes], bytes]) -> Callable[[Path], Path]:
    """Return an attack that changes the bytes of the whole `.tar`."""

    def attack(directory: Path) -> Path:
        path = tar_of(directory)
        path.write_bytes(edit(path.read_bytes()))
        return path

    return attack


def link(member: tarfile.TarInfo, kind: bytes) -> tarfile.TarInfo:
    if member.name == GRAPH:
        member.type, member.linkname, member.size = kind, "manifest.json", 0
    return member


def header(name: str, kind: bytes, size: int) -> bytes:
    """Return a raw header that claims a size, valid checksum included."""
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def sparse(directory: Path) -> Path:
    path = tar_of(directory)
    raw = bytearray(header("recipe2.yaml", tarfile.GNUTYPE_SPARSE, 0))
    raw[386:398] = b"00000000000\0"
    raw[398:410] = b"00000000000\0"
    raw[483:495] = b"77777777777\0"  # real size: 8 GiB out of nothing
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    path.write_bytes(bytes(raw) + path.read_bytes())
    return path


TAR: dict[str, tuple[Callable[[Path], Path], str]] = {
    "path traversal": (add_member("../evil"), "got '../evil', which leaves its folder"),
    "inner traversal": (add_member("graphs/../../evil"), "which leaves its folder"),
    "absolute path": (add_member("/etc/evil"), "got '/etc/evil', which is absolute"),
    "backslash": (add_member("graphs\\evil"), "which has a backslash"),
    "line break in a name": (add_member("a\nb"), "not printable ASCII"),
    "non-ascii name": (add_member("\u00e9"), "not printable ASCII"),
    "traversal by a folder": (add_member("..", tarfile.DIRTYPE), "got '..', which leaves its folder"),
    "symbolic link": (add_member("evil", tarfile.SYMTYPE, "/etc/passwd"), "'evil', a symbolic link"),
    "symbolic link in place of a file": (lambda d: tar_of(d, lambda m: link(m, tarfile.SYMTYPE)), "a symbolic link"),
    "hard link": (add_member("evil", tarfile.LNKTYPE, "manifest.json"), "'evil', a hard link"),
    "hard link in place of a file": (lambda d: tar_of(d, lambda m: link(m, tarfile.LNKTYPE)), "a hard link"),
    "character device": (add_member("evil", tarfile.CHRTYPE), "'evil', a device or an unknown type"),
    "block device": (add_member("evil", tarfile.BLKTYPE), "'evil', a device or an unknown type"),
    "fifo": (add_member("evil", tarfile.FIFOTYPE), "'evil', a FIFO"),
    "sparse bomb": (sparse, "'recipe2.yaml', a sparse file"),
    "extra file": (add_member("evil.so", size=3), "expected only files listed in the manifest, got 'evil.so'"),
    "file twice": (add_member("recipe.yaml", size=3), "expected every entry once, got 'recipe.yaml' twice"),
    "second manifest": (add_member("manifest.json", size=3), "expected every entry once, got 'manifest.json' twice"),
    "missing file": (
        lambda d: tar_of(d, lambda m: None if m.name == GRAPH else m),
        f"expected the file '{GRAPH}', got a bundle",
    ),
    "no manifest": (
        lambda d: tar_of(d, lambda m: None if "manifest" in m.name else m),
        "expected manifest.json at the top",
    ),
    "one folder too deep": (
        lambda d: tar_of(d, lambda m: m.replace(name=f"bundle/{m.name}", deep=False)),
        "expected manifest.json at the top of the bundle, got none; point to the folder that holds it",
    ),
    "empty file": (altered(lambda b: b""), "expected an uncompressed .tar file, got 'empty file'"),
    "not a tar": (altered(lambda b: b"PK\x03\x04" * 1000), "expected an uncompressed .tar file"),
    "compressed": (altered(gzip.compress), "expected an uncompressed .tar file"),
    "truncated in a file": (altered(lambda b: b[: len(b) // 3]), "; "),
    "truncated in a header": (altered(lambda b: b[:300]), "expected an uncompressed .tar file, got 'truncated header'"),
    "bit flipped in a header": (altered(lambda b: b[:5] + b"Q" + b[6:]), "expected an uncompressed .tar file"),
    "size beyond the end": (
        altered(lambda b: header("evil", tarfile.REGTYPE, 2**33) + b),
        "8589934592 bytes beyond its end",
    ),
    "negative size": (
        altered(lambda b: header("evil", tarfile.REGTYPE, -1024) + b),
        "; ",
    ),
    "endless long name": (
        altered(lambda b: header("n", tarfile.GNUTYPE_LONGNAME, 2**33) + b),
        "expected headers of at most 65536",
    ),
    "endless pax header": (
        altered(lambda b: header("n", tarfile.XHDTYPE, 2**33) + b),
        "expected headers of at most 65536 bytes",
    ),
    "headers nested without end": (
        altered(lambda b: (header("n", tarfile.GNUTYPE_LONGNAME, 2) + b"a\0".ljust(512, b"\0")) * 5000 + b),
        "expected an uncompressed .tar file",
    ),
    "garbage pax header": (
        altered(lambda b: header("n", tarfile.XHDTYPE, 20) + b"99 path=x\n".ljust(512, b"\0") + b),
        "; ",
    ),
}


@pytest.mark.parametrize("attack", TAR)
def test_hostile_tar(directory: Path, attack: str) -> None:
    build, sentence = TAR[attack]
    path = build(directory)
    before = {p.name for p in directory.parent.iterdir()}
    assert sentence in stopped(path)
    assert {p.name for p in directory.parent.iterdir()} == before, "nothing was extracted"


def test_the_attacked_tar_is_sound_without_the_attack(directory: Path) -> None:
    with read_bundle(tar_of(directory)) as opened, read_bundle(directory) as original:
        assert opened.manifest == original.manifest
        for name in original.manifest.files:
            assert opened.read_file(name) == original.read_file(name)


@pytest.mark.parametrize("format_", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_tar_made_by_other_tools_is_read(directory: Path, format_: int) -> None:
    path = directory.with_suffix(".tar")
    with tarfile.open(path, "w", format=format_) as tar:
        tar.add(directory, ".")  # as `tar -C DIR -cf FILE .` does, with folders and a leading ./
    with read_bundle(path) as opened:
        assert opened.read_file("recipe.yaml") == b"name: tiny\n"


def test_every_truncation_of_a_tar_is_refused(directory: Path) -> None:
    path = directory.with_suffix(".tar")
    write_tar(directory, path)
    whole = path.read_bytes()
    end = len(whole.rstrip(b"\0"))
    for size in [*range(0, end, 97), end - 1]:
        path.write_bytes(whole[:size])
        stopped(path)


def test_every_flipped_byte_of_a_tar_is_refused_or_harmless(directory: Path) -> None:
    path = directory.with_suffix(".tar")
    write_tar(directory, path)
    with read_bundle(path) as opened:
        files = {name: opened.read_file(name) for name in opened.manifest.files}
    whole = path.read_bytes()
    for at in range(0, len(whole), 61):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            with read_bundle(path) as opened:
                assert {name: opened.read_file(name) for name in opened.manifest.files} == files
        except BundleRefused as refusal:
            message = str(refusal)
        else:
            message = "harmless"
        assert message.isprintable()


def test_a_manifest_that_names_files_outside_reaches_none(directory: Path) -> None:
    edit_manifest(directory, lambda m: m["files"].update({"../../etc/passwd": m["files"]["recipe.yaml"]}))
    assert "which leaves its folder" in stopped(directory)


def test_a_folder_of_several_bundles_says_which_there_are(directory: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(directory, directory.parent / "many" / name)
    assert "got none, and bundles in one, two; point to one of them, e.g. " in stopped(directory.parent / "many")
