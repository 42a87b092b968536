"""Reads and edits onnx_ir graphs: shapes, constants, attributes, names, readers of values, and new nodes."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common
import onnx_shape_inference
import sympy

from compiler.base.pieces import flat
from compiler.graph.sizes import inference
from compiler.graph.sizes.expressions import Dim as Dim
from compiler.graph.sizes.expressions import expression as expression
from compiler.graph.sizes.expressions import mentions as mentions
from compiler.graph.sizes.expressions import normal_form as normal_form
from compiler.graph.sizes.expressions import symbol as symbol
from compiler.graph.sizes.expressions import written as written

SOURCE_KEY = "slipway.source"
"""Node metadata: the model's source line, written at capture and carried by every rewrite."""

PASS_KEY = "slipway.pass"
"""Node metadata: the pass that created the node."""

SYM_DATA = onnx_shape_inference.SYM_DATA_KEY
"""Value metadata: the contents of a small integer value as expressions."""

OLDEST_OPSET = 18
"""The operator set of what padding inserts: axes are inputs, Shape reads parts. Files of older ones are converted."""

END = np.iinfo(np.int64).max
"""Slice bound that means "to the end of the axis"."""


def is_op(node: ir.Node | None, *op_types: str) -> bool:
    """Whether `node` is one of the given default-domain operators."""
    return node is not None and node.domain in ("", "ai.onnx") and node.op_type in op_types


def array_of(value: ir.Value | None) -> np.ndarray | None:
    """Return the array of an initializer or a Constant node's output, else None."""
    if value is None:
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def dims_of(value: ir.Value) -> tuple[Dim, ...] | None:
    """Return a value's shape as integers and SymPy expressions over axis names, None where its rank is unknown."""
    if value.shape is None:
        return None
    return tuple(_dim(dim) for dim in value.shape)


def _dim(dim: int | ir.SymbolicDim) -> Dim:
    if isinstance(dim, int):
        return dim
    if dim.value is None:
        return sympy.Dummy("unknown", integer=True)
    return expression(dim.value)


def integers_of(value: ir.Value | None) -> tuple[Dim, ...] | None:
    """Return the elements of a small integer value known from constants or symbolic shape inference, else None."""
    if value is None:
        return None
    array = array_of(value)
    if array is not None:
        return tuple(int(x) for x in array.reshape(-1)) if np.issubdtype(array.dtype, np.integer) else None
    noted = value.metadata_props.get(SYM_DATA)
    if noted is None:
        return None
    return tuple(x if isinstance(x, int) else expression(x) for x in _json_list(noted))


def _json_list(text: str) -> list[int | str]:
    return list(json.loads(text))


def infer_shapes(model: ir.Model) -> None:
    """Write symbolic shapes for all values, and symbolic contents for integer shape values, in place."""
    for node in model.graph:
        for output in node.outputs:
            output.metadata_props.pop(SYM_DATA, None)
    inference.infer(model)


def forget_shapes(model: ir.Model) -> None:
    """Remove the inferred shapes of all node outputs, so that new input shapes are propagated."""
    for node in model.graph:
        for output in node.outputs:
            output.shape = None


def fold_sizes(model: ir.Model) -> int:
    """Replace sizes, and ranges of sizes, that shape inference knows as numbers by constants; return how many.

    The graph's results are unchanged. Useful after axes were fixed.
    """
    folded = 0
    for node in nodes_of(model):
        output = node.outputs[0]
        array = _known_array(node)
        if array is None or output.is_graph_output() or not output.uses():
            continue
        constant = Inserter(model, PASS_KEY, before=node).constant(array, "size")
        ir.convenience.replace_all_uses_with(output, constant)
        folded += 1
    prune(model)
    return folded


def _known_array(node: ir.Node) -> np.ndarray | None:
    """Return the integers that a node computes from fixed sizes, None where they are unknown."""
    output = node.outputs[0]
    if output.dtype is None or not output.dtype.is_integer() or node.op_type == "Constant":
        return None
    kind = output.dtype.numpy()
    if is_op(node, "Range"):
        bounds = [integers_of(value) for value in node.inputs]
        numbers = [bound[0] for bound in bounds if bound and isinstance(bound[0], int)]
        return np.arange(*numbers, dtype=kind) if len(numbers) == 3 else None
    known = integers_of(output) if SYM_DATA in output.metadata_props else None
    dims = dims_of(output)
    if known is None or dims is None or any(not isinstance(number, int) for number in known):
        return None
    sizes = [len(known)] if len(dims) == 1 else [dim for dim in dims if isinstance(dim, int)]
    return np.array(known, kind).reshape(sizes) if len(sizes) == len(dims) else None


def source_of(node: ir.Node | None) -> str:
    """Return the model's source line that a node comes from, or an empty string."""
    return "" if node is None else node.metadata_props.get(SOURCE_KEY, "")


def scope_of(node: ir.Node | None) -> str:
    """Return the model's module that a node comes from, e.g. `layers.0.attention`, or an empty string."""
    found = re.match(r"\S+ in \S+ of (\S+): ", source_of(node))
    return "" if found is None else found[1]


def attribute(node: ir.Node, name: str, default: object = None) -> object:
    """Return an attribute's value, or the default where it is absent."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def int_attribute(node: ir.Node, name: str, default: int) -> int:
    """Return an integer attribute, or the default where it is absent."""
    found = attribute(node, name, default)
    assert isinstance(found, int)
    return found


def ints_attribute(node: ir.Node, name: str) -> tuple[int, ...]:
    """Return a list of integers from an attribute; empty where it is absent."""
    found = attribute(node, name, ())
    assert isinstance(found, Sequence)
    return tuple(int(x) for x in found)


def dims_read(node: ir.Node, rank: int) -> tuple[int, ...]:
    """Return the axes whose sizes a Shape node returns, for an input of this rank."""
    end = attribute(node, "end")
    return tuple(range(rank)[int_attribute(node, "start", 0) : end if isinstance(end, int) else None])


def consumers_of(value: ir.Value) -> list[ir.Node]:
    """Return the nodes that read a value, each once, in order of use."""
    return list(dict.fromkeys(use.node for use in value.uses()))


def only_reader(value: ir.Value) -> ir.Node | None:
    """Return the node that reads a value, if there is one use only and the value is no graph output."""
    uses = tuple(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def makers_of(values: Iterable[ir.Value]) -> set[ir.Node]:
    """Return all nodes that some values are computed by, directly or indirectly, including what bodies read."""
    makers, pending = set[ir.Node](), list(values)
    while pending:
        node = pending.pop().producer()
        if node is not None and node not in makers:
            makers.add(node)
            pending += [each for each in (*node.inputs, *read_inside(node)) if each is not None]
    return makers


def contents_behind(values: Iterable[ir.Value | None]) -> set[str]:
    """Return the names of the graph inputs whose contents some values depend on; their sizes are no contents."""
    names, seen, waiting = set[str](), set[ir.Value](), list(values)
    while waiting:
        value = waiting.pop()
        if value is None or value in seen:
            continue
        seen.add(value)
        node = value.producer()
        if value.is_graph_input():
            names.add(str(value.name))
        elif node is not None and not is_op(node, "Shape", "Size"):
            waiting += [*node.inputs, *read_inside(node)]
    return names


def bias_behind(product: ir.Node) -> tuple[ir.Node, int] | None:
    """Return the Add that alone reads a product with constant weights and adds a constant with an entry per column.

    Returns:
        The Add, and which of its operands the constant is; None where there is no such.
    """
    weights, add = array_of(product.inputs[1]), only_reader(product.outputs[0])
    dims = dims_of(product.outputs[0])
    if weights is None or dims is None or add is None or not is_op(add, "Add"):
        return None
    width = weights.shape[-1:]
    for operand, value in enumerate(add.inputs):
        array = array_of(value)
        if array is not None and array.ndim <= len(dims) and array.shape[-1:] == width == (array.size,):
            return add, operand
    return None


def outputs_named(model: ir.Model) -> dict[str, ir.Value]:
    """Return the graph outputs by name."""
    return {str(value.name): value for value in model.graph.outputs}


def inputs_named(model: ir.Model) -> dict[str, ir.Value]:
    """Return the graph inputs by name."""
    return {str(value.name): value for value in model.graph.inputs}


def nodes_of(model: ir.Model) -> Iterator[ir.Node]:
    """Iterate over the nodes of the main graph, in order."""
    return iter(list(model.graph))


def bodies_of(node: ir.Node) -> Iterator[ir.Graph]:
    """Yield the subgraphs of a node, such as bodies of loops and branches, and the subgraphs nested in them."""
    for held in node.attributes.values():
        graphs = [held.value] if held.type == ir.AttributeType.GRAPH else []
        for body in held.value if held.type == ir.AttributeType.GRAPHS else graphs:
            yield body
            for inner in body:
                yield from bodies_of(inner)


def has_body(node: ir.Node) -> bool:
    """Whether a node has a subgraph, e.g. because it is a loop or a branch."""
    return next(bodies_of(node), None) is not None


def read_inside(node: ir.Node) -> list[ir.Value]:
    """Return the values of the enclosing graph that a node's bodies read, each once; they may not be its inputs."""
    bodies = list(bodies_of(node))
    nodes = [inner for body in bodies for inner in body]
    own = {output for inner in nodes for output in inner.outputs}
    own |= {value for body in bodies for value in (*body.inputs, *body.initializers.values())}
    read = (
        *(value for inner in nodes for value in inner.inputs),
        *(value for body in bodies for value in body.outputs),
    )
    return [value for value in dict.fromkeys(read) if value is not None and value not in own]


class Inserter:
    """Adds nodes and constants to a graph at one place, stamped with the pass that adds them.

    Args:
        model: the model to grow.
        stamp: name of the pass.
        before: node in front of which new nodes go.
        source: source line that new nodes carry; by default that of the node at the place.
        after: node behind which new nodes go, in place of `before`; without either they go to the end.
    """

    def __init__(
        self,
        model: ir.Model,
        stamp: str,
        before: ir.Node | None = None,
        source: str = "",
        *,
        after: ir.Node | None = None,
    ) -> None:
        self.graph = model.graph
        self.stamp = stamp
        self.before, self.after = before, after
        self.source = source or source_of(before or after)

    @classmethod
    def behind(cls, model: ir.Model, stamp: str, value: ir.Value) -> "Inserter":
        """Return an inserter that adds nodes after the producer of a value; before all nodes where there is none."""
        maker = value.producer()
        return cls(model, stamp, before=next(iter(model.graph), None) if maker is None else None, after=maker)

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, int | float | str | Sequence[int]] | None = None,
        *,
        name: str,
        shape: Iterable[int | str | ir.SymbolicDim] | None = None,
        dtype: ir.DataType | None = None,
    ) -> ir.Value:
        """Insert a node with one output, called `name` or a unique variant of it, and return that output.

        Without `dtype` the output has the type of the first input, or for Cast that of its attribute.
        """
        unique = fresh_name(self.graph, name)
        output = ir.Value(name=unique, shape=None if shape is None else ir.Shape(list(shape)))
        operand_type = inputs[0].dtype if inputs and inputs[0] is not None else None
        to = (attributes or {}).get("to") if op_type == "Cast" else None
        output_type = dtype or (ir.DataType(to) if isinstance(to, int) else operand_type)
        if output_type is not None:
            output.dtype = output_type
        node = ir.node(op_type, inputs, attributes or {}, outputs=[output], name=f"{unique}_node")
        self.place(node)
        return output

    def place(self, node: ir.Node) -> None:
        """Insert a finished node."""
        node.metadata_props[PASS_KEY] = self.stamp
        if self.source:
            node.metadata_props[SOURCE_KEY] = self.source
        place = self.before or self.after
        graph = self.graph if place is None or place.graph is None else place.graph  # it may be that of a body
        if self.before is not None:
            graph.insert_before(self.before, node)
        elif self.after is not None:
            graph.insert_after(self.after, node)
            self.after = node
        else:
            self.graph.append(node)

    def constant(self, array: np.ndarray, name: str) -> ir.Value:
        """Return an initializer with this content; one with the same content and name stem is reused."""
        hasher = hashlib.sha256(repr((array.dtype.str, array.shape)).encode())
        hasher.update(flat(array))
        unique = f"{name}_{hasher.hexdigest()[:8]}"
        existing = self.graph.initializers.get(unique)
        if existing is not None:
            return existing
        value = ir.Value(name=unique, const_value=ir.tensor(array, name=unique), shape=ir.Shape(array.shape))
        value.dtype = ir.DataType.from_numpy(array.dtype)
        self.graph.register_initializer(value)
        return value

    def int64s(self, *numbers: int) -> ir.Value:
        """Return a 1-D int64 constant."""
        return self.integers(ir.DataType.INT64, numbers)

    def integers(self, dtype: ir.DataType, numbers: Iterable[int]) -> ir.Value:
        """Return a 1-D integer constant."""
        return self.constant(np.array(list(numbers), dtype.numpy()), f"{dtype.name.lower()}s")


def fresh_name(graph: ir.Graph, stem: str) -> str:
    """Return `stem`, or `stem_2`, `stem_3`, ... where a value of that name exists."""
    taken = names_taken(graph)
    name, count = stem, 1
    while name in taken:
        count += 1
        name = f"{stem}_{count}"
    taken.add(name)
    return name


NAMES_KEY = "slipway.names"
"""Graph metadata of this process: the value names that `fresh_name` has seen."""


def names_taken(graph: ir.Graph) -> set[str]:
    """Return the value names of a graph, cached with the graph; names of removed values are included.

    The names that nodes were given after their values are included, too.
    """
    taken = graph.meta.get(NAMES_KEY)
    if not isinstance(taken, set):
        taken = {str(value.name) for value in graph.inputs} | set(graph.initializers)
        taken |= {str(output.name) for node in graph for output in node.outputs}
        taken |= {str(node.name).removesuffix("_node") for node in graph}
        for body in (body for node in graph for body in bodies_of(node)):  # no name may stand for two values there
            taken |= {str(value.name) for value in body.inputs} | set(body.initializers)
            taken |= {str(output.name) for node in body for output in node.outputs}
        graph.meta[NAMES_KEY] = taken
    return taken


def recount_names(graph: ir.Graph) -> None:
    """Let `fresh_name` count the graph's names anew, after other code has named or removed values."""
    graph.meta.pop(NAMES_KEY, None)


def prune(model: ir.Model) -> int:
    """Remove nodes and initializers whose results are unused; return the number of removed nodes.

    The bodies of a removed node no longer count as readers.
    """
    before = sum(1 for _ in model.graph)
    for node in reversed(model.graph):
        if not any(output.uses() or output.is_graph_output() for output in node.outputs):
            for body in reversed(list(bodies_of(node))):  # inner ones first: nodes that are read stay
                body.outputs.clear()
                body.remove(list(body), safe=True)
            model.graph.remove(node, safe=True)
    onnx_ir.passes.common.RemoveUnusedNodesPass()(model)
    return before - sum(1 for _ in model.graph)


def clone(model: ir.Model) -> ir.Model:
    """Return a copy of the model that shares only the arrays of weights."""
    copy = model.clone()
    recount_names(copy.graph)  # the copy grows names of its own
    return copy


def serialized(model: ir.Model) -> bytes:
    """Return the model as one ONNX protobuf with weights inside; the bytes are deterministic."""
    return bytes(ir.serde.serialize_model(model).SerializeToString(deterministic=True))


def take_over(model: ir.Model, old: ir.Value, new: ir.Value, *, except_in: Iterable[ir.Node] = ()) -> None:
    """Let all readers of `old` except the given nodes read `new`; a graph output keeps its name."""
    kept = set(except_in)
    for use in list(old.uses()):
        if use.node not in kept:
            use.node.replace_input_with(use.idx, new)
    outputs = list(model.graph.outputs)
    if old in outputs:
        name = str(old.name)
        old.name = fresh_name(model.graph, f"{name}_before")
        model.graph.outputs[outputs.index(old)] = new
        new.name = name
