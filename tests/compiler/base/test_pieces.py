"""Files whose pieces are joined on disk alone are what their bytes are."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from compiler.base import pieces
from compiler.base.pieces import Content, Pieces, flat, is_written, sha256_of, write_files

TURNED = np.arange(12, dtype=np.int8).reshape(3, 4).T
PARTS: list[np.ndarray] = [np.arange(5, dtype=np.float32), np.zeros(0, np.uint8), TURNED]
CONTENT = b"".join(part.tobytes() for part in PARTS)


@pytest.mark.parametrize("content", [Pieces(map(flat, PARTS)), CONTENT])
def test_pieces_are_what_their_bytes_are(tmp_path: Path, content: Content, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "CHUNK_BYTES", 7)
    assert (len(content), bytes(content)) == (len(CONTENT), CONTENT)
    assert content == CONTENT and content != CONTENT[:-1] and content != CONTENT[1:] + b"x"
    assert sha256_of(content) == hashlib.sha256(CONTENT).hexdigest()
    write_files(tmp_path, {"a/b": content})
    for other in (CONTENT, CONTENT[:-1], CONTENT + b"x", b"x" + CONTENT[1:]):
        (tmp_path / "c").write_bytes(other)
        with (tmp_path / "c").open("rb") as file:
            assert is_written(file, content) == (other == (tmp_path / "a" / "b").read_bytes())


def test_an_array_in_one_piece_is_not_copied() -> None:
    assert np.shares_memory(flat(PARTS[0]), PARTS[0])
