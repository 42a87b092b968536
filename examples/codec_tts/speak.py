"""Speaks a sentence with the original models: text and a voice's prompt to codes, codes to a waveform.

    python -m examples.codec_tts.speak "turn left and report speed" --voice f2 -o out.wav

`--voice` names a shipped prompt, `--prompt` is a recording of your own: half a second of speech, WAV or FLAC. There is
no cache: every code takes a call over the whole sequence. Without `--temperature` the likeliest code is taken; with it,
codes are drawn, and equal seeds draw equal codes. A mistake of the caller ends in one sentence and exit code 2.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import soundfile
import torch

from examples.codec_tts import checkpoint, codec, generation, prompt, speech_model, wish

Samples = prompt.Samples


def original_speech() -> speech_model.SpeechModel:
    """Return the trained speech model."""
    return checkpoint.load(speech_model.build(), checkpoint.SPEECH_PATH)


def original_codec() -> codec.Codec:
    """Return the trained codec."""
    return checkpoint.load(codec.Codec(), checkpoint.CODEC_PATH)


def generate(
    model: speech_model.SpeechModel, letters: list[int], voice: generation.Codes, pick: generation.Pick
) -> generation.Codes:
    """Return the codes of one sentence; every code takes a call over all codes before it.

    Args:
        model: the model in evaluation mode.
        letters: from `sentences.encode`.
        voice: int64 [25], the prompt in first-codebook codes.
        pick: `generation.greedy`, or the result of `generation.sampling`.

    Returns:
        int64 [time], first codebook, without boundaries.
    """
    text, heard = torch.tensor([letters]), [*voice.tolist(), generation.BOUNDARY]

    def following(code: int) -> generation.Scores:
        heard.append(code)
        return scores()

    def scores() -> generation.Scores:
        with torch.inference_mode():
            return np.asarray(model(text, torch.tensor([heard]))[0, -1].numpy(), np.float32)

    return np.array([*generation.generate(scores(), following, pick)], np.int64)


def sound(trained: codec.Codec, codes: generation.Codes, seed: int = 0) -> Samples:
    """Decode codes to a waveform.

    Args:
        trained: the codec.
        codes: int64 [time] of the first codebook, or [time, codebooks].
        seed: seed of the noise in consonants.

    Returns:
        float32 [time * 320], 16 kHz.
    """
    given = torch.from_numpy(codes.reshape(1, len(codes), -1))
    noise = torch.from_numpy(generation.noise(len(codes), seed)[None])
    with torch.inference_mode():
        return np.asarray(trained.decode(given, noise)[0].numpy(), np.float32)


def encode_prompt(trained: codec.Codec, path: Path) -> generation.Codes:
    """Return the first-codebook codes of a prompt.

    Args:
        trained: the codec.
        path: a recording that `prompt.read` can read.

    Returns:
        int64 [25].

    Raises:
        ValueError: if the file is missing, is not audio, or is too short.
    """
    with torch.inference_mode():
        codes = trained.encode(torch.from_numpy(prompt.read(path))[None])
    return np.asarray(codes[0, :, 0].numpy(), np.int64)


def main() -> int:
    """Speak the sentence of the command line.

    Returns:
        0, or 2 if a word or a file was refused.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    wish.add_to(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    try:
        wanted = wish.of(arguments)
        trained, model = original_codec(), original_speech()
        voice = encode_prompt(trained, wanted.prompt)
        started_s = time.perf_counter()
        codes = generate(model, wanted.letters, voice, wanted.pick)
        samples = sound(trained, codes)
        soundfile.write(wanted.output, samples, prompt.SAMPLE_RATE_HZ, subtype="PCM_16")
    except (ValueError, OSError, soundfile.LibsndfileError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    elapsed_s, seconds = time.perf_counter() - started_s, len(samples) / prompt.SAMPLE_RATE_HZ
    print(f"{seconds:.1f} s of speech in {elapsed_s:.2f} s, {len(codes)} codes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
