"""The voice of a recipe names what its graphs have and comes into the bundle; a wrong one is answered with its line."""

from pathlib import Path

import pytest

from compiler.recipe.load import load_recipe
from runtime_lite import Sampling, read_bundle
from runtime_lite.format.manifest import Voice
from tests.kit.models.project import Project
from tests.kit.models.tiny_voice import RECIPE, write_tiny_voice
from tests.kit.recipes import refusal, write


def with_line(old: str, new: str) -> str:
    assert RECIPE.count(old) == 1, f"the recipe holds {old!r} {RECIPE.count(old)} times"
    return RECIPE.replace(old, new)


def test_a_voice_is_read_with_its_defaults(tmp_path: Path) -> None:
    voice = load_recipe(write(tmp_path, RECIPE)).recipe.voice
    assert voice is not None
    assert (voice.step, voice.codec, voice.noise, voice.frames) == ("step", "codec", None, None)
    assert voice.sampling.of_runtime() == Sampling(12, stop=frozenset({5}), temperature=1.0)


WRONG = {
    "an unknown graph": (
        "  codec: codec",
        "  codec: codek",
        "voice.codec: expected the name of a graph, got 'codek'; did",
    ),
    "an unknown input": (
        "  codes: codes",
        "  codes: code",
        "voice.codes: expected the name of an input that callers feed, got 'code'; did you mean 'codes'?",
    ),
    "a state as input": (
        "  tokens: tokens",
        "  tokens: heard",
        "voice.tokens: expected the name of an input that call",
    ),
    "an unknown output": (
        "  sound: sound",
        "  sound: sounds",
        "voice.sound: expected the name of an output, got 'sounds'",
    ),
    "an unknown noise": ("  start: 0", "  noise: hiss", "voice.noise: expected the name of an input that callers feed"),
    "an unknown text": (
        "  start: 0",
        "  frames: {input: text, per_entry: 3.0, more: 5}",
        "voice.frames.input: expected the name of an input that callers feed, got 'text'",
    ),
    "one graph for both": ("  codec: codec", "  codec: step", "voice.codec: expected another graph than the step"),
    "codes of floats": (
        "codes:  {shape: [batch, 1, 1], dtype: int64, range: [0, 4]}",
        "codes:  {shape: [batch, 1, 1], dtype: float32}",
        "voice.codes: expected an input of int32 or int64, got 'codes' of float32",
    ),
    "a setting out of range": (
        "temperature: 1.0",
        "temperature: 0.0",
        "voice.sampling.temperature: expected a number above 0, got 0.0; correct it, or leave it out",
    ),
    "a stop below 0": ("stop: [5]", "stop: [-1]", "voice.sampling.stop: expected a set of tokens from 0 on"),
    "an unknown key": ("  start: 0", "  begin: 0", "voice.begin: expected a known key, got 'begin'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_voice_is_answered_with_its_line(case: str, tmp_path: Path) -> None:
    old, new, message = WRONG[case]
    got = refusal(tmp_path, with_line(old, new))
    assert message in got
    assert got.startswith("tiny.yaml:")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("voice")
    write_tiny_voice(folder)
    return Project(folder, folder / "cache")


def test_a_voice_comes_into_the_bundle(project: Project) -> None:
    ended = project.build(recipe="voice.yaml", out="bundle")
    assert ended.code == 0, ended.err
    with read_bundle(project.folder / "bundle") as bundle:
        assert bundle.manifest.voice == Voice(
            step="step",
            tokens="tokens",
            scores="scores",
            start=0,
            codec="codec",
            codes="codes",
            noise=None,
            sound="sound",
            samples_per_frame=4,
            sample_rate_hz=8000,
            frames=None,
            sampling=Sampling(12, stop=frozenset({5}), temperature=1.0),
        )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "samples_per_frame: 4",
            "samples_per_frame: 3",
            "voice.samples_per_frame: expected 3 samples of 1 frames, got",
        ),
        ("stop: [5]", "stop: [4]", "voice.sampling.stop: expected every token below 6 that 'codes' does not take"),
    ],
)
def test_what_the_final_graphs_do_not_have_is_refused_with_its_line(
    project: Project, old: str, new: str, message: str
) -> None:
    project.write("other.yaml", with_line(old, new))
    ended = project.build(recipe="other.yaml", out="other")
    assert (ended.code, message in ended.message, "other.yaml:" in ended.message) == (3, True, True), ended.err
    assert not (project.folder / "other").exists()
