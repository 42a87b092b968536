"""Represents a file's content as a list of buffers, so that large weights are joined only on disk."""

import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from runtime_lite.format.atomic_file import naming

CHUNK_BYTES = 1 << 24
"""Bytes of a file that are read at once where files are compared."""


NOTHING: Mapping[int, str] = MappingProxyType({})


class Pieces:
    """The pieces of a file, one after the other; arrays are held, not copied, and stay as they are.

    Args:
        parts: in order, as flat bytes.
        digests: SHA-256 of what lies at some places, by its first byte.
    """

    def __init__(self, parts: Iterable[memoryview], digests: Mapping[int, str] = NOTHING) -> None:
        self.parts, self.digests = tuple(parts), dict(digests)

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bytes | Pieces) and len(self) == len(other) and self.sha256 == sha256_of(other)

    __hash__ = None  # type: ignore[assignment]

    @functools.cached_property
    def sha256(self) -> str:
        """The SHA-256 of the whole file, computed once."""
        hasher = hashlib.sha256()
        for part in self.parts:
            hasher.update(part)
        return hasher.hexdigest()


Content = bytes | Pieces


def flat(array: npt.NDArray[Any]) -> memoryview:
    """Return an array's bytes as in ONNX files, little-endian; a view where it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def sha256_of(content: Content) -> str:
    """Return the SHA-256 of a file's content."""
    return content.sha256 if isinstance(content, Pieces) else hashlib.sha256(content).hexdigest()


def write_content(file: BinaryIO, content: Content) -> None:
    """Write a file's content, piece by piece."""
    for part in content.parts if isinstance(content, Pieces) else (content,):
        file.write(part)


def write_files(folder: Path, files: Mapping[str, Content]) -> None:
    """Write and flush to disk all files below a folder; an error names the file."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with naming(path), path.open("wb") as file:
            write_content(file, content)
            file.flush()
            os.fsync(file.fileno())


def is_written(file: BinaryIO, content: Content) -> bool:
    """Whether an open file has exactly this content."""
    wanted = _chunks(content.parts if isinstance(content, Pieces) else (content,))
    return all(file.read(len(chunk)) == chunk for chunk in wanted) and not file.read(1)


def _chunks(parts: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    for part in parts:
        view = memoryview(part)
        yield from (view[start : start + CHUNK_BYTES] for start in range(0, len(view), CHUNK_BYTES))
