"""Inputs and outputs of a file, with sizes over axis names."""

from pathlib import Path

import onnx_ir as ir
import pytest

from compiler.errors import Refused, SlipwayError
from compiler.front.commands.onnx_signature import Tensor, open_file, read_file
from compiler.graph.sizes.expressions import expression, symbol
from tests.compiler.front.commands.files import CACHE, unknown_operator, write


def test_sizes_of_outputs_follow_from_those_of_inputs(tmp_path: Path) -> None:
    _, signature = read_file(Path(write(tmp_path / "m.onnx", CACHE)), "run")
    assert signature.inputs[1] == Tensor("cache", (symbol("batch"), symbol("past"), 4), "float32")
    assert signature.outputs[1] == Tensor("next_cache", (symbol("batch"), expression("past + 2"), 4), "float32")
    assert signature.outputs[1].axes == ("batch", "past")
    assert str(signature.inputs[1]) == "cache [batch, past, 4]"


@pytest.mark.parametrize("unnamed", [None, "?", "-1", "None"])
def test_an_axis_without_a_name_is_called_after_its_input(unnamed: str | None, tmp_path: Path) -> None:
    model = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 20]>
        m (float[batch,2] x) => (float[batch,2] y) { y = Relu(x) }""")
    model.graph.inputs[0].shape = ir.Shape([unnamed, 2])
    ir.save(model, tmp_path / "m.onnx")
    assert read_file(tmp_path / "m.onnx", "run")[1].inputs[0].axes == ("x_dim0",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("m (string[2] x) => (string[2] y) { y = Identity(x) }", "got x as STRING"),
        ("m (seq(float[2]) x) => (int64 y) { y = SequenceLength(x) }", "expected tensors of numbers"),
    ],
)
def test_what_is_no_tensor_of_numbers_is_refused(text: str, words: str, tmp_path: Path) -> None:
    ir.save(ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]> {text}'), tmp_path / "m.onnx")
    with pytest.raises(Refused, match=words):
        read_file(tmp_path / "m.onnx", "run")


def test_what_onnx_runtime_does_not_know_is_refused(tmp_path: Path) -> None:
    file = unknown_operator(tmp_path / "m.onnx")
    with pytest.raises(Refused, match="ONNX Runtime cannot run ") as caught:
        open_file(Path(file), "bench", optimize=True)
    assert caught.value.place.stage == "bench"


@pytest.mark.parametrize("content", [b"", b"\x00" * 64, b"\xff" * 64, b"PK\x03\x04 a zip", b"\x3a\xff\xff\xff\xff\x0f"])
def test_hostile_bytes_are_answered(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(SlipwayError, match="expected"):
        read_file(tmp_path / "m.onnx", "run")
