"""Greedy decoding: pieces of any length give the text of the whole."""

import numpy as np
import pytest

from examples.streaming_asr import decode, text

TOKENS = text.TokenTable(("<blank>", "▁ab", "c", "▁d"))


def _logits(labels: list[int]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.eye(len(TOKENS.pieces), dtype=np.float32)[labels]


def test_repeats_and_blanks_are_dropped() -> None:
    decoder = decode.GreedyDecoder(TOKENS)
    assert decoder.push(_logits([0, 1, 1, 0, 2, 0, 2, 2, 3, 0])) == "abcc d"


@pytest.mark.parametrize("piece", [1, 3, 16])
def test_incremental_text_equals_whole_text(piece: int) -> None:
    logits = np.random.default_rng(piece).standard_normal((200, len(TOKENS.pieces))).astype(np.float32)
    decoder = decode.GreedyDecoder(TOKENS)
    for start in range(0, len(logits), piece):
        decoder.push(logits[np.newaxis, start : start + piece])
    assert decoder.text == decode.GreedyDecoder(TOKENS).push(logits)


def test_repeat_across_a_chunk_border_is_one_label() -> None:
    decoder = decode.GreedyDecoder(TOKENS)
    decoder.push(_logits([3]))
    assert decoder.push(_logits([3, 0, 3])) == "d d"


def test_logits_of_another_table_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected logits \[frames, 4\], got \[16, 5\]; use the label table"):
        decode.GreedyDecoder(TOKENS).push(np.zeros((16, 5), np.float32))
