"""Defines the records of the TensorRT linter: rules, the device limits they check, and the violations they return."""

import dataclasses
from collections.abc import Callable, Iterator

import onnx_ir as ir

from compiler.errors import Location
from compiler.graph.model import source_of


@dataclasses.dataclass(frozen=True)
class DeviceLimits:
    """The limits of the device that the engine is built for.

    Attributes:
        capability: CUDA compute capability of the device, e.g. (7, 5).
        opset: the largest version of the default domain that the parser takes.
        open_axis: axis of rows for which the engine has a profile per bucket; None where every size is a number.
    """

    capability: tuple[int, int]
    opset: int
    open_axis: str | None = None

    @property
    def device(self) -> str:
        """Return the device's name in messages, e.g. `sm_75`."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


@dataclasses.dataclass(frozen=True)
class Violation:
    """One place where a graph breaks a rule.

    Attributes:
        rule: name of the rule.
        message: `expected <E>, got <G>`.
        cure: what to do about it.
        place: node, operator, tensor and source line.
    """

    rule: str
    message: str
    cure: str
    place: Location

    def __str__(self) -> str:
        where = str(self.place)
        return f"[{self.rule}] {f'{where}: ' if where else ''}{self.message}; {self.cure}"


@dataclasses.dataclass(frozen=True)
class Breach:
    """A violation as a rule yields it, before the rule's name and the node's place are added."""

    message: str
    cure: str
    node: ir.Node | None = None
    tensor: ir.Value | None = None

    def named(self, rule: str) -> Violation:
        """Return the breach as a violation of a rule."""
        node, value = self.node, self.tensor
        place = Location(
            node=str(node.name or node.outputs[0].name) if node is not None else "",
            op=node.op_type if node is not None else "",
            tensor=str(value.name) if value is not None else "",
            source=source_of(node),
        )
        return Violation(rule, self.message, self.cure, place)


Check = Callable[[ir.Model, DeviceLimits], Iterator[Breach]]


@dataclasses.dataclass(frozen=True)
class Rule:
    """A name and a check over a whole graph; checks are independent of each other."""

    name: str
    check: Check


def every_node(model: ir.Model) -> Iterator[ir.Node]:
    """Return the nodes of a graph, including those in loops and branches."""
    return iter(list(ir.traversal.RecursiveGraphIterator(model.graph)))


def is_inner(model: ir.Model, node: ir.Node) -> bool:
    """Whether a node lies inside a loop or a branch."""
    return node.graph is not model.graph
