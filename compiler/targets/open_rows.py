"""Leaves the batch axis of a graph symbolic, so that one file, with one copy of the weights, serves every batch size.

Every other dimension is a number. Nothing computes a size at run time: a Reshape copies the rows (0) or infers one
dimension (-1), and whatever else would need their number closes the axis again. That the file is the graph of every
bucket is shown by inferring its shapes anew at each.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.spec import check_static
from compiler.graph.stages import Lowered
from compiler.passes.canonicalize_reshapes import CanonicalizeReshapes
from compiler.passes.simplify import simplify_model

SIZE_READERS = ("Shape", "Size")
"""What gives the number of rows to other nodes."""


def open_rows(lowered: Lowered, rows: Sequence[int]) -> Lowered:
    """Return a graph whose other axes are frozen as one that is legal at every number of rows.

    Args:
        lowered: the graph, which is changed in place.
        rows: the buckets of its batch axis.

    Raises:
        Refused: a node needs the number of rows, or a size is wrong; the message names it.
    """
    model, axis = lowered.model, lowered.batch_axis
    assert axis is not None
    CanonicalizeReshapes().apply(dataclasses.replace(lowered, first_call=None))
    graphs.fold_sizes(model)
    simplify_model(model)
    graphs.infer_shapes(model)
    for node in graphs.nodes_of(model):
        if graphs.is_op(node, *SIZE_READERS):
            raise _refused(lowered, node, node.outputs[0], "it reads the number of rows")
    for maker, value in _values(model):
        _require_open(lowered, maker, value)
    for count in rows:
        _check_at(lowered, count)
    return lowered


def _require_open(lowered: Lowered, node: ir.Node | None, value: ir.Value) -> None:
    """Require that every dimension is fixed or depends on the number of rows; callers see that number itself."""
    symbol = graphs.symbol(str(lowered.batch_axis))
    seen = value.is_graph_input() or value.is_graph_output()
    for dim in graphs.dims_of(value) or (graphs.symbol("unknown rank"),):
        if isinstance(dim, int) or dim == symbol or (not seen and dim.free_symbols == {symbol}):
            continue
        raise _refused(lowered, node, value, f"it has shape {value.shape}")


def _check_at(lowered: Lowered, count: int) -> None:
    """Infer all shapes at a number of rows, and require that they match the open graph's."""
    copy = graphs.clone(lowered.model)
    for value in copy.graph.inputs:
        value.shape = ir.Shape([_at(lowered, dim, count) for dim in graphs.dims_of(value) or ()])
    graphs.forget_shapes(copy)
    for value in copy.graph.outputs:
        value.shape = None
    graphs.infer_shapes(copy)
    check_static(copy, lowered.graph)
    shapes = {value.name: graphs.dims_of(value) for _, value in _values(copy)}
    for node, value in _values(lowered.model):
        said = tuple(_at(lowered, dim, count) for dim in graphs.dims_of(value) or ())
        if shapes[value.name] != said:
            reason = f"at {count} rows it has shape {list(shapes[value.name] or ())}, not {list(said)}"
            raise _refused(lowered, node, value, reason)


def _at(lowered: Lowered, dim: Dim, count: int) -> int:
    return dim if isinstance(dim, int) else int(dim.subs({graphs.symbol(str(lowered.batch_axis)): count}))


def _values(model: ir.Model) -> Iterator[tuple[ir.Node | None, ir.Value]]:
    yield from ((None, value) for value in model.graph.inputs)
    yield from ((node, output) for node in model.graph for output in node.outputs)


def _refused(lowered: Lowered, node: ir.Node | None, value: ir.Value, reason: str) -> Refused:
    return Refused(
        f"one file for all numbers of rows needs nodes that do without it: {reason}",
        cure=f"nothing is lost but memory: every bucket of {lowered.batch_axis!r} has a file of its own",
        place=Location(
            stage="open rows",
            graph=lowered.graph,
            node=str(node.name) if node else "",
            op=node.op_type if node else "",
            tensor=str(value.name),
            source=graphs.source_of(node),
        ),
    )
