"""Finds attention over whole sequences: two MatMuls around a Softmax, and the projections that feed them.

    x -> MatMul by constants -> .. -> heads [batch, time, heads, d] -> .. -> operand [batch, heads, time, d]
    softmax(q k^T + ..) v -> .. -> MatMul by constants -> output

Nothing is matched between a projection and an operand but which values lie there; what those nodes do is found out by
running them (`compiler.rewriting.attention.probing`). Frames of earlier calls may be joined there, heads apart:

    heads -> .. -> Concat(cache, new) -> .. -> operand        the joined frames, or the newest of them, are fed back
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import onnx_ir as ir

from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.operators.axes import axis_of
from compiler.graph.stages import Refusal, State

ELEMENTWISE = frozenset(
    {"Add", "Sub", "Mul", "Div", "Where", "Cast", "Identity", "Max", "Min", "Clip", "Tanh", "IsNaN"}
)
"""A list of its own: what may lie between the scores, the softmax and the product with values: soft caps, and what
gives rows that may see nothing weights of 0."""

AXES = 4


MOVED = ("Slice", "Identity")
"""What may lie between a cache and where it is joined, and between there and what is fed back."""


@dataclasses.dataclass(frozen=True)
class Cache:
    """Frames of earlier calls on the path of an operand.

    Attributes:
        state: as it is declared.
        value: the graph input that holds it.
        join: the node that puts them in front of the new frames.
        new: what those are joined to.
        moved: nodes between `value` and `join`, and between `join` and the output that is fed back.
    """

    state: State
    value: ir.Value
    join: ir.Node
    new: ir.Value
    moved: tuple[ir.Node, ...]


@dataclasses.dataclass(frozen=True)
class Heads:
    """The nodes and weights that an operand of attention is made from.

    Attributes:
        product: the product with constant weights that projects.
        value: the first value with an axis of heads: channels of a head last, the others in any order.
        batch_axis: of `value`, from 0 to 2.
        time_axis: likewise.
        heads_axis: likewise.
        path: the nodes behind `value` up to the operand that depend on it, in graph order.
        operand: the value that attention reads.
        cache: the cache that is joined along the path, or None.
    """

    product: ir.Node
    value: ir.Value
    batch_axis: int
    time_axis: int
    heads_axis: int
    path: tuple[ir.Node, ...]
    operand: ir.Value
    cache: Cache | None = None


@dataclasses.dataclass(frozen=True)
class Attention:
    """One attention.

    Attributes:
        softmax: its node.
        heads: how many.
        size: channels of a head.
        scores: the product of queries and keys.
        context: the product with the values.
        query: the parts of the scores' left operand.
        key: the parts of the right one, [batch, heads, d, time].
        value: the parts of the context's right operand.
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
        """Return the name of the attention's softmax."""
        return str(self.softmax.name)


class _NotFoundError(Exception):
    """Why a softmax is no attention that is understood, and where."""

    def __init__(self, reason: str, node: ir.Node) -> None:
        super().__init__(reason)
        self.refusal = Refusal(reason, Location(node=str(node.name), op=node.op_type, source=graphs.source_of(node)))


@dataclasses.dataclass(frozen=True)
class Found:
    """What there is of attention.

    Attributes:
        attentions: in graph order.
        shared: how many share keys and values between heads already: fewer of them are projected.
        refused: the missing condition of every other softmax between two products of data.
    """

    attentions: tuple[Attention, ...]
    shared: int
    refused: tuple[Refusal, ...]


Caches: TypeAlias = Mapping[ir.Value, State]
"""The states along frames, by the graph input that holds each."""


class _SharedError(Exception):
    """Heads share keys and values."""


def find_attentions(model: ir.Model, states: Sequence[State] = ()) -> Found:
    """Find all attentions of a graph.

    Args:
        model: a graph with symbolic shapes.
        states: states of the graph; those with a frames axis may be caches of keys and values.
    """
    order = {node: position for position, node in enumerate(model.graph)}
    inputs = graphs.inputs_named(model)
    caches = {inputs[state.input]: state for state in states if state.frames_axis is not None}
    attentions, refused, shared = [], [], 0
    for node in model.graph:
        if graphs.is_op(node, "Attention"):
            refused.append(
                _NotFoundError("attention is one operator, which canonicalize_attention leaves as it is", node).refusal
            )
        if not graphs.is_op(node, "Softmax"):
            continue
        try:
            attention = _attention(node, order, caches)
        except _SharedError:
            shared += 1
        except _NotFoundError as error:
            refused.append(error.refusal)
        else:
            if attention is not None:
                attentions.append(attention)
    return Found(tuple(attentions), shared, tuple(refused))


def _attention(softmax: ir.Node, order: Mapping[ir.Node, int], caches: Caches) -> Attention | None:
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
    dims = [graphs.dims_of(operand) or () for operand in (left, right, values)]
    if [len(shape) for shape in dims] == [AXES + 1] * 3 and dims[1][2] == 1 == dims[2][2]:
        raise _SharedError
    if any(len(shape) != AXES for shape in dims):
        got = f"{[len(shape) for shape in dims]} axes"
        if all(len(shape) == AXES - 1 for shape in dims):
            got += " (torch merges rows with heads where attention gives its weights: call it with need_weights=False)"
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
    heads_of = [_heads(operand, heads, size, order, caches) for operand in (left, right, values)]
    output = _output(contexts[0])
    return Attention(
        softmax, heads, size, scores[0], contexts[0], heads_of[0], heads_of[1], heads_of[2], between, output
    )


def _through(softmax: ir.Node, step: Callable[[ir.Node], Iterable[ir.Node]]) -> tuple[set[ir.Node], list[ir.Node]]:
    """Return the elementwise nodes connected to a softmax in a direction, and the products connected to those."""
    passed: set[ir.Node] = set()
    products: list[ir.Node] = []
    waiting = list(step(softmax))
    while waiting:
        node = waiting.pop()
        if node in passed or node in products:
            continue
        if graphs.is_op(node, "MatMul"):
            products.append(node)
        elif node.op_type in ELEMENTWISE:
            passed.add(node)
            waiting.extend(step(node))
    return {node for node in passed if products}, products


def _makers(node: ir.Node) -> list[ir.Node]:
    makers = [value.producer() for value in node.inputs if value is not None]
    return [maker for maker in makers if maker is not None]


def _readers(node: ir.Node) -> list[ir.Node]:
    return graphs.consumers_of(node.outputs[0])


def _is_product_of_data(node: ir.Node) -> bool:
    return graphs.is_op(node, "MatMul") and all(
        value is not None and graphs.array_of(value) is None for value in node.inputs
    )


def _is_projection(node: ir.Node) -> bool:
    weights = graphs.array_of(node.inputs[1]) if graphs.is_op(node, "MatMul", "Gemm") else None
    return weights is not None and weights.ndim == 2


def _heads(operand: ir.Value, heads: int, size: int, order: Mapping[ir.Node, int], caches: Caches) -> Heads:
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
        if node in behind or node in projections or graphs.is_op(node, "Shape"):
            continue  # sizes hang on no number
        if _is_projection(node):
            projections.add(node)
        else:
            behind.add(node)
            waiting.extend(_makers(node))
    if len(projections) != 1:
        got = f"{len(projections)}: {', '.join(sorted(str(node.name) for node in projections)) or 'none'}"
        raise _NotFoundError(f"expected one product with constant weights in front of {operand.name}, got {got}", maker)
    (product,) = projections
    width = (graphs.dims_of(product.outputs[0]) or (None,))[-1]
    if isinstance(width, int) and width < heads * size and heads * size % width == 0:
        raise _SharedError
    reached, batch = _reached(product, behind), (graphs.dims_of(operand) or (1,))[0]
    for node in sorted(reached, key=order.__getitem__):
        value = node.outputs[0]
        axes = _axes(value, heads, size, batch)
        if axes is not None and operand not in {
            out for reached_node in _reached(product, behind - {node}) for out in reached_node.outputs
        }:
            path = tuple(sorted(_reached(node, behind), key=order.__getitem__))
            cache = _joined(behind, path, caches)
            _only_for(path, operand, cache)
            return Heads(product, value, *axes, path, operand, cache)
    dims = [graphs.dims_of(node.outputs[0]) for node in sorted(reached, key=order.__getitem__)]
    reason = f"expected a value [batch, time, {heads}, {size}] between {product.name} and {operand.name}, got {dims}"
    raise _NotFoundError(reason, maker)


def _reached(start: ir.Node, within: set[ir.Node]) -> set[ir.Node]:
    """Return the nodes of a set that depend on a node through nodes of the set."""
    found: set[ir.Node] = set()
    waiting = [start]
    while waiting:
        for output in waiting.pop().outputs:
            for reader in graphs.consumers_of(output):
                if reader in within and reader not in found:
                    found.add(reader)
                    waiting.append(reader)
    return found


def _axes(value: ir.Value, heads: int, size: int, batch: Dim) -> tuple[int, int, int] | None:
    """Return the axes of batch, time and heads of a value whose last axis is channels; None for other layouts."""
    dims = graphs.dims_of(value)
    if dims is None or len(dims) != AXES or dims[3] != size:
        return None
    if (dims[1] == heads) == (dims[2] == heads):
        return None
    second, heads_axis = (2, 1) if dims[1] == heads else (1, 2)
    is_time_first = dims[second] == batch and dims[0] != batch
    return (second, 0, heads_axis) if is_time_first else (0, second, heads_axis)


def _joined(behind: Iterable[ir.Node], path: Sequence[ir.Node], caches: Caches) -> Cache | None:
    """Return the cache that is joined along a path; None without one."""
    joined_caches = []
    for node in behind:
        for value in node.inputs:
            source, moved = _moved_from(value)
            if source not in caches or source is None or node in moved or graphs.is_op(node, *MOVED):
                continue
            others = [operand for operand in node.inputs if operand is not value]
            axis = axis_of(node, len(value.shape or ())) if graphs.is_op(node, "Concat") and value is not None else None
            if node not in path or axis != caches[source].frames_axis or len(others) != 1 or others[0] is None:
                reason = f"expected {source.name} to be joined to new frames behind where heads are apart"
                raise _NotFoundError(reason, node)
            joined_caches.append(Cache(caches[source], source, node, others[0], moved + _moved_to(node.outputs[0])))
    if len(joined_caches) > 1:
        names = [cache.state.input for cache in joined_caches]
        raise _NotFoundError(f"expected one cache in front of {path[-1].outputs[0].name}, got {names}", path[-1])
    return joined_caches[0] if joined_caches else None


def _moved_from(value: ir.Value | None) -> tuple[ir.Value | None, tuple[ir.Node, ...]]:
    """Return the value that a value is moved or sliced from, and the nodes between."""
    moved: tuple[ir.Node, ...] = ()
    while value is not None and graphs.is_op(value.producer(), *MOVED):
        node = value.producer()
        assert node is not None
        value, moved = node.inputs[0], (node, *moved)
    return value, moved


def _moved_to(value: ir.Value) -> tuple[ir.Node, ...]:
    """Return the nodes that move a value to a graph output."""
    found = []
    for node in graphs.consumers_of(value):
        behind = _moved_to(node.outputs[0]) if graphs.is_op(node, *MOVED) else ()
        if behind or (graphs.is_op(node, *MOVED) and node.outputs[0].is_graph_output()):
            found += [node, *behind]
    return tuple(found)


def _only_for(path: Sequence[ir.Node], operand: ir.Value, cache: Cache | None) -> None:
    """Refuse a path that another node or output reads as well, which would get fewer heads."""
    moved = set() if cache is None else set(cache.moved)
    fed = set() if cache is None else {cache.state.output}
    returned = {str(output.name) for node in (*path, *moved) for output in node.outputs if output.is_graph_output()}
    if returned != fed:
        names = f"{sorted(returned) or 'nothing'}, got {sorted(fed) or 'no cache'} along it"
        raise _NotFoundError(f"{operand.name} is read by more than this attention: it leaves as {names}", path[-1])
    for node in path:
        for output in node.outputs:
            readers = (reader for reader in graphs.consumers_of(output) if reader not in moved and reader not in path)
            others = [reader for reader in readers if not graphs.is_op(reader, "Shape")]
            if (others and output is not operand) or len(others) > 1:
                raise _NotFoundError(f"{output.name} is read by more than this attention", node)


def _output(context: ir.Node) -> ir.Node:
    """Return the output projection, reached through nodes that only move entries."""
    node = context
    while True:
        readers = graphs.consumers_of(node.outputs[0])
        if len(readers) != 1 or node.outputs[0].is_graph_output():
            raise _NotFoundError("the result is read by more than a projection", node)
        (node,) = readers
        if _is_projection(node):
            return node
        if not graphs.is_op(node, "Transpose", "Reshape", "Identity", "Cast", "Flatten", "Squeeze", "Unsqueeze"):
            raise _NotFoundError(f"expected a projection behind, got {node.op_type}", node)
