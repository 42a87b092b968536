"""Chooses the nodes that stay in float32, from the graph and its measured magnitudes and rounding noise.

A node is of one type: all operands and results that its operator allows in half precision have it. Inputs, outputs and
states are choosable, too: data keep the caller's float32, a state has one type where it goes in and where it comes out.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from compiler.base.records.precision import Pin
from compiler.calib.magnitudes import HALF_MAX
from compiler.graph import model as graphs
from compiler.graph.operator_costs import Rates, bytes_of, multiply_adds
from compiler.graph.operators.attributes import schema_of
from compiler.graph.operators.traits import MAKING
from compiler.graph.stages import Lowered
from compiler.numerics.precision.cut import Carried, Choosable, choose_float32
from compiler.numerics.precision.pin_patterns import pinned_by

STATE, DATA = "state ", "data "
"""Begin the names of choosable things that are no nodes."""

LARGEST = {ir.DataType.FLOAT16: HALF_MAX, ir.DataType.BFLOAT16: float(2**128 - 2**120)}

MOST_LEVELS = 255
"""Steps between a zero point and the farthest 8-bit number."""

SMALLEST_NORMAL = {ir.DataType.FLOAT16: 2.0**-14, ir.DataType.BFLOAT16: 2.0**-126}


@dataclasses.dataclass(frozen=True)
class Operands:
    """Which operands and results of a node follow its type.

    Attributes:
        inputs: positions.
        outputs: positions.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


SPECTRA = frozenset({"DFT", "STFT"})
"""The standard has them in half precision, and ONNX Runtime, for one, casts around them: it has no such kernel."""


def typed_operands(node: ir.Node, kind: ir.DataType) -> Operands | None:
    """Return the float32 inputs and outputs of a node that may have another type, None where one may not."""
    inputs = [i for i, value in enumerate(node.inputs) if value is not None and value.dtype == ir.DataType.FLOAT]
    outputs = [i for i, value in enumerate(node.outputs) if value.dtype == ir.DataType.FLOAT]
    if graphs.is_op(node, "Cast"):
        return Operands(tuple(inputs), tuple(outputs))
    if graphs.is_op(node, *SPECTRA):
        return None
    schema = schema_of(node)
    if schema is None:
        return None
    half = f"tensor({kind.name.lower()})"
    allowed = {constraint.type_param_str: set(constraint.allowed_type_strs) for constraint in schema.type_constraints}
    for sides, positions in ((schema.inputs, inputs), (schema.outputs, outputs)):
        for position in positions:
            formal = sides[min(position, len(sides) - 1)]
            if half not in allowed.get(formal.type_str, {formal.type_str}):
                return None
    made_of_attribute = graphs.is_op(node, *MAKING) or "dtype" in node.attributes
    return None if made_of_attribute else Operands(tuple(inputs), tuple(outputs))


@dataclasses.dataclass(frozen=True)
class Plan:
    """A choice and its reasons.

    Attributes:
        float32: nodes and states that stay in float32, by name.
        noise: predicted share of noise of the values in half precision.
        pins: one record per node that stays.
    """

    float32: frozenset[str]
    noise: float
    pins: tuple[Pin, ...]


class Planner:
    """The network of one graph.

    Args:
        lowered: the graph in float32.
        kind: FLOAT16 or BFLOAT16.
        magnitudes: largest magnitude by value name.
        noise: share of noise by node name.
        headroom: how many times larger than measured a value may become.
        patterns: the user's pins.

    Raises:
        RecipeError: a pattern fits no node.
    """

    def __init__(
        self,
        lowered: Lowered,
        kind: ir.DataType,
        magnitudes: Mapping[str, float],
        noise: Mapping[str, float],
        headroom: float,
        patterns: Sequence[str] = (),
    ) -> None:
        self.lowered, self.kind, self.magnitudes, self.noise = lowered, kind, magnitudes, noise
        self.limit = LARGEST[kind] / headroom
        self.graph_nodes = {str(node.name): node for node in lowered.model.graph if touches_float(node)}
        self.reasons: dict[str, Pin] = {}
        self.named = pinned_by(list(self.graph_nodes.values()), patterns, "float32")
        for node in self.graph_nodes.values():
            reason = self._reason(node)
            if reason is not None:
                self.reasons[str(node.name)] = reason
        self.values = list(self._values())
        self.choosable = self._choosable()

    def plan(self, budget: float) -> Plan:
        """Return the cheapest plan whose predicted noise is within the budget, a share of the signal's power."""
        free = self._choice(0.0)
        if self.predicted(free) <= budget:
            return self._with_pins(free)
        low, high = 0, 100  # weight is 2 ** exponent: a picosecond per share of noise, up to more than everything
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.predicted(self._choice(2.0**middle)) <= budget else (middle, high)
        return self._with_pins(self._choice(2.0**high))

    def predicted(self, float32: frozenset[str]) -> float:
        """Return the predicted share of noise of all nodes outside the set."""
        return sum(share for name, share in self.noise.items() if name not in float32 and name in self.graph_nodes)

    def _choice(self, weight: float) -> frozenset[str]:
        return choose_float32(self.choosable, self.values, weight)

    def _with_pins(self, float32: frozenset[str]) -> Plan:
        pins = [self.reasons.get(name) or self._unforced(node) for name, node in self.graph_nodes.items()
                if name in float32]  # fmt: skip
        return Plan(float32, self.predicted(float32), tuple(pins))

    def _unforced(self, node: ir.Node) -> Pin:
        share = self.noise.get(str(node.name), 0.0)
        typed = typed_operands(node, self.kind)
        if typed is None:
            reason = f"{node.op_type} has no form in {self.kind.name.lower()}"
        elif share > 0.0:
            reason = "its rounding costs more than its time, or it lies between such nodes"
        else:
            reason = "it lies between nodes in float32: casts would cost more"
        return self._pin(node, reason, value=share or None)

    def _reason(self, node: ir.Node) -> Pin | None:
        """Return why a node must stay in float32, None where it need not."""
        if str(node.name) in self.named:
            return self._pin(node, f"asked for by {self.named[str(node.name)]!r}")
        if typed_operands(node, self.kind) is None:
            return self._pin(node, f"{node.op_type} has no form in {self.kind.name.lower()}")
        for value in (*node.outputs, *node.inputs):
            magnitude = None if value is None else self._overflow(value, node)
            if value is not None and magnitude is not None:
                side = "gives" if value in node.outputs else "reads"
                limit = f"{self.limit:.6g}"
                return self._pin(
                    node, f"{side} {value.name}, which reaches {magnitude:.6g}, above {limit}", value, magnitude
                )
        if graphs.is_op(node, "DequantizeLinear", "QuantizeLinear"):
            scale = graphs.array_of(node.inputs[1])
            if scale is not None and scale.min() < SMALLEST_NORMAL[self.kind]:
                smallest = float(scale.min())
                return self._pin(node, f"its smallest scale, {smallest:.3g}, would lose bits", node.inputs[1], smallest)
        return None

    def _overflow(self, value: ir.Value, node: ir.Node) -> float | None:
        """Return the largest magnitude of a value if half precision cannot hold it, else None."""
        if value.dtype != ir.DataType.FLOAT:
            return None
        array = graphs.array_of(value)
        if array is None:
            size = self.magnitudes.get(str(value.name), _largest_dequantized(value))
        elif graphs.is_op(node, "Where") and array.size == 1:
            return None  # a mask's fill: written as the lowest number of the type
        else:
            size = float(abs(array).max(initial=0.0))
            return size if size > LARGEST[self.kind] else None
        return size if size > self.limit else None

    def _pin(self, node: ir.Node, reason: str, tensor: ir.Value | None = None, value: float | None = None) -> Pin:
        name = "" if tensor is None else str(tensor.name)
        cost = self._gain(node) / 1e6
        return Pin(str(node.name), node.op_type, reason, name, value, graphs.source_of(node), cost, "us")

    def _gain(self, node: ir.Node) -> int:
        """Return the picoseconds that half precision saves: half of the arithmetic and of the bytes, with weights."""
        moved = bytes_of([*node.inputs, *node.outputs], {})
        return max(Rates().picoseconds(multiply_adds(node, {}), moved) // 2, 1)

    def _choosable(self) -> dict[str, Choosable]:
        choosables = {
            name: Choosable(
                self._gain(node),
                self.noise.get(name, 0.0),
                pinned=name in self.reasons,
            )
            for name, node in self.graph_nodes.items()
        }
        overflowing = {str(value.name) for value in self._interface() if self._over_limit(value)}
        for state in self.lowered.states:
            choosables[STATE + state.input] = Choosable(1, pinned=bool({state.input, state.output} & overflowing))
        for name in self._data_names():
            choosables[DATA + name] = Choosable(0, pinned=True)
        return choosables

    def _over_limit(self, value: ir.Value) -> bool:
        return self.magnitudes.get(str(value.name), 0.0) > self.limit

    def _interface(self) -> list[ir.Value]:
        graph = self.lowered.model.graph
        return [value for value in (*graph.inputs, *graph.outputs) if value.dtype == ir.DataType.FLOAT]

    def _data_names(self) -> list[str]:
        states = {name for state in self.lowered.states for name in (state.input, state.output)}
        return [str(value.name) for value in self._interface() if value.name not in states]

    def _values(self) -> Iterator[Carried]:
        """Yield every float32 value with its producer and consumers; constants cost nothing in either type."""
        graph = self.lowered.model.graph
        by_input = {state.input: STATE + state.input for state in self.lowered.states}
        by_output = {state.output: STATE + state.input for state in self.lowered.states}
        computed = (output for node in self.graph_nodes.values() for output in node.outputs)
        for value in (*graph.inputs, *computed):
            if value.dtype != ir.DataType.FLOAT:
                continue
            name = str(value.name)
            producer = value.producer()
            maker = by_input.get(name, DATA + name) if producer is None else str(producer.name)
            readers = [str(node.name) for node in graphs.consumers_of(value)]
            if value.is_graph_output():
                readers.append(by_output.get(name, DATA + name))
            if readers:
                yield Carried(maker, tuple(readers), Rates().picoseconds(0, bytes_of([value], {}) * 3 // 2))


def _largest_dequantized(value: ir.Value) -> float:
    """Return the largest magnitude that a DequantizeLinear can produce; 0.0 for other values."""
    node = value.producer()
    scale = graphs.array_of(node.inputs[1]) if node is not None and graphs.is_op(node, "DequantizeLinear") else None
    return 0.0 if scale is None else MOST_LEVELS * float(scale.max())


def touches_float(node: ir.Node) -> bool:
    """Whether a node has a float32 input or output."""
    return any(value is not None and value.dtype == ir.DataType.FLOAT for value in (*node.inputs, *node.outputs))
