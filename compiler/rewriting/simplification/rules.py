"""Defines the local rules of `simplify`: each returns a value equal to an operator's output, with infinities and NaN.

Each rule was weighed against its namesake in onnxscript 0.7.2, whose rules look at trees of nodes, compare constants
with a tolerance of 1e-8 and trust inferred sizes. Taken over in a form of our own:

    Identity, Cast to the same type, Cast there and back, CastLike, Transpose (none, two), Reshape (none, two, computed
    sizes), Expand to the same sizes, Slice of everything, Concat of one or of empty parts, Unsqueeze of Unsqueeze,
    Squeeze of Unsqueeze, Dropout at inference, If on a constant, sequences of known pieces, Size, Cast of
    ConstantOfShape; Mul and Div by 1; Add of -0.0 and Sub of 0.0; Add and Sub of an integer 0; Pad of zeros before Conv

Of our own: zeros as initial states of a recurrence; counted padding of an AveragePool in ceil mode that pads nothing;
    padding behind a Conv whose results are cut off; pieces of what Unsqueeze widened

Left out, and why:

    Add of 0.0                      turns -0.0 into 0.0: 1 / (x + 0.0) is inf, 1 / x is -inf
    Clip of Clip, Relu of Clip      wrong where the ranges do not meet; Clip is cheap
    Min of Max as Clip              Max and Clip differ on NaN between machines
    Pad before ConvInteger          pads with 0, but the operator pads with its zero point
    auto_pad as numbers             forgets dilations
    zero bias of Conv, Gemm         turns -0.0 into 0.0
    BatchNormalization into Conv    rounds differently; runtimes do it when they load the graph
    Reshape around MatMul           sums in another order, and does not look at the shape in the middle
    Slice, Slice as Split           halves an odd size the other way round
    ScatterND of everything         does not look at `reduction`
    Cast of Cast                    but there and back: float64 to float32 to float16 rounds twice
    Flatten as Reshape              fails on an empty axis
    Abs of sizes                    differences of sizes may be negative
    keepdims of SplitToSequence     has no meaning beside sizes, and was applied
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph import model as graphs
from compiler.graph.lengths.symbolic_values import MOST, SymbolicValues, symbolic_values_of
from compiler.graph.operators.axes import axis_of, keeps_split_axis, order_of
from compiler.graph.operators.pads import pad_of
from compiler.graph.operators.repeats import expand_of
from compiler.graph.operators.reshapes import copies_zeros
from compiler.graph.operators.slices import Number, slice_of
from compiler.graph.operators.traits import RECURRENCES
from compiler.graph.operators.windows import window_of, with_pads
from compiler.graph.sizes.expressions import Dim
from compiler.graph.sizes.growth import never_negative
from compiler.rewriting.simplification.constants import constant_of, fold


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A node with the known values and shapes around it.

    Attributes:
        model: the graph.
        node: the node to replace by a simpler one.
        stamp: name of the pass, for new nodes.
        numbers: the entries of small values that are known in this sweep.
    """

    model: ir.Model
    node: ir.Node
    stamp: str
    numbers: SymbolicValues

    @property
    def insert(self) -> graphs.Inserter:
        """Return an inserter that adds nodes in front of this one."""
        return graphs.Inserter(self.model, self.stamp, before=self.node)

    def value(self, at: int) -> ir.Value | None:
        """Return an operand, or None."""
        return self.node.inputs[at] if at < len(self.node.inputs) else None

    def constant(self, at: int) -> np.ndarray | None:
        """Return the content of an operand that no caller can change; None for other operands."""
        return constant_of(self.value(at))

    def alone(self, at: int, *ops: str) -> ir.Node | None:
        """Return the producer of an operand, if it is one of these operators and nothing else reads the operand."""
        value = self.value(at)
        made = self.made(at, *ops)
        return made if value is not None and len(value.uses()) == 1 and not value.is_graph_output() else None

    def made(self, at: int, *ops: str) -> ir.Node | None:
        """Return the producer of an operand, if it is one of these operators."""
        value = self.value(at)
        made = None if value is None else value.producer()
        return made if graphs.is_op(made, *ops) else None


Rule = Callable[[Candidate], ir.Value | None]


def identity(candidate: Candidate) -> ir.Value | None:
    """Rewrite Identity(x) as x."""
    return candidate.value(0)


def cast(candidate: Candidate) -> ir.Value | None:
    """Simplify a Cast to the value's own type, back through a type that holds all values, or of a ConstantOfShape."""
    value, to = candidate.value(0), ir.DataType(graphs.int_attribute(candidate.node, "to", 1))
    if value is not None and value.dtype == to:
        return value
    inner = candidate.made(0, "Cast", "ConstantOfShape")
    if inner is None or value is None or value.dtype is None:
        return None
    if inner.op_type == "Cast":
        origin = inner.inputs[0]
        back = origin is not None and origin.dtype == to and _holds(value.dtype, to)
        return origin if back else None
    value_attribute = graphs.attribute(inner, "value")
    number = (
        value_attribute.numpy().reshape(-1)
        if isinstance(value_attribute, ir.TensorProtocol)
        else np.zeros(1, np.float32)
    )
    filler = ir.val("x", const_value=ir.tensor(number))
    one = ir.node("Cast", [filler], {"to": int(to)}, num_outputs=1)
    one.outputs[0].dtype = to
    ir.Graph([], one.outputs, nodes=[one], initializers=[filler], opset_imports=dict(candidate.model.opset_imports))
    filling = fold(one)
    if filling is None:
        return None
    node = ir.node("ConstantOfShape", [inner.inputs[0]], {"value": ir.tensor(filling[0])}, num_outputs=1)
    return _placed(candidate, node, "filled", to)


def _holds(wide: ir.DataType, narrow: ir.DataType) -> bool:
    """Whether every number of one type is exactly one number of the other."""
    if narrow == ir.DataType.BOOL:
        return wide.is_integer() or wide in MANTISSA
    if wide in MANTISSA:
        return MANTISSA[wide] >= MANTISSA.get(narrow, 99) and (wide, narrow) not in UNLIKE if narrow in MANTISSA else (
            narrow in WHOLE and MANTISSA[wide] >= np.iinfo(narrow.numpy()).bits
        )  # fmt: skip
    if wide not in WHOLE or narrow not in WHOLE:
        return False
    outer, inner = np.iinfo(wide.numpy()), np.iinfo(narrow.numpy())
    return outer.min <= inner.min and outer.max >= inner.max


MANTISSA = {ir.DataType.FLOAT16: 11, ir.DataType.BFLOAT16: 8, ir.DataType.FLOAT: 24, ir.DataType.DOUBLE: 53}
UNLIKE = {(ir.DataType.FLOAT16, ir.DataType.BFLOAT16)}
"""More digits, but a smaller range."""
WHOLE = frozenset(
    getattr(ir.DataType, f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)
)  # fmt: skip


def cast_like(candidate: Candidate) -> ir.Value | None:
    """Rewrite CastLike(x, y) as a Cast to the type of y."""
    value, like = candidate.value(0), candidate.value(1)
    if value is None or like is None or like.dtype is None or like.dtype not in {*MANTISSA, *WHOLE, ir.DataType.BOOL}:
        return None
    if value.dtype == like.dtype:
        return value
    return candidate.insert.op("Cast", [value], {"to": int(like.dtype)}, name="cast", dtype=like.dtype)


def transpose(candidate: Candidate) -> ir.Value | None:
    """Remove a Transpose that changes nothing, and merge two into one."""
    value, perm = candidate.value(0), order_of(candidate.node)
    if perm is not None and perm == tuple(range(len(perm))):
        return value
    inner = candidate.made(0, "Transpose")
    if inner is None:
        return None
    first = order_of(inner)
    if perm is None and first is None:
        return inner.inputs[0]
    if perm is None or first is None or len(perm) != len(first):
        return None
    both = tuple(first[axis] for axis in perm)
    if both == tuple(range(len(both))):
        return inner.inputs[0]
    if candidate.alone(0, "Transpose") is None:
        return None
    return candidate.insert.op("Transpose", [inner.inputs[0]], {"perm": both}, name="turned", dtype=dtype_of(candidate))


def scale(candidate: Candidate) -> ir.Value | None:
    """Rewrite x * 1, 1 * x and x / 1 as x."""
    for at in (1, 0) if candidate.node.op_type == "Mul" else (1,):
        value, other = candidate.value(1 - at), candidate.value(at)
        if _is_all(other, value, lambda array: bool((array == 1).all())):
            return value
    return None


def shift(candidate: Candidate) -> ir.Value | None:
    """Rewrite x + 0, 0 + x and x - 0 of integers as x, and x + -0.0 and x - 0.0 of floats, as -0.0 + 0.0 is 0.0."""

    def nothing(array: np.ndarray) -> bool:
        sign = candidate.node.op_type == "Add"
        return bool((array == 0).all() and (array.dtype.kind in "iu" or (np.signbit(array) == sign).all()))

    for at in (1, 0) if candidate.node.op_type == "Add" else (1,):
        value, other = candidate.value(1 - at), candidate.value(at)
        if _is_all(other, value, nothing):
            return value
    return None


def _is_all(other: ir.Value | None, value: ir.Value | None, holds: Callable[[np.ndarray], bool]) -> bool:
    """Whether an operand is constant, satisfies a condition, and does not broadcast the other one."""
    if value is None or other is None or other.shape is None:
        return False
    sizes = () if value.shape is None else value.shape.dims
    if len(sizes) < len(other.shape):
        return False
    if any(own not in (1, size) for own, size in zip(reversed(other.shape.dims), reversed(sizes), strict=False)):
        return False
    array = constant_of(other)
    return array is not None and array.dtype.kind in "iuf" and array.size > 0 and holds(array)


def reshape(candidate: Candidate) -> ir.Value | None:
    """Simplify a Reshape to the value's own shape, of another Reshape, or to sizes of which all but one are known."""
    value, shape = candidate.value(0), numbers(candidate.value(1), candidate)
    if value is None or shape is None:
        return None
    copies = copies_zeros(candidate.node)
    dims = graphs.dims_of(value)
    if dims is not None and len(dims) == len(shape) and _is_same_shape(dims, shape, copies):
        return value
    whole = [size for size in shape if isinstance(size, int)]
    inner = candidate.alone(0, "Reshape", "Squeeze", "Unsqueeze", "Flatten")
    if candidate.constant(1) is not None:
        if inner is None or 0 in whole:
            return None
        return candidate.insert.op(
            "Reshape", [inner.inputs[0], candidate.value(1)], name="reshaped", dtype=dtype_of(candidate)
        )
    if len(whole) < len(shape) - 1 or any(size <= 0 for size in whole) or not shape:
        return None
    maker = candidate.node.inputs[1].producer() if candidate.node.inputs[1] is not None else None
    if maker is None or not _counts_no_slice(maker):
        return None
    constant = candidate.insert.int64s(*(size if isinstance(size, int) else -1 for size in shape))
    return candidate.insert.op("Reshape", [value, constant], name="reshaped", dtype=dtype_of(candidate))


def _is_same_shape(dims: Sequence[Dim], shape: Sequence[Dim], copies: bool) -> bool:
    """Whether a Reshape keeps every size; a -1 is determined by the others, if none of them is 0."""
    kept = [
        (size == dim and (dim != 0 or copies) and size != -1) or (copies and isinstance(size, int) and size == 0)
        for dim, size in zip(dims, shape, strict=True)
    ]
    left = [at for at, same in enumerate(kept) if not same]
    if not left:
        return True
    others = [dim for at, dim in enumerate(dims) if at != left[0]]
    return len(left) == 1 and shape[left[0]] == -1 and all(isinstance(dim, int) and dim > 0 for dim in others)


def expand(candidate: Candidate) -> ir.Value | None:
    """Remove an Expand to the sizes that the value has."""
    view = expand_of(candidate.node, lambda value: numbers(value, candidate))
    dims = None if view is None else graphs.dims_of(view.data)
    if view is None or view.added or dims is None:
        return None
    return view.data if all(size in (1, dim) for size, dim in zip(view.sizes, dims, strict=True)) else None


def remove_slice(candidate: Candidate) -> ir.Value | None:
    """Remove a Slice of all entries, or of the first entries of a convolution, as many as its input has."""
    whole = _everything(candidate)
    return _padded_less(candidate) if whole is None else whole


def _everything(candidate: Candidate) -> ir.Value | None:
    view = slice_of(candidate.node)
    axis_slices = None if view is None else view.axis_slices(graphs.integers_of)
    return view.data if view is not None and axis_slices == () else None


def _padded_less(candidate: Candidate) -> ir.Value | None:
    """Fold a Slice of the first entries of a convolution, as many as its input has, into its pads."""
    convolution, view = candidate.alone(0, "Conv"), slice_of(candidate.node)
    sliced = None if view is None else view.only_axis_slice(lambda bounds: numbers(bounds, candidate))
    if convolution is None or sliced is None or (sliced.start, sliced.step) != (0, 1):
        return None
    value = convolution.inputs[0]
    dims = None if value is None else graphs.dims_of(value)
    window = None if dims is None else window_of(convolution, len(dims))
    if dims is None or window is None or window.pads is None or sliced.axis < 2:
        return None
    pads, spatial_axis = list(window.pads), sliced.axis - 2
    (front, behind), taps = pads[spatial_axis], window.kernel[spatial_axis]
    needed = -1 if taps is None else window.dilations[spatial_axis] * (taps - 1) - front
    is_plain = window.strides[spatial_axis] == 1 and 0 <= needed <= behind
    if not is_plain or not _is_count(candidate, sliced.end, dims[sliced.axis]):
        return None
    pads[spatial_axis] = (front, needed)
    node = ir.Node("", "Conv", convolution.inputs, with_pads(convolution, pads), num_outputs=1)
    return _placed(candidate, node, f"{convolution.outputs[0].name}_uncut", None if value is None else value.dtype)


def _is_count(candidate: Candidate, end: Number | None, size: Dim) -> bool:
    """Whether a Slice ends at a size that no other Slice clips."""
    ends = candidate.value(2)
    maker = None if ends is None else ends.producer()
    counts = candidate.constant(2) is not None or (maker is not None and _counts_no_slice(maker))
    return counts and _is_counted(size) and end == size


def concat(candidate: Candidate) -> ir.Value | None:
    """Remove a Concat of one part, or its parts that are always empty."""
    values = [value for value in candidate.node.inputs if value is not None]
    dims = graphs.dims_of(candidate.node.outputs[0])
    if dims is None:
        return None
    axis = axis_of(candidate.node, len(dims))
    parts = [value for value in values if not _is_empty(value, axis)] or values[:1]
    if len(parts) == len(values) > 1:
        return None
    if len(parts) == 1:
        return parts[0]
    return candidate.insert.op("Concat", parts, {"axis": axis}, name="joined", dtype=dtype_of(candidate))


def _is_empty(value: ir.Value, axis: int) -> bool:
    rank = None if value.shape is None else len(value.shape)
    return value.shape is not None and rank is not None and -rank <= axis < rank and value.shape[axis] == 0


def dropout(candidate: Candidate) -> ir.Value | None:
    """Remove a Dropout at inference whose mask is not read."""
    opset = candidate.model.opset_imports.get("", 0)
    training = candidate.value(2)
    at_inference = training is None or (candidate.constant(2) is not None and not np.any(candidate.constant(2)))
    unread = all(not output.uses() and not output.is_graph_output() for output in candidate.node.outputs[1:])
    return candidate.value(0) if opset >= 7 and at_inference and unread else None


def size(candidate: Candidate) -> ir.Value | None:
    """Replace a Size by its number, where that is known."""
    value = candidate.value(0)
    dims = None if value is None or value.shape is None else list(value.shape)
    if dims is None or not all(isinstance(dim, int) for dim in dims):
        return None
    count = int(np.prod([int(str(dim)) for dim in dims], dtype=object)) if dims else 1
    return candidate.insert.constant(np.array(count, np.int64), "size")


def filled(candidate: Candidate) -> ir.Value | None:
    """Replace a ConstantOfShape of few entries by a constant, as in the amounts of a Pad."""
    shape = candidate.constant(0)
    if shape is None or int(np.prod(shape, dtype=object)) > MOST or (shape < 0).any():
        return None
    given = graphs.attribute(candidate.node, "value")
    number = given.numpy() if isinstance(given, ir.TensorProtocol) else np.zeros(1, np.float32)
    if number.dtype.kind not in "biuf":
        return None
    return candidate.insert.constant(
        np.full(tuple(int(each) for each in shape), number.reshape(-1)[0], number.dtype), "filled"
    )


def conv(candidate: Candidate) -> ir.Value | None:
    """Fold a Pad of zeros into a convolution with finite weights, as inf * 0.0 is NaN."""
    pad, kernel = candidate.made(0, "Pad"), candidate.constant(1)
    value = None if pad is None else pad.inputs[0]
    if pad is None or value is None or value.shape is None or kernel is None or not np.isfinite(kernel).all():
        return None
    amounts, window = _amounts(pad, rank=len(value.shape)), window_of(candidate.node, len(value.shape))
    if amounts is None or window is None or window.pads is None:
        return None
    outside, inside = amounts[:2], amounts[2:]
    if any(map(any, outside)) or min((min(pair) for pair in inside), default=-1) < 0:
        return None
    pads = [(front + more, behind + rest) for (front, behind), (more, rest) in zip(window.pads, inside, strict=True)]
    node = ir.Node("", "Conv", [value, *candidate.node.inputs[1:]], with_pads(candidate.node, pads), num_outputs=1)
    return _placed(candidate, node, f"{candidate.node.outputs[0].name}_padded", value.dtype)


def _amounts(pad: ir.Node, rank: int) -> list[tuple[int, int]] | None:
    """Return the sizes that a Pad of positive zeros adds before and behind every axis; None for other Pads."""
    view = pad_of(pad, _whole_numbers, rank)
    fill = np.zeros(1) if view is None or view.value is None else constant_of(view.value)
    if view is None or view.mode != "constant" or view.numbers is None or fill is None:
        return None
    if fill.size != 1 or fill.reshape(-1)[0] != 0 or np.signbit(fill).any():
        return None
    return [view.numbers.get(axis, (0, 0)) for axis in range(rank)]


def _whole_numbers(value: ir.Value) -> list[int] | None:
    array = constant_of(value)
    return None if array is None else [int(number) for number in array.reshape(-1)]


def average_pool(candidate: Candidate) -> ir.Value | None:
    """Remove count_include_pad from an AveragePool in ceil mode without padding, as torch.avg_pool1d exports.

    Without padding none is counted, and entries beyond the end never are.
    """
    node, value = candidate.node, candidate.value(0)
    counts = graphs.int_attribute(node, "count_include_pad", 0) and graphs.int_attribute(node, "ceil_mode", 0)
    window = None if value is None or value.shape is None else window_of(node, len(value.shape))
    if value is None or not counts or window is None or window.has_pads:
        return None
    attributes = [attribute for name, attribute in node.attributes.items() if name != "count_include_pad"]
    plain = ir.Node("", "AveragePool", [value], attributes, num_outputs=1)
    return _placed(candidate, plain, f"{node.outputs[0].name}_uncounted", dtype_of(candidate))


def forget_zero_states(candidate: Candidate) -> bool:
    """Drop initial states of a recurrence that are 0.0 everywhere, which is their default.

    Exporters compute them from sizes (`Expand`, `ConstantOfShape`), which would require counting rows that stand for
    chunks.

    Returns:
        Whether a state was dropped.
    """
    if not graphs.is_op(candidate.node, *RECURRENCES):
        return False
    zero_states = [
        number
        for number in INITIAL_STATES
        if number < len(candidate.node.inputs) and _is_zero_everywhere(candidate, number)
    ]
    for number in zero_states:
        candidate.node.replace_input_with(number, None)
    return bool(zero_states)


INITIAL_STATES = (5, 6)
"""Of a recurrence: the hidden state, and the cell of an LSTM."""


def _is_zero_everywhere(candidate: Candidate, at: int) -> bool:
    filling = candidate.made(at, "ConstantOfShape", "Expand")
    if filling is None:
        return False
    given = graphs.attribute(filling, "value")
    made = given.numpy() if isinstance(given, ir.TensorProtocol) else np.zeros(1, np.float32)
    number = made if filling.op_type == "ConstantOfShape" else constant_of(filling.inputs[0])
    return number is not None and number.size > 0 and not number.any() and not np.signbit(number).any()


def sequence_at(candidate: Candidate) -> ir.Value | None:
    """Replace a SequenceAt of given tensors, or of pieces of a tensor, by that tensor."""
    place = candidate.constant(1)
    source = candidate.made(0, "SequenceConstruct", "SplitToSequence")
    if place is None or source is None or source.graph is not candidate.node.graph:
        return None
    position = int(place.reshape(-1)[0])
    if source.op_type == "SequenceConstruct":
        return source.inputs[position] if -len(source.inputs) <= position < len(source.inputs) else None
    is_sized = len(source.inputs) > 1
    axis_slices = constant_of(source.inputs[1]) if is_sized else np.array(1)
    data = source.inputs[0]
    dims = None if data is None else graphs.dims_of(data)
    if axis_slices is None or dims is None:
        return None
    axis = axis_of(source, len(dims))
    if position < 0 and not axis_slices.ndim:
        whole = dims[axis]
        if not isinstance(whole, int):
            return None
        position += -(-whole // int(axis_slices))
    if position < (-len(axis_slices) if axis_slices.ndim else 0) or (axis_slices.ndim and position >= len(axis_slices)):
        return None
    size = int(axis_slices[position] if axis_slices.ndim else axis_slices)
    start = int(axis_slices[: position % len(axis_slices)].sum()) if axis_slices.ndim else size * position
    insert = graphs.Inserter(candidate.model, candidate.stamp, before=candidate.node, source=graphs.source_of(source))
    bounds = [insert.int64s(bound) for bound in (start, start + size, axis)]
    piece = insert.op("Slice", [data, *bounds], name="piece", dtype=dtype_of(candidate))
    is_kept = is_sized or keeps_split_axis(source)
    return piece if is_kept else insert.op("Squeeze", [piece, bounds[-1]], name="entry")


def concat_from_sequence(candidate: Candidate) -> ir.Value | None:
    """Replace a ConcatFromSequence of given tensors by a Concat."""
    source = candidate.made(0, "SequenceConstruct")
    if source is None or source.graph is not candidate.node.graph or any(value is None for value in source.inputs):
        return None
    dims, parts = graphs.dims_of(candidate.node.outputs[0]), list(source.inputs)
    if dims is None:
        return None
    axis = axis_of(candidate.node, len(dims))
    if graphs.int_attribute(candidate.node, "new_axis", 0):
        axis_value = candidate.insert.int64s(axis)
        parts = [candidate.insert.op("Unsqueeze", [part, axis_value], name="stacked") for part in parts]
    return candidate.insert.op(
        "Concat", parts, {"axis": axis}, name="joined", dtype=parts[0].dtype if parts[0] else None
    )


def known_integers(candidate: Candidate) -> ir.Value | None:
    """Replace arithmetic on sizes by constants where the result is known, e.g. the channels of a cache.

    Sizes are below 2^24 where a graph counts them in float32.
    """
    output = candidate.node.outputs[0]
    if (
        len(candidate.node.outputs) != 1
        or output.dtype != ir.DataType.INT64
        or output.shape is None
        or len(output.shape) > 1
    ):
        return None
    known = numbers(output, candidate)
    if known is None or not all(isinstance(number, int) for number in known) or not _counts_no_slice(candidate.node):
        return None
    return candidate.insert.constant(
        np.array(known, np.int64).reshape([] if len(output.shape) == 0 else [-1]), "int64s"
    )


def _counts_no_slice(node: ir.Node) -> bool:
    """Whether no size that a node reads may be clipped at 0, as that of x[:, 5:] is where x is shorter."""
    waiting, seen = [node], {node}
    while waiting and len(seen) < MOST_FOLLOWED:
        current = waiting.pop()
        if graphs.is_op(current, "Shape", "Size"):
            dims = graphs.dims_of(current.inputs[0]) if current.inputs[0] is not None else None
            read = () if dims is None else dims if current.op_type == "Size" else [
                dims[place] for place in graphs.dims_read(current, len(dims))]  # fmt: skip
            if not all(isinstance(dim, int) or _is_counted(dim) for dim in read):
                return False
            continue
        makers = {value.producer() for value in current.inputs if value is not None and value.producer() is not None}
        for maker in makers - seen:
            assert maker is not None
            seen.add(maker)
            waiting.append(maker)
    return not waiting


MOST_FOLLOWED = 256
"""Nodes between a number and the sizes that it is made of."""


def _is_counted(dim: Dim) -> bool:
    return isinstance(dim, (int, sympy.Symbol)) or never_negative(dim)


def numbers(value: ir.Value | None, candidate: Candidate) -> tuple[Dim, ...] | None:
    """Return the elements of a small value as numbers and sizes; None where they are unknown."""
    if value is not None and value.is_initializer() and value.is_graph_input():
        return None
    return symbolic_values_of(value, candidate.numbers)


def _placed(candidate: Candidate, node: ir.Node, name: str, dtype: ir.DataType | None) -> ir.Value:
    """Place a node in front of the candidate, under a new name, and return its output."""
    output = node.outputs[0]
    output.name = graphs.fresh_name(candidate.model.graph, name)
    node.name = f"{output.name}_node"
    if dtype is not None:
        output.dtype = dtype
    candidate.insert.place(node)
    return output


def dtype_of(candidate: Candidate) -> ir.DataType | None:
    """Return the type of the node's output."""
    return candidate.node.outputs[0].dtype


RULES: dict[str, Rule] = {
    "Add": shift,
    "AveragePool": average_pool,
    "Cast": cast,
    "CastLike": cast_like,
    "Concat": concat,
    "ConcatFromSequence": concat_from_sequence,
    "ConstantOfShape": filled,
    "Conv": conv,
    "Div": scale,
    "Dropout": dropout,
    "Expand": expand,
    "Identity": identity,
    "Mul": scale,
    "Reshape": reshape,
    "SequenceAt": sequence_at,
    "Size": size,
    "Slice": remove_slice,
    "Sub": shift,
    "Transpose": transpose,
}
"""The rules that apply to one operator."""
