"""Random assignments to slices, as either exporter writes them: `simplify` leaves the bits, and no ScatterND."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.passes.simplify import simplify_model
from tests.kit.graphs import ops_of
from tests.kit.same_bits import same_bits

SIZES = (1, 2, 3, 5)


class Assignment:
    """x[:, a:b] = v or x[a:b, c:d] = v over axes of any length, with a block of another tensor or one number."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.axes = int(self.rng.integers(1, 3))
        names: list[str | int] = [*("batch", "time")[: self.axes], 2]
        x = ir.Value(name="x", shape=ir.Shape(names), type=ir.TensorType(ir.DataType.FLOAT))
        v = ir.Value(name="v", shape=ir.Shape(names), type=ir.TensorType(ir.DataType.FLOAT))
        self.model = ir.Model(ir.Graph([x, v], [], nodes=[], opset_imports={"": 20}, name="assignment"), ir_version=10)
        self.insert = graphs.Inserter(self.model, "test")
        self.cuts = [self._cut() if self.rng.random() < 0.8 or self.axes == 1 else None for _ in range(self.axes)]
        block = self._block(v)
        if self.rng.random() < 0.4:
            number = self.insert.constant(np.array(self.rng.choice([1.5, np.inf]), np.float32), "number")
            block = self.insert.op("Expand", [number, self._whole("Shape", [block])], name="block")
        y = self.insert.op("ScatterND", [x, self._places(x), block], name="y", dtype=ir.DataType.FLOAT)
        self.model.graph.outputs.append(y)
        graphs.infer_shapes(self.model)

    def _cut(self) -> tuple[int, int]:
        start = int(self.rng.choice([0, 0, 1, 2, -1, -2]))
        ends = (1, 2, 4, -1, graphs.END) if start >= 0 else (-1, graphs.END)
        return start, int(self.rng.choice([each for each in ends if each > start or each < 0 <= start]))

    def _block(self, value: ir.Value) -> ir.Value:
        for axis, cut in enumerate(self.cuts):
            if cut is not None:
                bounds = [self.insert.int64s(each) for each in (*cut, axis)]
                value = self.insert.op("Slice", [value, *bounds], name="block", dtype=ir.DataType.FLOAT)
        return value

    def _places(self, x: ir.Value) -> ir.Value:
        """[n_0, .., axes]: the vectors of places of each axis, spread over all axes."""
        vectors, last = [self._vector(x, axis, cut) for axis, cut in enumerate(self.cuts)], self.insert.int64s(-1)
        if len(vectors) == 1:
            return self._whole("Unsqueeze", [vectors[0], last])
        column = self._whole("Reshape", [vectors[0], self.insert.int64s(-1, 1)])
        sizes = self._whole("Shape", [self._whole("Add", [column, vectors[1]])])
        spread = [self._whole("Expand", [each, sizes]) for each in (column, vectors[1])]
        return self._whole("Concat", [self._whole("Unsqueeze", [each, last]) for each in spread], axis=-1)

    def _vector(self, x: ir.Value, axis: int, cut: tuple[int, int] | None) -> ir.Value:
        size = self._whole("Gather", [self._whole("Shape", [x]), self._scalar(axis)], axis=0)
        counted = self._whole("Range", [self._scalar(0), size, self._scalar(1)])
        return counted if cut is None else self._whole("Slice", [counted, *map(self.insert.int64s, (*cut, 0, 1))])

    def _whole(self, op: str, inputs: list[ir.Value], **attributes: int) -> ir.Value:
        return self.insert.op(op, inputs, attributes, name=op.lower(), dtype=ir.DataType.INT64)

    def _scalar(self, number: int) -> ir.Value:
        return self.insert.constant(np.array(number, np.int64), "number")


@pytest.mark.parametrize("seed", range(24))
def test_assignments_to_slices(seed: int) -> None:
    drawn = Assignment(seed)
    simple = graphs.clone(drawn.model)
    simplify_model(simple)
    assert "ScatterND" not in ops_of(simple)
    for time in SIZES:
        shape = (*(3, time)[2 - drawn.axes :], 2) if drawn.axes == 2 else (time, 2)
        feeds = {name: drawn.rng.standard_normal(shape).astype(np.float32) for name in ("x", "v")}
        before, after = (run_model(model, feeds) for model in (drawn.model, simple))
        same_bits(after["y"], before["y"], f"time {time}")
