"""What all sessions share: weights from bytes, signatures held to the manifest, reasons of the backend."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

from runtime_lite.errors import BundleRefused
from runtime_lite.executors.graph_file import GraphFile
from runtime_lite.executors.onnx_session import ORT_ERRORS, check_session, reason_of, refused, session_options
from tests.runtime_lite.bundles import WEIGHT, graph_files, plain_graph


def test_a_session_takes_its_weights_from_bytes_and_has_the_signature_of_the_manifest() -> None:
    graph, files = plain_graph(), graph_files()
    artifact = graph.artifacts[0]
    file = GraphFile("b: g.onnx", files[artifact.file], {"weights.bin": files["graphs/weights.bin"]})
    options = session_options(file, threads=1)
    session = onnxruntime.InferenceSession(file.content, options, providers=["CPUExecutionProvider"])
    x = np.ones((1, 2, 2), np.float32)
    (y,) = session.run(None, {"x": x, "shift": np.array([3])})
    np.testing.assert_array_equal(y, x @ WEIGHT + 3)
    check_session(file.where, session, graph, artifact)
    other = dataclasses.replace(graph.outputs[0], dtype="float16")
    with pytest.raises(BundleRefused, match=r"expected outputs as the manifest lists them \(.*float16"):
        check_session(file.where, session, dataclasses.replace(graph, outputs=(other,)), artifact)
    fewer = SimpleNamespace(get_inputs=lambda: session.get_inputs()[:1])
    with pytest.raises(BundleRefused, match=r"expected inputs as the manifest lists them \(2\), got 1"):
        check_session(file.where, fewer, graph, artifact)


def test_a_graph_that_is_not_opened_is_refused_with_the_reason_of_the_backend() -> None:
    options = session_options(GraphFile("b: g.onnx", b"", {}), threads=1)
    with pytest.raises(ORT_ERRORS) as caught:
        onnxruntime.InferenceSession(b"PK", options, providers=["CPUExecutionProvider"])
    assert "[ONNXRuntimeError]" not in reason_of(caught.value)
    assert "rebuild the bundle" in str(refused("b: g.onnx", caught.value))
