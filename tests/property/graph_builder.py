"""Builds random graphs: inputs, an operator set, the values made before, and short ways to add nodes."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from tests.property.spelling import Attribute, spelled

WIDTH = 4

Rows: TypeAlias = Literal["batch", "literal", "none"]
"""The input's first axis: any number of rows, or one row, written 1, or no such axis."""


@dataclasses.dataclass(frozen=True)
class Grown:
    """A value of the graph that grows: its name, and whether frames are its second or third axis."""

    value: ir.Value
    frames_last: bool


class GraphBuilder:
    """One random graph on its way.

    Args:
        seed: of everything that is drawn.
        rows: how the input says which row it is of.
        opsets: one of them is drawn.

    Attributes:
        constants: what a recipe fixes inputs to, by their name.
    """

    def __init__(self, seed: int, rows: Rows = "batch", opsets: Sequence[int] = (20,)) -> None:
        self.rng, self.rows = np.random.default_rng(seed), rows
        self.opset = int(self.rng.choice(opsets)) if len(opsets) > 1 else opsets[0]
        self.graph = ir.Graph([], [], nodes=[], opset_imports={"": self.opset}, name="fuzz")
        self.model = ir.Model(self.graph, ir_version=10)
        self.insert = graphs.Inserter(self.model, "fuzz")
        self.constants: dict[str, np.ndarray] = {}
        x = self.input("x", ["batch", "time", WIDTH] if rows == "batch" else self.own("time"))
        self.values = [Grown(self.op("Unsqueeze", [x, self.insert.int64s(0)]) if rows == "none" else x, False)]

    def own(self, frames: str) -> list[str | int]:
        """The axes of an input of one row."""
        return [frames, WIDTH] if self.rows == "none" else [1, frames, WIDTH]

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
        attributes: Mapping[str, Attribute] | None = None,
        dtype: ir.DataType = ir.DataType.FLOAT,
    ) -> ir.Value:
        """Append a node, in the spelling of the operator set."""
        given, told = spelled(op, inputs, attributes or {}, self.opset)
        return self.insert.op(op, given, told, name="v", dtype=dtype)

    def several(
        self,
        op: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Attribute],
        dtypes: Sequence[ir.DataType],
    ) -> Sequence[ir.Value]:
        """Append a node of several outputs."""
        given, told = spelled(op, inputs, attributes, self.opset)
        node = ir.node(op, given, told, num_outputs=len(dtypes))
        for place, (output, dtype) in enumerate(zip(node.outputs, dtypes, strict=True)):
            output.name, output.dtype = f"{op}_{len(self.graph)}_{place}", dtype
        self.graph.append(node)
        return node.outputs

    def weights(self, *shape: int) -> ir.Value:
        """A random constant."""
        scale = 1.0 / np.sqrt(max(int(np.prod(shape[1:])), 1))
        return self.insert.constant((self.rng.standard_normal(shape) * scale).astype(np.float32), "w")

    def keep(self, value: ir.Value, frames_last: bool) -> None:
        self.values.append(Grown(value, frames_last))

    def length(self, value: ir.Value, frames_last: bool) -> ir.Value:
        """int64 [1]: the size of the frames axis."""
        return self.size(value, 2 if frames_last else 1)

    def size(self, value: ir.Value, axis: int) -> ir.Value:
        """int64 [1]: the size of an axis."""
        if self.opset >= 15:
            return self.whole("Shape", [value], start=axis, end=axis + 1)
        bounds = [self.insert.int64s(n) for n in (axis, axis + 1, 0)]
        return self.whole("Slice", [self.whole("Shape", [value]), *bounds])

    def scalar(self, number: float, dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
        """A constant without axes."""
        return self.insert.constant(np.array(number, dtype.numpy()), "n")

    def whole(self, op: str, inputs: Sequence[ir.Value], **attributes: int | str | Sequence[int]) -> ir.Value:
        """Append a node that computes int64."""
        return self.op(op, inputs, attributes, ir.DataType.INT64)

    def declared(self) -> ir.Value:
        """int64 [batch]: the length of every row, an input of its own from the first call on."""
        return self.input("n", ["batch"], ir.DataType.INT64)

    def shared(self) -> ir.Value:
        """[time, channels]: an input that all rows share, from the first call on."""
        return self.input("z", ["time", WIDTH])

    def input(self, name: str, dims: Sequence[str | int], dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
        """An input of the graph, from the first call on."""
        known = graphs.inputs_named(self.model).get(name)
        if known is None:
            known = ir.Value(name=name, shape=ir.Shape(dims), type=ir.TensorType(dtype))
            self.graph.inputs.append(known)
        return known

    def fixed(self, name: str, array: np.ndarray) -> ir.Value:
        """An input that a recipe fixes to a constant, from the first call on."""
        known = self.constants.setdefault(name, array)
        return self.input(name, known.shape, ir.DataType.from_numpy(known.dtype))

    def timed(self) -> ir.Value:
        """A value [batch, time, channels] with a frame for every one of the input's."""
        graphs.infer_shapes(self.model)
        time = graphs.symbol("time")
        found = [
            each.value
            for each in self.values
            if not each.frames_last and (graphs.dims_of(each.value) or (0, 0, 0))[1] == time
        ]
        return found[-1 - int(self.rng.integers(0, min(len(found), 2)))]


Kind = Callable[[GraphBuilder], None]
"""Lets a graph grow by a few nodes."""

Kinds = tuple[tuple[Kind, float], ...]
"""What grows, and how often."""

SINCE: dict[Kind, int] = {}
"""The operator set from which on a kind can be written; all others can be in that of `OLDEST`."""

OLDEST, NEWEST = 9, 23
"""The operator sets that graphs are drawn in."""


def since(opset: int) -> Callable[[Kind], Kind]:
    """Declares a kind whose operators, or their types, are those of this operator set or of newer ones."""

    def declared(kind: Kind) -> Kind:
        SINCE[kind] = opset
        return kind

    return declared


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Which kinds of nodes random graphs have, and how their input and operator set are drawn.

    Attributes:
        name: for reports.
        kinds: of nodes, each with its weight.
        rows: how the input says which row it is of.
        opsets: the operator sets that graphs are written in.
    """

    name: str
    kinds: Kinds
    rows: Rows = "batch"
    opsets: Sequence[int] = (20,)
