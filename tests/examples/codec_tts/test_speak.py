"""Generation on models whose answers are known: greedy and seeded, its end, and what the command refuses."""

import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from examples.codec_tts import codec, generation, judges, prompt, recordings, sentences, speak, speech_model
from examples.streaming_asr import transcribe

PROMPT = np.arange(generation.PROMPT_FRAMES)


class Counting(speech_model.SpeechModel):
    """Scores that say the next of 100, 101, ... by what was said before, and the boundary after `length` codes."""

    def __init__(self, length: int) -> None:
        torch.nn.Module.__init__(self)
        self.length = length
        self.seen: list[list[int]] = []

    def forward(self, text: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        self.seen.append(codes[0].tolist())
        spoken = codes.shape[1] - generation.PROMPT_FRAMES - 1
        scores = torch.zeros(1, codes.shape[1], generation.ENTRIES + 1)
        scores[0, -1, generation.BOUNDARY if spoken == self.length else 100 + spoken] = 9.0
        return scores


def test_codes_are_fed_back_behind_prompt_and_boundary_until_the_end() -> None:
    model = Counting(3)
    assert speak.generate(model, [0, 1], PROMPT, generation.greedy).tolist() == [100, 101, 102]
    assert model.seen[0] == [*range(25), generation.BOUNDARY]
    assert model.seen[-1] == [*range(25), generation.BOUNDARY, 100, 101, 102]


def test_a_sentence_without_an_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "LONGEST_FRAMES", 7)
    assert len(speak.generate(Counting(99), [0], PROMPT, generation.greedy)) == 7


def test_equal_seeds_draw_equal_codes() -> None:
    torch.manual_seed(1)
    model = speech_model.build().eval()
    letters = sentences.encode("turn left")

    def drawn(seed: int) -> list[int]:
        found: list[int] = []
        pick = generation.sampling(1.0, seed)
        with torch.inference_mode():
            text, codes = torch.tensor([letters]), torch.tensor([[*PROMPT, generation.BOUNDARY]])
            for _ in range(6):
                found.append(pick(model(text, codes)[0, -1].numpy()))
        return found

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_codes_sound_one_frame_each_and_equal_seeds_alike() -> None:
    torch.manual_seed(1)
    trained = codec.Codec().eval()
    first, second = (speak.sound(trained, PROMPT) for _ in range(2))
    assert first.shape == (len(PROMPT) * generation.CODE_SAMPLES,) and first.dtype == np.float32
    np.testing.assert_array_equal(first, second)
    assert speak.sound(trained, np.zeros((4, 4), np.int64)).shape == (4 * generation.CODE_SAMPLES,)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["turn starboard"], "expected words that the voice was trained on, got 'starboard'"),
        (["turn left", "--temperature", "0"], "expected a temperature above 0"),
        (["turn left", "--prompt", "none.wav"], "expected a WAV or FLAC file, got no file"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["speak", *arguments, "-o", str(tmp_path / "out.wav")])
    assert speak.main() == 2
    captured = capsys.readouterr()
    assert captured.out == "" and said in captured.err and captured.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_prompt_is_encoded_at_a_level_of_its_own(tmp_path: Path) -> None:
    torch.manual_seed(1)
    trained = codec.Codec().eval()
    samples = np.random.default_rng(1).standard_normal(9000).astype(np.float32) * 0.1
    for name, gain in (("loud", 1.0), ("quiet", 0.25)):
        soundfile.write(tmp_path / f"{name}.wav", gain * samples, 16000, subtype="FLOAT")
    loud, quiet = (speak.encode_prompt(trained, tmp_path / f"{name}.wav") for name in ("loud", "quiet"))
    assert loud.shape == (generation.PROMPT_FRAMES,)
    assert (loud == quiet).mean() > 0.9


@pytest.mark.parametrize("voice", recordings.VOICES)
def test_the_shipped_codec_keeps_words_and_pitch_of_a_prompt(voice: str) -> None:
    trained, path = speak.original_codec(), prompt.of_voice(voice)
    codes, spoken = speak.encode_prompt(trained, path), transcribe.read_recording(path)
    heard = speak.sound(trained, codes)
    assert len(set(codes.tolist())) >= 10
    assert judges.mel_distance(heard, spoken) < 2.0
    octaves = [judges.timbre([samples]).octave for samples in (heard, spoken)]
    assert octaves[0] == pytest.approx(octaves[1], abs=0.2)
