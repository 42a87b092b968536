"""Reads and writes NumPy arrays as `.npz`; every size is checked before memory is allocated, and pickle is not used."""

import io
import math
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from runtime_lite.errors import BadInput, RuntimeLiteError, show
from runtime_lite.format.manifest import DTYPES

Array = NDArray[Any]

MAX_ARRAYS = 100_000
MAX_LIST_BYTES = 2**24  # of their names and places
MAX_ARRAYS_BYTES = 2**30  # of all arrays of one file, uncompressed
MAX_HEADER_BYTES = 1024
MAX_DIMENSIONS = 16

# the header exactly as numpy.lib.format writes it; structured and pickled dtypes do not match
_HEADER = re.compile(
    rb"\{'descr': '([<>|][a-z][0-9]{1,2})', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\), \} *\n"
)


def holds(dtype: str, number: float) -> bool:
    """Return whether an element type can represent a finite number, exactly or rounded to a finite one."""
    if dtype == "bool":
        return number in (0.0, 1.0)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return abs(number) <= float(np.finfo(kind).max)
    return number.is_integer() and int(np.iinfo(kind).min) <= int(number) <= int(np.iinfo(kind).max)


def npz_from_arrays(arrays: Mapping[str, Array]) -> bytes:
    """Return an uncompressed `.npz` of the arrays, sorted by name; equal arrays give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays):
            content = io.BytesIO()
            np.save(content, np.asarray(arrays[name]), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue())  # ZipInfo dates every entry 1980-01-01
    return buffer.getvalue()


def arrays_from_file(path: Path) -> dict[str, Array]:
    """Return the arrays of a caller's `.npz` file.

    Raises:
        BadInput: the file does not exist, is no `.npz`, is damaged or too large, or has other contents than plain
            numbers.
    """
    limit = MAX_ARRAYS_BYTES + 2**26  # names and headers
    try:
        with open(path, "rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise BadInput(
            f"{path}: expected an .npz file, got {error.strerror or error}; check the path and its permissions"
        ) from error
    if len(content) > limit:
        raise BadInput(f"{path}: expected at most {limit} bytes, got more; split the feeds")
    return arrays_from_npz(content, str(path), BadInput)


def arrays_from_npz(content: bytes, where: str, fault: type[RuntimeLiteError]) -> dict[str, Array]:
    """Return the arrays of the content of an `.npz` file.

    Args:
        content: the whole file.
        where: name of the file in messages.
        fault: error class to raise, depending on who wrote the file.

    Raises:
        RuntimeLiteError: of class `fault`: it is no `.npz`, is damaged or too large, or has other contents than plain
            numbers.
    """
    try:
        file = _Archive(content, where, fault)
        with zipfile.ZipFile(file) as archive:
            file.is_open = True
            members = archive.infolist()
            total_bytes = sum(member.file_size for member in members)
            if len(members) > MAX_ARRAYS or total_bytes > MAX_ARRAYS_BYTES:
                limit = f"at most {MAX_ARRAYS} arrays of {MAX_ARRAYS_BYTES} bytes in all"
                _refuse(fault, where, limit, f"{len(members)} arrays of {total_bytes} bytes")
            arrays: dict[str, Array] = {}
            for member in members:
                name = member.filename.removesuffix(".npy")
                if not name.isprintable() or not name.isascii() or name in arrays or name == member.filename:
                    _refuse(fault, where, "arrays '<name>.npy', each name once", show(member.filename))
                arrays[name] = _read_member(archive, member, f"{where}[{name!r}]", fault)
            return arrays
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, RuntimeError, NotImplementedError) as error:
        # RuntimeError is what zipfile raises for encrypted members
        _refuse(fault, where, "an .npz file as numpy.savez writes it", show(str(error)))


class _Archive(io.BytesIO):
    """A file whose list of members is limited in size, because `zipfile` reads the whole list when it opens a file.

    Attributes:
        is_open: whether the list has been read, so that members may be read.
    """

    def __init__(self, content: bytes, where: str, fault: type[RuntimeLiteError]) -> None:
        super().__init__(content)
        self.is_open = False
        self._where, self._fault = where, fault

    def read(self, size: int | None = -1) -> bytes:
        if not self.is_open and size is not None and size > MAX_LIST_BYTES:
            expected = f"at most {MAX_ARRAYS} arrays, in a list of at most {MAX_LIST_BYTES} bytes"
            _refuse(self._fault, self._where, expected, f"one of {size} bytes")
        return super().read(size)


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str, fault: type[RuntimeLiteError]) -> Array:
    with archive.open(member) as file:
        magic = file.read(8)
        length_bytes = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4}.get(magic)
        if length_bytes is None:
            _refuse(fault, where, "an .npy of version 1.0 or 2.0", show(magic))
        header_bytes = int.from_bytes(file.read(length_bytes), "little")
        if header_bytes > MAX_HEADER_BYTES:
            _refuse(fault, where, f"a header of at most {MAX_HEADER_BYTES} bytes", str(header_bytes))
        header = file.read(header_bytes)
        match = _HEADER.fullmatch(header)
        dtype = np.dtype(match[1].decode()) if match else None
        if match is None or dtype is None or dtype.name not in DTYPES:
            _refuse(fault, where, f"an array of {', '.join(DTYPES)}", show(header.rstrip()))
        sizes = match[3].replace(b",", b" ").split()
        if len(sizes) > MAX_DIMENSIONS or any(len(size) > 19 for size in sizes):
            _refuse(fault, where, f"at most {MAX_DIMENSIONS} dimensions of at most 19 digits", show(match[3]))
        shape = tuple(int(size) for size in sizes)
        array_bytes, content_bytes = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
        if array_bytes != content_bytes:
            _refuse(fault, where, f"{array_bytes} bytes for shape {show(shape)}", f"{content_bytes} bytes")
        flat = np.frombuffer(file.read(array_bytes), dtype)
        return flat.reshape(shape[::-1]).transpose() if match[2] == b"True" else flat.reshape(shape)


def _refuse(fault: type[RuntimeLiteError], where: str, expected: str, got: str) -> NoReturn:
    raise fault(f"{where}: expected {expected}, got {got}; write the file again with numpy.savez")
