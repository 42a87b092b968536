"""A sentence to speak, and its options: the arguments that the original's and the bundle's commands share."""

import argparse
import dataclasses
from pathlib import Path

from examples.codec_tts import generation, prompt, recordings, sentences


@dataclasses.dataclass(frozen=True)
class Wish:
    """One sentence to speak.

    Attributes:
        letters: from `sentences.encode`.
        prompt: recording of the voice.
        pick: chooses a code by its scores.
        output: WAV file to write.
    """

    letters: list[int]
    prompt: Path
    pick: generation.Pick
    output: Path


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a command that speaks to its parser."""
    parser.add_argument("sentence", help=f"of the words: {' '.join(sentences.VOCABULARY)}")
    parser.add_argument("--voice", choices=recordings.VOICES, default=recordings.VOICES[0])
    parser.add_argument("--prompt", type=Path, help="half a second of another voice; the model knows four")
    parser.add_argument("--temperature", type=float, help="draw codes instead of taking the likeliest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, required=True, help="WAV file to write")


def of(arguments: argparse.Namespace) -> Wish:
    """Return the sentence and options of a command line.

    Args:
        arguments: parsed arguments, including those of `add_to`.

    Raises:
        ValueError: a word is not in the vocabulary, or the temperature is not above 0.
    """
    return Wish(
        sentences.encode(arguments.sentence),
        arguments.prompt or prompt.of_voice(arguments.voice),
        generation.picking(arguments.temperature, arguments.seed),
        arguments.output,
    )
