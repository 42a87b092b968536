"""Stores a state in the integer codes to which all its readers quantise it, and quantises constants at build time.

Before:
    joined = Concat(Where(valid, cache, 0), x);  codes = QuantizeLinear(joined)       # every reader's grid
    next_cache = Slice(joined)  float32
After:
    joined = Concat(Where(valid, cache, code of 0), QuantizeLinear(x));  codes = joined
    next_cache = Slice(joined)  int8 or uint8
    codes = QuantizeLinear(Transpose(Gather(table, rows)))  ->  Transpose(Gather(table of codes, rows))

Requires: a quantised graph, in which nothing but moves lies between the state and the nodes that quantise it.
Ensures: such a state takes a quarter of the bytes, and only new frames are quantised; its initial value is the
    quantised former initial value.
Keeps: states that something reads in real numbers, or on two grids; states packed with such.
Numerics: exact in every output that is no state: a number is quantised on arrival to the same code as before at its
    readers, and moves commute with elementwise operators. The state itself is rounded to its grid.
Source: QuantizeLinear(Where(m, x, c)) = Where(m, QuantizeLinear(x), QuantizeLinear(c)), and so for every other move.
"""

import dataclasses
from collections.abc import Iterable
from typing import ClassVar

import onnx_ir as ir

from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.runners.coded_states import ALONG_AXES, Codes, grid_of, moved_by, same_grid
from compiler.graph.stages import Lowered, Outcome, Refusal, State
from compiler.passes.window_states import rename_output
from compiler.proof.propagation.rows_alone import prove_rows
from runtime_lite.format.initial_value import Initial, array_of_initial, initial_of_array


@dataclasses.dataclass(frozen=True)
class CarryCodes:
    """States and constants of codes."""

    name: ClassVar[str] = "carry_codes"
    lossy: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("merge_first_call",)
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Carry states as codes where all their readers quantize them; keep moved constants as codes."""
        model = lowered.model
        inputs, outputs = graphs.inputs_named(model), graphs.outputs_named(model)
        sources: list[tuple[ir.Value, State | None]] = [(inputs[state.input], state) for state in lowered.states]
        sources += [(value, None) for value in model.graph.initializers.values()]
        matched, rewritten, refused, coded = 0, 0, list[Refusal](), dict[str, State]()
        for value, state in sources:
            moved = _Moved(value) if value.dtype == ir.DataType.FLOAT else None
            if moved is None or not moved.quantised:
                continue
            matched += 1
            next_state = None if state is None else outputs[state.output]
            why = moved.hindrance(next_state)
            if why is not None:
                refused.append(why)
                continue
            if state is not None:
                coded[state.input] = dataclasses.replace(state, initial=_initial_codes(state, moved))
            _write(model, moved, next_state)
            rewritten += 1
        if rewritten:
            graphs.prune(model)
            graphs.infer_shapes(model)
        new = dataclasses.replace(lowered, states=tuple(coded.get(state.input, state) for state in lowered.states))
        proof = (prove_rows(new),) if rewritten and new.batch_axis is not None else ()
        detail = f"{len(coded)} states and {rewritten - len(coded)} constants" if rewritten else ""
        return Outcome(new, matched, rewritten, tuple(refused), records=proof, detail=detail)


class _Moved:
    """The values that moves alone make of a state or a constant, and their readers.

    Attributes:
        source: it.
        values: in which its entries lie, itself among them.
        moves: the nodes between them.
        quantised: nodes that quantise one of them.
        others: what reads one of them besides.
    """

    def __init__(self, source: ir.Value) -> None:
        self.source = source
        self.values, self.moves = [source], list[ir.Node]()
        self.quantised, self.others = list[ir.Node](), list[ir.Node]()
        for value in self.values:  # which grows
            for node in graphs.consumers_of(value):
                self._sort(node, value)

    def _sort(self, node: ir.Node, value: ir.Value) -> None:
        if _is_quantised(node, value):
            self.quantised.append(node)
        elif not self._is_moved(node, value):
            self.others.append(node)
        elif node not in self.moves:
            self.moves.append(node)
            self.values += node.outputs

    def _is_moved(self, node: ir.Node, value: ir.Value) -> bool:
        """Whether a node only moves a value, and joins no constant to a computed one."""
        moved = moved_by(node)
        alone = len(moved) == 1 or self.source.is_graph_input()
        return alone and value in moved and list(node.inputs).count(value) == moved.count(value)

    @property
    def grid(self) -> Codes:
        """Return the grid of the first node that quantizes the value."""
        found = grid_of(self.quantised[0])
        assert found is not None
        return found

    def hindrance(self, kept: ir.Value | None) -> Refusal | None:
        """Return the reason why the source cannot be stored as codes; None where it can.

        Args:
            kept: the value that is fed back to a state; None for a constant.
        """
        grids = [grid_of(node) for node in self.quantised]
        if any(grid is None for grid in grids):
            return _refusal(f"{self.source.name} is quantised on a grid that is computed", self.quantised)
        if self.others:
            return _refusal(f"{self.source.name} is read in real numbers", self.others)
        if any(grid is not None and not same_grid(grid, self.grid) for grid in grids):
            return _refusal(f"{self.source.name} is quantised on several grids", self.quantised[1:])
        shown = [value for value in self.values if value.is_graph_output() and value is not kept]
        if shown:
            return _refusal(f"{self.source.name} is given out as {shown[0].name}", self.moves)
        if self.grid.scales.ndim and not all(self._keeps_axis(node) for node in self.moves):
            return _refusal(f"{self.source.name} has a scale per entry of an axis that is moved", self.moves)
        return None

    def _keeps_axis(self, node: ir.Node) -> bool:
        """Whether a node leaves the axis of the scales in place and unchanged."""
        axis = self.grid.axis
        sizes = {str((graphs.dims_of(value) or ())[axis : axis + 1]) for value in (*moved_by(node), *node.outputs)}
        return graphs.is_op(node, *ALONG_AXES) and len(sizes) == 1


def _initial_codes(state: State, moved: _Moved) -> Initial:
    """Return the codes of a state's initial value."""
    numbers = array_of_initial(state.initial, "float32")
    if not numbers.ndim:  # as many axes as the state, so that scales along one of them find it
        numbers = numbers.reshape([1] * len(moved.source.shape or ()))
    return initial_of_array(moved.grid.codes(numbers))


def _refusal(reason: str, nodes: Iterable[ir.Node]) -> Refusal:
    node = next(iter(nodes))
    place = Location(node=str(node.name), op=node.op_type, source=graphs.source_of(node))
    return Refusal(reason, place)


def _write(model: ir.Model, moved: _Moved, kept: ir.Value | None) -> None:
    """Quantize values where they arrive, so that everything up to their readers holds codes."""
    old = moved.quantised[0]
    dtype = old.outputs[0].dtype
    assert dtype is not None
    for node in moved.moves:
        for arriving in moved_by(node):
            if arriving not in moved.values:
                codes = _quantised(model, arriving, old)
                for position, operand in enumerate(node.inputs):
                    if operand is arriving:
                        node.replace_input_with(position, codes)
    if kept is not None and kept not in moved.values:
        rename_output(model, kept, _quantised(model, kept, old), str(kept.name))
    if moved.source.is_initializer():
        _let_be_read(moved, _quantised(model, moved.source, old))
    for value in moved.values:
        value.type = ir.TensorType(dtype)  # of its own: values may share the record of their type
    for node in moved.quantised:
        (read,) = node.inputs[:1]
        assert read is not None
        graphs.take_over(model, node.outputs[0], read)


def _let_be_read(moved: _Moved, codes: ir.Value) -> None:
    """Make movements and quantizing nodes read the codes of a constant."""
    for node in (*moved.moves, *moved.quantised):
        for at, operand in enumerate(node.inputs):
            if operand is moved.source:
                node.replace_input_with(at, codes)
    moved.values[0] = codes


def _quantised(model: ir.Model, value: ir.Value, like: ir.Node) -> ir.Value:
    """Return the codes of a value, by the parameters of a quantizing node, shared by all readers."""
    insert = graphs.Inserter.behind(model, CarryCodes.name, value)
    array, grid = graphs.array_of(value), grid_of(like)
    assert grid is not None
    if array is not None:
        return insert.constant(grid.codes(array), f"{value.name}_codes")
    same = [node for node in graphs.consumers_of(value) if _quantises(node, value, grid)]
    attributes = {"axis": grid.axis} if grid.scales.ndim else {}
    codes = insert.op(
        "QuantizeLinear", [value, *like.inputs[1:]], attributes, name=f"{value.name}_codes", shape=value.shape,
        dtype=like.outputs[0].dtype,
    )  # fmt: skip
    for node in same:
        graphs.take_over(model, node.outputs[0], codes)
    return codes


def _quantises(node: ir.Node, value: ir.Value, grid: Codes) -> bool:
    found = grid_of(node) if _is_quantised(node, value) else None
    return found is not None and same_grid(found, grid)


def _is_quantised(node: ir.Node, value: ir.Value) -> bool:
    """Whether a node only quantizes a value and is no graph output."""
    is_quantising = graphs.is_op(node, "QuantizeLinear") and node.inputs[0] is value
    return is_quantising and list(node.inputs).count(value) == 1 and not node.outputs[0].is_graph_output()
