"""The bundle as its user gets it: built from its recipe with fewer buckets, it says what the original models say."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import runtime_lite
from compiler.build.pipeline import BuildOptions, build
from compiler.build.report.progress import Progress
from compiler.recipe.load import load_recipe
from examples.codec_tts import generation, prompt, recordings, say, sentences, speak

pytestmark = pytest.mark.slow

OVERRIDES = (
    "graphs.voice.axes.batch.buckets=[1]",
    "graphs.speech.axes.batch.buckets=[1]",
    "graphs.codec.axes.batch.buckets=[1]",
    "data.verification.count=3",
)


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[say.Speaker]:
    path = tmp_path_factory.mktemp("example") / "bundle"
    build(load_recipe("tts_ar.yaml", OVERRIDES), BuildOptions(path), Progress())
    with runtime_lite.Runtime() as runtime:
        yield say.Speaker(runtime.load(path))


@pytest.mark.parametrize("voice", recordings.VOICES)
def test_a_voice_says_what_the_originals_say(speaker: say.Speaker, voice: str) -> None:
    letters = sentences.encode("turn left and report speed")
    trained, model, path = speak.original_codec(), speak.original_speech(), prompt.of_voice(voice)
    heard = speak.encode_prompt(trained, path)
    wanted = speak.generate(model, letters, heard, generation.picking(None, 1))
    spoken = speaker.speak(letters, prompt.read(path), generation.picking(None, 1))
    same = np.array_equal(speaker.encode_prompt(prompt.read(path)), heard)
    assert same, "a code of the prompt lies as near to two entries"
    np.testing.assert_array_equal(spoken.codes, wanted)
    np.testing.assert_allclose(spoken.samples, speak.sound(trained, wanted), atol=1e-2)


def test_the_longest_sentence_fits(speaker: say.Speaker, tmp_path: Path) -> None:
    letters = sentences.encode(" ".join(["heading"] * 5))
    spoken = speaker.speak(letters, prompt.read(prompt.of_voice("m1")), lambda scores: 7)
    assert len(spoken.codes) == generation.LONGEST_FRAMES
    assert len(spoken.samples) == generation.LONGEST_FRAMES * generation.CODE_SAMPLES


def test_a_voice_of_the_runtime_says_it_too(speaker: say.Speaker) -> None:
    """As one request: the codes of the loop of the example, and their sound."""
    letters = sentences.encode("turn left and report speed")
    heard = prompt.read(prompt.of_voice("f2"))
    codes = speaker.encode_prompt(heard)
    wanted = list(speaker.codes(letters, codes, generation.picking(None, 1)))
    voice = speaker.model.say({"text": np.array([letters]), "codes": codes[None]}, seed=3)
    packets = voice.result()
    assert (voice.tokens, voice.ended_by, voice.sample_rate_hz) == (wanted, "stop", prompt.SAMPLE_RATE_HZ)
    expected = np.concatenate(list(speaker.sound(iter(wanted), seed=3)))
    np.testing.assert_allclose(np.concatenate(packets), expected, atol=1e-2)
