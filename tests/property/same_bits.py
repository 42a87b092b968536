"""Random small graphs of edge constants: whatever `simplify` leaves must give the same bits on edge inputs.

`python -m tests.property.same_bits --graphs 20000` draws many; the tests draw a few.
"""

import argparse
import sys
import time
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.graph.stages import Array
from compiler.passes.simplify import simplify_model

FLOATS = np.array(
    [0, -0.0, 1, -1, 1 + 2**-23, 2, 0.5, 1e-9, -1e-9, 1e-30, 1e-45, 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32
)
INTEGERS = {
    np.dtype(kind): np.array([0, 1, 2, 3, np.iinfo(kind).max, np.iinfo(kind).min, np.iinfo(kind).max - 1], kind)
    for kind in (np.int32, np.int64, np.uint8)
}
UNARY = {"f": ("Neg", "Abs", "Relu", "Sign", "Reciprocal", "Sqrt", "Floor", "Log", "Exp", "Identity", "LeakyRelu"),
         "i": ("Neg", "Abs", "Sign", "Identity"), "u": ("Identity", "Abs")}  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Add", "Sub", "Mul", "Div", "Min", "Max")
MOVED = ("Reshape", "Transpose", "Slice", "Expand", "Unsqueeze", "Squeeze", "Concat", "Cast", "Clip", "Pad", "Split")


class GraphBuilder:
    """One random graph on its way: values of one type and shape [n, 4] or [4, n], and constants of edge numbers.

    Args:
        seed: of everything that is drawn.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        kinds = (np.dtype(np.float32), *INTEGERS)
        self.kind = kinds[int(self.rng.choice(len(kinds), p=[0.55, 0.15, 0.15, 0.15]))]
        self.edges = FLOATS if self.kind == np.float32 else INTEGERS[self.kind]
        self.dtype = ir.DataType.from_numpy(self.kind)
        x = ir.Value(name="x", shape=ir.Shape(["n", 4]), type=ir.TensorType(self.dtype))
        self.graph = ir.Graph([x], [], nodes=[], opset_imports={"": int(self.rng.choice([14, 18, 20]))}, name="fuzz")
        self.model = ir.Model(self.graph, ir_version=10)
        self.insert = graphs.Inserter(self.model, "fuzz")
        self.values = [x]

    def pick(self) -> ir.Value:
        """A value, recent ones more often."""
        weights = np.arange(1, len(self.values) + 1, dtype=float) ** 2
        return self.values[int(self.rng.choice(len(self.values), p=weights / weights.sum()))]

    def drawn(self, options: tuple[str, ...]) -> str:
        """One of some words."""
        return options[int(self.rng.integers(len(options)))]

    def constant(self) -> ir.Value:
        """Edge numbers: one, one per column, or one with axes of its own, now and then a constant that is computed."""
        shape = [(), (1,), (4,), (1, 1), (1, 4)][int(self.rng.integers(5))]
        array = self.rng.choice(self.edges, size=shape).astype(self.kind)
        value = self.insert.constant(array.reshape(shape), "edge")
        if self.rng.random() < 0.3:
            return self.op(self.drawn(UNARY[self.kind.kind]), [value])
        return self.op("Add", [value, value]) if self.rng.random() < 0.2 else value

    def op(self, op: str, inputs: list[ir.Value | None], attributes: Mapping[str, object] | None = None) -> ir.Value:
        """One node."""
        return self.insert.op(op, inputs, attributes, name=op.lower(), dtype=self.dtype)  # type: ignore[arg-type]

    def grow(self) -> None:
        """One more value, as wide as the others."""
        value = self.pick()
        kind = self.rng.random()
        if kind < 0.45:
            other = self.constant() if self.rng.random() < 0.7 else self.pick()
            pair = [value, other] if self.rng.random() < 0.7 else [other, value]
            op = self.drawn(BINARY)
            if op == "Div" and self.kind != np.float32:
                pair = [value, self.insert.constant(np.array(self.rng.choice([1, 2, 3]), self.kind), "divisor")]
            self.values.append(self.op(op, list(pair)))
        elif kind < 0.6:
            op = self.drawn(UNARY[self.kind.kind])
            alpha = {"alpha": float(self.rng.choice([0.0, -0.0, 0.1]))} if op == "LeakyRelu" else None
            self.values.append(self.op(op, [value], alpha))
        else:
            self.values.append(self.moved(value, self.drawn(MOVED)))

    def moved(self, value: ir.Value, op: str) -> ir.Value:
        """There and back again, or nowhere at all."""
        end = int(self.rng.choice([4, 5, 1000, graphs.END]))
        match op:
            case "Reshape":
                turned = self.op("Reshape", [value, self.insert.int64s(*self.rng.choice([[-1, 2, 2], [2, -1, 2]]))])
                return self.op("Reshape", [value if self.rng.random() < 0.4 else turned, self.insert.int64s(-1, 4)])
            case "Transpose":
                turned = self.op("Transpose", [value], {"perm": [1, 0]} if self.rng.random() < 0.5 else None)
                return self.op("Transpose", [turned])
            case "Slice":
                axis = int(self.rng.choice([1, -1]))
                return self.op("Slice", [value, *(self.insert.int64s(at) for at in (0, end, axis))])
            case "Expand":
                return self.op("Expand", [value, self.insert.int64s(*[[1, 1], [4], [1], [1, 4]][self.rng.integers(4)])])
            case "Unsqueeze" | "Squeeze":
                place = self.insert.int64s(int(self.rng.choice([0, 1, 2, -1])))
                return self.op("Squeeze", [self.op("Unsqueeze", [value, place]), place])
            case "Concat":
                parts = self.op("Slice", [value, *(self.insert.int64s(at) for at in (0, 2, 1))])
                rest = self.op("Slice", [value, *(self.insert.int64s(at) for at in (2, end, 1))])
                return self.op("Concat", [parts, rest], {"axis": 1})
            case "Cast" if self.kind != np.uint8:
                there = ir.DataType.DOUBLE if self.rng.random() < 0.7 else ir.DataType.FLOAT
                wide = self.insert.op("Cast", [value], {"to": int(there)}, name="wide", dtype=there)
                exact = self.kind != np.int64 and not (self.kind == np.int32 and there == ir.DataType.FLOAT)
                return self.op("Cast", [wide if exact else value], {"to": int(self.dtype)})
            case "Clip":
                low, high = (
                    self.insert.constant(np.array(self.rng.choice(self.edges[:12] if self.kind == np.float32 else
                    self.edges), self.kind), "bound") for _ in range(2))  # fmt: skip
                return self.op("Clip", [value, low, high])
            case "Pad":
                padded = self.op("Pad", [value, self.insert.int64s(0, 1, 0, 0)])
                return self.op(
                    "Slice", [padded, *(self.insert.int64s(at) for at in (1, end + 1 if end < 9 else end, 1))]
                )
        return self.op("Identity", [value])


def grown(seed: int) -> ir.Model:
    """A graph of 3 to 14 steps; the last value and one other are outputs."""
    builder = GraphBuilder(seed)
    for _ in range(int(builder.rng.integers(3, 15))):
        builder.grow()
    for at, value in enumerate(dict.fromkeys((builder.values[-1], builder.pick()))):
        builder.graph.outputs.append(builder.op("Identity", [value]))
        builder.graph.outputs[at].name = f"y{at}"
    graphs.infer_shapes(builder.model)
    return builder.model


def differences(seed: int) -> list[str]:
    """The outputs of one graph that differ by a bit."""
    model = grown(seed)
    simple = graphs.clone(model)
    simplify_model(simple)
    kind = model.graph.inputs[0].dtype
    assert kind is not None
    edges = FLOATS if kind == ir.DataType.FLOAT else INTEGERS[np.dtype(kind.numpy())]
    rng = np.random.default_rng(seed)
    found = []
    for rows in (1, 4, 9):
        x = np.resize(rng.permutation(edges), (rows, 4))
        before, after = run_model(model, {"x": x}), run_model(simple, {"x": x})
        found += [name for name in before if not _same(before[name], after[name])]
    return found


def _same(a: Array, b: Array) -> bool:
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    if a.dtype.kind == "f":
        nan = np.isnan(a)
        return np.array_equal(nan, np.isnan(b)) and a[~nan].tobytes() == b[~nan].tobytes()
    return a.tobytes() == b.tobytes()


def main(arguments: list[str] | None = None) -> int:
    """Draw graphs and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(arguments)
    started, wrong = time.monotonic(), 0
    for seed in range(options.first, options.first + options.graphs):
        found = differences(seed)
        if found:
            wrong += 1
            print(f"seed {seed}: {', '.join(found)} differ")
    print(f"{options.graphs} graphs, {wrong} of other bits, {time.monotonic() - started:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
