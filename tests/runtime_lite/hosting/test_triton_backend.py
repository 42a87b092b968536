"""The model of Triton's Python backend, with a stand-in for the server: what a request says, and how it is answered."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import errors
from runtime_lite.format.arrays import Array
from runtime_lite.hosting.triton_backend import CODES, TritonPythonModel
from runtime_lite.hosting.triton_repository import write_repository
from runtime_lite.scheduling.decision import Decision
from runtime_lite.serving.ticket import Ticket
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import random_chunks, truth_of_plain, truth_of_stream, write_double_bundle
from tests.runtime_lite.hosting import triton_stand_in
from tests.runtime_lite.hosting.triton_stand_in import END, START, InferenceResponse, Request, TritonError, arguments_of


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("triton")
    write_repository(write_double_bundle(folder / "bundle"), folder / "models", max_streams=2)
    return folder / "models"


@pytest.fixture
def models(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, TritonPythonModel]]:
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", triton_stand_in.module())
    found = {}
    for graph in ("plain", "streaming"):
        found[graph] = TritonPythonModel()
        found[graph].initialize(arguments_of(repository / f"tiny_{graph}"))
    yield found
    for model in found.values():
        model.finalize()
        assert model._runtime.request_counts.balanced and model._runtime.request_counts.live == 0


def plain(seed: int = 0) -> dict[str, Array]:
    return {"x": random_chunks(1, seed=seed)[0][:, :2], "shift": np.array([seed])}


def asked(model: TritonPythonModel, *requests: Request) -> list[InferenceResponse]:
    """What a server gets for requests that it hands over at once."""
    model.execute(requests)
    for request in requests:
        assert request.answered.wait(PATIENCE_S)
    return [response for request in requests for response in request.responses]


def fault(response: InferenceResponse) -> tuple[str, int]:
    assert response.error is not None and not response.outputs
    return response.error.message, response.error.code


def test_requests_that_come_together_have_each_its_answer(models: Mapping[str, TritonPythonModel]) -> None:
    requests = [Request(plain(seed)) for seed in range(9)]
    for seed, response in enumerate(asked(models["plain"], *requests)):
        assert response.error is None
        np.testing.assert_allclose(response.outputs["y"], truth_of_plain(**plain(seed)), rtol=1e-6, atol=1e-6)


def test_outputs_are_those_that_are_asked_for(models: Mapping[str, TritonPythonModel]) -> None:
    (response,) = asked(models["plain"], Request(plain(), outputs=("y",)))
    assert set(response.outputs) == {"y"}


@pytest.mark.parametrize("name", [5, "a voice"])
def test_sequences_are_streams(models: Mapping[str, TritonPythonModel], name: int | str) -> None:
    chunks = random_chunks(3)
    flags = (START, 0, END)
    for at, (output, _) in enumerate(truth_of_stream(chunks)):
        request = Request({"x": chunks[at]}, name, flags[at], parameters={"chunk": at})
        (response,) = asked(models["streaming"], request)
        np.testing.assert_allclose(response.outputs["y"], output, rtol=1e-6, atol=1e-6)
    assert models["streaming"]._runtime.health().streams == 0


def test_errors_carry_the_name_of_the_runtime_s(models: Mapping[str, TritonPythonModel]) -> None:
    chunk = {"x": random_chunks(1)[0]}
    streaming = models["streaming"]
    refused = [
        (models["plain"], Request({}), "BadInput: ", TritonError.INVALID_ARG),
        (
            models["plain"],
            Request(plain(), parameters={"service": "soon"}),
            "expected service",
            TritonError.INVALID_ARG,
        ),
        (models["plain"], Request(plain(), parameters={"runtime_priority": "x"}), "priority", TritonError.INVALID_ARG),
        (streaming, Request(chunk), "no sequence id", TritonError.INVALID_ARG),
        (streaming, Request(chunk, 9), "nobody has started", TritonError.NOT_FOUND),
    ]
    for model, request, text, code in refused:
        message, found = fault(*asked(model, request))
        kind = "StreamLost" if code == TritonError.NOT_FOUND else "BadInput"
        assert text in message and message.startswith(f"{kind}: ") and found == code
    asked(streaming, Request(chunk, 1, START), Request(chunk, 2, START))
    message, code = fault(*asked(streaming, Request(chunk, 3, START)))
    assert message.startswith("Overloaded: ") and code == TritonError.UNAVAILABLE


def test_every_error_of_the_runtime_has_a_code(models: Mapping[str, TritonPythonModel]) -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__name__[0] != "_"]
    coded = {kind.__name__ for kind in kinds if any(issubclass(kind, known) for known, _ in CODES)}
    assert coded == {"BadInput", "Cancelled", "Overloaded", "Dropped", "ExecutorFailed", "StreamLost"}
    request = Request({})
    models["plain"]._opened.send_error(request, ZeroDivisionError("by zero"))
    assert fault(request.responses[0]) == ("ZeroDivisionError: by zero", TritonError.INTERNAL)


def test_priority_service_and_timeout_reach_the_runtime(
    models: Mapping[str, TritonPythonModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []
    model = models["plain"]._model
    submit = model.submit

    def keep(*arguments: Any, **named: Any) -> Ticket[Any]:
        given.append(named)
        return submit(*arguments, **named | {"deadline_ms": None})

    monkeypatch.setattr(model, "submit", keep)
    parameters = {"runtime_priority": 3, "service": "bulk"}
    asked(models["plain"], Request(plain(), timeout_us=2500, parameters=parameters), Request(plain()))
    assert [(each["service"].name, each["deadline_ms"], each["priority"]) for each in given] == [
        ("bulk", 2.5, 3),
        ("interactive", None, 0),
    ]


def test_a_request_whose_caller_is_gone_is_taken_back(
    models: Mapping[str, TritonPythonModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = models["plain"]._runtime._server._runs._scheduler
    monkeypatch.setattr(scheduler, "decide", lambda now: Decision(None, [], None))  # it waits until it is taken back
    request = Request(plain())
    models["plain"].execute([request])
    assert not request.answered.is_set()
    request.cancelled.set()
    assert request.answered.wait(PATIENCE_S)
    message, code = fault(request.responses[0])
    assert message.startswith("Cancelled: ") and code == TritonError.CANCELLED


def test_the_server_may_take_its_memory_back_before_a_request_has_run(
    models: Mapping[str, TritonPythonModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = models["plain"]._runtime._server
    feeds = plain(4)
    expected = truth_of_plain(**plain(4))
    request = Request(feeds)
    with monkeypatch.context() as held:
        held.setattr(server._runs._scheduler, "decide", lambda now: Decision(None, [], None))
        models["plain"].execute([request])
        for array in feeds.values():
            array[...] = 99
    server.tick()
    assert request.answered.wait(PATIENCE_S)
    np.testing.assert_allclose(request.responses[0].outputs["y"], expected, rtol=1e-6, atol=1e-6)
