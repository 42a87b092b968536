"""ONNX files of one screen, and the front door run on them."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import build
from compiler.graph import model as graphs
from tests.kit.graphs import parse

DOUBLED = """(float[batch,time,4] x) => (float[batch,time,4] y) {
    minus = Neg(x)
    same = Identity(minus)
    again = Neg(x)
    y = Add(same, again)
}"""

STEP = """(float[1,4] x, float[1,4] h) => (float[1,4] y, float[1,4] next_h) {
    next_h = Add(x, h)
    y = Mul(next_h, next_h)
}"""
"""A state that adds up what it is fed."""

CACHE = """(float[batch,2,4] x, float[batch,past,4] cache, int64[1] middle)
        => (float[batch,2,4] y, float[batch,all,4] next_cache) {
    next_cache = Concat<axis = 1>(cache, x)
    mean = ReduceMean<keepdims = 1>(next_cache, middle)
    y = Add(x, mean)
}"""
"""A cache that grows by two frames a call."""


def write(path: Path, text: str) -> str:
    """A file of a graph in ONNX text."""
    path.write_bytes(graphs.serialized(parse(text, {"middle": np.array([1])})))
    return str(path)


def operators(path: str) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    code = build.main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def outside_weights(path: Path) -> str:
    """A file whose weights lie in another one, which is lost."""
    model = parse("(float[2,8] x, float[8] w) => (float[2,8] y) { y = Add(x, w) }")
    proto = ir.serde.serialize_model(model)
    lost = proto.graph.input[1]
    del proto.graph.input[1]
    tensor = proto.graph.initializer.add(name=lost.name, data_type=1, dims=[8], data_location=1)
    for key, value in (("location", "lost.bin"), ("offset", "0"), ("length", "32")):
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(proto.SerializeToString())
    return str(path)


def unknown_operator(path: Path) -> str:
    """A file that follows the standard, and that nothing runs."""
    text = """<ir_version: 10, opset_import: ["" : 20, "com.acme" : 1]>
        m (float[2] x) => (float[2] y) { y = com.acme.F(x) }"""
    ir.save(ir.from_onnx_text(text), path)
    return str(path)
