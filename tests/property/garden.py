"""The ground on which random graphs grow: an input, the values so far, and short ways to add nodes."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
import onnx_ir as ir

from compiler import ir as house

WIDTH = 4

Rows: TypeAlias = Literal["batch", "literal"]
"""The input's first axis: any number of rows, or one row, written 1."""


@dataclasses.dataclass(frozen=True)
class Grown:
    """A value of the graph that grows: its name, and whether frames are its second or third axis."""

    value: ir.Value
    frames_last: bool


class Garden:
    """One random graph on its way.

    Args:
        seed: of everything that is drawn.
        rows: how the input says which row it is of.
    """

    def __init__(self, seed: int, rows: Rows = "batch") -> None:
        self.rng, self.rows = np.random.default_rng(seed), rows
        dims = ["batch" if rows == "batch" else 1, "time", WIDTH]
        x = ir.Value(name="x", shape=ir.Shape(dims), type=ir.TensorType(ir.DataType.FLOAT))
        self.graph = ir.Graph([x], [], nodes=[], opset_imports={"": 20}, name="fuzz")
        self.model = ir.Model(self.graph, ir_version=10)
        self.insert = house.Inserter(self.model, "fuzz")
        self.values = [Grown(x, False)]

    def pick(self, frames_last: bool | None = None) -> Grown:
        """A value, recent ones more often; turned when its frames lie on the wrong axis."""
        weights = np.arange(1, len(self.values) + 1, dtype=float) ** 2
        found = self.values[int(self.rng.choice(len(self.values), p=weights / weights.sum()))]
        if frames_last is None or found.frames_last == frames_last:
            return found
        turned = self.op("Transpose", [found.value], {"perm": [0, 2, 1]})
        return Grown(turned, frames_last)

    def op(
        self,
        op: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, int | float | str | Sequence[int]] | None = None,
        dtype: ir.DataType = ir.DataType.FLOAT,
    ) -> ir.Value:
        """Append a node."""
        return self.insert.op(op, inputs, attributes or {}, name="v", dtype=dtype)

    def weights(self, *shape: int) -> ir.Value:
        """A random constant."""
        scale = 1.0 / np.sqrt(max(int(np.prod(shape[1:])), 1))
        return self.insert.constant((self.rng.standard_normal(shape) * scale).astype(np.float32), "w")

    def keep(self, value: ir.Value, frames_last: bool) -> None:
        self.values.append(Grown(value, frames_last))

    def length(self, value: ir.Value, frames_last: bool) -> ir.Value:
        """int64 [1]: the size of the frames axis."""
        axis = 2 if frames_last else 1
        return self.op("Shape", [value], {"start": axis, "end": axis + 1}, ir.DataType.INT64)

    def scalar(self, number: float, dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
        """A constant without axes."""
        return self.insert.constant(np.array(number, dtype.numpy()), "n")

    def whole(self, op: str, inputs: Sequence[ir.Value], **attributes: int | str | Sequence[int]) -> ir.Value:
        """Append a node that computes int64."""
        return self.op(op, inputs, attributes, ir.DataType.INT64)

    def declared(self) -> ir.Value:
        """int64 [batch]: the length of every row, an input of its own from the first call on."""
        return self._input("n", ["batch"], ir.DataType.INT64)

    def shared(self) -> ir.Value:
        """[time, channels]: an input that all rows share, from the first call on."""
        return self._input("z", ["time", WIDTH], ir.DataType.FLOAT)

    def _input(self, name: str, dims: Sequence[str | int], dtype: ir.DataType) -> ir.Value:
        known = house.inputs_named(self.model).get(name)
        if known is None:
            known = ir.Value(name=name, shape=ir.Shape(dims), type=ir.TensorType(dtype))
            self.graph.inputs.append(known)
        return known

    def timed(self) -> ir.Value:
        """A value [batch, time, channels] with a frame for every one of the input's."""
        house.infer_shapes(self.model)
        time = house.symbol("time")
        found = [
            each.value
            for each in self.values
            if not each.frames_last and (house.dims_of(each.value) or (0, 0, 0))[1] == time
        ]
        return found[-1 - int(self.rng.integers(0, min(len(found), 2)))]


Kind = Callable[[Garden], None]
"""Lets a graph grow by a few nodes."""

Kinds = tuple[tuple[Kind, float], ...]
"""What grows, and how often."""
