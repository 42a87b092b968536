"""The Open Inference Protocol: what a feed answers it answers over HTTP, and whatever else comes is a named answer."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import Model, Runtime
from runtime_lite.__main__ import main
from runtime_lite.hosting import open_inference
from runtime_lite.hosting.open_inference import JSON_HEADER, OpenInference, Reply
from tests.runtime_lite.bundles import random_row, write_double_bundle, write_ragged_bundle
from tests.runtime_lite.hosting.against_open_inference import MADE_BY, WANTED, client_says
from tests.runtime_lite.hosting.own_environment import CACHE, AbsentError, environment
from tests.runtime_lite.serving.served import assert_close

FEED = random_row(6)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_ragged_bundle(tmp_path_factory.mktemp("ragged"))


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as opened:
        yield opened


@pytest.fixture
def model(runtime: Runtime, bundle: Path) -> Model:
    return runtime.load(bundle)


@pytest.fixture
def served(runtime: Runtime, model: Model) -> OpenInference:
    return OpenInference(runtime, model)


def ask(served: OpenInference, method: str, path: str, body: Any = b"", json_bytes: str | None = None) -> Reply:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return asyncio.run(served.answer(method, path, content, json_bytes))


def told(reply: Reply) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(reply.content)
    return found


def as_json(flat: bool = True) -> list[dict[str, Any]]:
    kinds = {"float32": "FP32", "int64": "INT64"}
    return [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": kinds[str(array.dtype)],
            "data": (array.ravel() if flat else array).tolist(),
        }
        for name, array in FEED.items()
    ]


INFER = "/v2/models/tiny/infer"


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("path", [INFER, "/v2/models/tiny/versions/1/infer"])
def test_a_feed_as_json_is_answered_as_it_is_here(served: OpenInference, model: Model, flat: bool, path: str) -> None:
    reply = ask(served, "POST", path, {"id": "7", "inputs": as_json(flat), "parameters": {"timeout": 60_000_000}})
    assert reply.status == 200 and not reply.headers
    answer = told(reply)
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("7", "tiny", "1")
    expected = model.run(FEED)
    assert [tensor["name"] for tensor in answer["outputs"]] == list(expected)
    for tensor in answer["outputs"]:
        assert tensor["datatype"] == "FP32"
        assert_close(np.array(tensor["data"]).reshape(tensor["shape"]), expected[tensor["name"]])


def test_tensors_as_bytes_go_and_come_behind_the_json(served: OpenInference, model: Model) -> None:
    inputs, behind = as_json(), b""
    for tensor in inputs:
        raw = FEED[tensor["name"]].tobytes()
        del tensor["data"]
        tensor["parameters"] = {"binary_data_size": len(raw)}
        behind += raw
    outputs = [{"name": "mean", "parameters": {"binary_data": True}}, {"name": "y"}]
    head = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    reply = ask(served, "POST", INFER, head + behind, str(len(head)))
    size = int(reply.headers[JSON_HEADER])
    mean, y = json.loads(reply.content[:size])["outputs"]
    assert mean["parameters"] == {"binary_data_size": 8} and y["name"] == "y"
    expected = model.run(FEED)
    assert_close(np.frombuffer(reply.content[size:], np.float32).reshape(mean["shape"]), expected["mean"])
    assert_close(np.array(y["data"]).reshape(y["shape"]), expected["y"])
    everything = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    reply = ask(served, "POST", INFER, everything + behind, str(len(everything)))
    assert len(reply.content) - int(reply.headers[JSON_HEADER]) == sum(array.nbytes for array in expected.values())


def test_health_and_metadata(runtime: Runtime, model: Model, served: OpenInference) -> None:
    assert told(ask(served, "GET", "/v2")) == {
        "name": "slipway",
        "version": "2",
        "extensions": ["binary_tensor_data"],
    }
    about = told(ask(served, "GET", "/v2/models/tiny"))
    assert (about["name"], about["platform"], about["versions"]) == ("tiny", "slipway_onnx_static", ["1"])
    assert about["inputs"] == [
        {"name": "x", "datatype": "FP32", "shape": [-1, -1, 2]},
        {"name": "tokens", "datatype": "INT64", "shape": [-1, -1]},
    ]
    ready = ("/v2/health/live", "/v2/health/ready", "/v2/models/tiny/ready", "/v2/models/tiny/versions/1/ready")
    assert [ask(served, "GET", path).status for path in ready] == [200, 200, 200, 200]
    runtime.drain(1.0)
    assert [ask(served, "GET", path).status for path in ready] == [200, 503, 503, 503]
    refused = ask(served, "POST", INFER, {"inputs": as_json()})
    assert refused.status == 503 and told(refused)["error"].startswith("Overloaded: ")


def test_several_graphs_are_several_models_and_a_stream_s_graph_starts_anew(tmp_path: Path) -> None:
    with Runtime() as runtime:
        model = runtime.load(write_double_bundle(tmp_path / "double"))
        served = OpenInference(runtime, model)
        x = np.ones((1, 3, 2), np.float32)
        feed = {"name": "x", "shape": [1, 3, 2], "datatype": "FP32", "data": x.ravel().tolist()}
        for _ in range(2):
            answer = told(ask(served, "POST", "/v2/models/tiny_streaming/infer", {"inputs": [feed]}))
            assert_close(np.array(answer["outputs"][0]["data"]).reshape(1, 3, 2), model.run({"x": x}, "streaming")["y"])
        assert ask(served, "GET", "/v2/models/tiny_plain").status == 200
        assert ask(served, "GET", "/v2/models/tiny").status == 404


def changed(**fields: Any) -> dict[str, Any]:
    return {"inputs": [{**as_json()[0], **fields}, as_json()[1]]}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("GET", "/", b"", 404, "expected a path of the protocol, got 'GET' ''"),
        ("DELETE", "/v2", b"", 404, "expected a path of the protocol"),
        ("GET", "/v2/models/other", b"", 404, "expected one of the models tiny, got 'other'"),
        ("POST", "/v2/models/other/infer", b"{}", 404, "expected one of the models tiny"),
        ("GET", "/v2/models/tiny/versions/2", b"", 404, "got 'versions/2'"),
        ("GET", "/v2/models/tiny/config", b"", 404, "got 'config'"),
        ("POST", INFER, b"", 400, "expected JSON"),
        ("POST", INFER, b"[" * 100_000, 400, "expected JSON"),
        ("POST", INFER, b'{"inputs": [NaN]}', 400, "NaN is no number of JSON"),
        ("POST", INFER, b"[]", 400, "expected an object"),
        ("POST", INFER, {}, 400, "inputs: expected a list of tensors"),
        ("POST", INFER, {"inputs": [3]}, 400, "inputs: expected a list of tensors"),
        ("POST", INFER, {"inputs": []}, 400, "BadInput: ragged.submit: expected the inputs"),
        ("POST", INFER, {"inputs": [*as_json(), as_json()[0]]}, 400, "expected every input once by its name"),
        ("POST", INFER, changed(name=None), 400, "expected every input once by its name, got None"),
        ("POST", INFER, changed(datatype="BYTES"), 400, "expected a datatype of BOOL"),
        ("POST", INFER, changed(datatype=[]), 400, "expected a datatype of BOOL"),
        ("POST", INFER, changed(shape=None), 400, "expected a shape of whole numbers"),
        ("POST", INFER, changed(shape=[1, -6, 2]), 400, "expected a shape of whole numbers"),
        ("POST", INFER, changed(shape=[1, 6.0, 2]), 400, "expected a shape of whole numbers"),
        ("POST", INFER, changed(shape=[1, 2**30, 2]), 400, "expected 2147483648 numbers of its datatype"),
        ("POST", INFER, changed(shape=[1] * 99), 400, "expected a shape of whole numbers"),
        ("POST", INFER, changed(data=None), 400, "expected 12 numbers of its datatype"),
        ("POST", INFER, changed(data=["x"] * 12), 400, "expected 12 numbers of its datatype"),
        ("POST", INFER, changed(data=[True] * 12), 400, "expected 12 numbers of its datatype"),
        ("POST", INFER, changed(data=[[1], [2, 3]]), 400, "expected 12 numbers of its datatype"),
        ("POST", INFER, changed(datatype="INT8", data=[300] * 12), 400, "expected 12 numbers of its datatype"),
        ("POST", INFER, changed(datatype="INT8", data=[1.5] * 12), 400, "expected 12 numbers of its datatype"),
        ("POST", INFER, changed(datatype="FP64"), 400, "BadInput: ragged.submit"),
        ("POST", INFER, changed(data=[1e39] * 12), 400, "BadInput: ragged.submit"),
        ("POST", INFER, changed(parameters={"binary_data_size": 48}), 400, "and 0 bytes behind the JSON"),
        ("POST", INFER, changed(parameters={"binary_data_size": "48"}), 400, "expected 48 bytes for its shape"),
        ("POST", INFER, {"inputs": as_json(), "outputs": [{"name": "z"}]}, 400, "expected one of y, mean, got 'z'"),
        ("POST", INFER, {"inputs": as_json(), "outputs": 3}, 400, "outputs: expected a list"),
        ("POST", INFER, {"inputs": as_json(), "parameters": {"timeout": "1"}}, 400, "expected microseconds"),
        ("POST", INFER, {"inputs": as_json(), "parameters": {"timeout": -1}}, 400, "expected deadline_ms as positive"),
    ],
)
def test_what_is_wrong_is_an_answer(
    served: OpenInference, method: str, path: str, body: Any, status: int, text: str
) -> None:
    reply = ask(served, method, path, body)
    assert (reply.status, text in told(reply)["error"]) == (status, True), told(reply)
    assert ask(served, "POST", INFER, {"inputs": as_json()}).status == 200


@pytest.mark.parametrize("json_bytes", ["", "x", "-1", "9" * 30, "999999"])
def test_a_wrong_length_of_the_json_is_an_answer(served: OpenInference, json_bytes: str) -> None:
    reply = ask(served, "POST", INFER, {"inputs": as_json()}, json_bytes)
    assert reply.status == 400 and JSON_HEADER in told(reply)["error"]


def test_bytes_that_belong_to_no_tensor_are_refused(served: OpenInference) -> None:
    head = json.dumps({"inputs": as_json()}).encode()
    reply = ask(served, "POST", INFER, head + b"more", str(len(head)))
    assert reply.status == 400 and "got 4 bytes" in told(reply)["error"]


def test_without_its_libraries_the_command_says_what_to_install(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["open-inference", str(bundle)]) == 5
    assert "; pip install starlette==1.10.0 uvicorn==0.54.0" in capsys.readouterr().err
    assert open_inference.VERSION == "2"


@pytest.mark.slow
def test_a_client_that_others_wrote_gets_the_same_answers(bundle: Path, tmp_path: Path) -> None:
    try:
        python = environment(CACHE / "open_inference", WANTED, MADE_BY)
    except AbsentError as error:
        pytest.skip(str(error))
    said = client_says(python, bundle, tmp_path)
    assert said == {"answered": 40, "right": 40, "refused": 4, "live": True, "ready": True, "inputs": ["x", "tokens"]}
