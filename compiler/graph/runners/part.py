"""Runs the subgraph that computes some values, from the graph's inputs or from other values in their place.

Part(graph, [y])             runs every node that y depends on, and is fed the inputs of the graph that these read
Part(graph, [y], [sizes])    runs the nodes between sizes and y, and is fed sizes
"""

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.runners.session import Session, session_of
from compiler.graph.stages import Array


class Part:
    """The nodes between some values of a graph, as a graph of their own.

    Args:
        graph: the graph; it is not changed.
        values: values of that graph which are computed; names of results are theirs.
        given: values of that graph which are fed, whatever computes them in the graph.

    Attributes:
        inputs: the values that are fed, by name: the given ones, and the inputs of the graph that are read besides.
        model: the part, with names of the graph.
        names: names of the computed values, in their order.
    """

    def __init__(self, graph: ir.Graph, values: Sequence[ir.Value], given: Collection[ir.Value] = ()) -> None:
        read, known = _read(values, given)
        fed = (*given, *read)
        self.inputs = {str(value.name): value for value in fed}
        extracted = ir.convenience.extract(graph, [*fed, *known], list(dict.fromkeys(values)))
        self.model = ir.Model(extracted, ir_version=10)
        _fix(extracted, {str(value.name) for value in known})
        self.names = [str(value.name) for value in values]

    @functools.cached_property
    def session(self) -> Session:
        """Return the session that runs the part."""
        return session_of(self.model)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Return the values, in their order.

        Args:
            feeds: an array for each of `inputs`.

        Raises:
            Exception: ONNX Runtime does not run the part on these arrays, or does not know one of its nodes.
        """
        return self.session.run(self.names, dict(feeds))


def _read(values: Iterable[ir.Value], given: Collection[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
    """Return what some values are computed from besides the given ones and initializers.

    Returns:
        The inputs; and the computed values whose content is known, at which the way back ends: a size that is a number
        reads no input.
    """
    read, known = list[ir.Value](), list[ir.Value]()
    seen, waiting = set(given), list(values)
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        node = value.producer()
        if node is not None and graphs.array_of(value) is not None and node.op_type != "Constant":
            known.append(value)
        elif node is not None:
            waiting += [operand for operand in (*node.inputs, *graphs.read_inside(node)) if operand is not None]
        elif not value.is_initializer():
            read.append(value)
    return read, known


def _fix(graph: ir.Graph, names: Collection[str]) -> None:
    """Make initializers of the inputs whose content is known."""
    for value in [value for value in graph.inputs if value.name in names]:
        graph.inputs.remove(value)
        graph.register_initializer(value)
