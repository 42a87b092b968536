"""Measures the speech of the original models on held-out sentences, beside the recordings and the codec alone.

    python -m examples.codec_tts.evaluate --recordings FOLDER --count 128
    python -m examples.codec_tts.evaluate --recordings FOLDER --side development --count 32 --temperature 0.8 --seed 3
    python -m examples.codec_tts.evaluate --recordings FOLDER --bundle dist/tts_ar

The table has one row per way of speaking: espeak-ng itself, the codec with all codebooks and with the first, the speech
model. Every row is measured on the same sentences in the same voices. `heard as` is the share of sentences whose timbre
is nearest to that of the prompt's voice, `alike` the similarity to it; the timbres are those of the recordings. With a
bundle, the output ends with a comparison of the bundle and the original, both run from the prompt's sound to the
sentence's: the number of sentences with equal codes, the differences of scores and sound, the near ties, and the
bundle's times on one thread.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import soundfile
import torch
from rich import progress

import runtime_lite
from examples import command
from examples.codec_tts import (
    agreement,
    checkpoint,
    codec,
    generation,
    judges,
    prompt,
    recordings,
    say,
    sentences,
    speak,
    speech_model,
)
from examples.streaming_asr import metric

Speak = Callable[[recordings.Recording], judges.Samples]


def through_codec(trained: codec.Codec, books: int) -> Speak:
    """Return a function that encodes a recording and decodes its first codebooks."""

    def resynthesise(recording: recordings.Recording) -> judges.Samples:
        with torch.inference_mode():
            codes = trained.encode(torch.from_numpy(recording.waveform)[None])[0, :, :books]
        return speak.sound(trained, codes.numpy())

    return resynthesise


def by_model(
    trained: codec.Codec, model: speech_model.SpeechModel, pick: Callable[[], generation.Pick], said: agreement.Said
) -> Speak:
    """Return a function that speaks a recording's sentence with the prompt of its voice.

    Args:
        trained: the codec.
        model: the speech model.
        pick: makes what takes codes, anew for every sentence.
        said: collects codes, scores and sound.

    Returns:
        What speaks.
    """
    prompts = [speak.encode_prompt(trained, prompt.of_voice(voice)) for voice in recordings.VOICES]

    def generate(recording: recordings.Recording) -> judges.Samples:
        letters = sentences.encode(recording.sentence)
        said.codes.append(speak.generate(model, letters, prompts[recording.voice], said.hearing(pick())))
        said.samples.append(speak.sound(trained, said.codes[-1]))
        return said.samples[-1]

    return generate


def by_bundle(speaker: say.Speaker, pick: Callable[[], generation.Pick], said: agreement.Said) -> Speak:
    """Return a function that speaks with a bundle, including the prompt encoder, as `say` does.

    Args:
        speaker: the bundle.
        pick: makes what takes codes, anew for every sentence.
        said: collects codes, scores, sound and times.

    Returns:
        What speaks.
    """
    prompts = [prompt.read(prompt.of_voice(voice)) for voice in recordings.VOICES]

    def generate(recording: recordings.Recording) -> judges.Samples:
        letters = sentences.encode(recording.sentence)
        spoken = speaker.speak(letters, prompts[recording.voice], said.hearing(pick()))
        said.codes.append(spoken.codes)
        said.samples.append(spoken.samples)
        said.first_s.append(spoken.first_s)
        said.factors.append(spoken.factor)
        return spoken.samples

    return generate


def judge(name: str, spoken: Sequence[judges.Samples], truth: Sequence[recordings.Recording]) -> str:
    """Return one row of the table.

    Args:
        name: name of the way of speaking.
        spoken: float32 [samples] per sentence.
        truth: the recordings of the same sentences, of all voices.

    Returns:
        The row in Markdown: word error rate, mel distance in nats, duration against the recordings', share heard as
        the right voice, similarity to it.
    """
    recogniser = judges.Recogniser()
    rate = metric.wer([each.sentence for each in truth], [recogniser.transcribe(samples) for samples in spoken])
    pairs = list(zip(spoken, truth, strict=True))
    heard = [pair for pair in pairs if len(pair[0]) >= generation.CODE_SAMPLES * 2]
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


def write(folder: Path, way: str, spoken: Sequence[judges.Samples]) -> None:
    """Write the spoken sentences: `000-espeak-ng.wav`, `000-bundle.wav`, `001-espeak-ng.wav`, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    for at, samples in enumerate(spoken):
        name = "-".join(way.replace(",", "").split())
        soundfile.write(folder / f"{at:03}-{name}.wav", samples, prompt.SAMPLE_RATE_HZ, subtype="PCM_16")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=Path, required=True, help="folder that `recordings` wrote")
    parser.add_argument("--side", choices=("development", "test"), default="test")
    parser.add_argument("--count", type=int, default=128, help="sentences")
    parser.add_argument("--temperature", type=float, help="draw codes instead of taking the likeliest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("espeak-ng", "codec", "model"), help="one way of speaking")
    parser.add_argument("--bundle", type=Path, help="built from tts_ar.yaml")
    parser.add_argument("--speech", type=Path, default=checkpoint.SPEECH_PATH, help="weights of the speech model")
    parser.add_argument("--keep", type=Path, help="folder for what was said, NUMBER-WAY.wav")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    trained = speak.original_codec()
    truth = recordings.read(arguments.recordings / f"{arguments.side}.npz")[: arguments.count]
    original, bundle = agreement.Said(), agreement.Said()
    model = checkpoint.load(speech_model.build(), arguments.speech)

    def pick() -> generation.Pick:
        return generation.picking(arguments.temperature, arguments.seed)

    ways: dict[str, tuple[str, Callable[[], Speak]]] = {
        "espeak-ng": ("espeak-ng", lambda: lambda each: each.waveform),
        "codec, 4 codebooks": ("codec", lambda: through_codec(trained, 4)),
        "codec, first codebook": ("codec", lambda: through_codec(trained, 1)),
        "text to speech": ("model", lambda: by_model(trained, model, pick, original)),
    }
    with runtime_lite.Runtime() as runtime:
        if arguments.bundle is not None:
            speaker = say.Speaker(runtime.load(arguments.bundle, warm_up=True))
            ways["bundle"] = ("model", lambda: by_bundle(speaker, pick, bundle))
        print("| what speaks | WER | mel distance | length | heard as its voice | alike |\n|---|---|---|---|---|---|")
        for name, (kind, way) in ways.items():
            if arguments.only in (None, kind):
                make = way()
                spoken = [make(each) for each in progress.track(truth, name, transient=True)]
                print(judge(name, spoken, truth), flush=True)
                if arguments.keep is not None:
                    write(arguments.keep, name, spoken)
    if bundle.codes:
        print(*agreement.compared(original, bundle), sep="\n")


if __name__ == "__main__":
    command.run(main)
