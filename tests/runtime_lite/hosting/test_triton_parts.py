"""Decoupled models with a stand-in for the server: voices and recordings are answered part by part."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import Runtime, Sampling
from runtime_lite.format.arrays import Array
from runtime_lite.hosting import triton_parts
from runtime_lite.hosting.triton_parts import TritonPythonModel
from runtime_lite.hosting.triton_repository import write_repository
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import random_chunks, truth_of_stream, write_streaming_bundle
from tests.runtime_lite.hosting import triton_stand_in
from tests.runtime_lite.hosting.triton_stand_in import InferenceResponse, Request, TritonError, arguments_of
from tests.runtime_lite.voice_bundle import write_voice_bundle

TEXT = {"text": np.array([[1, 2, 3, 1]])}

Opener = Callable[[Path], TritonPythonModel]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles")
    write_voice_bundle(folder / "voice")
    write_streaming_bundle(folder / "streaming")
    return folder


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", triton_stand_in.module())
    models = []

    def open_model(folder: Path) -> TritonPythonModel:
        models.append(TritonPythonModel())
        models[-1].initialize(arguments_of(folder))
        return models[-1]

    yield open_model
    for model in models:
        model.finalize()
        counts = model._opened.runtime.request_counts
        assert counts.balanced and counts.live == 0


@pytest.fixture
def voice(bundles: Path, tmp_path: Path, opened: Opener) -> TritonPythonModel:
    *_, folder = write_repository(bundles / "voice", tmp_path / "models", max_streams=4)
    assert folder.name == "tiny_voice"
    return opened(folder)


@pytest.fixture
def recording(bundles: Path, tmp_path: Path, opened: Opener) -> TritonPythonModel:
    *_, folder = write_repository(bundles / "streaming", tmp_path / "models", max_streams=2, recordings=True)
    assert folder.name == "tiny_recording"
    return opened(folder)


def asked(model: TritonPythonModel, *requests: Request) -> list[list[InferenceResponse]]:
    model.execute(requests)
    for request in requests:
        assert request.answered.wait(PATIENCE_S)
    return [request.responses for request in requests]


def sound_of(responses: list[InferenceResponse]) -> Array:
    assert all(response.error is None and set(response.outputs) == {"sound"} for response in responses)
    return np.concatenate([response.outputs["sound"] for response in responses])


def right_sound(bundles: Path, sampling: Sampling | None = None, **options: Any) -> Array:
    with Runtime() as runtime:
        return np.concatenate(runtime.load(bundles / "voice").say(TEXT, sampling, **options).result())


def test_voices_are_answered_packet_by_packet(bundles: Path, voice: TritonPythonModel) -> None:
    requests = [Request(TEXT, parameters={"seed": seed}) for seed in (3, 5)]
    for seed, responses in zip((3, 5), asked(voice, *requests), strict=True):
        assert len(responses) > 1
        np.testing.assert_allclose(sound_of(responses), right_sound(bundles, seed=seed), rtol=1e-5, atol=1e-5)
    assert voice._opened.runtime.health().streams == 0


def test_parameters_replace_the_sampling_of_the_bundle(bundles: Path, voice: TritonPythonModel) -> None:
    parameters = {"max_tokens": 5, "temperature": "0.5", "top_k": "3", "seed": 1}
    usual = voice._opened.model.bundle.manifest.voice
    assert usual is not None
    sampling = Sampling(max_tokens=5, stop=usual.sampling.stop, temperature=0.5, top_k=3, seed=1)
    (responses,) = asked(voice, Request(TEXT, parameters=parameters))
    right = right_sound(bundles, sampling)
    np.testing.assert_allclose(sound_of(responses), right, rtol=1e-5, atol=1e-5)


WRONG: dict[str, tuple[dict[str, Array], dict[str, object], str]] = {
    "temperature": (TEXT, {"temperature": "hot"}, "BadInput: voice: expected temperature as a number, got 'hot'"),
    "top_p": (TEXT, {"top_p": "1.5"}, "BadInput: "),
    "seed": (TEXT, {"seed": "one"}, "BadInput: "),
    "text": ({}, {}, "BadInput: "),
    "another input": ({**TEXT, "speaker": np.zeros(1)}, {}, "BadInput: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_request_is_refused_alone(bundles: Path, voice: TritonPythonModel, name: str) -> None:
    feeds, parameters, message = WRONG[name]
    wrong, right = asked(voice, Request(feeds, parameters=parameters), Request(TEXT, parameters={"seed": 2}))
    (refused,) = wrong
    assert refused.error is not None and refused.error.code == TritonError.INVALID_ARG
    assert refused.error.message.startswith(message)
    np.testing.assert_allclose(sound_of(right), right_sound(bundles, seed=2), rtol=1e-5, atol=1e-5)
    assert voice._opened.runtime.health().streams == 0


def test_a_cancelled_voice_frees_its_streams(voice: TritonPythonModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_parts, "LOOK_S", 0.0)
    request = Request(TEXT, parameters={"lead_ms": 1})  # as slowly as it is played: for 88 ms
    request.cancelled.set()
    (responses,) = asked(voice, request)
    assert responses[-1].error is not None and responses[-1].error.code == TritonError.CANCELLED
    assert voice._opened.runtime.health().streams == 0


@pytest.mark.parametrize("rows", [1, 2])
def test_a_recording_is_answered_chunk_by_chunk(recording: TritonPythonModel, rows: int) -> None:
    chunks = random_chunks(7, rows)
    for _ in range(3):
        (responses,) = asked(recording, Request({"x": chunks}))
        assert len(responses) == len(chunks)
        for response, (output, _) in zip(responses, truth_of_stream(chunks), strict=True):
            assert response.error is None
            np.testing.assert_allclose(response.outputs["y"], output, rtol=1e-6, atol=1e-6)
        assert recording._opened.runtime.health().streams == 0


@pytest.mark.parametrize("shape", [(0, 1, 3, 2), (), (2, 1, 3, 5)])
def test_a_recording_of_another_shape_is_refused(recording: TritonPythonModel, shape: tuple[int, ...]) -> None:
    ((refused,),) = asked(recording, Request({"x": np.zeros(shape, np.float32)}))
    assert refused.error is not None and refused.error.message.startswith("BadInput: ")
    assert recording._opened.runtime.health().streams == 0


def test_what_is_in_flight_is_answered_before_the_model_ends(bundles: Path, tmp_path: Path, opened: Opener) -> None:
    *_, folder = write_repository(bundles / "streaming", tmp_path / "models", recordings=True)
    model, requests = opened(folder), [Request({"x": random_chunks(20, seed=seed)}) for seed in range(4)]
    model.execute(requests)
    model._opened.runtime.drain(PATIENCE_S)
    for request in requests:
        assert request.answered.wait(PATIENCE_S)
        assert len(request.responses) == 20 and request.responses[-1].error is None
