"""A bundle whose answers are whole numbers: every stream adds up what it is fed, exactly, in any company of rows."""

from pathlib import Path

import numpy as np
import onnx_ir as ir

from runtime_lite.format.arrays import Array
from runtime_lite.format.golden import Golden, GoldenStep, npz_from_golden
from runtime_lite.format.manifest import Artifact, Axis, Graph, State, Tensor
from tests.runtime_lite.bundles import write_bundle

ROWS = (1, 4, 16, 64)
WIDTH = 4

TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
adder (float[{n},4] x, float[{n},4] past) => (float[{n},4] y, float[{n},4] next)
<float factor = {{{factor}}}>
{{
    scaled = Mul(x, factor)
    y = Add(scaled, past)
    next = Add(scaled, past)
}}
"""


def write_adder(folder: Path, factor: int = 1) -> Path:
    """Write a bundle of one graph: `y = factor * x + past`, and `past` of the next chunk is `y`."""
    shape = ("batch", WIDTH)
    graph = Graph(
        target="onnx_static",
        opset=20,
        ir_version=10,
        inputs=(Tensor("x", shape, "float32", "data"), Tensor("past", shape, "float32", "state")),
        outputs=(Tensor("y", shape, "float32", "data"), Tensor("next", shape, "float32", "state")),
        axes={"batch": Axis(ROWS)},
        states=(State("past", "past", "next", shape, "float32", 0.0, None, None, ()),),
        caches=(),
        artifacts=tuple(Artifact({"batch": rows}, f"graphs/adder.batch{rows}.onnx", ()) for rows in ROWS),
        golden="golden/adder.npz",
        rows_independent=True,
        certificate="certificates/adder.json",
        batch_axis="batch",
    )
    x = fed(1)["x"]
    step = GoldenStep({"x": x}, {"y": factor * x, "next": factor * x})
    files = {graph.certificate: b"{}\n", graph.golden: npz_from_golden(Golden((step,), 0.0))}
    for rows in ROWS:
        model = ir.from_onnx_text(TEXT.format(n=rows, factor=factor))
        files[f"graphs/adder.batch{rows}.onnx"] = bytes(ir.to_proto(model).SerializeToString())
    return write_bundle(folder, {"adder": graph}, files)


def fed(number: int, rows: int = 1) -> dict[str, Array]:
    """The feed of a whole number: it, twice it, three times and four times it."""
    return {"x": number * np.tile(np.arange(1, WIDTH + 1, dtype=np.float32), (rows, 1))}


def is_sum(outputs: dict[str, Array], number: int) -> bool:
    """Whether an answer is exactly that of a stream whose chunks come to a whole number."""
    return np.array_equal(outputs["y"], fed(number)["x"])
