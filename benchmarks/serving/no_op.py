"""Bundles whose graphs do nothing, so that only the runtime's own time remains."""

from pathlib import Path

import onnx_ir as ir

from runtime_lite.format.golden import Golden, GoldenStep, npz_from_golden
from runtime_lite.format.manifest import Artifact, Axis, Graph, State, Tensor
from tests.runtime_lite.bundles import write_bundle

ROWS = (1, 4, 16, 64)

PLAIN = """
<ir_version: 10, opset_import: ["" : 20]>
no_op (float[{n},{w}] x) => (float[{n},{w}] y) {{ y = Identity(x) }}
"""

STREAM = """
<ir_version: 10, opset_import: ["" : 20]>
no_op (float[{n},{w}] x, float[{n},{w}] past) => (float[{n},{w}] y, float[{n},{w}] next)
{{
    y = Identity(x)
    next = Identity(past)
}}
"""


def write_no_op(folder: Path, *, width: int, stream: bool) -> Path:
    """Write a bundle of one graph `no_op` over rows of `width` numbers, with a state of that size or without."""
    shape = ("batch", width)
    states = (State("past", "past", "next", shape, "float32", 0.0, None, None, ()),) if stream else ()
    graph = Graph(
        target="onnx_static",
        opset=20,
        ir_version=10,
        inputs=(Tensor("x", shape, "float32", "data"), *(Tensor(s.input, shape, "float32", "state") for s in states)),
        outputs=(Tensor("y", shape, "float32", "data"), *(Tensor(s.output, shape, "float32", "state") for s in states)),
        axes={"batch": Axis(ROWS)},
        states=states,
        caches=(),
        artifacts=tuple(Artifact({"batch": rows}, f"graphs/no_op.batch{rows}.onnx", ()) for rows in ROWS),
        golden="golden/no_op.npz",
        rows_independent=True,
        certificate="certificates/no_op.json",
        batch_axis="batch",
    )
    zeros = ir.tensor([[0.0] * width], dtype=ir.DataType.FLOAT).numpy()
    outputs = {tensor.name: zeros for tensor in graph.outputs}
    files = {
        graph.certificate: b"{}\n",
        graph.golden: npz_from_golden(Golden((GoldenStep({"x": zeros}, outputs),), 0.0)),
    }
    for rows in ROWS:
        model = ir.from_onnx_text((STREAM if stream else PLAIN).format(n=rows, w=width))
        files[f"graphs/no_op.batch{rows}.onnx"] = bytes(ir.to_proto(model).SerializeToString())
    return write_bundle(folder, {"no_op": graph}, files)
