"""Attacks through `.npz` files, golden feeds and a caller's own: sizes are checked before memory is taken."""

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_lite import BadInput, BundleRefused, Runtime
from runtime_lite.format import arrays
from runtime_lite.format.arrays import arrays_from_npz, npz_from_arrays
from runtime_lite.format.golden import golden_from_npz, npz_from_golden
from runtime_lite.verify import verify_model
from tests.runtime_lite.bundles import replace_hashed, streaming_golden, streaming_graph, write_streaming_bundle

GOLDEN = npz_from_golden(streaming_golden())


def npz(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def npy(header: str, content: bytes = b"", magic: bytes = b"\x93NUMPY\x01\x00") -> bytes:
    text = header.encode() + b"\n"
    return magic + struct.pack("<H", len(text)) + text + content


def saved(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def header(descr: str = "'<f4'", order: str = "False", shape: str = "(1,)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def encrypted(content: bytes) -> bytes:
    """Return an archive that claims its first member is encrypted."""
    raw = bytearray(content)
    raw[raw.index(b"PK\x03\x04") + 6] |= 1
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    return bytes(raw)


FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "expected an .npz file as numpy.savez writes it, got 'File is not a zip file'"),
    "not a zip": (lambda: b"\x93NUMPY" * 50, "expected an .npz file"),
    "truncated": (lambda: npz_from_arrays({"a": np.zeros(99)})[:-30], "expected an .npz file"),
    "pickle": (lambda: npz({"a.npy": saved(np.array([print], object))}), "['a']: expected an array of bool, float16"),
    "pickle without header": (
        lambda: npz({"a.npy": b"\x80\x04cos\nsystem\n(S'id'\ntR."}),
        "expected an .npy of version 1.0 or 2.0",
    ),
    "not an array": (lambda: npz({"a.npy": b"text"}), "expected an .npy of version 1.0 or 2.0, got b'text'"),
    "other member": (lambda: npz({"evil.so": b"x"}), "expected arrays '<name>.npy', each name once, got 'evil.so'"),
    "control character": (
        lambda: npz({"a\x1b.npy": saved(np.zeros(1))}),
        "expected arrays '<name>.npy', each name once",
    ),
    "huge shape": (
        lambda: npz({"a.npy": npy(header(shape="(1000000000000,)"))}),
        "expected 4000000000000 bytes for shape",
    ),
    "product of shape overflows": (
        lambda: npz({"a.npy": npy(header(shape="(4294967296, 4294967296, 0, 4294967296)"), b"1234")}),
        "expected 0 bytes for shape",
    ),
    "negative shape": (lambda: npz({"a.npy": npy(header(shape="(-1,)"), b"1234")}), "expected an array of"),
    "endless rank": (
        lambda: npz({"a.npy": npy(header(shape="(" + "1, " * 40 + ")"), b"1234")}),
        "expected at most 16 dimensions",
    ),
    "endless number": (
        lambda: npz({"a.npy": npy(header(shape="(" + "1" * 900 + ",)"))}),
        "expected at most 16 dimensions",
    ),
    "digits to split": (lambda: npz({"a.npy": npy(header(shape="(" + "1" * 900 + "x,)"))}), "expected an array of"),
    "code as header": (lambda: npz({"a.npy": npy("__import__('os').system('id')")}), "expected an array of"),
    "nested header": (lambda: npz({"a.npy": npy("(" * 900)}), "expected an array of"),
    "endless header": (lambda: npz({"a.npy": npy(" " * 60000)}), "expected a header of at most 1024 bytes, got 60001"),
    "endless header of version 2": (
        lambda: npz({"a.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\xff"}),
        "expected a header of at most 1024 bytes, got 4294967295",
    ),
    "later version": (
        lambda: npz({"a.npy": npy(header(), b"1234", b"\x93NUMPY\x03\x00")}),
        "expected an .npy of version 1.0 or 2.0",
    ),
    "records": (lambda: npz({"a.npy": saved(np.zeros(1, [("a", "f4")]))}), "expected an array of bool"),
    "texts": (lambda: npz({"a.npy": saved(np.array(["a"]))}), "expected an array of bool"),
    "dates": (lambda: npz({"a.npy": saved(np.array(["2026-01-01"], "M8[D]"))}), "expected an array of bool"),
    "complex": (lambda: npz({"a.npy": saved(np.zeros(1, np.complex64))}), "expected an array of bool"),
    "content too short": (lambda: npz({"a.npy": npy(header(), b"12")}), "expected 4 bytes for shape (1,), got 2 bytes"),
    "content too long": (
        lambda: npz({"a.npy": npy(header(), b"12345")}),
        "expected 4 bytes for shape (1,), got 5 bytes",
    ),
    "encrypted": (lambda: encrypted(npz_from_arrays({"a": np.zeros(9)})), "expected an .npz file"),
    "bit flipped": (
        lambda: npz_from_arrays({"a": np.zeros(9)}).replace(b"\0" * 8, b"\0" * 7 + b"\1", 1),
        "expected ",
    ),
}


@pytest.mark.parametrize("fault", [BadInput, BundleRefused])
@pytest.mark.parametrize("attack", FILES)
def test_hostile_npz(attack: str, fault: type[BadInput] | type[BundleRefused]) -> None:
    build, sentence = FILES[attack]
    with pytest.raises(fault) as refusal:
        arrays_from_npz(build(), "feeds.npz", fault)
    assert sentence in str(refusal.value)
    assert str(refusal.value).isprintable()


def test_a_bomb_is_refused_by_what_it_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = npz({f"{i}.npy": bytes(10**6) for i in range(20)}, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 50_000
    monkeypatch.setattr(arrays, "MAX_ARRAYS_BYTES", 10**7)
    with pytest.raises(
        BadInput, match=r"expected at most 100000 arrays of 10000000 bytes in all, got 20 arrays of 20000000"
    ):
        arrays_from_npz(bomb, "feeds.npz", BadInput)


def test_a_bomb_that_lies_about_its_size_is_refused() -> None:
    raw = bytearray(npz({"a.npy": npy(header(shape="(250000,)"), bytes(10**6))}, zipfile.ZIP_DEFLATED))
    central = raw.index(b"PK\x01\x02")
    raw[central + 24 : central + 28] = struct.pack("<I", 200)
    with pytest.raises(BadInput, match=r'expected an \.npz file as numpy.savez writes it, got "Bad CRC-32'):
        arrays_from_npz(bytes(raw), "feeds.npz", BadInput)


def change(**changes: Any) -> Callable[[dict[str, Any]], None]:
    def edit(found: dict[str, Any]) -> None:
        for name, value in changes.items():
            key = name.replace("__", "/")
            if value is None:
                del found[key]
            else:
                found[key] = value(found.get(key))

    return edit


RECORDINGS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "no tolerance": (change(tolerance=None), "expected a float32 scalar 'tolerance' from 0 to 1e6, got none"),
    "tolerance that forgives all": (
        change(tolerance=lambda _: np.float32(np.inf)),
        "expected a float32 scalar 'tolerance'",
    ),
    "tolerance that is nan": (change(tolerance=lambda _: np.float32(np.nan)), "expected a float32 scalar 'tolerance'"),
    "negative tolerance": (change(tolerance=lambda _: np.float32(-1)), "expected a float32 scalar 'tolerance'"),
    "tolerances": (change(tolerance=lambda _: np.zeros(3, np.float32)), "expected a float32 scalar 'tolerance'"),
    "tolerance as float64": (change(tolerance=lambda _: np.float64(1)), "expected a float32 scalar 'tolerance'"),
    "unknown array": (change(evil=lambda _: np.zeros(1)), "expected arrays 'step<4 digits>/feed/<input>'"),
    "gap in the steps": (
        change(step0002__feed__x=None, step0002__output__y=None),
        "expected steps 0000, 0001, ... without gaps",
    ),
    "feed missing": (change(step0002__feed__x=None), "[step0002/feed]: expected the arrays ['x'], got []"),
    "state fed": (
        change(step0000__feed__keys=lambda _: np.zeros((1, 5, 2))),
        "expected the arrays ['x'], got ['keys', 'x']",
    ),
    "output missing": (change(step0002__output__y=None), "[step0002/output]: expected the arrays ['y'], got []"),
    "last state missing": (
        change(step0004__output__next_keys=None),
        "expected the arrays ['next_keys', 'y'], got ['y']",
    ),
    "two rows": (
        change(step0001__feed__x=lambda x: np.concatenate([x, x])),
        "expected shape ['batch', 3, 2] at one row",
    ),
    "another rank": (
        change(step0001__feed__x=lambda x: x[0]),
        "expected float32 of shape ['batch', 3, 2], got float32 of shape",
    ),
    "another size": (change(step0001__output__y=lambda y: y[:, :1]), "expected shape ['batch', 3, 2] at one row"),
    "another dtype": (change(step0001__output__y=lambda y: y.astype("f8")), "got float64 of shape [1, 3, 2]"),
    "nan expected": (change(step0001__output__y=lambda y: y * np.nan), "expected finite values, got NaN or infinity"),
    "nan fed": (change(step0001__feed__x=lambda x: x * np.inf), "expected finite values, got NaN or infinity"),
}


@pytest.mark.parametrize("attack", RECORDINGS)
def test_hostile_golden_feeds(tmp_path: Path, attack: str) -> None:
    edit, sentence = RECORDINGS[attack]
    found: dict[str, Any] = dict(arrays_from_npz(GOLDEN, "golden", BundleRefused))
    edit(found)
    directory = write_streaming_bundle(tmp_path / "bundle")
    replace_hashed(directory, "golden/streaming.npz", npz_from_arrays(found))
    with Runtime() as runtime, pytest.raises(BundleRefused) as refusal:
        list(verify_model(runtime.load(directory)))
    assert sentence in str(refusal.value)
    assert "golden/streaming.npz" in str(refusal.value)


def test_golden_feeds_without_steps() -> None:
    content = npz_from_arrays({"tolerance": np.array(0, np.float32)})
    with pytest.raises(BundleRefused, match=r"expected steps 0000, 0001, \.\.\. without gaps, got \[\]"):
        golden_from_npz(content, "golden", streaming_graph())


@given(st.integers(0, len(GOLDEN) - 1), st.binary(min_size=1, max_size=4), st.booleans())
def test_any_damage_is_refused_or_harmless(at: int, junk: bytes, cut: bool) -> None:
    damaged = GOLDEN[:at] if cut else GOLDEN[:at] + junk + GOLDEN[at + len(junk) :]
    try:
        golden_from_npz(damaged, "golden", streaming_graph())
    except BundleRefused as refusal:
        message = str(refusal)
    else:
        message = "harmless"
    assert message.isprintable()


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(BadInput):
        arrays_from_npz(content, "feeds", BadInput)


@given(st.binary(max_size=80), st.binary(max_size=20))
def test_any_array_header_is_refused_or_read(start: bytes, rest: bytes) -> None:
    for content in (start + rest, npy(header())[:8] + start + rest, npy(header() + start.decode("latin-1"), rest)):
        try:
            arrays_from_npz(npz({"a.npy": content}), "feeds", BadInput)
        except BadInput as refusal:
            message = str(refusal)
        else:
            message = "harmless"
        assert message.isprintable()
