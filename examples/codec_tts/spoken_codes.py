"""The training sentences as first-codebook codes, shipped for recipes that train the model again.

    python -m examples.codec_tts.spoken_codes --recordings RECORDINGS

Recordings take 190 MB, their codes half a megabyte. Codes of another codec need another file.
"""

import argparse
from pathlib import Path

import numpy as np

from examples import command
from examples.codec_tts import speak, train_speech

PATH = Path(__file__).with_name("spoken_codes.npz")


def write(path: Path, spoken: list[train_speech.Spoken]) -> None:
    """Write sentences to a file; on an error no file is left."""
    partial = path.with_suffix(".partial.npz")
    np.savez_compressed(
        partial,
        letters=np.concatenate([np.array(each.letters, np.uint8) for each in spoken]),
        letters_end=np.cumsum([len(each.letters) for each in spoken]),
        codes=np.concatenate([each.codes.astype(np.uint16) for each in spoken]),
        codes_end=np.cumsum([len(each.codes) for each in spoken]),
        voices=np.array([each.voice for each in spoken], np.uint8),
    )
    partial.rename(path)


def read(path: Path = PATH) -> list[train_speech.Spoken]:
    """Read a file that `write` wrote.

    Raises:
        FileNotFoundError: if there is no such file.
    """
    with np.load(path) as file:
        letters = np.split(file["letters"].astype(np.int64), file["letters_end"][:-1])
        codes = np.split(file["codes"].astype(np.int64), file["codes_end"][:-1])
        rows = zip(letters, codes, file["voices"].tolist(), strict=True)
        return [train_speech.Spoken(each.tolist(), said, voice) for each, said, voice in rows]


def main() -> None:
    """Encode the training recordings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=PATH)
    arguments = parser.parse_args()
    spoken = train_speech.read_spoken(speak.original_codec(), arguments.recordings / "training.npz")
    write(arguments.output, spoken)


if __name__ == "__main__":
    command.run(main)
