"""Fuses the Erf, the sum and the multiplications of a GELU into one Gelu node.

Before:
    y = (x * (Erf(x / 1.4142135) + 1)) * 0.5        # and with the factors in any order
After:
    y = Gelu(x)

Files of older operator sets have no Gelu. A device may have Gelu and no Erf, which networks hardly need for anything
else.

Requires: operator set 20, which has Gelu.
Ensures: no Erf whose result is read by such a product alone.
Keeps: any other use of Erf; numbers that are not those of a GELU.
Numerics: rounding of a few operators.
Source: definition of Gelu, ONNX specification: 0.5 x (1 + erf(x / sqrt(2))).
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome

FIRST_OPSET = 20
"""The operator set that introduced Gelu."""

CLOSE = 1e-6
"""Relative distance of a constant from that of the definition: one step of float32 is 1.2e-7."""


@dataclasses.dataclass(frozen=True)
class FuseGelu:
    """One operator in the place of five."""

    name: ClassVar[str] = "fuse_gelu"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite the products around error functions, in place."""
        model = lowered.model
        found = [node for node in model.graph if graphs.is_op(node, "Erf")]
        if model.opset_imports.get("", 0) < FIRST_OPSET:
            return Outcome(lowered, len(found))
        rewritten = sum(self._fuse(model, node) for node in found)
        if rewritten:
            graphs.prune(model)
        return Outcome(lowered, len(found), rewritten)

    def _fuse(self, model: ir.Model, erf: ir.Node) -> bool:
        """Write the GELU that an error function belongs to; return whether it is one."""
        data = _scaled(erf.inputs[0])
        if data is None:
            return False
        for shifted in _sums_with_one(erf.outputs[0]):
            for old in _halved_products(shifted, data):
                maker = old.producer()
                insert = graphs.Inserter(model, self.name, after=maker)
                new = insert.op("Gelu", [data], name=f"{old.name}_gelu", shape=old.shape, dtype=old.dtype)
                graphs.take_over(model, old, new)
                return True
        return False


def _scaled(value: ir.Value | None) -> ir.Value | None:
    """Return x of x / sqrt(2), written as a quotient or as a product; None for any other value."""
    node = None if value is None else value.producer()
    if node is None:
        return None
    if graphs.is_op(node, "Div") and _is(node.inputs[1], math.sqrt(2.0)):
        return node.inputs[0]
    return _other_factor(node, math.sqrt(0.5))


def _sums_with_one(value: ir.Value) -> Iterator[ir.Value]:
    """Yield the sums of a value and 1."""
    for node in graphs.consumers_of(value):
        if graphs.is_op(node, "Add") and any(_is(each, 1.0) for each in node.inputs):
            yield node.outputs[0]


def _halved_products(shifted: ir.Value, data: ir.Value) -> Iterator[ir.Value]:
    """Yield the products of a sum, the data and one half, in any order of the factors."""
    for node in graphs.consumers_of(shifted):
        if not graphs.is_op(node, "Mul"):
            continue
        first, second = node.inputs
        other = second if first is shifted else first
        if other is data:  # then one half is behind it
            yield from (half.outputs[0] for half in graphs.consumers_of(node.outputs[0]) if _halves(half))
        elif other is not None and other.producer() is not None and _halved(other) is data:
            yield node.outputs[0]
        elif _is(other, 0.5):  # then the data is behind it
            for behind in graphs.consumers_of(node.outputs[0]):
                if graphs.is_op(behind, "Mul") and data in behind.inputs:
                    yield behind.outputs[0]


def _halves(node: ir.Node) -> bool:
    return _other_factor(node, 0.5) is not None


def _halved(value: ir.Value) -> ir.Value | None:
    node = value.producer()
    return None if node is None else _other_factor(node, 0.5)


def _other_factor(node: ir.Node, number: float) -> ir.Value | None:
    """Return the other factor of a product with a number, or the dividend of its quotient by the inverse; else None."""
    if graphs.is_op(node, "Div") and _is(node.inputs[1], 1.0 / number):
        return node.inputs[0]
    if not graphs.is_op(node, "Mul"):
        return None
    first, second = node.inputs
    return second if _is(first, number) else first if _is(second, number) else None


def _is(value: ir.Value | None, number: float) -> bool:
    """Whether a value is one number, that of a definition as far as its type can hold it."""
    array = graphs.array_of(value)
    return (
        array is not None
        and array.size == 1
        and array.ndim <= 1
        and bool(np.isclose(float(array.item()), number, rtol=CLOSE, atol=0.0))
    )
