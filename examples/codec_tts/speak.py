"""Speak a sentence with the original models: text and a voice's prompt to codes, codes to a waveform.

    python -m examples.codec_tts.speak "turn left and report speed" --voice f2 -o out.wav

`--voice` names a prompt that is shipped, `--prompt` is a recording of your own: half a second of speech, WAV or FLAC.
Every code costs a call over the whole sequence: no cache. Without `--temperature` the likeliest code is taken; with
it, codes are drawn, and equal seeds draw equal codes. A mistake of the caller is one sentence and exit code 2.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import safetensors.torch
import soundfile
import torch

from examples.codec_tts import codec, judges, recordings, sentences, speech_model
from examples.streaming_asr import transcribe

LONGEST_FRAMES = 300
"""A sentence that has not ended after 6 s is cut off."""

CODEC_PATH = Path(__file__).with_name("codec.safetensors")
SPEECH_PATH = Path(__file__).with_name("speech.safetensors")
PROMPTS_FOLDER = Path(__file__).with_name("prompts")
"""Half a second of each voice, written by `recordings.py`."""

Codes = npt.NDArray[np.int64]
Pick = Callable[[npt.NDArray[np.float32]], int]
"""Scores of the next code, float32 [513], to the code that is taken."""


def greedy(scores: npt.NDArray[np.float32]) -> int:
    """The likeliest code; the first of equals."""
    return int(scores.argmax())


def sampling(temperature: float, seed: int) -> Pick:
    """Draws codes at a temperature; one draw of the generator per code.

    Args:
        temperature: above 0; the scores are divided by it.
        seed: equal seeds draw equal codes from equal scores.

    Returns:
        What draws.

    Raises:
        ValueError: if the temperature is not above 0.
    """
    if not temperature > 0.0:
        raise ValueError(
            f"sampling: expected a temperature above 0, got {temperature}; leave it out for the likeliest codes"
        )
    chance = np.random.default_rng(seed)

    def pick(scores: npt.NDArray[np.float32]) -> int:
        weights = np.exp((scores.astype(np.float64) - scores.max()) / temperature)
        bounds = np.cumsum(weights)
        return int(np.searchsorted(bounds, chance.random() * bounds[-1], side="right"))

    return pick


def load(path: Path = SPEECH_PATH) -> speech_model.SpeechModel:
    """The trained speech model in evaluation mode.

    Args:
        path: checkpoint that `train_speech.py` wrote.

    Returns:
        The model.

    Raises:
        FileNotFoundError: if there is no checkpoint.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"load: expected the speech model's checkpoint {str(path)!r}, got no file; "
            "run examples.codec_tts.train_speech first"
        )
    model = speech_model.build()
    model.load_state_dict(safetensors.torch.load_file(path))
    return model.eval()


def generate(model: speech_model.SpeechModel, letters: list[int], prompt: Codes, pick: Pick) -> Codes:
    """Speak one sentence in codes.

    Args:
        model: in evaluation mode.
        letters: from `sentences.encode`.
        prompt: int64 [`PROMPT_FRAMES`], first codebook.
        pick: `greedy`, or what `sampling` gives.

    Returns:
        int64 [time], first codebook, without boundaries; at most `LONGEST_FRAMES`.
    """
    text = torch.tensor([letters])
    codes = torch.cat([torch.from_numpy(prompt), torch.tensor([speech_model.BOUNDARY])])
    spoken: list[int] = []
    with torch.inference_mode():
        while len(spoken) < LONGEST_FRAMES:
            code = pick(model(text, codes[None])[0, -1].numpy())
            if code == speech_model.BOUNDARY:
                break
            spoken.append(code)
            codes = torch.cat([codes, torch.tensor([code])])
    return np.array(spoken, np.int64)


def sound(trained: codec.Codec, codes: Codes, seed: int = 0) -> npt.NDArray[np.float32]:
    """Codes to a waveform.

    Args:
        trained: the codec.
        codes: int64 [time] of the first codebook, or [time, codebooks].
        seed: of the noise in consonants.

    Returns:
        float32 [time * 320], 16 kHz.
    """
    given = torch.from_numpy(codes.reshape(1, len(codes), -1))
    noise = torch.randn(1, len(codes), codec.CODE_SAMPLES, generator=torch.Generator().manual_seed(seed))
    with torch.inference_mode():
        return np.asarray(trained.decode(given, noise)[0].numpy(), np.float32)


def encode_prompt(trained: codec.Codec, path: Path) -> Codes:
    """First-codebook codes of a prompt.

    Args:
        trained: the codec.
        path: WAV or FLAC file of half a second or more; what comes later is not heard.

    Returns:
        int64 [`PROMPT_FRAMES`].

    Raises:
        ValueError: if the file is missing, is not audio, or is too short.
    """
    samples = transcribe.read_recording(path)
    wanted = speech_model.PROMPT_FRAMES * codec.CODE_SAMPLES
    if len(samples) < wanted:
        raise ValueError(
            f"{path.name}: expected at least {wanted / codec.SAMPLE_RATE_HZ} s of speech, got "
            f"{len(samples) / codec.SAMPLE_RATE_HZ:.2f} s; record more"
        )
    with torch.inference_mode():
        codes = trained.encode(torch.from_numpy(judges.levelled(samples[:wanted]))[None])
    return np.asarray(codes[0, :, 0].numpy(), np.int64)


def main() -> int:
    """Speak the sentence of the command line.

    Returns:
        0, or 2 if a word or a file was refused.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sentence", help=f"of the words: {' '.join(sentences.VOCABULARY)}")
    parser.add_argument("--voice", choices=recordings.VOICES, default=recordings.VOICES[0])
    parser.add_argument("--prompt", type=Path, help="half a second of another voice; the model knows four")
    parser.add_argument("--temperature", type=float, help="draw codes instead of taking the likeliest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, required=True, help="WAV file to write")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    try:
        pick = greedy if arguments.temperature is None else sampling(arguments.temperature, arguments.seed)
        letters = sentences.encode(arguments.sentence)
        trained = codec.load(CODEC_PATH)
        prompt = encode_prompt(trained, arguments.prompt or PROMPTS_FOLDER / f"{arguments.voice}.flac")
        model = load()
        started_s = time.perf_counter()
        codes = generate(model, letters, prompt, pick)
        samples = sound(trained, codes)
        soundfile.write(arguments.output, samples, codec.SAMPLE_RATE_HZ, subtype="PCM_16")
    except (ValueError, OSError, soundfile.LibsndfileError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    elapsed_s, seconds = time.perf_counter() - started_s, len(samples) / codec.SAMPLE_RATE_HZ
    print(f"{seconds:.1f} s of speech in {elapsed_s:.2f} s, {len(codes)} codes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
