"""A voice names what its graphs have, and they take every token that is drawn; else it is refused by the key."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime_lite import BundleRefused, Manifest, Sampling, json_from_manifest, manifest_from_json, read_bundle
from runtime_lite.format.describe import describe_bundle, json_of_bundle
from runtime_lite.format.manifest import Axis, FrameLimit, Graph
from runtime_lite.format.voice_check import check_voice, frames_axis
from tests.runtime_lite.voice_bundle import VOICE, codec_graph, write_voice_bundle


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_voice_bundle(tmp_path_factory.mktemp("voice") / "bundle")


@pytest.fixture(scope="module")
def manifest(path: Path) -> Manifest:
    with read_bundle(path) as bundle:
        return bundle.manifest


def test_a_voice_survives_the_way_to_json_and_back(manifest: Manifest) -> None:
    text = json_from_manifest(manifest)
    assert manifest_from_json(text) == manifest and manifest.voice == VOICE
    assert json.loads(text)["voice"]["sampling"]["stop"] == [8]
    assert frames_axis(VOICE, codec_graph()) == "chunk"


def test_what_a_voice_may_lack_may_be_null(manifest: Manifest) -> None:
    bare = dataclasses.replace(VOICE, start=None, noise=None, frames=None, sampling=Sampling(3, stop={8}))  # type: ignore[arg-type]
    codec = dataclasses.replace(codec_graph(), inputs=tuple(t for t in codec_graph().inputs if t.name != "noise"))
    plain = dataclasses.replace(manifest, voice=bare, graphs={**manifest.graphs, "codec": codec})
    assert manifest_from_json(json_from_manifest(plain)) == plain


def test_a_manifest_without_a_voice_is_written_as_before_and_read(manifest: Manifest) -> None:
    text = json_from_manifest(dataclasses.replace(manifest, voice=None))
    assert b'"voice"' not in text
    assert manifest_from_json(text).voice is None
    assert manifest_from_json(json.dumps({**json.loads(text), "voice": None}).encode()).voice is None


def test_a_voice_is_described(path: Path) -> None:
    with read_bundle(path) as bundle:
        told = describe_bundle(bundle)
        assert json.loads(json_of_bundle(bundle))["manifest"]["voice"]["sampling"]["stop"] == [8]
    assert "step     step: tokens to scores" in told
    assert "length   30 frames at most, and 4 an entry of text and 6 more" in told


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no such step": ({"step": "steps"}, "voice.step: expected one of the graphs codec, step, got 'steps'"),
    "no such codec": ({"codec": "x"}, "voice.codec: expected one of the graphs codec, step, got 'x'"),
    "one graph for both": ({"codec": "step"}, "voice.codec: expected another graph than the step"),
    "no such tokens": (
        {"tokens": "keys"},
        "voice.tokens: expected an input that callers feed (text, tokens), got 'keys'",
    ),
    "no such scores": ({"scores": "x"}, "voice.scores: expected an output that callers get (scores), got 'x'"),
    "noise as codes": ({"codes": "noise", "noise": None}, "voice.codes: expected an integer input with an axis"),
    "codes as noise": ({"noise": "codes"}, "voice.noise: expected an input of float32 along 'chunk'"),
    "noise that nothing feeds": ({"noise": None}, "voice.codec: expected no input along 'chunk' but codes and noise"),
    "a state as sound": ({"sound": "after"}, "voice.sound: expected an output that callers get (sound), got 'after'"),
    "too few samples": (
        {"samples_per_frame": 3},
        "voice.samples_per_frame: expected 3 samples of 1 frames, got [1, 4] of 'sound'",
    ),
    "a start that is not taken": ({"start": 9}, "voice.start: expected a token that 'tokens' takes, (0, 8), got 9"),
    "a stop that is never drawn": (
        {"sampling": Sampling(9, stop=frozenset({8, 9}))},
        "voice.sampling.stop: expected tokens below 9, the number of scores, got 9",
    ),
    "a token that the codec does not take": (
        {"sampling": Sampling(9)},
        "voice.sampling.stop: expected every token below 9 that 'codes' does not take, (0, 7), got no 8",
    ),
    "a limit by tokens": ({"frames": FrameLimit("tokens", 1.0, 1)}, "voice.frames.input: expected an input of the tex"),
    "a limit by nothing": ({"frames": FrameLimit("x", 1.0, 1)}, "voice.frames.input: expected an input that callers"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_agree_is_refused_by_its_key(manifest: Manifest, case: str) -> None:
    changes, sentence = WRONG[case]
    with pytest.raises(BundleRefused) as refused:
        check_voice("voice", dataclasses.replace(manifest, voice=dataclasses.replace(VOICE, **changes)))
    assert sentence in str(refused.value)


def without_states(graph: Graph) -> Graph:
    return dataclasses.replace(graph, states=(), caches=())


def with_tokens(**changes: Any) -> Callable[[Graph], Graph]:
    return lambda graph: dataclasses.replace(
        graph, inputs=tuple(dataclasses.replace(t, **changes) if t.name == "tokens" else t for t in graph.inputs)
    )


GRAPHS: dict[str, tuple[str, Callable[[Graph], Graph], str]] = {
    "a step without states": ("step", without_states, "voice.step: expected a graph with states, got 'step'"),
    "a codec without states": ("codec", without_states, "voice.codec: expected a graph with states, got 'codec'"),
    "tokens that are floats": ("step", with_tokens(dtype="float32"), "voice.tokens: expected an integer input"),
    "tokens of a narrow range": (
        "step",
        with_tokens(range=(0, 6)),
        "voice.start: expected a token that 'tokens' takes",
    ),
    "no chunk of one frame": (
        "codec",
        lambda graph: dataclasses.replace(graph, axes={**graph.axes, "chunk": Axis((2, 5))}),
        "voice.codes: expected chunks from 1 frame on along 'chunk', got (2, 5)",
    ),
    "no call of one token": (
        "step",
        lambda graph: dataclasses.replace(graph, axes={**graph.axes, "time": Axis((4,), "time_length", 2)}),
        "voice.tokens: expected an input that takes one token along 'time'",
    ),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_graphs_that_make_no_voice_are_refused(manifest: Manifest, case: str) -> None:
    name, change, sentence = GRAPHS[case]
    graphs = {**manifest.graphs, name: change(manifest.graphs[name])}
    with pytest.raises(BundleRefused) as refused:
        check_voice("voice", dataclasses.replace(manifest, graphs=graphs))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (
            ("sampling", "temperature"),
            0,
            "voice.sampling: expected settings as Sampling takes them, got Sampling: temp",
        ),
        (("sampling", "max_tokens"), True, "voice.sampling: expected settings as Sampling takes them"),
        (("sampling", "stop"), ["8"], "voice.sampling.stop[0]: expected an integer"),
        (("sampling", "x"), 1, "voice.sampling: expected only the keys"),
        (("frames", "per_entry"), -1, "voice.frames.per_entry: expected a number from 0.0"),
        (("frames", "more"), 0, "voice.frames.more: expected an integer from 1"),
        (("sample_rate_hz",), 0, "voice.sample_rate_hz: expected an integer from 1"),
        (("samples_per_frame",), 2.5, "voice.samples_per_frame: expected an integer from 1"),
        (("start",), "x", "voice.start: expected an integer from 0"),
        (("x",), 1, "manifest.json.voice: expected only the keys"),
    ],
)
def test_json_that_is_no_voice_is_refused(
    manifest: Manifest, place: tuple[str, ...], value: Any, sentence: str
) -> None:
    plain = json.loads(json_from_manifest(manifest))
    inner = plain["voice"]
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(BundleRefused) as refused:
        manifest_from_json(json.dumps(plain).encode())
    assert sentence in str(refused.value)


def test_a_huge_number_of_scores_is_checked_at_once(manifest: Manifest) -> None:
    step = manifest.graphs["step"]
    scores = tuple(
        dataclasses.replace(t, shape=(*t.shape[:-1], 2**31 - 1)) if t.name == "scores" else t for t in step.outputs
    )
    graphs = {**manifest.graphs, "step": dataclasses.replace(step, outputs=scores)}
    with pytest.raises(BundleRefused, match=r"'tokens' does not take, \(0, 8\), got no 9"):
        check_voice("voice", dataclasses.replace(manifest, graphs=graphs))


def test_a_bundle_of_one_graph_makes_no_voice(manifest: Manifest) -> None:
    alone = dataclasses.replace(manifest, graphs={"step": manifest.graphs["step"]})
    with pytest.raises(BundleRefused, match="expected one of the graphs step, got 'codec'"):
        check_voice("voice", alone)
    check_voice("voice", dataclasses.replace(alone, voice=None))
