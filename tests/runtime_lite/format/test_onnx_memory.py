"""External tensors in memory: the same file but for where they lie."""

import numpy as np
import onnx
import pytest

from runtime_lite import BundleRefused
from runtime_lite.format.onnx_memory import IN_MEMORY, in_memory
from tests.runtime_lite.bundles import STREAMING_TEXT, WEIGHT, onnx_bytes

CONTENT = onnx_bytes(STREAMING_TEXT.format(n=1), "w.bin", 32, 16)


def external(model: onnx.ModelProto) -> dict[str, dict[str, str]]:
    return {
        tensor.name: {entry.key: entry.value for entry in tensor.external_data}
        for tensor in model.graph.initializer
        if tensor.external_data
    }


def without_places(content: bytes) -> bytes:
    model = onnx.load_model_from_string(content)
    for tensor in model.graph.initializer:
        tensor.ClearField("external_data")
    return bytes(model.SerializeToString(deterministic=True))


def test_a_tensor_lies_where_the_memory_is_and_nothing_else_changes() -> None:
    moved = in_memory(CONTENT, "g.onnx", {"w.bin": 4096})
    assert external(onnx.load_model_from_string(moved)) == {
        "weight": {"location": IN_MEMORY, "offset": str(4096 + 32), "length": "16"}
    }
    assert without_places(moved) == without_places(CONTENT)


def test_a_file_without_external_tensors_stays_as_it_is() -> None:
    model = onnx.load_model_from_string(CONTENT)
    model.graph.initializer[0].ClearField("external_data")
    model.graph.initializer[0].raw_data = WEIGHT.tobytes()
    plain = model.SerializeToString()
    assert in_memory(plain, "g.onnx", {}) == plain


def test_a_tensor_that_does_not_say_how_long_it_is_is_refused() -> None:
    with pytest.raises(BundleRefused, match="external_data with its length, got none"):
        in_memory(onnx_bytes(STREAMING_TEXT.format(n=1), "w.bin", 32, 0), "g.onnx", {"w.bin": 4096})


def test_external_data_elsewhere_than_in_the_main_graph_is_refused() -> None:
    model = onnx.load_model_from_string(CONTENT)
    constant = model.graph.node.add(op_type="Constant", output=["c"])
    tensor = constant.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t
    tensor.CopyFrom(next(each for each in model.graph.initializer if each.name == "weight"))
    with pytest.raises(BundleRefused, match=r"in initializers of the main graph, got 'w\.bin' elsewhere"):
        in_memory(model.SerializeToString(), "g.onnx", {"w.bin": np.empty(64).ctypes.data})
