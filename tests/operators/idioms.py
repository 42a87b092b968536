"""Reads the list of idioms, single operators in the forms in which models use them, as graphs.

Numbers of inputs are multiples of 1/64, which half precision holds, so that what jumps, as Round does, has one right
answer there.
"""

import dataclasses
import re
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import Array

OPSET = 17
"""The oldest operator set that graphs of this project are written in; an idiom that needs another says so: `@20`."""


@dataclasses.dataclass(frozen=True)
class Idiom:
    """One operator in one form.

    Attributes:
        name: unique.
        op: the operator that is tried; `*` for every one.
        case: what of it, as the head of the list says; empty for the plain form.
        opset: operator set of the graph.
        inputs: types with shapes, in ONNX text.
        constants: shape and least value by name.
        body: nodes, in ONNX text.
        positive: inputs whose numbers are positive.
    """

    name: str
    op: str
    case: str
    opset: int
    inputs: Mapping[str, str]
    constants: Mapping[str, tuple[tuple[int, ...], float]]
    body: str
    positive: frozenset[str]

    def model(self) -> ir.Model:
        """Return the graph, with the same constants in every run."""
        given = ", ".join(f"{kind} {name}" for name, kind in self.inputs.items())
        held = ", ".join(f"float{list(shape)} {name}" for name, (shape, _) in self.constants.items())
        text = f'<ir_version: 8, opset_import: ["" : {self.opset}]>\n{self.name} '
        text += f"({', '.join(filter(None, (given, held)))}) => (float[anything] y) {{ {self.body} }}"
        model = ir.from_onnx_text(text)
        random = np.random.default_rng(zlib.crc32(self.name.encode()))
        for value in list(model.graph.inputs):
            if str(value.name) in self.constants:
                shape, least = self.constants[str(value.name)]
                array = np.maximum(random.integers(-64, 65, shape) / 64, least).astype(np.float32)
                model.graph.inputs.remove(value)
                value.const_value = ir.tensor(array, name=value.name)
                value.dtype, value.shape = ir.DataType.FLOAT, ir.Shape(shape)
                model.graph.register_initializer(value)
        for node in model.graph:
            node.name = f"{node.outputs[0].name}_{node.op_type}"
        graphs.forget_shapes(model)
        graphs.infer_shapes(model)
        return model

    def feed(self, seed: int = 0) -> dict[str, Array]:
        """Return numbers for the inputs: multiples of 1/64 up to 4, whole ones up to 15."""
        random, found = np.random.default_rng([zlib.crc32(self.name.encode()), seed]), {}
        for name, kind in self.inputs.items():
            dtype, _, shape = kind.partition("[")
            size = [int(number) for number in shape.rstrip("]").split(",")]
            if dtype in ("float", "double"):
                array = random.integers(-256, 257, size) / 64
                array = np.maximum(np.abs(array), 0.25) if name in self.positive else array
                found[name] = array.astype({"float": np.float32, "double": np.float64}[dtype])
            else:
                found[name] = random.integers(0, 16, size).astype(dtype)
        return found


def idioms() -> tuple[Idiom, ...]:
    """Return all idioms, in the order of the list."""
    lines = Path(__file__).with_name("idioms.txt").read_text(encoding="utf-8").splitlines()
    return tuple(_idiom(line) for line in lines if not line.startswith("#"))


LEAST = 0.25
"""Constants and inputs whose names end in `+` are at least that: divisors, scales, variances."""

NAMED = re.compile(r"(\w+)(\+?)(?::(\w+))?\[([\d,]+)\]")


def _idiom(line: str) -> Idiom:
    name, what, inputs, constants, body = (part.strip() for part in line.split(" | "))
    what, _, opset = what.partition(" @")
    op, _, case = what.partition(", ")
    given, positive = {}, set()
    for key, sign, dtype, shape in NAMED.findall(inputs):
        given[key] = f"{dtype or 'float'}[{shape}]"
        if sign:
            positive.add(key)
    held = {
        key: (tuple(int(size) for size in shape.split(",")), LEAST if sign else -1.0)
        for key, sign, _, shape in NAMED.findall(constants)
    }
    return Idiom(name, op, case, int(opset or OPSET), given, held, body, frozenset(positive))
