"""The codec's parts for a bundle that speaks, and feeds to verify it; `tts_ar.yaml` names them."""

import itertools
from collections.abc import Iterator

import numpy as np
from torch import Tensor, nn

from examples.codec_tts import codec, generation, prompt, recordings, sentences, speak, spoken_codes, train_speech
from examples.streaming_asr import text

Feed = dict[str, np.ndarray]

LONGEST_PIECE = 32
"""The largest bucket of codes."""


class VoiceEncoder(nn.Module):
    """Scores the entries of the first codebook for prompt audio; callers take the nearest entry."""

    def __init__(self, trained: codec.Codec) -> None:
        super().__init__()
        self.encoder, self.quantiser = trained.encoder, trained.quantiser

    def forward(self, waveform: Tensor) -> Tensor:
        """Take a waveform [batch, 8000] of 16 kHz; return scores [batch, 25, 512]."""
        scores: Tensor = self.quantiser.scores(self.encoder(waveform), 0)
        return scores


class CodecDecoder(nn.Module):
    """Decodes codes of the first codebook to a waveform."""

    def __init__(self, trained: codec.Codec) -> None:
        super().__init__()
        self.trained = trained

    def forward(self, codes: Tensor, noise: Tensor) -> Tensor:
        """Decode codes int64 [batch, time, 1] and noise [batch, time, 320] to a waveform [batch, time * 320]."""
        return self.trained.decode(codes, noise)


def build_voice() -> nn.Module:
    """Return the prompt encoder; the recipe names this factory."""
    return VoiceEncoder(speak.original_codec())


def build_decoder() -> nn.Module:
    """Return the codec's decoder; the recipe names this factory."""
    return CodecDecoder(speak.original_codec())


def prompts() -> Iterator[list[Feed]]:
    """Yield feeds of the prompt encoder: the shipped voices, each at several levels."""
    yield from _prompts_at_levels(1)


def calibration_prompts() -> Iterator[list[Feed]]:
    """Yield feeds of the prompt encoder: the same voices at other levels."""
    yield from _prompts_at_levels(6)


def _prompts_at_levels(seed: int) -> Iterator[list[Feed]]:
    for gain in np.random.default_rng(seed).uniform(0.2, 1.0, 64):
        for voice in recordings.VOICES:
            yield [{"waveform": np.asarray(gain * prompt.read(prompt.of_voice(voice))[None], np.float32)}]


def verification() -> Iterator[list[Feed]]:
    """Yield streams of the speech model: text and a prompt in one call, then codes, one or a few per call."""
    yield from _sentences_in_steps(2, "development")


def calibration() -> Iterator[list[Feed]]:
    """Yield streams of the same form with other sentences and codes."""
    yield from _sentences_in_steps(4, "training")


def distillation() -> Iterator[list[Feed]]:
    """Yield streams to distil shared heads with: training sentences after prompts of their voices, in pieces.

    A few of the codes are replaced, as in training.
    """
    spoken = spoken_codes.read()
    drawn = train_speech.SentenceBatches(spoken)
    for number, each in enumerate(spoken):
        chance = np.random.default_rng((5, number))
        letters, codes, _ = train_speech.join([each], [drawn.prompt(each.voice, chance)])
        heard = train_speech.disturb(codes, chance).numpy()
        pieces = np.split(heard, range(LONGEST_PIECE, heard.shape[1], LONGEST_PIECE), axis=1)
        yield [{"text": letters.numpy(), "codes": piece} for piece in pieces]


def _sentences_in_steps(seed: int, side: text.Side) -> Iterator[list[Feed]]:
    codes = _spoken_codes()
    random = np.random.default_rng(seed)
    for sentence in sentences.draw_sentences(seed, side):
        text = np.array([sentences.encode(sentence)])
        sizes = [generation.PROMPT_FRAMES] + [1] * 20 + random.integers(1, 5, 20).tolist()
        starts = [random.integers(len(codes) - size) for size in sizes]
        pieces = [codes[start : start + size] for start, size in zip(starts, sizes, strict=True)]
        pieces[0] = np.append(pieces[0], generation.BOUNDARY)
        yield [{"text": text, "codes": piece[None]} for piece in pieces]


def _spoken_codes() -> generation.Codes:
    """Return the first-codebook codes of the shipped prompts, 2 s of speech."""
    trained = speak.original_codec()
    return np.concatenate([speak.encode_prompt(trained, prompt.of_voice(voice)) for voice in recordings.VOICES])


def spoken() -> Iterator[list[Feed]]:
    """Yield streams of the codec's decoder: consecutive pieces of the prompts, and noise."""
    yield from _pieces_of_speech(3)


def spoken_in_packets() -> Iterator[list[Feed]]:
    """Yield the same pieces cut into packets: the first as a bundle begins, some of any length, then whole ones."""
    for number, (piece,) in enumerate(_pieces_of_speech(3)):
        lengths = [generation.FIRST_CODES, *np.random.default_rng(number).integers(1, generation.PACKET_CODES, 3)]
        frames = piece["codes"].shape[1]
        lengths += [generation.PACKET_CODES] * (frames // generation.PACKET_CODES)
        ends = [int(end) for end in np.cumsum(lengths) if end < frames]
        packets = {name: np.split(array, ends, axis=1) for name, array in piece.items()}
        yield [dict(zip(packets, packet, strict=True)) for packet in zip(*packets.values(), strict=True)]


def calibration_spoken() -> Iterator[list[Feed]]:
    """Yield streams of other pieces of the prompts, and other noise."""
    yield from _pieces_of_speech(7)


def _pieces_of_speech(drawn_by: int) -> Iterator[list[Feed]]:
    codes = _spoken_codes()
    random = np.random.default_rng(drawn_by)
    drawn = (int(random.integers(1, generation.LONGEST_FRAMES + 1)) for _ in itertools.count())
    lengths = itertools.chain((20, 90, generation.LONGEST_FRAMES), drawn)
    for seed, frames in enumerate(lengths, start=1000 * (drawn_by - 3)):
        start = int(random.integers(len(codes)))
        given = np.take(codes, np.arange(start, start + frames), mode="wrap")
        yield [{"codes": given[None, :, None], "noise": generation.noise(frames, seed)[None]}]
