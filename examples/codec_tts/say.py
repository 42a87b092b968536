"""Speaks a sentence with a bundle: text and a voice's prompt to codes, and codes to sound as they come.

    python build.py --recipe tts_ar.yaml
    python -m examples.codec_tts.say dist/tts_ar "turn left and report speed" --voice f2 -o out.wav

It needs no PyTorch. It takes the words, voices and options of `speak`, and draws the same codes for the same seed. At
the end it prints the real-time factor and the time to the first sound. A mistake of the caller ends in one sentence and
exit code 2.
"""

import argparse
import dataclasses
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile

import runtime_lite
from examples.codec_tts import generation, prompt, wish


@dataclasses.dataclass(frozen=True)
class Spoken:
    """One sentence spoken by a bundle.

    Attributes:
        codes: first codebook, int64 [time].
        samples: float32 [time * 320], 16 kHz.
        first_s: seconds from text and prompt to the first sound.
        elapsed_s: seconds to the last one.
    """

    codes: generation.Codes
    samples: prompt.Samples
    first_s: float
    elapsed_s: float

    @property
    def factor(self) -> float:
        """Seconds of computation per second of sound, infinite without sound."""
        seconds = len(self.samples) / prompt.SAMPLE_RATE_HZ
        return self.elapsed_s / seconds if seconds else math.inf


class Speaker:
    """A bundle that speaks.

    Args:
        model: built from `tts_ar.yaml`.
    """

    def __init__(self, model: runtime_lite.Model) -> None:
        self.model = model

    def speak(self, letters: list[int], voice: prompt.Samples, pick: generation.Pick) -> Spoken:
        """Speak one sentence and keep its times.

        Args:
            letters: from `sentences.encode`.
            voice: float32 [8000], from `prompt.read`.
            pick: `generation.greedy`, or what `generation.sampling` gives.
        """
        started_s = time.perf_counter()
        said: list[int] = []

        def codes() -> Iterator[int]:
            for code in self.codes(letters, self.encode_prompt(voice), pick):
                said.append(code)
                yield code

        packets, heard_s = [np.zeros(0, np.float32)], []
        for packet in self.sound(codes()):
            packets.append(packet)
            heard_s.append(time.perf_counter() - started_s)
        elapsed_s = time.perf_counter() - started_s
        first_s = heard_s[0] if heard_s else elapsed_s
        return Spoken(np.array(said, np.int64), np.concatenate(packets), first_s, elapsed_s)

    def encode_prompt(self, samples: prompt.Samples) -> generation.Codes:
        """Return the first-codebook codes of a prompt, int64 [25]; samples float32 [8000] from `prompt.read`."""
        return np.asarray(self.model.run({"waveform": samples[None]}, "voice")["scores"][0].argmax(-1), np.int64)

    def codes(self, letters: list[int], voice: generation.Codes, pick: generation.Pick) -> Iterator[int]:
        """Yield the codes of one sentence, one per call of the model.

        Args:
            letters: from `sentences.encode`.
            voice: int64 [25], from `encode_prompt`.
            pick: `generation.greedy`, or what `generation.sampling` gives.

        Yields:
            Codes of the first codebook, without boundaries.
        """
        text, heard = np.array([letters]), [*voice.tolist(), generation.BOUNDARY]
        with self.model.open_stream(graph="speech") as stream:

            def following(*codes: int) -> generation.Scores:
                scores = stream.push({"text": text, "codes": np.array([codes])})["scores"]
                return np.asarray(scores[0, -1], np.float32)

            yield from generation.generate(following(*heard), following, pick)

    def sound(self, codes: Iterator[int], seed: int = 0) -> Iterator[prompt.Samples]:
        """Decode codes to a waveform, packet by packet, as one stream of the decoder.

        Args:
            codes: codes of the first codebook.
            seed: seed of the noise in consonants.

        Yields:
            float32 [codes * 320], 16 kHz: of 5 codes, then of 10, finally of the remaining ones.
        """
        noise = generation.noise(generation.LONGEST_FRAMES, seed)
        done = 0
        with self.model.open_stream(graph="codec") as stream:
            for packet in generation.packets(codes):
                feed = {"codes": np.array(packet)[None, :, None], "noise": noise[None, done : done + len(packet)]}
                yield np.asarray(stream.push(feed)["waveform"][0], np.float32)
                done += len(packet)


def main() -> int:
    """Speak the sentence of the command line.

    Returns:
        0, or 2 if a word, a file or the bundle was refused.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="folder that tts_ar.yaml was built to")
    wish.add_to(parser)
    arguments = parser.parse_args()
    try:
        wanted = wish.of(arguments)
        samples = prompt.read(wanted.prompt)
        with runtime_lite.Runtime() as runtime:
            speaker = Speaker(runtime.load(arguments.bundle, warm_up=True))
            spoken = speaker.speak(wanted.letters, samples, wanted.pick)
        soundfile.write(wanted.output, spoken.samples, prompt.SAMPLE_RATE_HZ, subtype="PCM_16")
    except (ValueError, OSError, soundfile.LibsndfileError, runtime_lite.BadInput, runtime_lite.BundleRefused) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    seconds = len(spoken.samples) / prompt.SAMPLE_RATE_HZ
    print(
        f"{seconds:.1f} s of speech in {spoken.elapsed_s:.2f} s, real-time factor {spoken.factor:.3f}, "
        f"first sound after {1000 * spoken.first_s:.0f} ms"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
