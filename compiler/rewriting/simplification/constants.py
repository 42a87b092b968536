"""Folds nodes with constant operands by running them in ONNX Runtime, so that their results are equal to the bit.

An operator is folded if it stands in FOLDED, which says how large its result can be before anything is computed.
Not in it are random operators, those of other domains, subgraphs, and quantization, whose nodes targets look for.
"""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.traits import BROADCASTING, ONE_OPERAND, REARRANGING, REDUCTIONS
from compiler.graph.runners.session import Session, open_session
from compiler.graph.stages import Array

MOST_READ = 1 << 22
"""Elements of the largest operand: position tables are folded, embeddings of a large vocabulary are not."""

MOST_WRITTEN = 1 << 18
"""Elements of a result that is larger than what it takes the place of: what is repeated for every row is not folded."""

OF_WHOLE_NUMBERS = ("BitShift", "Div", "Mod", "Pow")
"""A list of its own: operators that no standard defines for all whole numbers."""

MOST_EXACT = 2.0**53
"""Whole numbers below it are powers by way of reals without rounding."""

Bound = Callable[[ir.Node, Sequence[Array | None]], int]


def constant_of(value: ir.Value | None) -> Array | None:
    """Return the content of an initializer or Constant that no caller can change, or None.

    Shape inference records contents of other values too, computed without the bounds of their types.
    """
    return graphs.array_of(value) if value is not None and _is_constant(value) else None


def fold(node: ir.Node) -> list[Array] | None:
    """Return the outputs of a node whose operands are constant; None where they are not, or folding is unwanted."""
    bound = FOLDED.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if bound is None or not node.inputs or not all(value is None or _is_constant(value) for value in node.inputs):
        return None
    operands = [constant_of(value) for value in node.inputs]
    if any(operand is not None and operand.dtype.kind not in "biuf" for operand in operands):
        return None  # strings, and the small types of which numpy knows nothing
    freed = sum(
        operand.size
        for value, operand in zip(node.inputs, operands, strict=True)
        if value is not None and operand is not None and len(value.uses()) == 1
    )
    largest = max((operand.size for operand in operands if operand is not None), default=0)
    if largest > MOST_READ and not (node.op_type == "Transpose" and freed):
        return None
    try:
        if bound(node, operands) > max(MOST_WRITTEN, freed) or _depends_on_the_machine(node, operands):
            return None
        return _run(node, operands)
    except Exception:  # noqa: BLE001 - an invalid node fails where the graph is run, with a message that names it
        return None


def _is_constant(value: ir.Value) -> bool:
    given = value.is_initializer() or graphs.is_op(value.producer(), "Constant")
    return given and not value.is_graph_input() and ir.convenience.get_const_tensor(value) is not None


def _run(node: ir.Node, operands: Sequence[Array | None]) -> list[Array]:
    """Run a node on constants, with one session per kind of node, for any sizes."""
    inputs = [
        None if operand is None else ir.val(f"x{number}", ir.DataType.from_numpy(operand.dtype))
        for number, operand in enumerate(operands)
    ]
    outputs = [ir.Value(name=f"y{number}") for number in range(len(node.outputs))]
    copy = ir.Node(node.domain, node.op_type, inputs, list(node.attributes.values()), outputs=outputs, name="node")
    assert node.graph is not None
    opset = node.graph.opset_imports.get("", 20)
    present = [value for value in inputs if value is not None]
    for mine, output in zip(outputs, node.outputs, strict=True):
        if output.dtype is not None:
            mine.dtype = output.dtype
    graph = ir.Graph(present, outputs, nodes=[copy], opset_imports={"": opset}, name="one_node")
    session = _session(graphs.serialized(ir.Model(graph, ir_version=10)))
    feeds = {f"x{number}": operand for number, operand in enumerate(operands) if operand is not None}
    return [np.asarray(array) for array in session.run([str(output.name) for output in outputs], feeds)]


@functools.lru_cache(maxsize=512)
def _session(model: bytes) -> Session:
    session: Session = open_session(model, keeps_memory=False)
    return session


def _depends_on_the_machine(node: ir.Node, operands: Sequence[Array | None]) -> bool:
    """Whether the result is not standardized: numbers too large for an integer type, division by 0."""
    first = operands[0]
    assert first is not None
    if node.op_type == "Cast":
        to = ir.DataType(graphs.int_attribute(node, "to", 1))
        return first.dtype.kind == "f" and to.is_integer() and not _fits(first, to)
    if node.op_type == "Range" and first.dtype.kind == "f":
        return not all(operand is not None and np.isfinite(operand).all() for operand in operands)
    if node.op_type in OF_WHOLE_NUMBERS and first.dtype.kind in "iu":
        second = operands[1]
        assert second is not None
        if node.op_type == "BitShift":
            return bool((second >= 8 * second.itemsize).any())
        if node.op_type == "Pow":
            return not bool(
                (np.abs(np.power(first.astype(np.float64), second)) < MOST_EXACT).all() and (second >= 0).all()
            )
        low = first.dtype.kind == "i" and (first == np.iinfo(first.dtype).min).any() and (second == -1).any()
        return bool((second == 0).any() or low)
    return False


def _fits(array: Array, to: ir.DataType) -> bool:
    held, wide = np.iinfo(to.numpy()), array.astype(np.float64)  # half precision does not reach the limits
    return bool(np.isfinite(wide).all() and (wide > float(held.min) - 1).all() and (wide < float(held.max)).all())


def _broadcast(node: ir.Node, operands: Sequence[Array | None]) -> int:
    return math.prod(np.broadcast_shapes(*(operand.shape for operand in operands if operand is not None)))


def _no_larger(node: ir.Node, operands: Sequence[Array | None]) -> int:
    return max((operand.size for operand in operands if operand is not None), default=1)


def _joined(node: ir.Node, operands: Sequence[Array | None]) -> int:
    return sum(operand.size for operand in operands if operand is not None)


def _expanded(node: ir.Node, operands: Sequence[Array | None]) -> int:
    data, shape = operands[0], operands[1]
    assert data is not None and shape is not None
    return math.prod(np.broadcast_shapes(data.shape, tuple(int(size) for size in shape)))


def _tiled(node: ir.Node, operands: Sequence[Array | None]) -> int:
    data, repeats = operands[0], operands[1]
    assert data is not None and repeats is not None
    return data.size * math.prod(int(count) for count in repeats.reshape(-1))


def _counted(node: ir.Node, operands: Sequence[Array | None]) -> int:
    start, limit, step = (float(operand.reshape(-1)[0]) for operand in operands if operand is not None)
    return math.ceil((limit - start) / step) + 1 if step else MOST_READ * MOST_READ


def _gathered(node: ir.Node, operands: Sequence[Array | None]) -> int:
    data, indices = operands[0], operands[1]
    assert data is not None and indices is not None
    return int(indices.size * (data.size // max(data.shape[axis_of(node, data.ndim)], 1)))


def _multiplied(node: ir.Node, operands: Sequence[Array | None]) -> int:
    first, second = operands[0], operands[1]
    assert first is not None and second is not None
    return math.prod(np.broadcast_shapes(first.shape[:-2], second.shape[:-2])) * max(
        first.shape[-2] if first.ndim > 1 else 1, 1
    ) * max(second.shape[-1] if second.ndim > 1 else 1, 1)  # fmt: skip


def _padded(node: ir.Node, operands: Sequence[Array | None]) -> int:
    data, amounts = operands[0], operands[1]
    assert data is not None and amounts is not None
    added = [max(int(amount), 0) for amount in amounts]
    return math.prod(size + sum(added) for size in data.shape)


NO_LARGER = (
    "ArgMax", "ArgMin", "Cast", "Clip", "Compress", "CumSum", "DepthToSpace", "GatherElements", "Hardmax",
    "LayerNormalization", "LogSoftmax", "ReverseSequence", "ScatterElements", "ScatterND", "Shape", "Size", "Slice",
    "Softmax", "SpaceToDepth", "Split", "Trilu",
)  # fmt: skip
"""A list of its own: what else has no more elements than one of its operands, of operators that are worth folding."""

FOLDED: dict[str, Bound] = {
    **dict.fromkeys((ONE_OPERAND | REARRANGING | REDUCTIONS) - {"Identity", "Swish"}, _no_larger),
    **dict.fromkeys(NO_LARGER, _no_larger),
    **dict.fromkeys(BROADCASTING, _broadcast),
    "Concat": _joined,
    "Expand": _expanded,
    "Gather": _gathered,
    "MatMul": _multiplied,
    "Pad": _padded,
    "Range": _counted,
    "Tile": _tiled,
}
"""How many elements a result has at most, by operator."""
