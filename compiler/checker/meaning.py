"""Checks that the original runs at the shortest certified lengths and that values computed from lengths are finite."""

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import AttributeProto, NodeProto

from compiler.checker.graph import Array, DoesNotRun, Graph, Rejected
from compiler.checker.slots import ones_of

READ_SHAPES = ("Shape", "Size")

PARTIAL = (
    "Acos", "Acosh", "Asin", "Atanh", "Div", "Log", "Mod", "Pow", "Reciprocal", "ReduceLogSum", "Sqrt",
)  # fmt: skip
"""Operators that have no finite value for some numbers."""

DIVIDING = ("Div", "Mod")

Row = Mapping[str, int]
"""Length per axis."""


def require_meaning(graph: Graph, short: Row, *long: Row) -> None:
    """Run every computation that depends on lengths alone, unpadded.

    Args:
        graph: the graph before padding.
        short: the shortest lengths that are certified.
        long: longer ones: a number that is the same at all of them is no position of the only frame. With strides, one
            entry more is often no frame more.

    Raises:
        Rejected: a computation does not run, divides by 0 or is not finite.
    """
    names = _of_lengths(graph)
    try:
        numbers_of = _run(graph, names, short)
        _run(graph, _copied(graph, numbers_of), short)
    except Exception as error:  # noqa: BLE001 - whatever stops the original refutes the shortest lengths
        raise Rejected(f"the original does not run at the shortest lengths {dict(short)}: {str(error)[:200]}") from None
    longer = []
    for row in long:
        with contextlib.suppress(DoesNotRun):  # tables may end there
            longer.append(_run(graph, names, row))
    if not longer:
        return
    numbers = {
        name: array
        for name, array in numbers_of.items()
        if array.size == 1 and all(longer_numbers[name].size == 1 for longer_numbers in longer)
    }
    for node in graph.nodes.values():
        divisor = numbers.get(node.input[1]) if node.op_type in DIVIDING else None
        number = numbers.get(node.output[0]) if node.op_type in PARTIAL else None
        is_lost = number is not None and not np.isfinite(number).all() and _reads_finite(graph, node, numbers_of)
        if is_lost or (divisor is not None and not divisor.all()):
            raise Rejected(f"node {node.name!r} has no finite value at the shortest lengths {dict(short)}")


def _reads_finite(graph: Graph, node: NodeProto, found: Mapping[str, Array]) -> bool:
    """Whether all inputs of a node are finite, so that the node itself caused a non-finite result."""
    others = {name: graph.part([name], {}) for name in node.input if name and name not in found}
    fixed = {name: part.run({})[0] for name, part in others.items() if not part.sources}
    return all(np.isfinite({**found, **fixed}.get(name, 0)).all() for name in node.input)


def _of_lengths(graph: Graph) -> list[str]:
    """Return the values that depend on shapes and constants alone, and not on fixed shapes only."""
    fixed, moving = set(graph.initializers), dict[str, None]()
    for node in graph.nodes.values():
        read = [name for name in node.input if name]
        if node.op_type in READ_SHAPES and _reads_fixed_sizes(graph, node):
            fixed.update(node.output)
        elif node.op_type in READ_SHAPES:
            moving |= dict.fromkeys(node.output)
        elif any(attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for attribute in node.attribute):
            continue
        elif all(name in fixed for name in read):
            fixed.update(node.output)
        elif all(name in fixed or name in moving for name in read):
            moving |= dict.fromkeys(name for name in node.output if name)
    return list(moving)


def _reads_fixed_sizes(graph: Graph, node: NodeProto) -> bool:
    """Whether Shape or Size reads fixed sizes only, so that short inputs do not affect it."""
    known = graph.types.get(node.input[0])
    if known is None or not known.tensor_type.HasField("shape"):
        return False
    ends = {each.name: each.i for each in node.attribute}
    dims = list(known.tensor_type.shape.dim)[ends.get("start") : ends.get("end")]
    return all(dim.HasField("dim_value") for dim in dims)


def _copied(graph: Graph, numbers: Mapping[str, Array]) -> list[str]:
    """Return the outputs of Reshape whose computed sizes contain 0, which would copy the operand's size."""
    reshapes = [node for node in graph.nodes.values() if node.op_type == "Reshape" and node.input[1] in numbers]
    return [node.output[0] for node in reshapes if not numbers[node.input[1]].all()]


def _run(graph: Graph, names: Sequence[str], row: Row) -> dict[str, Array]:
    """Return the values at lengths; of the inputs only shapes matter."""
    if not names:
        return {}
    part = graph.part(names, {})
    feeds = {name: ones_of(graph.dims(name), kind, row) for name, kind in part.sources.items()}
    return dict(zip(names, part.run(feeds), strict=True))
