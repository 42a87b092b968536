"""Writes size expressions over axis names as ONNX nodes on int64 values."""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph.model import Dim, Inserter
from compiler.proof.facts.facts import refuse


class Arithmetic:
    """Computes size expressions, each sub-expression once.

    Args:
        insert: where nodes go.
        symbols: int64 value of every axis name, all of one shape (a scalar, or one entry per row).
    """

    def __init__(self, insert: Inserter, symbols: Mapping[str, ir.Value]) -> None:
        self.insert = insert
        self.symbols = symbols
        self.made: dict[Dim, ir.Value] = {}

    def value(self, size: Dim) -> ir.Value:
        """Return the int64 value of an expression.

        Raises:
            Refused: the expression holds an operation that is not integer arithmetic.
        """
        if size not in self.made:
            self.made[size] = self._make(size)
        return self.made[size]

    def _make(self, size: Dim) -> ir.Value:
        if isinstance(size, int) or size.is_Integer:
            return self.insert.constant(np.array(int(size), np.int64), "size")
        if size.is_Symbol and str(size) in self.symbols:
            return self.symbols[str(size)]
        if size.is_Add or size.is_Mul:
            numerator, denominator = sympy.fraction(sympy.together(size))
            if denominator != 1:  # an exact quotient, as in 3*time/2 where the true value is whole
                return self._op("Div", numerator, denominator)
            return self._fold("Add" if size.is_Add else "Mul", size.args)
        if isinstance(size, sympy.Pow) and size.exp.is_Integer and int(size.exp) > 1:
            return self._fold("Mul", (size.base,) * int(size.exp))
        if isinstance(size, sympy.floor):
            return self._floor(size.args[0])
        if isinstance(size, sympy.ceiling):
            return self._negated(self._floor(-size.args[0]))
        if isinstance(size, sympy.Mod):
            return self._op("Mod", *size.args)
        if isinstance(size, sympy.Max | sympy.Min):
            return self._fold("Max" if isinstance(size, sympy.Max) else "Min", size.args)
        raise refuse(f"the size {size} cannot be computed", "write the model with +, -, *, //, min and max on sizes")

    def _floor(self, inner: sympy.Expr) -> ir.Value:
        """Write a floor division that is right for negative numerators, as ONNX rounds towards zero."""
        numerator, denominator = sympy.fraction(sympy.together(inner))
        if denominator == 1:
            return self.value(numerator)
        top, bottom = self.value(numerator), self.value(denominator)
        rest = self.insert.op("Mod", [top, bottom], name="rest")
        return self.insert.op("Div", [self.insert.op("Sub", [top, rest], name="whole"), bottom], name="quotient")

    def _negated(self, value: ir.Value) -> ir.Value:
        return self.insert.op("Neg", [value], name="negated")

    def _op(self, op: str, *operands: Dim) -> ir.Value:
        return self.insert.op(op, [self.value(each) for each in operands], name=f"size_{op.lower()}")

    def _fold(self, op: str, operands: tuple[sympy.Expr, ...]) -> ir.Value:
        first, *others = sorted(operands, key=str)
        result = self.value(first)
        for other in others:
            result = self.insert.op(op, [result, self.value(other)], name=f"size_{op.lower()}")
        return result
