"""Random ONNX files with If, Loop and Scan, as exporters write them: `simplify` never fails on one, and keeps answers.

Nodes in bodies have names or none, results of bodies have shapes or none, weights lie in the graph or in the body, a
branch may be the only reader of a weight; conditions are constants, computed of constants, of sizes, or of data.

`python -m tests.property.bodies --graphs 2000` draws many; the tests draw a few.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper  # noqa: TID251 - files as others write them

from compiler.errors import GateFailed, SlipwayError
from compiler.front.commands.simplify_file import simplify_file

WIDTH, HIDDEN = 4, 32
SIZES = {"batch": 2, "time": 3}
CONDITIONS = ("weight", "node", "rate", "width", "frames", "data")
"""A weight; a Constant node; a number that equals another; a size that is one number; one that is none; data."""


class Grown:
    """One random file on its way: values [batch, time, 4], of which bodies read those around them.

    Args:
        seed: of everything that is drawn.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.count = 0
        self.is_named, self.has_shapes = (bool(self.rng.random() < 0.5) for _ in range(2))
        self.weights: list[onnx.TensorProto] = []
        self.loops = 0
        """Loops around what is drawn: ONNX Runtime wants the shapes of all results in there."""

    def name(self, stem: str) -> str:
        """A name that no other value has; another file may have it in two branches."""
        self.count += 1
        return f"{stem}{self.count}"

    def node(self, op: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> onnx.NodeProto:
        """One node, named or not."""
        made = [self.name("v") for _ in range(outputs)]
        name = f"n{self.count}" if self.is_named else ""
        return helper.make_node(op, inputs, made, name=name, **attributes)

    def weight(self, array: np.ndarray, body: list[onnx.TensorProto]) -> str:
        """A weight of the graph or of a body."""
        held = body if self.rng.random() < 0.5 else self.weights
        held.append(numpy_helper.from_array(array, self.name("w")))
        return str(held[-1].name)

    def drawn(self, *options: str) -> str:
        """One of some words."""
        return options[int(self.rng.integers(len(options)))]

    def grow(self, nodes: list[onnx.NodeProto], values: list[str], body: list[onnx.TensorProto], depth: int) -> None:
        """One more value, with a body or without."""
        kind = self.drawn("plain", "product", "If", "If", "Loop", "Scan") if depth < 3 else "plain"
        source = values[-1]
        if kind == "plain":
            nodes.append(self.node(self.drawn("Relu", "Neg", "Identity", "Tanh"), [source]))
        elif kind == "product":
            for shape in ((WIDTH, HIDDEN), (HIDDEN, WIDTH)):
                array = self.rng.standard_normal(shape).astype(np.float32) / HIDDEN
                nodes.append(self.node("MatMul", [source, self.weight(array, body)]))
                source = nodes[-1].output[0]
        elif kind == "If":
            count = int(self.rng.integers(1, 3))
            branches = {f"{which}_branch": self.body(source, count, depth) for which in ("then", "else")}
            nodes.append(self.node("If", [self.condition(nodes, source, body)], count, **branches))
        elif kind == "Loop":
            nodes.append(self.loop(source, body, depth))
        else:
            nodes.append(self.scan(source, depth))
        values += nodes[-1].output

    def condition(self, nodes: list[onnx.NodeProto], source: str, body: list[onnx.TensorProto]) -> str:
        """What an If hangs on."""
        kind, truth = self.drawn(*CONDITIONS), bool(self.rng.random() < 0.5)
        if kind == "weight":
            return self.weight(np.array(truth), body)
        if kind == "node":
            nodes.append(self.node("Constant", [], value=numpy_helper.from_array(np.array(truth))))
        elif kind == "rate":
            rates = [self.weight(np.array(rate, np.int64), body) for rate in (16000, 16000 if truth else 8000)]
            nodes.append(self.node("Equal", rates))
        elif kind == "data":
            nodes.append(self.node("ReduceSum", [source], keepdims=0))
            nodes.append(self.node("Greater", [nodes[-1].output[0], self.weight(np.array(0, np.float32), body)]))
        else:
            end = {"end": -1} if kind == "frames" else {}
            nodes.append(self.node("Shape", [source], start=-2 if end else -1, **end))
            nodes.append(self.node("Squeeze", [nodes[-1].output[0]]))
            nodes.append(self.node("Equal", [nodes[-1].output[0], self.weight(np.array(3 + truth, np.int64), body)]))
        return str(nodes[-1].output[0])

    def steps(
        self, source: str, count: int, depth: int
    ) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto], list[str]]:
        """Return nodes and weights of a body, and the names of its `count` results."""
        nodes: list[onnx.NodeProto] = []
        weights: list[onnx.TensorProto] = []
        values = [source]
        for _ in range(int(self.rng.integers(1, 4))):
            self.grow(nodes, values, weights, depth + 1)
        nodes += [self.node("Identity", [values[-1 - at % (len(values) - 1)]]) for at in range(count)]
        return nodes, weights, [str(node.output[0]) for node in nodes[-count:]]

    def told(self, name: str, *shape: int | str) -> onnx.ValueInfoProto:
        """A result of a body, of which a file may tell no shape."""
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape if self.has_shapes or self.loops else None)

    def body(self, source: str, count: int, depth: int) -> onnx.GraphProto:
        """A branch."""
        nodes, weights, results = self.steps(source, count, depth)
        outputs = [self.told(name, "batch", "time", WIDTH) for name in results]
        return helper.make_graph(nodes, self.name("g"), [], outputs, weights)

    def loop(self, source: str, body: list[onnx.TensorProto], depth: int) -> onnx.NodeProto:
        """A few trips, each of what the one before gave."""
        trip, going, carried = (self.name("c") for _ in range(3))
        self.loops += 1
        nodes, weights, results = self.steps(carried, 1, depth)
        nodes.append(self.node("Identity", [going]))
        outputs = [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.BOOL, [])]
        outputs.append(self.told(results[0], "batch", "time", WIDTH))
        inputs = [helper.make_tensor_value_info(trip, TensorProto.INT64, [])]
        inputs.append(helper.make_tensor_value_info(going, TensorProto.BOOL, []))
        inputs.append(self.told(carried, "batch", "time", WIDTH))
        self.loops -= 1
        graph = helper.make_graph(nodes, self.name("g"), inputs, outputs, weights)
        self.weights.append(numpy_helper.from_array(np.array(int(self.rng.integers(1, 4)), np.int64), self.name("w")))
        return self.node("Loop", [self.weights[-1].name, "", source], body=graph)

    def scan(self, source: str, depth: int) -> onnx.NodeProto:
        """Frame by frame."""
        frame = self.name("c")
        self.loops += 1
        nodes, weights, results = self.steps(frame, 1, depth + 2)
        inputs, outputs = [self.told(frame, "batch", WIDTH)], [self.told(results[0], "batch", WIDTH)]
        self.loops -= 1
        graph = helper.make_graph(nodes, self.name("g"), inputs, outputs, weights)
        return self.node("Scan", [source], body=graph, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1])


def grown(seed: int) -> onnx.ModelProto:
    """A file of 1 to 4 steps."""
    growing, nodes, values = Grown(seed), [], ["x"]  # type: tuple[Grown, list[onnx.NodeProto], list[str]]
    for _ in range(int(growing.rng.integers(1, 5))):
        growing.grow(nodes, values, growing.weights, 0)
    nodes.append(helper.make_node("Identity", [values[-1]], ["y"], name="last"))
    told = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "time", WIDTH]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "bodies", told[:1], told[1:], growing.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def outcome(seed: int, folder: Path) -> str:
    """What is wrong about the answer to one file; nothing where it was simplified or refused."""
    source = folder / "in.onnx"
    onnx.save(grown(seed), source)
    try:
        simplify_file(source, folder / "out.onnx", SIZES, 1e-5)
    except GateFailed as error:
        return str(error)
    except SlipwayError:
        return ""
    except Exception as error:  # noqa: BLE001 - whatever it is, no user should see it
        return f"{type(error).__name__}: {error}"
    return ""


def main(arguments: list[str] | None = None) -> int:
    """Draw files and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(arguments)
    started, wrong = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.first, options.first + options.graphs):
            found = outcome(seed, Path(folder))
            if found:
                wrong += 1
                print(f"seed {seed}: {found[:300]}")
    print(f"{options.graphs} files, {wrong} failed, {time.monotonic() - started:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
