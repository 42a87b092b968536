"""Teaches the shape inference library what it leaves out: quotients, remainders and signs of symbolic sizes."""

from collections.abc import Callable

import onnx_ir as ir
import onnx_shape_inference
import sympy
from onnx_shape_inference import ShapeInferenceContext

from compiler.sizes import expression

Sizes = list[int | ir.SymbolicDim]


def register() -> None:
    """Register inference for integer Div, Mod, Neg and Abs of sizes, on top of the library's own."""
    onnx_shape_inference.registry.collect()
    cut = onnx_shape_inference.registry.get("", "Slice", version=13)
    assert cut is not None
    onnx_shape_inference.registry.register("", "Slice", since_version=13)(_last_entries(cut))
    for op, function in RULES.items():
        for version in (6, 7, 10, 13, 14, 18):
            known = onnx_shape_inference.registry.get("", op, version=version)
            if known is not None:
                onnx_shape_inference.registry.register("", op, since_version=version)(_on_top(known, function))


def _on_top(
    known: Callable[[ShapeInferenceContext, ir.Node], None], function: Callable[..., sympy.Expr]
) -> Callable[[ShapeInferenceContext, ir.Node], None]:
    def infer(context: ShapeInferenceContext, node: ir.Node) -> None:
        known(context, node)
        output = node.outputs[0]
        if output.dtype is None or not output.dtype.is_integer() or context.get_symbolic_value(output) is not None:
            return
        operands = [context.get_symbolic_value(value) for value in node.inputs if value is not None]
        if any(operand is None or len(operand) != 1 for operand in operands):
            return
        numbers = [_expression(operand[0]) for operand in operands if operand is not None]
        if len(numbers) == 2 and numbers[1] == 0:
            return
        result = function(*numbers)
        context.set_symbolic_value(output, [int(result) if result.is_Integer else ir.SymbolicDim(str(result))])

    return infer


def _last_entries(
    known: Callable[[ShapeInferenceContext, ir.Node], None],
) -> Callable[[ShapeInferenceContext, ir.Node], None]:
    """table[-size:] and table[rows - size:] have `size` entries, which the library leaves open for expressions."""

    def infer(context: ShapeInferenceContext, node: ir.Node) -> None:
        known(context, node)
        data, output = node.inputs[0], node.outputs[0]
        given = [context.get_symbolic_value(value) for value in node.inputs[1:] if value is not None]
        if data is None or data.shape is None or output.shape is None or len(given) < 3:
            return
        starts, ends, axes = given[:3]
        if starts is None or ends is None or axes is None or len(starts) != 1 or (len(given) > 3 and given[3] != [1]):
            return
        (start,), (end,), (axis,) = starts, ends, axes
        if isinstance(start, int) or not isinstance(end, int) or end < 2**31 - 1 or not isinstance(axis, int):
            return
        if not isinstance(data.shape[axis], int):
            return
        first = _expression(start)
        at_zero = first.subs(dict.fromkeys(first.free_symbols, 0))
        rows = data.shape[axis]
        from_end = at_zero < 0 or (at_zero == 0 and first.could_extract_minus_sign())
        size = -first if from_end else rows - first
        dims = list(data.shape)
        dims[axis] = ir.SymbolicDim(str(size))
        output.shape = ir.Shape(dims)

    return infer


def _expression(size: int | ir.SymbolicDim) -> sympy.Expr:
    return sympy.sympify(size if isinstance(size, int) else expression(str(size.value)))


def _quotient(top: sympy.Expr, bottom: sympy.Expr) -> sympy.Expr:
    """Sizes are not negative, so rounding towards zero is rounding down."""
    exact = sympy.cancel(top / bottom)
    return exact if exact.is_integer else sympy.floor(exact)


def _remainder(top: sympy.Expr, bottom: sympy.Expr) -> sympy.Expr:
    return sympy.Mod(top, bottom)


def _negative(size: sympy.Expr) -> sympy.Expr:
    return -size


def _same(size: sympy.Expr) -> sympy.Expr:
    return sympy.Abs(size)


RULES: dict[str, Callable[..., sympy.Expr]] = {"Div": _quotient, "Mod": _remainder, "Neg": _negative, "Abs": _same}
