"""Draws spectrograms of WAV files, one above the other, into a PNG.

    python -m examples.codec_tts.spectrogram espeak-ng.wav bundle.wav -o spoken.png

Time goes to the right, 5 ms per column; frequencies go up from 0 to 8 kHz; bright is loud, and black is 70 dB below the
loudest value of the file. A shorter file ends in black.
"""

import argparse
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from examples import command
from examples.codec_tts import prompt
from examples.streaming_asr import transcribe

WINDOW, HOP = 512, 80
"""Samples of one transform, and between two columns."""

RANGE_DB = 70.0
GAP = 6
"""White rows between two spectrograms."""

Picture = npt.NDArray[np.uint8]


def spectrogram(samples: prompt.Samples) -> Picture:
    """Return the levels of a sentence as a picture.

    Args:
        samples: float32 [samples], 16 kHz.

    Returns:
        uint8 [257, columns], highest frequencies first: 255 for the loudest value, 0 for 70 dB below it.
    """
    padded = np.pad(samples.astype(np.float64), WINDOW // 2)
    pieces = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    power = np.square(np.abs(np.fft.rfft(pieces * np.hanning(WINDOW)))).T[::-1] + 1e-12
    decibels = 10.0 * np.log10(power / power.max())
    return np.asarray(np.round(255.0 * np.clip(1.0 + decibels / RANGE_DB, 0.0, 1.0)), np.uint8)


def stacked(pictures: list[Picture]) -> Picture:
    """Join pictures of one height one above the other; shorter ones are padded with black."""
    columns = max(each.shape[1] for each in pictures)
    gap = np.full((GAP, columns), 255, np.uint8)
    rows = [part for each in pictures for part in (gap, np.pad(each, ((0, 0), (0, columns - each.shape[1]))))]
    return np.concatenate(rows[1:])


def png(picture: Picture) -> bytes:
    """Return a grey picture uint8 [rows, columns] as PNG (ISO/IEC 15948): header, one compressed block, end."""
    rows, columns = picture.shape
    lines = np.pad(picture, ((0, 0), (1, 0))).tobytes()  # a 0 in front of every row: it is written as it is
    header = struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    written = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


def main() -> None:
    """Draw the files of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, nargs="+", metavar="WAV")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    pictures = [spectrogram(transcribe.read_recording(path)) for path in arguments.recordings]
    arguments.output.write_bytes(png(stacked(pictures)))


if __name__ == "__main__":
    command.run(main)
