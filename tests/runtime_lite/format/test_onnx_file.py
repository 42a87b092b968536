"""The scanner finds every external tensor of an ONNX file: its table is held against the schema itself."""

from typing import Any

import onnx
import pytest

from runtime_lite.format.onnx_file import CHILDREN, ExternalData, scan_onnx
from tests.runtime_lite.bundles import STREAMING_TEXT, onnx_bytes


def paths_to_tensors() -> dict[str, dict[int, str]]:
    """Return, from the schema, every field of a message through which a TensorProto can be reached."""
    seen: dict[str, Any] = {}

    def visit(descriptor: Any) -> None:
        if descriptor.name not in seen:
            seen[descriptor.name] = descriptor
            for field in descriptor.fields:
                if field.message_type is not None:
                    visit(field.message_type)

    visit(onnx.ModelProto.DESCRIPTOR)
    reaching = {"TensorProto"}
    while True:
        grown = {
            n for n, d in seen.items() if any(f.message_type and f.message_type.name in reaching for f in d.fields)
        }
        if grown <= reaching:
            break
        reaching |= grown
    return {
        name: {
            field.number: field.message_type.name
            for field in seen[name].fields
            if field.message_type is not None and field.message_type.name in reaching
        }
        for name in reaching
    }


def test_the_table_knows_every_path_to_a_tensor() -> None:
    assert paths_to_tensors() == CHILDREN


def test_a_graph_file_is_scanned() -> None:
    found = scan_onnx(onnx_bytes(STREAMING_TEXT.format(n=1), "w.bin", 32, 16), "g.onnx")
    assert (found.ir_version, found.opset) == (10, 20)
    assert found.external == [ExternalData("w.bin", 32, 16)]


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_both_names_of_the_default_domain_are_known(domain: str) -> None:
    proto = onnx.ModelProto(ir_version=10)
    proto.opset_import.add(domain="other", version=3)
    proto.opset_import.add(domain=domain, version=21)
    proto.opset_import.add(domain="another", version=4)
    assert scan_onnx(proto.SerializeToString(), "g.onnx").opset == 21
