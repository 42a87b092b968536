"""Functions over onnx_ir that all passes and analyses share."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common
import onnx_shape_inference
import sympy

from compiler.pieces import flat
from compiler.sizes import inference
from compiler.sizes.expressions import Dim as Dim
from compiler.sizes.expressions import expression as expression
from compiler.sizes.expressions import mentions as mentions
from compiler.sizes.expressions import normal_form as normal_form
from compiler.sizes.expressions import symbol as symbol
from compiler.sizes.expressions import written as written

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
    """The constant value of an initializer or Constant node output, or None."""
    if value is None:
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def dims_of(value: ir.Value) -> tuple[Dim, ...] | None:
    """The shape of a value as integers and SymPy expressions over axis names, or None when its rank is unknown."""
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
    """The elements of a small integer value, where known from constants or from symbolic shape arithmetic."""
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
    """Write symbolic shapes on every value, and symbolic contents on every integer shape value, in place."""
    for node in model.graph:
        for output in node.outputs:
            output.metadata_props.pop(SYM_DATA, None)
    inference.infer(model)


def forget_shapes(model: ir.Model) -> None:
    """Drop the inferred shapes of all node outputs, so that new input shapes spread through the graph."""
    for node in model.graph:
        for output in node.outputs:
            output.shape = None


def fold_sizes(model: ir.Model) -> int:
    """Write sizes that shape inference knows as numbers, and ranges over them, as constants; how many.

    Exact; for graphs whose axes have just been frozen.
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
    """The integers that a node computes from fixed sizes."""
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
    """The model's source line of a node, or an empty string."""
    return "" if node is None else node.metadata_props.get(SOURCE_KEY, "")


def scope_of(node: ir.Node | None) -> str:
    """The module of the model that a node comes from, as in `layers.0.attention`, or an empty string."""
    found = re.match(r"\S+ in \S+ of (\S+): ", source_of(node))
    return "" if found is None else found[1]


def attribute(node: ir.Node, name: str, default: object = None) -> object:
    """An attribute's plain value, or the default when it is absent."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def int_attribute(node: ir.Node, name: str, default: int) -> int:
    """An integer attribute."""
    found = attribute(node, name, default)
    assert isinstance(found, int)
    return found


def ints_attribute(node: ir.Node, name: str) -> tuple[int, ...]:
    """An integer-list attribute; empty when absent."""
    found = attribute(node, name, ())
    assert isinstance(found, Sequence)
    return tuple(int(x) for x in found)


def dims_read(node: ir.Node, rank: int) -> tuple[int, ...]:
    """The dimensions that a Shape node reads of an operand of this rank."""
    end = attribute(node, "end")
    return tuple(range(rank)[int_attribute(node, "start", 0) : end if isinstance(end, int) else None])


def consumers_of(value: ir.Value) -> list[ir.Node]:
    """The nodes that read a value, each once, in graph order of their uses."""
    return list(dict.fromkeys(use.node for use in value.uses()))


def only_reader(value: ir.Value) -> ir.Node | None:
    """The node that reads a value, if it is read once and is not given out."""
    uses = tuple(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def makers_of(values: Iterable[ir.Value]) -> set[ir.Node]:
    """The nodes that some values are computed by, and those that these need, their bodies too."""
    makers, pending = set[ir.Node](), list(values)
    while pending:
        node = pending.pop().producer()
        if node is not None and node not in makers:
            makers.add(node)
            pending += [each for each in (*node.inputs, *read_inside(node)) if each is not None]
    return makers


def outputs_named(model: ir.Model) -> dict[str, ir.Value]:
    """Graph outputs by name."""
    return {str(value.name): value for value in model.graph.outputs}


def inputs_named(model: ir.Model) -> dict[str, ir.Value]:
    """Graph inputs by name."""
    return {str(value.name): value for value in model.graph.inputs}


def nodes_of(model: ir.Model) -> Iterator[ir.Node]:
    """The nodes of the main graph, in order."""
    return iter(list(model.graph))


def bodies_of(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs inside a node, as loops and branches have them, and those inside of these."""
    for held in node.attributes.values():
        graphs = [held.value] if held.type == ir.AttributeType.GRAPH else []
        for body in held.value if held.type == ir.AttributeType.GRAPHS else graphs:
            yield body
            for inner in body:
                yield from bodies_of(inner)


def has_body(node: ir.Node) -> bool:
    """Whether a node is a loop or a branch, or holds a graph for another reason."""
    return next(bodies_of(node), None) is not None


def read_inside(node: ir.Node) -> list[ir.Value]:
    """Values of the graph around a node that its bodies read, each once; they need not be among its inputs."""
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
        """Adds nodes right behind what makes a value; in front of all nodes where none makes it."""
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
        """Insert one node with one output called `name` (made unique) and return that output.

        Where no type is stated it is that of the first operand, or what a Cast gives.
        """
        unique = fresh_name(self.graph, name)
        output = ir.Value(name=unique, shape=None if shape is None else ir.Shape(list(shape)))
        given = inputs[0].dtype if inputs and inputs[0] is not None else None
        to = (attributes or {}).get("to") if op_type == "Cast" else None
        kept = dtype or (ir.DataType(to) if isinstance(to, int) else given)
        if kept is not None:
            output.dtype = kept
        node = ir.node(op_type, inputs, attributes or {}, outputs=[output], name=f"{unique}_node")
        self.place(node)
        return output

    def place(self, node: ir.Node) -> None:
        """Insert a ready node."""
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
        """An initializer with this content; one that already holds the same content under this stem is shared."""
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
        """A 1-D int64 constant."""
        return self.integers(ir.DataType.INT64, numbers)

    def integers(self, dtype: ir.DataType, numbers: Iterable[int]) -> ir.Value:
        """A 1-D constant of whole numbers."""
        return self.constant(np.array(list(numbers), dtype.numpy()), f"{dtype.name.lower()}s")


def fresh_name(graph: ir.Graph, stem: str) -> str:
    """`stem`, or `stem_2`, `stem_3`, ... when a value of that name exists."""
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
    """The value names of a graph, kept with the graph and grown by `fresh_name`; names of removed values stay taken.

    So do those after which a node is named whose value has another name by now.
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
    """Let `fresh_name` look at the graph anew: names were given by others, or those of removed values are free."""
    graph.meta.pop(NAMES_KEY, None)


def prune(model: ir.Model) -> int:
    """Remove nodes and initializers that nothing reads; the number of removed nodes.

    What the bodies of such a node read is read by them no longer.
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
    """An independent copy; weight arrays are shared, structure is not."""
    copy = model.clone()
    recount_names(copy.graph)  # the copy grows names of its own
    return copy


def serialized(model: ir.Model) -> bytes:
    """The model as one ONNX protobuf, weights inside; deterministic."""
    return bytes(ir.serde.serialize_model(model).SerializeToString(deterministic=True))


def take_over(model: ir.Model, old: ir.Value, new: ir.Value, *, except_in: Iterable[ir.Node] = ()) -> None:
    """Let everything that reads `old` read `new`, but the given nodes; a graph output keeps its name."""
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
