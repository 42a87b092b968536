"""Finds attention over whole sequences: the two products around a softmax, and the projections that feed them.

    x -> product, constant -> .. -> heads [batch, time, heads, d] -> .. -> operand [batch, heads, time, d]
    softmax(q k^T + ..) v -> .. -> product, constant -> output

Nothing is matched between a projection and an operand but which values lie there; what those nodes do is found out by
running them (`compiler.heads.probing`).
"""

import dataclasses
from collections.abc import Callable, Iterable

import onnx_ir as ir

from compiler import ir as house
from compiler.errors import Place
from compiler.stages import Refusal

ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Where", "Cast", "Identity", "Max", "Min", "Clip", "Tanh"})
"""A list of its own: what may lie between the scores, the softmax and the product with values, soft caps included."""

AXES = 4


@dataclasses.dataclass(frozen=True)
class Heads:
    """What an operand of attention is made of.

    Attributes:
        product: the product with constant weights that projects.
        value: the first value with an axis of heads, [batch, time, heads, d] or [batch, heads, time, d].
        heads_axis: 2 or 1.
        path: the nodes behind `value` up to the operand that depend on it, in graph order.
        operand: what attention reads.
    """

    product: ir.Node
    value: ir.Value
    heads_axis: int
    path: tuple[ir.Node, ...]
    operand: ir.Value

    @property
    def source(self) -> ir.Value:
        """What is projected, [batch, time, width]."""
        value = self.product.inputs[0]
        assert value is not None
        return value


@dataclasses.dataclass(frozen=True)
class Attention:
    """One attention.

    Attributes:
        softmax: its node.
        heads: how many.
        size: channels of a head.
        scores: the product of queries and keys.
        context: the product with the values.
        query: what the scores' left operand is made of.
        key: and the right one, [batch, heads, d, time].
        value: what the context's right operand is made of.
        between: elementwise nodes from the scores to the context.
        output: the product behind, with constant weights.
    """

    softmax: ir.Node
    heads: int
    size: int
    scores: ir.Node
    context: ir.Node
    query: Heads
    key: Heads
    value: Heads
    between: tuple[ir.Node, ...]
    output: ir.Node

    @property
    def name(self) -> str:
        """The softmax's."""
        return str(self.softmax.name)


class _NotFoundError(Exception):
    """Why a softmax is no attention that is understood, and where."""

    def __init__(self, reason: str, node: ir.Node) -> None:
        super().__init__(reason)
        self.refusal = Refusal(reason, Place(node=str(node.name), op=node.op_type, source=house.source_of(node)))


@dataclasses.dataclass(frozen=True)
class Found:
    """What there is of attention.

    Attributes:
        attentions: in graph order.
        shared: how many share keys and values between heads already.
        refused: what was missed at every other softmax between two products of data.
    """

    attentions: tuple[Attention, ...]
    shared: int
    refused: tuple[Refusal, ...]


class _SharedError(Exception):
    """Heads share keys and values."""


def find_attentions(model: ir.Model) -> Found:
    """All attentions.

    Args:
        model: with symbolic shapes.
    """
    order = {node: at for at, node in enumerate(model.graph)}
    found, refused, shared = [], [], 0
    for node in model.graph:
        if not house.is_op(node, "Softmax"):
            continue
        try:
            attention = _attention(node, order)
        except _SharedError:
            shared += 1
        except _NotFoundError as error:
            refused.append(error.refusal)
        else:
            if attention is not None:
                found.append(attention)
    return Found(tuple(found), shared, tuple(refused))


def _attention(softmax: ir.Node, order: dict[ir.Node, int]) -> Attention | None:
    above, scores = _through(softmax, _makers)
    below, contexts = _through(softmax, _readers)
    scores = [node for node in scores if _is_product_of_data(node)]
    contexts = [node for node in contexts if _is_product_of_data(node)]
    if not scores or not contexts:
        return None  # a softmax over classes, a gate
    if len(scores) != 1 or len(contexts) != 1:
        counted = f"{len(scores)} products of data in front and {len(contexts)} behind"
        raise _NotFoundError(f"expected one product of queries and keys and one with values, got {counted}", softmax)
    left, right = scores[0].inputs
    values = contexts[0].inputs[1]
    assert left is not None and right is not None and values is not None
    dims = [house.dims_of(each) or () for each in (left, right, values)]
    if [len(each) for each in dims] == [AXES + 1] * 3 and dims[1][2] == 1 == dims[2][2]:
        raise _SharedError
    if any(len(each) != AXES for each in dims):
        got = f"{[len(each) for each in dims]} axes"
        raise _NotFoundError(f"expected queries, keys and values [batch, heads, time, d], got {got}", scores[0])
    heads, size = dims[0][1], dims[0][3]
    if not isinstance(heads, int) or not isinstance(size, int) or dims[2][3] != size:
        got = f"{heads} heads of {size} and {dims[2][3]}"
        raise _NotFoundError(f"expected known heads of one size, got {got}", scores[0])
    if heads < 2:
        raise _NotFoundError("there is one head, which has none to share with", softmax)
    above &= _reached(scores[0], above)
    below = {node for node in below if contexts[0] in _reached(node, {*below, contexts[0]})}
    between = tuple(sorted({*above, softmax, *below}, key=order.__getitem__))
    found = [_heads(each, heads, size, order) for each in (left, right, values)]
    output = _output(contexts[0])
    return Attention(softmax, heads, size, scores[0], contexts[0], found[0], found[1], found[2], between, output)


def _through(softmax: ir.Node, step: Callable[[ir.Node], Iterable[ir.Node]]) -> tuple[set[ir.Node], list[ir.Node]]:
    """Elementwise nodes of computed numbers next to a softmax, and the products next to those."""
    passed: set[ir.Node] = set()
    products: list[ir.Node] = []
    waiting = list(step(softmax))
    while waiting:
        node = waiting.pop()
        if node in passed or node in products:
            continue
        if house.is_op(node, "MatMul"):
            products.append(node)
        elif node.op_type in ELEMENTWISE:
            passed.add(node)
            waiting.extend(step(node))
    return {node for node in passed if products}, products


def _makers(node: ir.Node) -> list[ir.Node]:
    makers = [value.producer() for value in node.inputs if value is not None]
    return [maker for maker in makers if maker is not None]


def _readers(node: ir.Node) -> list[ir.Node]:
    return house.consumers_of(node.outputs[0])


def _is_product_of_data(node: ir.Node) -> bool:
    return house.is_op(node, "MatMul") and all(
        value is not None and house.array_of(value) is None for value in node.inputs
    )


def _is_projection(node: ir.Node) -> bool:
    weights = house.array_of(node.inputs[1]) if house.is_op(node, "MatMul", "Gemm") else None
    return weights is not None and weights.ndim == 2


def _heads(operand: ir.Value, heads: int, size: int, order: dict[ir.Node, int]) -> Heads:
    maker = operand.producer()
    if maker is None:
        raise _NotFoundError(
            f"expected a projection in front of {operand.name}, got a graph input", next(iter(operand.uses())).node
        )
    behind: set[ir.Node] = set()
    projections: set[ir.Node] = set()
    waiting = [maker]
    while waiting:
        node = waiting.pop()
        if node in behind or node in projections:
            continue
        if _is_projection(node):
            projections.add(node)
        else:
            behind.add(node)
            waiting.extend(_makers(node))
    if len(projections) != 1:
        got = f"{len(projections)}: {', '.join(sorted(str(node.name) for node in projections)) or 'none'}"
        raise _NotFoundError(f"expected one product with constant weights in front of {operand.name}, got {got}", maker)
    (product,) = projections
    reached = _reached(product, behind)
    for node in sorted(reached, key=order.__getitem__):
        value = node.outputs[0]
        axis = _heads_axis(value, heads, size)
        if axis is not None and operand not in {
            out for each in _reached(product, behind - {node}) for out in each.outputs
        }:
            path = sorted(_reached(node, behind), key=order.__getitem__)
            _only_for(path, operand)
            return Heads(product, value, axis, tuple(path), operand)
    dims = [house.dims_of(node.outputs[0]) for node in sorted(reached, key=order.__getitem__)]
    reason = f"expected a value [batch, time, {heads}, {size}] between {product.name} and {operand.name}, got {dims}"
    raise _NotFoundError(reason, maker)


def _reached(start: ir.Node, within: set[ir.Node]) -> set[ir.Node]:
    """Nodes of a set that depend on a node through nodes of the set."""
    found: set[ir.Node] = set()
    waiting = [start]
    while waiting:
        for output in waiting.pop().outputs:
            for reader in house.consumers_of(output):
                if reader in within and reader not in found:
                    found.add(reader)
                    waiting.append(reader)
    return found


def _heads_axis(value: ir.Value, heads: int, size: int) -> int | None:
    dims = house.dims_of(value)
    if dims is None or len(dims) != AXES or dims[3] != size:
        return None
    places = [axis for axis in (1, 2) if dims[axis] == heads]
    return places[0] if len(places) == 1 else None


def _only_for(path: Iterable[ir.Node], operand: ir.Value) -> None:
    """Refuse a path that something else reads, too: it would read fewer heads."""
    nodes = set(path)
    for node in nodes:
        for output in node.outputs:
            others = [reader for reader in house.consumers_of(output) if reader not in nodes]
            if output.is_graph_output() or (others and output is not operand) or len(others) > 1:
                raise _NotFoundError(f"{output.name} is read by more than this attention", node)


def _output(context: ir.Node) -> ir.Node:
    """The projection behind, reached by nodes that move numbers alone."""
    node = context
    while True:
        readers = house.consumers_of(node.outputs[0])
        if len(readers) != 1 or node.outputs[0].is_graph_output():
            raise _NotFoundError("the result is read by more than a projection", node)
        (node,) = readers
        if _is_projection(node):
            return node
        if not house.is_op(node, "Transpose", "Reshape", "Identity", "Cast", "Flatten", "Squeeze", "Unsqueeze"):
            raise _NotFoundError(f"expected a projection behind, got {node.op_type}", node)
