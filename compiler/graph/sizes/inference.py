"""Extends the shape inference of onnx_shape_inference with quotients, remainders, signs and extremes of sizes.

The library's functions stand in its registry, and ours beside them there: within `infer` they run in place of the
library's, which most of them call; whoever else asks the library gets its own answers.
"""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
import onnx_shape_inference as library
import sympy

from compiler.graph.operators.axes import axis_of, keeps_split_axis
from compiler.graph.operators.pads import pad_of
from compiler.graph.operators.slices import FAR, AxisSlice, Reader, Slice, slice_of
from compiler.graph.operators.traits import BROADCASTING
from compiler.graph.operators.windows import window_of
from compiler.graph.sizes.arithmetic import computed
from compiler.graph.sizes.expressions import (
    Dim,
    bounds_of_slice,
    entries_between,
    expression,
    normal_form,
    remainder_by,
)
from compiler.graph.sizes.growth import lengths_for, never_negative, values_of
from compiler.graph.sizes.held_numbers import can_hold

Size = int | ir.SymbolicDim
Sizes = list[Size]
Inference = Callable[[library.ShapeInferenceContext, ir.Node], None]


def infer(model: ir.Model) -> None:
    """Write inferred symbolic shapes and contents into a model's values, in place."""
    for value in (*model.graph.inputs, *(output for node in model.graph.all_nodes() for output in node.outputs)):
        value.shape = None if value.shape is None else _readable_shape(value.shape)
        _forget_unreadable(value)
    outside = _is_inferring.set(True)
    try:
        # Names that it adopts from equalities cost most of its time, and no proof needs them.
        library.infer_symbolic_shapes(model, adopt_declared_symbols=False)
    finally:
        _is_inferring.reset(outside)


_is_inferring = contextvars.ContextVar("_is_inferring", default=False)
"""Whether the inference that runs in this thread is one of ours."""


def _forget_unreadable(value: ir.Value) -> None:
    """Remove sizes in functions that the library cannot read; exporters may write any function."""
    dims = () if value.shape is None else tuple(value.shape)
    if any(isinstance(dim, ir.SymbolicDim) and not _is_readable(dim.value) for dim in dims):
        known = [dim if isinstance(dim, int) or _is_readable(dim.value) else None for dim in dims]
        value.shape = ir.Shape(known)


@functools.lru_cache(maxsize=100_000)
def _is_readable(text: str | None) -> bool:
    if text is None or text.isidentifier():
        return True
    try:
        ir.SymbolicDim(text) + 0
    except ValueError as error:
        return "Unknown function" not in str(error)
    return True


def _readable_shape(shape: ir.Shape) -> ir.Shape:
    """Return a shape as the library reads it, and as it is where nothing is to be written otherwise."""
    sizes = [_readable(size) for size in shape]
    return shape if all(one is other for one, other in zip(sizes, shape, strict=True)) else ir.Shape(sizes)


def _readable(size: Size) -> Size:
    """Return a size as the library reads it.

    It derives the names "1" and "2" of sizes, and takes the first of them where they are broadcast. It writes rounding
    up, as pools with ceil_mode have it, and fails to read that again.
    """
    if isinstance(size, int) or size.value is None or size.value.isidentifier():
        return size
    return _read(size.value) or size


@functools.lru_cache(maxsize=100_000)
def _read(text: str) -> Size | None:
    """Return the number that a size says, or the size without functions that the library does not read; else None."""
    if text.isdigit():
        return int(text)
    return _dim_of(expression(text)) if any(f"{name}(" in text for name in UNREAD) else None


UNREAD = {"Abs": sympy.Abs, "ceiling": sympy.ceiling}
"""Functions that sizes may have, and that the library does not read; their normal form, and Max, say the same."""


class SizeContext(library.ShapeInferenceContext):  # type: ignore[misc]
    """What functions of the library write sizes and contents to: those of one of its own contexts, checked."""

    def __init__(self, context: library.ShapeInferenceContext) -> None:
        self.__dict__ = context.__dict__

    def set_shape(self, value: ir.Value, shape: ir.Shape) -> bool:
        """Set a shape whose sizes can be read; returns whether the value's has changed."""
        return super().set_shape(value, _readable_shape(shape))  # type: ignore[no-any-return]

    def set_symbolic_value(self, value: ir.Value, data: Sizes) -> None:
        """Record a value's content, unless its type cannot hold it or it has another number of elements.

        The library computes without bounds, and adds a column to a row as if both were lists.
        """
        sizes = () if value.shape is None else tuple(value.shape)
        known = [size for size in sizes if isinstance(size, int)]
        is_one_each = value.shape is None or len(known) < len(sizes) or math.prod(known) == len(data)
        if is_one_each and all(can_hold(value.dtype, _expression(number)) for number in data):
            super().set_symbolic_value(value, data)


def _extend_library() -> None:
    """Register our function of every operator beside the one that the library has of it."""
    registry = library.registry
    for domain, op, versions in list(registry.iter_supported()):
        for version in versions:
            known = registry.get(domain, op, version=version)
            registry.register(domain, op, since_version=version)(_within_infer(_extended(domain, op, known), known))
    product = registry.get("", "MatMul", version=13)
    registry.register("com.microsoft", "MatMulIntegerToFloat", since_version=1)(_one_by_one(product, _real))


def _within_infer(ours: Inference, known: Inference) -> Inference:
    """Return an inference that is ours within `infer`, and else the library's."""

    def infer(context: library.ShapeInferenceContext, node: ir.Node) -> None:
        if _is_inferring.get():
            ours(SizeContext(context), node)
        else:
            known(context, node)

    return infer


def _extended(domain: str, op: str, known: Inference) -> Inference:
    """Return the library's inference of an operator with what runs before it, in its place, and after it."""
    if domain:
        return _where_it_can(known)
    before = [_where_it_can(_broadcast)] if op in BROADCASTING - {"PRelu"} else []  # which has the data's shape
    after = [EXTENSIONS[op]] if op in EXTENSIONS else []
    return _one_by_one(*before, _where_it_can(_expand if op == "Expand" else known), *after)


def _one_by_one(*inferences: Inference) -> Inference:
    """Return an inference that runs several, in order."""

    def infer(context: library.ShapeInferenceContext, node: ir.Node) -> None:
        for inference in inferences:
            inference(context, node)

    return infer


def _where_it_can(known: Inference) -> Inference:
    """Wrap the library's inference so that it infers nothing where it fails; nodes that need the sizes are refused."""

    def infer(context: library.ShapeInferenceContext, node: ir.Node) -> None:
        with contextlib.suppress(Exception):
            known(context, node)

    return infer


def _broadcast(context: library.ShapeInferenceContext, node: ir.Node) -> None:
    """Infer the shape of operands that are broadcast; where it is known, the library's own does not replace it."""
    shapes = [None if value is None else value.shape for value in node.inputs]
    in_order = [*shapes[1:], *shapes[:1]] if node.op_type == "Where" else shapes  # the library has the condition last
    shape = functools.reduce(_broadcast_shape, in_order)
    if shape is not None:
        context.set_shape(node.outputs[0], shape)


def _expand(context: library.ShapeInferenceContext, node: ir.Node) -> None:
    """Infer the shape of an Expand, and none for data of unknown shape, as a target of 1 keeps the operand's size."""
    data, target = node.inputs
    assert data is not None and target is not None
    sizes = context.get_symbolic_value(target)
    shape = None if sizes is None else _broadcast_shape(data.shape, ir.Shape(sizes))
    context.set_shape_and_dtype(node.outputs[0], shape, data.dtype)


def _broadcast_shape(first: ir.Shape | None, second: ir.Shape | None) -> ir.Shape | None:
    """Return the shape of two broadcast operands; None where one is unknown, or they are of no common shape."""
    if first is None or second is None:
        return None
    rank = max(len(first), len(second))
    padded: list[Sizes] = [[*[1] * (rank - len(shape)), *shape] for shape in (first, second)]
    sizes = [_together(*pair) for pair in zip(*padded, strict=True)]
    return None if None in sizes else ir.Shape([size for size in sizes if size is not None])


def _together(first: Size, second: Size) -> Size | None:
    """Return the size of two broadcast axes: where one has at most one entry, the other's.

    Of two sizes that cannot be compared it is the first, as the library has it.
    """
    if second in (1, first):
        return first
    if first == 1:
        return second
    if isinstance(first, int):
        return None if isinstance(second, int) else first
    if isinstance(second, int):
        return second
    return (_of_names(first.value, second.value) if first.value and second.value else None) or first


@functools.lru_cache(maxsize=100_000)
def _of_names(first: str, second: str) -> Size | None:
    """Return the size of two broadcast axes whose sizes follow from one length; None where the library may choose.

    At lengths where both have entries, sizes that differ are broadcast only if one of them is 1: the larger one counts.
    """
    sizes = [sympy.sympify(expression(text)) for text in (first, second)]
    for one, other in ((0, 1), (1, 0)):
        if isinstance(sizes[one], sympy.Min) and any(part.is_number and part <= 1 for part in sizes[one].args):
            return _dim_of(sizes[other])
    names = sizes[0].free_symbols | sizes[1].free_symbols
    tried = lengths_for(sizes, 1) if len(names) == 1 else None
    if tried is None:
        return None
    values = np.stack([values_of(size, next(iter(names)), tried[0]) for size in sizes])
    differ = (values[0] != values[1]) & (values > 0).all(axis=0)
    is_one = (values[:, differ] == 1).all(axis=1)
    if not differ.any() or not (values[:, differ] == 1).any(axis=0).all():
        return None
    return _dim_of(sizes[1] if is_one[0] else sizes[0] if is_one[1] else sympy.Max(*sizes))


def _real(context: library.ShapeInferenceContext, node: ir.Node) -> None:
    """Set the type of an integer product's floating-point result."""
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)  # the context keeps the type that was there


def _computed(context: library.ShapeInferenceContext, node: ir.Node) -> None:
    """Infer one size that is computed of others, which the library leaves open, or for which it invents a new name."""
    output, operands = (
        node.outputs[0],
        [context.get_symbolic_value(value) for value in node.inputs if value is not None],
    )
    entries = [operand[0] for operand in operands if operand is not None and len(operand) == 1]
    is_number = isinstance((context.get_symbolic_value(output) or (None,))[0], int)
    if is_number or output.dtype is None or not output.dtype.is_integer() or len(entries) < len(operands):
        return
    size = computed(node, [_expression(entry) for entry in entries])
    if size is not None:
        context.set_symbolic_value(output, [_dim_of(size)])


def _dim_of(size: Dim) -> Size:
    """Return a size as the library writes it, without the functions that it does not read."""
    size = sympy.sympify(size)
    if size.has(*UNREAD.values()):
        size = sympy.sympify(normal_form(size)).replace(sympy.Abs, lambda part: sympy.Max(part, -part))
    return int(size) if size.is_Integer else ir.SymbolicDim(str(size))


def _sliced(context: library.ShapeInferenceContext, node: ir.Node) -> None:
    """Infer table[a:b] with computed bounds as b - a entries, and x[::-1] as x's, which the library leaves open.

    It writes Max(0, size) for sizes that it knows; the rule of Slice requires lengths with a valid size.
    """
    data, output = node.inputs[0], node.outputs[0]
    if output.shape is not None:
        output.shape = ir.Shape([_as_counted(dim) for dim in output.shape])
    view = slice_of(node)
    if view is None or data is None or data.shape is None:
        return
    read = _reader(context)
    axis_slices = view.axis_slices(read)
    if axis_slices is None or output.shape is None:  # the library takes axes that it cannot read for the first ones
        output.shape = ir.Shape([context.new_symbolic_dim() for _ in data.shape])
    if axis_slices is None:
        return
    sliced_axes = {sliced.axis for sliced in axis_slices}
    output.shape = ir.Shape(
        [mine if axis in sliced_axes else data.shape[axis] for axis, mine in enumerate(output.shape)]
    )
    _pick(context, view, output, read)
    if any(None in (sliced.start, sliced.end, sliced.step) for sliced in axis_slices):
        return
    _limit_to_axis(output, data.shape, axis_slices)
    dims = list(output.shape)
    for sliced in axis_slices:
        size = _size_of_slice(sliced, data.shape[sliced.axis], is_open=_is_open(output, sliced.axis))
        dims[sliced.axis] = dims[sliced.axis] if size is None else _dim_of(size)
    output.shape = ir.Shape(dims)


def _reader(context: library.ShapeInferenceContext) -> Reader:
    """Return what the contents of operands are read with, as far as the inference has come."""

    def read(value: ir.Value) -> list[Dim | None] | None:
        numbers = context.get_symbolic_value(value)
        return None if numbers is None else [_number(number) for number in numbers]

    return read


def _pick(context: library.ShapeInferenceContext, view: Slice, output: ir.Value, read: Reader) -> None:
    """Infer a slice of known numbers, backwards too, as the library misreads an end before the first entry."""
    numbers = context.get_symbolic_value(view.data)
    is_list = view.data.shape is not None and len(view.data.shape) == 1
    picked = view.picked(numbers, read) if numbers is not None and is_list else None
    if picked is not None:
        context.set_symbolic_value(output, list(picked))


def _size_of_slice(sliced: AxisSlice, rows: Size, *, is_open: bool) -> sympy.Expr | None:
    """Return the number of entries between two bounds; None where the library's inference stays."""
    if _turns_round(sliced):
        return None if isinstance(rows, ir.SymbolicDim) and rows.value is None else _expression(rows)
    if sliced.step != 1:
        return None
    start, end = (sympy.sympify(bound) for bound in (sliced.start, sliced.end))
    if isinstance(rows, ir.SymbolicDim):
        if _keeps_last(start, end, rows):
            return -start
        size = _at_most(start, end, rows) if is_open else None
        return _within(start, end, rows) if size is None else size
    bounds = None if start.is_Integer else bounds_of_slice(start, end, rows)
    return None if bounds is None else bounds[1] - bounds[0]


def _limit_to_axis(output: ir.Value, shape: ir.Shape, axis_slices: Sequence[AxisSlice]) -> None:
    """Limit x[:, 0:1000] to the entries of a shorter x, as the library assumes fixed bounds to be within the axis."""
    dims = list(output.shape or ())
    for sliced in axis_slices:
        rows, fixed = shape[sliced.axis], sliced.as_slice
        if isinstance(rows, int) or fixed is None or not isinstance(dims[sliced.axis], int):
            continue
        if rows.value is None or fixed.step < 1 or fixed.start < 0:
            dims[sliced.axis] = ir.SymbolicDim(None)
        elif fixed.stop > fixed.start and not never_negative(normal_form(_expression(rows) - fixed.stop), 1):
            read = sympy.Max(0, sympy.Min(_expression(rows), fixed.stop) - fixed.start)
            dims[sliced.axis] = _dim_of(sympy.ceiling(read / fixed.step))
    output.shape = ir.Shape(dims)


def _pool(context: library.ShapeInferenceContext, node: ir.Node) -> None:
    """Infer one position per stride for a pooling with auto_pad SAME, which the library leaves open."""
    data = node.inputs[0]
    window = None if data is None or data.shape is None else window_of(node, len(data.shape))
    if window is None or data is None or data.shape is None or not window.automatic.startswith("SAME"):
        return
    dims = list(data.shape)
    for at, stride in enumerate(window.strides, start=2):
        dims[at] = context.new_symbolic_dim() if _number(dims[at]) is None else _dim_of(_places(dims[at], stride))
    for value in node.outputs:
        value.shape = ir.Shape(dims)


def _places(size: Size, stride: int) -> Dim:
    return normal_form(sympy.ceiling(_expression(size) / stride))


def _pad(context: library.ShapeInferenceContext, node: ir.Node) -> None:
    """Infer the size of an axis padded by computed amounts, which the library leaves open."""
    view = pad_of(node, _reader(context))
    if view is None or view.data.shape is None:
        return
    dims = list(view.data.shape)
    for axis, amounts in view.added.items():
        size = _number(dims[axis])
        if amounts != (0, 0) and size is not None:
            dims[axis] = _dim_of(size + sum(amounts))
    node.outputs[0].shape = ir.Shape(dims)


def _filled(context: library.ShapeInferenceContext, node: ir.Node) -> None:
    """Infer a tensor of computed sizes, which the library leaves open where some are names."""
    sizes = context.get_symbolic_value(node.inputs[0]) if node.inputs[0] is not None else None
    if sizes is not None and node.outputs[0].shape is None:
        node.outputs[0].shape = ir.Shape(list(sizes))


def _count(context: library.ShapeInferenceContext, node: ir.Node) -> None:
    """Infer as many positions as a Range counts, up or down, without the library's Max(0, count)."""
    output = node.outputs[0]
    if output.shape is not None:
        output.shape = ir.Shape([_as_counted(dim) for dim in output.shape])
    start, end, step = (
        None if value is None else context.get_symbolic_value(value) for value in (*node.inputs, None, None)[:3]
    )
    if start is None or end is None or step is None or step[0] != -1:
        return
    size = normal_form(_expression(start[0]) - _expression(end[0]))
    if not isinstance(size, int) and size.is_nonnegative is not False:
        output.shape = ir.Shape([ir.SymbolicDim(str(size))])


def _cancel(context: library.ShapeInferenceContext, node: ir.Node) -> None:
    """Cancel the quotient that a -1 stands for, which the library leaves as it is: 32*n*t / (16*t) = 2*n."""
    shape = node.outputs[0].shape
    if shape is None:
        return
    dims = list(shape)
    for at, dim in enumerate(dims):
        if isinstance(dim, ir.SymbolicDim) and dim.value is not None and "/" in dim.value:
            size = normal_form(_expression(dim))
            dims[at] = _dim_of(size)
    node.outputs[0].shape = ir.Shape(dims)


def _frames_of_signal(context: library.ShapeInferenceContext, node: ir.Node) -> None:
    """Infer the number of frames of an STFT, (samples - length) // step + 1, which the library leaves open."""
    signal, output = node.inputs[0], node.outputs[0]
    step = None if node.inputs[1] is None else ir.convenience.get_const_tensor(node.inputs[1])
    length = _window_length(node)
    if signal is None or signal.shape is None or output.shape is None or step is None or length is None:
        return
    samples = signal.shape[1]
    if isinstance(samples, int) or samples.value is not None:
        count = sympy.floor((_expression(samples) - length) / int(step.numpy().reshape(-1)[0])) + 1
        dims = list(output.shape)
        dims[1] = _dim_of(count)
        output.shape = ir.Shape(dims)


def _piece(context: library.ShapeInferenceContext, node: ir.Node) -> None:
    """Infer the shape of a piece of a split tensor, of which the library knows no size.

    Where pieces are of equal size, the last one may be shorter; a piece that exists is not empty.
    """
    index_value = context.get_symbolic_value(node.inputs[1]) if node.inputs[1] is not None else None
    source = node.inputs[0].producer() if node.inputs[0] is not None else None
    data = source.inputs[0] if source is not None and source.op_type == "SplitToSequence" else None
    if (
        source is None
        or data is None
        or data.shape is None
        or index_value is None
        or not isinstance(index_value[0], int)
    ):
        return
    dims, place = list(data.shape), index_value[0]
    axis = axis_of(source, len(dims))
    split_sizes = source.inputs[1] if len(source.inputs) > 1 else None
    if split_sizes is None:
        dims[axis : axis + 1] = [1] if keeps_split_axis(source) else []
    else:
        sizes = None if split_sizes.shape is None else context.get_symbolic_value(split_sizes)
        if sizes is None or split_sizes.shape is None:
            return
        is_list = len(split_sizes.shape) == 1
        is_there = is_list and -len(sizes) <= place < len(sizes)
        piece_size = _equal_piece(dims[axis], sizes[0], place) if not is_list else sizes[place] if is_there else None
        dims[axis] = context.new_symbolic_dim() if piece_size is None else piece_size
    context.set_shape_and_dtype(node.outputs[0], ir.Shape(dims), data.dtype)


def _equal_piece(whole: int | ir.SymbolicDim, size: int | ir.SymbolicDim, place: int) -> int | ir.SymbolicDim | None:
    """Return the size of one of several equal pieces, of which the last may be shorter; counted from either end."""
    if isinstance(whole, ir.SymbolicDim) and (whole.value is None or place < 0):
        return None
    if place < 0:
        count = sympy.ceiling(_expression(whole) / _expression(size))
        if not count.is_Integer:
            return None
        place += int(count)
    left = normal_form(_expression(whole) - place * _expression(size))
    return _dim_of(sympy.Min(_expression(size), left))


def _as_counted(dim: int | ir.SymbolicDim) -> int | ir.SymbolicDim:
    """Return the count of a size Max(0, count); other sizes are unchanged."""
    count = sympy.Integer(0) if isinstance(dim, int) or dim.value is None else _expression(dim)
    others = [each for each in count.args if each != 0]
    return ir.SymbolicDim(str(others[0])) if isinstance(count, sympy.Max) and len(others) == 1 else dim


def _window_length(node: ir.Node) -> int | None:
    """Return the samples of one frame, as stated or as the window's size; None where unknown."""
    given = list(node.inputs) + [None] * 4
    if given[3] is not None:
        tensor = ir.convenience.get_const_tensor(given[3])
        return None if tensor is None else int(tensor.numpy().reshape(-1)[0])
    size = None if given[2] is None or given[2].shape is None else given[2].shape[0]
    return size if isinstance(size, int) else None


def _turns_round(sliced: AxisSlice) -> bool:
    """Whether a slice reverses a whole axis."""
    return (sliced.start, sliced.step) == (-1, -1) and isinstance(sliced.end, int) and sliced.end <= -FAR


def _keeps_last(start: sympy.Expr, end: sympy.Expr, rows: ir.SymbolicDim) -> bool:
    """Whether a slice keeps the last entries of an axis that has at least that many at every length.

    Their number is a constant, or counted, as in x[-n:] of what n entries were joined to; for 0 it would keep all.
    """
    if not end.is_Integer or end < FAR or rows.value is None:
        return False
    count = -start
    return never_negative(normal_form(count - 1), 1) and bool((_expression(rows) - count).is_nonnegative)


def _number(size: Size) -> Dim | None:
    """Return a size as a number or an expression; None where it is unknown."""
    return size if isinstance(size, int) else None if size.value is None else expression(size.value)


def _is_open(output: ir.Value, axis: int) -> bool:
    """Whether the library invented a name for the size of an axis, or left it open."""
    dim = None if output.shape is None else output.shape[axis]
    return not isinstance(dim, int) and (dim is None or dim.value is None or dim.value.startswith("_d"))


def _at_most(start: sympy.Expr, end: sympy.Expr, rows: ir.SymbolicDim) -> sympy.Expr | None:
    """Return the size of x[a:b] or x[-n:] with constants: at most the entries of x; None for other bounds."""
    if rows.value is None or not start.is_Integer or not end.is_Integer:
        return None
    size, is_far = _expression(rows), end >= 2**31 - 1
    if start < 0 and is_far:
        return sympy.Min(-start, size)
    return normal_form(sympy.Min(end, size) - start) if 0 <= start < end and not is_far else None


def _within(start: sympy.Expr, end: sympy.Expr, rows: ir.SymbolicDim) -> sympy.Expr | None:
    """Return the number of entries between bounds that are within an axis at every length; None if they may not be."""
    if rows.value is None or (start.is_Integer and end.is_Integer):
        return None
    size = _expression(rows)
    end = size if end.is_Integer and end >= 2**31 - 1 else end
    if (start == 0 and remainder_by(end, size) is not None) or (end == size and remainder_by(start, size) is not None):
        return sympy.expand(end - start)
    gaps = [normal_form(gap) for gap in (start, end - start, size - end)]
    return entries_between(start, end) if all(never_negative(gap, 1) for gap in gaps) else None


def _expression(size: int | ir.SymbolicDim) -> sympy.Expr:
    return sympy.sympify(size if isinstance(size, int) else expression(str(size.value)))


EXTENSIONS: dict[str, Inference] = {
    "Abs": _computed,
    "AveragePool": _pool,
    "ConstantOfShape": _filled,
    "Div": _computed,
    "LpPool": _pool,
    "MaxPool": _pool,
    "Max": _computed,
    "Min": _computed,
    "Mod": _computed,
    "Neg": _computed,
    "Pad": _pad,
    "Range": _count,
    "Reshape": _cancel,
    "STFT": _frames_of_signal,
    "SequenceAt": _piece,
    "Slice": _sliced,
}
"""What runs after the library's own inference, by operator."""

_extend_library()
