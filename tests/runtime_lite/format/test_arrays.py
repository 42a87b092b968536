"""Arrays survive the way to `.npz` and back, in one spelling; attacks on the reader are in tests/attacks."""

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from runtime_lite import BadInput
from runtime_lite.format.arrays import MAX_ARRAYS, MAX_LIST_BYTES, arrays_from_npz, holds, npz_from_arrays
from runtime_lite.format.manifest import DTYPES


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (2, 3), (2, 3, 4)])
def test_arrays_survive_the_way_to_npz_and_back(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    content = npz_from_arrays({"b/c": array, "a": array.T.copy().T})
    assert content == npz_from_arrays({"a": array.T.copy().T, "b/c": array})
    found = arrays_from_npz(content, "feeds", BadInput)
    assert list(found) == ["a", "b/c"]
    for got in found.values():
        np.testing.assert_array_equal(got, array)
        assert got.dtype == array.dtype
        assert got.shape == array.shape


HELD = {
    "bool": ([0.0, 1.0], [0.5, 2.0, -1.0]),
    "float16": ([0.1, -65504.0], [65520.0]),
    "float32": ([-11.5, 3.4e38], [3.5e38]),
    "int8": ([-128.0, 127.0], [128.0, 0.5]),
    "uint8": ([0.0, 255.0], [-1.0]),
    "int64": ([-(2.0**63)], [2.0**63]),
}


@pytest.mark.parametrize("dtype", HELD)
def test_numbers_that_a_type_has(dtype: str) -> None:
    has, lacks = HELD[dtype]
    assert [holds(dtype, number) for number in (*has, *lacks)] == [True] * len(has) + [False] * len(lacks)


def test_what_numpy_writes_is_read(tmp_path: Path) -> None:
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.array(7)}
    for name, save in (("plain", np.savez), ("packed", np.savez_compressed)):
        save(tmp_path / name, **arrays)  # type: ignore[arg-type]
        found = arrays_from_npz((tmp_path / f"{name}.npz").read_bytes(), name, BadInput)
        for key, array in arrays.items():
            np.testing.assert_array_equal(found[key], array)


def test_a_list_of_members_without_end_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list at the end of the file: `zipfile` makes a record of every member, whether or not it is there."""
    entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 33, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0) + b"a.npy"
    count = MAX_LIST_BYTES // len(entry) + 1
    end = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, count * len(entry), 0)
    end += struct.pack("<4sLQL", b"PK\x06\x07", 0, count * len(entry), 1)
    end += struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    content = entry * count + end
    monkeypatch.setattr(zipfile.ZipInfo, "__init__", lambda *given: pytest.fail("a record was made"))
    with pytest.raises(BadInput, match=f"feeds: expected at most {MAX_ARRAYS} arrays, in a list of at most"):
        arrays_from_npz(content, "feeds", BadInput)
