"""Checks that the layers of an engine compute in the types that the graph asks for.

    a product of two dequantised operands             int8
    another product or convolution                    the type of its result
    another node in float32, beside nodes in half     float32

An engine may fuse nodes, and a kernel shows types only at its border: its types inside are known of products by their
operands, and of other nodes by whether the type can be there at all. More than was asked for is no breach: sums and
norms are computed in float32 in many kernels.
"""

import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.traits import CASTS, MAKING, MOVING, PRODUCTS
from compiler.targets.base import EngineLayer

INTEGER, FLOAT = "int8", "float32"

HALVES = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})

REAL = HALVES | {ir.DataType.FLOAT}


@dataclasses.dataclass(frozen=True)
class Planned:
    """A node whose type is planned.

    Attributes:
        node: its name, as parsers call it.
        op: its operator.
        type: the number type that it has to compute in, by NumPy's name.
        is_product: whether it is a product or a convolution.
        has_weights: whether one of the factors is stored.
        source: the model's source line, or an empty string.
    """

    node: str
    op: str
    type: str
    is_product: bool
    has_weights: bool = False
    source: str = ""


class Kept(enum.Enum):
    """The types of a planned node in the layers of an engine."""

    YES = "computes as planned"
    NO = "computes in another type"
    INSIDE = "lies inside a kernel that does not show it"
    NOWHERE = "is named by no layer that could compute it"


@dataclasses.dataclass(frozen=True)
class Audited:
    """A planned node in an engine; `types` are those that its layers show, `layers` their names."""

    planned: Planned
    kept: Kept
    types: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = f" in {' or '.join(self.types)}" if self.types else ""
        return f"{self.planned.node} ({self.planned.op}){shown}"


def planned_nodes(model: ir.Model) -> tuple[Planned, ...]:
    """Return the nodes of the main graph whose type is planned, in order."""
    nodes = list(graphs.nodes_of(model))
    has_halves = any(node.outputs and node.outputs[0].dtype in HALVES for node in nodes)
    return tuple(planned for node in nodes if (planned := _planned(node, has_halves=has_halves)) is not None)


def _planned(node: ir.Node, *, has_halves: bool) -> Planned | None:
    result = node.outputs[0]
    if result.dtype not in REAL or node.domain not in ("", "ai.onnx"):
        return None
    name = str(node.name or f"node_of_{result.name}")
    source = graphs.source_of(node)
    if node.op_type in PRODUCTS:
        factors = [_stored_behind(value) for value in node.inputs[:2]]
        is_integer = all(graphs.is_op(_maker(value), "DequantizeLinear") for value in node.inputs[:2])
        kind = INTEGER if is_integer else result.dtype.numpy().name
        return Planned(name, node.op_type, kind, is_product=True, has_weights=any(factors), source=source)
    is_pinned = has_halves and result.dtype == ir.DataType.FLOAT and node.op_type not in _TYPELESS
    return Planned(name, node.op_type, FLOAT, is_product=False, source=source) if is_pinned else None


_TYPELESS = MOVING | CASTS | MAKING | {"DequantizeLinear", "QuantizeLinear"}
"""What computes nothing, or goes from one type to another."""


def _maker(value: ir.Value | None) -> ir.Node | None:
    return None if value is None else value.producer()


def _stored_behind(value: ir.Value | None) -> bool:
    """Whether a factor is a constant, or dequantized from one."""
    maker = _maker(value)
    if maker is not None and graphs.is_op(maker, "DequantizeLinear"):
        return graphs.array_of(maker.inputs[0]) is not None
    return graphs.array_of(value) is not None


def audit(plan: Sequence[Planned], layers: Sequence[EngineLayer]) -> tuple[Audited, ...]:
    """Return every planned node, with the types that the engine's layers show for it."""
    by_node: dict[str, list[EngineLayer]] = {}
    for layer in layers:
        for node in layer.nodes:
            by_node.setdefault(node, []).append(layer)
    weighted = frozenset(each.node for each in plan if each.has_weights)
    return tuple(_audited(each, by_node.get(each.node, ()), weighted) for each in plan)


def _audited(planned: Planned, layers: Sequence[EngineLayer], weighted: frozenset[str]) -> Audited:
    if planned.is_product:
        hides = any(layer.converts for layer in layers)
        layers = [layer for layer in layers if layer.multiplies]
        if not layers:
            return Audited(planned, Kept.INSIDE if hides else Kept.NOWHERE)
        possible = [_types_of_product(planned, layer, len(layer.nodes & weighted)) for layer in layers]
        seen = tuple(sorted({kind for kinds in possible for kind in kinds}))
        state = Kept.YES if all(planned.type in kinds for kinds in possible) else Kept.NO
    else:
        seen = tuple(sorted({kind for layer in layers for kind in layer.shown if kind in _COMPUTING}))
        could_be_inside = any(layer.converts for layer in layers)
        state = Kept.YES if planned.type in seen else Kept.INSIDE if could_be_inside else Kept.NO
    names = tuple(layer.name for layer in layers)
    return Audited(planned, state, seen, names) if layers else Audited(planned, Kept.NOWHERE)


_COMPUTING = frozenset({"bfloat16", "float16", "float32", "int8"})
"""Types that products and sums of real numbers are computed in."""


def _types_of_product(planned: Planned, layer: EngineLayer, products_with_weights: int) -> frozenset[str]:
    """Return the types that a product may be computed in, from the types of its layer's factors.

    The largest constants of a layer are the weights of its products; a constant factor that is stored in integers makes
    an integer product only where the other factor comes in integers, too.
    """
    read_types = layer.reads & _COMPUTING
    weights = frozenset(layer.holds[: max(products_with_weights, 1)]) if planned.has_weights else frozenset()
    if not weights:
        return read_types
    if INTEGER in weights and INTEGER not in read_types:
        return (weights | read_types) - {INTEGER}
    return weights


def counts(audited: Sequence[Audited]) -> Mapping[str, Mapping[Kept, int]]:
    """Return, for each planned type, the number of nodes by how they kept it."""
    found: dict[str, dict[Kept, int]] = {}
    for each in audited:
        of_type = found.setdefault(each.planned.type, dict.fromkeys(Kept, 0))
        of_type[each.kept] += 1
    return found


def broken(audited: Sequence[Audited]) -> Iterator[Audited]:
    """Return the nodes that compute in another type than planned."""
    return (each for each in audited if each.kept is Kept.NO)
