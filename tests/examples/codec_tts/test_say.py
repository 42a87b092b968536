"""A bundle speaks as the originals do: here its graphs are the originals' own modules, with random weights."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from examples.codec_tts import codec, deployed, generation, prompt, say, sentences, speak, speech_model

LETTERS = sentences.encode("turn left")


class PrefixStream:
    """A stream of the speech model, which is asked about all that was heard."""

    def __init__(self, whole: speech_model.SpeechModel) -> None:
        self.whole = whole
        self.heard = torch.zeros(1, 0, dtype=torch.int64)

    def __enter__(self) -> "PrefixStream":
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def push(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        codes = torch.from_numpy(feed["codes"])
        self.heard = torch.cat([self.heard, codes], dim=1)
        with torch.inference_mode():
            scores = self.whole(torch.from_numpy(feed["text"]), self.heard)
        return {"scores": scores[:, -codes.shape[1] :].numpy()}


class SoundStream:
    """A stream of the codec's decoder, which is asked about all that was heard."""

    def __init__(self, decoder: deployed.CodecDecoder, frames: list[int]) -> None:
        self.decoder, self.frames = decoder, frames
        self.heard: dict[str, torch.Tensor] = {}

    def __enter__(self) -> "SoundStream":
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def push(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        count = feed["codes"].shape[1]
        self.frames.append(count)
        pieces = {name: torch.from_numpy(array) for name, array in feed.items()}
        self.heard = {name: torch.cat([self.heard.get(name, piece[:, :0]), piece], 1) for name, piece in pieces.items()}
        with torch.inference_mode():
            waveform = self.decoder(**self.heard)
        return {"waveform": waveform[:, -count * generation.CODE_SAMPLES :].numpy()}


class Originals:
    """A model of the runtime without a bundle."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.codec, self.speech = codec.Codec().eval(), speech_model.build().eval()
        self.voice, self.decoder = deployed.VoiceEncoder(self.codec), deployed.CodecDecoder(self.codec)
        self.frames: list[int] = []

    def run(self, feed: Mapping[str, Any], graph: str) -> dict[str, Any]:
        assert graph == "voice"
        with torch.inference_mode():
            return {"scores": self.voice(*map(torch.from_numpy, feed.values())).numpy()}

    def open_stream(self, graph: str) -> PrefixStream | SoundStream:
        return PrefixStream(self.speech) if graph == "speech" else SoundStream(self.decoder, self.frames)


@pytest.fixture(scope="module")
def originals() -> Originals:
    return Originals()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random weights do not end a sentence."""
    monkeypatch.setattr(generation, "LONGEST_FRAMES", 34)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("temperature", [None, 1.0])
def test_codes_and_sound_are_the_originals(originals: Originals, temperature: float | None) -> None:
    path = prompt.of_voice("f2")
    voice = speak.encode_prompt(originals.codec, path)
    wanted = speak.generate(originals.speech, LETTERS, voice, generation.picking(temperature, 3))
    originals.frames.clear()
    speaker = say.Speaker(originals)  # type: ignore[arg-type]
    np.testing.assert_array_equal(speaker.encode_prompt(prompt.read(path)), voice)
    spoken = speaker.speak(LETTERS, prompt.read(path), generation.picking(temperature, 3))
    np.testing.assert_array_equal(spoken.codes, wanted)
    np.testing.assert_allclose(spoken.samples, speak.sound(originals.codec, wanted), atol=1e-3)
    assert originals.frames == [5, 10, 10, 9]
    assert 0.0 < spoken.first_s < spoken.elapsed_s


def test_a_sentence_without_a_code_is_silent(originals: Originals) -> None:
    speaker = say.Speaker(originals)  # type: ignore[arg-type]
    spoken = speaker.speak(LETTERS, prompt.read(prompt.of_voice("m1")), lambda scores: generation.BOUNDARY)
    assert len(spoken.codes) == len(spoken.samples) == 0
    assert spoken.factor == np.inf


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none", "turn starboard"], "expected words that the voice was trained on, got 'starboard'"),
        (["none", "turn left", "--prompt", "none.wav"], "expected a WAV or FLAC file, got no file"),
        (["none", "turn left"], "none: expected a bundle"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["say", *arguments, "-o", str(tmp_path / "out.wav")])
    assert say.main() == 2
    captured = capsys.readouterr()
    assert captured.out == "" and said in captured.err and captured.err.count("\n") == 1
    assert not list(tmp_path.iterdir())
