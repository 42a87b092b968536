"""Judge what the original models say on held-out sentences, beside the recordings and the codec alone.

    python -m examples.codec_tts.evaluate --recordings FOLDER --count 128
    python -m examples.codec_tts.evaluate --recordings FOLDER --side development --count 32 --temperature 0.8 --seed 3

One row per way of speaking: espeak-ng itself, the codec with all codebooks and with the first, the speech model. Every
row is judged on the same sentences in the same voices. `heard as` is the share of sentences whose timbre is nearest to
that of the prompt's voice, `alike` the similarity to it; the timbres are those of the recordings.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from rich import progress

from examples import command
from examples.codec_tts import codec, judges, recordings, sentences, speak
from examples.streaming_asr import metric

Speak = Callable[[recordings.Recording], judges.Samples]


def through_codec(trained: codec.Codec, books: int) -> Speak:
    """Speaks by encoding the recording and decoding its first codebooks."""

    def resynthesise(recording: recordings.Recording) -> judges.Samples:
        with torch.inference_mode():
            codes = trained.encode(torch.from_numpy(recording.waveform)[None])[0, :, :books]
        return speak.sound(trained, codes.numpy())

    return resynthesise


def by_model(trained: codec.Codec, pick: Callable[[], speak.Pick]) -> Speak:
    """Speaks the recording's sentence with the prompt of its voice.

    Args:
        trained: the codec.
        pick: makes what takes codes, anew for every sentence.

    Returns:
        What speaks.
    """
    model = speak.load()
    prompts = [speak.encode_prompt(trained, speak.PROMPTS_FOLDER / f"{voice}.flac") for voice in recordings.VOICES]

    def generate(recording: recordings.Recording) -> judges.Samples:
        letters = sentences.encode(recording.sentence)
        return speak.sound(trained, speak.generate(model, letters, prompts[recording.voice], pick()))

    return generate


def judge(name: str, spoken: Sequence[judges.Samples], truth: Sequence[recordings.Recording]) -> str:
    """One row of the table.

    Args:
        name: what speaks.
        spoken: float32 [samples] per sentence.
        truth: the recordings of the same sentences, of all voices.

    Returns:
        The row in Markdown: word error rate, mel distance in nats, duration against the recordings', share heard as
        the right voice, similarity to it.
    """
    recogniser = judges.Recogniser()
    rate = metric.wer([each.sentence for each in truth], [recogniser.transcribe(samples) for samples in spoken])
    pairs = list(zip(spoken, truth, strict=True))
    heard = [pair for pair in pairs if len(pair[0]) >= codec.CODE_SAMPLES * 2]
    distance = np.mean([judges.mel_distance(samples, each.waveform) for samples, each in heard])
    length = sum(len(samples) for samples in spoken) / sum(len(each.samples) for each in truth)
    voices = range(len(recordings.VOICES))
    timbres = [judges.timbre([each.waveform for each in truth if each.voice == voice]) for voice in voices]
    everyone = judges.mean_timbre(timbres)
    alike = [
        ([judges.similarity(judges.timbre([samples]), timbre, everyone) for timbre in timbres], each.voice)
        for samples, each in heard
    ]
    right = np.mean([int(np.argmax(all_voices)) == voice for all_voices, voice in alike])
    own = np.mean([all_voices[voice] for all_voices, voice in alike])
    return f"| {name} | {rate:.1%} | {distance:.2f} | {length:.2f} | {right:.0%} | {own:.2f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=Path, required=True, help="folder that `recordings` wrote")
    parser.add_argument("--side", choices=("development", "test"), default="test")
    parser.add_argument("--count", type=int, default=128, help="sentences")
    parser.add_argument("--temperature", type=float, help="draw codes instead of taking the likeliest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("espeak-ng", "codec", "model"), help="one way of speaking")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    trained = codec.load(speak.CODEC_PATH)
    truth = recordings.read(arguments.recordings / f"{arguments.side}.npz")[: arguments.count]

    def pick() -> speak.Pick:
        return speak.greedy if arguments.temperature is None else speak.sampling(arguments.temperature, arguments.seed)

    ways: dict[str, tuple[str, Callable[[], Speak]]] = {
        "espeak-ng": ("espeak-ng", lambda: lambda each: each.waveform),
        "codec, 4 codebooks": ("codec", lambda: through_codec(trained, 4)),
        "codec, first codebook": ("codec", lambda: through_codec(trained, 1)),
        "text to speech": ("model", lambda: by_model(trained, pick)),
    }
    print("| what speaks | WER | mel distance | length | heard as its voice | alike |\n|---|---|---|---|---|---|")
    for name, (kind, way) in ways.items():
        if arguments.only in (None, kind):
            make = way()
            print(judge(name, [make(each) for each in progress.track(truth, name, transient=True)], truth), flush=True)


if __name__ == "__main__":
    command.run(main)
