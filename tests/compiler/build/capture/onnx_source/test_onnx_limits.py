"""ONNX files that would be answered with a riddle, with all memory or with no end are answered with a sentence."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from compiler.build.capture.onnx_source.onnx_file import read_onnx
from compiler.errors import Location, SlipwayError

HEAD = '<ir_version: 10, opset_import: ["" : 20]> g (float[1,2] x) => (float[1,2] y) '


def cycle(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "y"


def negative_offset(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[1, 2], data_location=1)
    for key, value in (("location", "w.bin"), ("offset", "-8"), ("length", "8")):
        tensor.external_data.add(key=key, value=value)


def sparse(model: onnx.ModelProto) -> None:
    sparse = model.graph.sparse_initializer.add(dims=[2**40])
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "table"))


def terabyte(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.array([2**38], np.int64), "s"))
    model.graph.node.add(op_type="ConstantOfShape", name="big", input=["s"], output=["c"])


def loop(trips: int | None) -> Callable[[onnx.ModelProto], None]:
    def edit(model: onnx.ModelProto) -> None:
        if trips is not None:
            model.graph.initializer.append(numpy_helper.from_array(np.array(trips, np.int64), "n"))
        node = model.graph.node.add(op_type="Loop", name="turns", input=["" if trips is None else "n", "", "x"])
        node.output.append("z")

    return edit


CASES: dict[str, tuple[Callable[[onnx.ModelProto], None], str]] = {
    "cycle": (cycle, "got a cycle through node"),
    "negative external offset": (negative_offset, "expected weights of 'w' at an offset from 0"),
    "sparse initializer": (sparse, "got the sparse initializer 'table'"),
    "constant of a terabyte": (terabyte, "got shape [274877906944]"),
    "endless loop": (loop(None), "got one that may run without end"),
    "loop of 2**62 trips": (loop(2**62), "at most 1000000, got 4611686018427387904"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_file_beyond_the_limits_is_one_sentence(tmp_path: Path, case: str) -> None:
    edit, words = CASES[case]
    model = onnx.parser.parse_model(HEAD + "{ a = Relu(x) y = Relu(a) }")
    edit(model)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(SlipwayError) as refused:
        read_onnx(tmp_path / "model.onnx", Location(graph="g"), "check the path")
    assert words in str(refused.value)
