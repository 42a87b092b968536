"""What is drawn: a tone lies at its frequency, and the file is a PNG of the picture."""

import struct
import zlib

import numpy as np

from examples.codec_tts import spectrogram


def test_a_tone_lies_at_its_frequency_and_silence_is_black() -> None:
    times = np.arange(8000) / 16000
    samples = np.where(times < 0.25, np.sin(2 * np.pi * 2000 * times), 0.0).astype(np.float32)
    drawn = spectrogram.spectrogram(samples)
    assert drawn.shape[0] == 257 and drawn.dtype == np.uint8
    assert drawn[:, 20].argmax() == 256 - 2000 * 512 // 16000
    assert drawn[:, 20].max() > 250 and not drawn[:, 80:].any()


def test_shorter_ones_are_filled_up_and_parted_by_white() -> None:
    drawn = spectrogram.stacked([np.full((3, 5), 9, np.uint8), np.full((3, 2), 8, np.uint8)])
    assert drawn.shape == (3 + spectrogram.GAP + 3, 5)
    assert (drawn[3:-3] == 255).all()
    assert drawn[-1].tolist() == [8, 8, 0, 0, 0]


def test_the_file_holds_the_picture() -> None:
    picture = np.arange(12, dtype=np.uint8).reshape(3, 4)
    written = spectrogram.png(picture)
    assert written.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", written[16:24]) == (4, 3)
    at = written.index(b"IDAT")
    (size,) = struct.unpack(">I", written[at - 4 : at])
    lines = np.frombuffer(zlib.decompress(written[at + 4 : at + 4 + size]), np.uint8).reshape(3, 5)
    np.testing.assert_array_equal(lines[:, 1:], picture)
    assert struct.unpack(">I", written[at + 4 + size : at + 8 + size]) == (zlib.crc32(written[at : at + 4 + size]),)
