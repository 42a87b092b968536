"""Writes the graph of one call, with each value computed only for the frames that the call's results depend on.

Every time axis of a value is requested in one of these ways:

    NEW     the frames of this call, places past .. past + n - 1
    RECENT  NEW and as many earlier frames as sliding masks let them read
    ALL     all frames so far, places 0 .. past + n - 1, behind the prefix that is joined to them, if there is one
    FIRST   the prefix alone

Results are requested as NEW; an axis along which entries mix is requested as ALL, or as FIRST for rows of a prefix.
Values of positions are computed for the requested part. Inputs exist for NEW alone: where ALL of an input is requested,
it is cached, and the cache is joined in front. Sizes are written anew from the axes.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
import sympy

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.axis_map import AxisMap, axis_map_of, dims
from compiler.graph.lengths.symbolic_values import symbolic_values_of
from compiler.graph.model import Dim
from compiler.graph.operators.axes import resized_axes
from compiler.graph.operators.traits import VIEWS
from compiler.proof.derivation.asking import Asking
from compiler.proof.derivation.caching import Caches
from compiler.proof.derivation.dependence import Along
from compiler.proof.derivation.judging import Judging
from compiler.proof.derivation.placing import Placing
from compiler.proof.derivation.prefixes import start_of
from compiler.proof.derivation.reading import behind_kept, first_states
from compiler.proof.derivation.regrouping import RULE_CURE
from compiler.proof.derivation.row_positions import NotByRow, RowPositions
from compiler.proof.derivation.written_sizes import STAMP, Part, Parts, Sizes, written_size


class Emission:
    """One derived graph.

    Args:
        judging: of the whole graph.
        past: name of the axis of cached frames.
        marks: of every frame a number, by which they are counted where nothing is cached whose frames are all kept;
            None where none may be forgotten.
        recent: frames that are kept where masks slide along; 0 where all are.
        is_endless: whether masks are known of sequences of any length: frames are counted in one number then, and
            not by a cache of marks.

    Attributes:
        model: the derived graph.
        caches: of the calls.
        standing: by value of the derived graph, the one of the whole graph that it is a part of, and which.
    """

    def __init__(
        self,
        judging: Judging,
        past: str,
        marks: ir.Value | None = None,
        recent: int = 0,
        *,
        is_endless: bool = False,
    ) -> None:
        self.judging, self.frames, self.recent = judging, judging.frames, recent
        whole = judging.model.graph
        graph = ir.Graph([], [], nodes=[], opset_imports=dict(whole.opset_imports), name=f"{whole.name}_steps")
        self.model = ir.Model(graph, ir_version=judging.model.ir_version)
        self.graph = graph
        self.caches = Caches(judging, graph, past)
        self.asking = Asking(judging, self.caches, self.recent)
        self.made: dict[tuple[ir.Value, Parts], ir.Value] = {}
        self.kept: dict[ir.Value, ir.Value] = {}
        self.joined: dict[ir.Value, ir.Value] = {}
        self.standing: dict[ir.Value, tuple[ir.Value, Parts]] = {}
        self.newest: dict[ir.Value, ir.Value] = {}
        self.sizes = Sizes(self.model, judging.frames, graphs.symbol(past), self.recent)
        self.placing = Placing(self.model, self.sizes)
        self.inputs = {value: self._input(value) for value in whole.inputs}
        for value, parts in self.asking.in_order():
            self.part(value, dict(parts))
        results = [self.result(value) for value in whole.outputs]
        for value, result in zip(whole.outputs, results, strict=True):
            self._name_output(result, str(value.name))
        if marks is not None and self.recent and not any(cached_value.is_joined for cached_value in self.caches.cached):
            (axis,) = judging.of(marks).along
            if is_endless:
                self._counted(marks, axis)
            else:
                self._joined(marks, axis)
        elif is_endless:
            raise NotByRow("all frames of a value are needed")
        inputs, pairs = graphs.inputs_named(self.model), list(zip(self.caches.cached, self.caches.left, strict=True))
        self.sizes.measure(
            [
                (inputs[cached_value.input], left, cached_value.axis)
                for cached_value, left in pairs
                if cached_value.is_joined
            ]
        )
        for cached_value, left in pairs:
            self._name_output(left, cached_value.output)

    def _input(self, value: ir.Value) -> ir.Value:
        copy = ir.Value(name=value.name, shape=ir.Shape([written_size(dim) for dim in dims(value)]), type=value.type)
        self.graph.inputs.append(copy)
        return copy

    def _name_output(self, value: ir.Value, name: str) -> None:
        if value.producer() is None or value in self.graph.outputs:
            insert = graphs.Inserter(self.model, STAMP)
            value = insert.op("Identity", [value], name=f"{name}_copy", shape=value.shape)
        if value.name != name:
            for other in (each for node in self.graph for each in node.outputs if each.name == name):
                other.name = graphs.fresh_name(self.graph, f"{name}_before")
            value.name = name
        self.graph.outputs.append(value)

    def result(self, value: ir.Value) -> ir.Value:
        """Return the part of a result that belongs to this call's frames."""
        return self.part(value, dict.fromkeys(self.judging.of(value).along, Part.NEW))

    # Values

    def part(self, value: ir.Value, parts: Mapping[int, Part]) -> ir.Value:
        """Return a part of a value, written once.

        Args:
            value: a value of the graph over whole sequences.
            parts: the part needed along each of its time axes.
        """
        key = value, tuple(sorted(parts.items()))
        if key not in self.made:
            self.made[key] = self._part(value, parts)
            if self.judging.of(value).along:
                self.standing[self.made[key]] = key
        return self.made[key]

    def _part(self, value: ir.Value, parts: Mapping[int, Part]) -> ir.Value:
        fact = self.judging.of(value)
        if graphs.array_of(value) is not None:
            return self._constant(value)
        if self.judging.is_number(value):
            return self.sizes.number(value)
        if self.asking.is_cached_part(value, parts):
            (axis,) = fact.along
            if parts[axis] is Part.RECENT:
                return self._kept(value, axis)
            joined, has_prefix = self._joined(value, axis), fact.along[axis].before != 0
            front = [self.part(value, {axis: Part.FIRST})] if has_prefix else []
            return self._behind([*front, joined], value, parts, axis)
        if value in self.inputs:
            return self.inputs[value]
        if value in self.judging.tables:
            return self.placing.written(value, self.judging.tables[value], parts, self._shape(value, parts))
        node = value.producer()
        assert node is not None
        return self._computed(node, value, parts)

    def _constant(self, value: ir.Value) -> ir.Value:
        if value not in self.kept:
            tensor = ir.convenience.get_const_tensor(value)
            assert tensor is not None
            name = str(value.name)
            if name in self.graph.initializers or name in graphs.names_taken(self.graph):
                name = graphs.fresh_name(self.graph, f"{name}_of_whole")
            copy = ir.Value(
                name=name, const_value=ir.tensor(tensor.numpy(), name=name), shape=ir.Shape(tensor.numpy().shape)
            )
            copy.dtype = tensor.dtype
            self.graph.register_initializer(copy)
            self.kept[value] = copy
        return self.kept[value]

    def _computed(self, node: ir.Node, value: ir.Value, parts: Mapping[int, Part]) -> ir.Value:
        """Write a node on the parts of its operands that the part needs."""
        if node.op_type in VIEWS - {"Identity"}:
            return self._regrouped(node, value, parts)
        if node in self.judging.shifted:
            return self._shifted(node, value, parts)
        if node in self.judging.kept:
            return (self._slid if self.judging.kept[node][1] else self._recurred)(node, value, parts)
        if node in self.judging.resized:
            return self._resized(node, value, parts)
        axis_map = axis_map_of(node) if self.judging.of(value).along or self.asking.reads_time(node) else None
        special = {"Range": self._range, "ConstantOfShape": self._filled, "Expand": self._expanded}
        if axis_map is not None and node.op_type in special:
            return special[node.op_type](node, value, parts, axis_map)
        if axis_map is not None and node.op_type == "Trilu" and len(dims(value)) - 1 in parts:
            return self._triangle(node, value, parts)
        if more := self.asking.mixed_within(node, value, parts):
            return self._slice_to(value, parts, more)
        operands = [
            None if operand is None else self._operand(node, axis_map, number, parts)
            for number, operand in enumerate(node.inputs)
        ]
        return self._node(node, operands, value, parts)

    def _operand(self, node: ir.Node, axis_map: AxisMap | None, at: int, parts: Mapping[int, Part]) -> ir.Value:
        """Return the needed part of an operand; where a mask slides, entries before the first frame are masked."""
        operand = node.inputs[at]
        assert operand is not None
        wanted = self.asking.wanted(node, axis_map, at, parts)
        needed = self.part(operand, wanted)
        for axis in (axis for axis, part in wanted.items() if part is Part.RECENT):
            _, masked, outside = self.judging.recent.get((node, at, axis), (0, None, None))
            if masked != at or outside is None or graphs.is_op(operand.producer(), "Softmax"):
                continue  # weights of a softmax are 0 there, for its scores are masked
            assert operand.dtype is not None
            insert = graphs.Inserter(self.model, STAMP, source=graphs.source_of(node))
            level = insert.constant(np.array(outside.level, operand.dtype.numpy()), "outside")
            heard, behind = self.sizes.heard(insert.source), range(1, len(dims(operand)) - axis)
            placed = insert.op("Unsqueeze", [heard, insert.int64s(*behind)], name="heard_along") if behind else heard
            needed = insert.op(
                "Where", [placed, needed, level], name=f"{operand.name}_heard", shape=needed.shape, dtype=operand.dtype
            )
        return needed

    def _node(
        self,
        node: ir.Node,
        operands: Sequence[ir.Value | None],
        value: ir.Value,
        parts: Mapping[int, Part],
        attributes: Sequence[ir.Attr] | None = None,
    ) -> ir.Value:
        """Copy a node onto other operands, with its own attributes or replacements."""
        index = list(node.outputs).index(value)
        outputs = [ir.Value(name=self._fresh(str(output.name), parts), type=output.type) for output in node.outputs]
        outputs[index].shape = ir.Shape([written_size(size) for size in self._shape(value, parts)])
        attributes_copied = list(node.attributes.values() if attributes is None else attributes)
        name = str(node.name).removesuffix("_node")  # what is inserted later is named after its value so
        ending = str(node.name)[len(name) :]
        copy = ir.Node(node.domain, node.op_type, operands, attributes_copied, outputs=outputs,
                       name=f"{self._fresh(name, parts)}{ending}", version=node.version)  # fmt: skip
        copy.metadata_props.update(node.metadata_props)
        self.graph.append(copy)
        return outputs[index]

    def _fresh(self, stem: str, parts: Mapping[int, Part]) -> str:
        asked = set(parts.values())
        endings = {Part.ALL: "_of_all", Part.RECENT: "_of_recent", Part.FIRST: "_of_first"}
        ending = next((ending for part, ending in endings.items() if part in asked), "")
        return graphs.fresh_name(self.graph, f"{stem}{ending}")

    def _op(self, op_type: str, operands: Sequence[ir.Value], like: ir.Value, name: str, **attributes: int) -> ir.Value:
        insert = graphs.Inserter(self.model, STAMP, source=graphs.source_of(like.producer()))
        return insert.op(op_type, operands, attributes, name=name, dtype=like.dtype)

    # Caches

    def _joined(self, value: ir.Value, axis: int) -> ir.Value:
        """Return all frames of a value: cached ones in front of the new ones, after its prefix."""
        if value in self.joined:
            return self.joined[value]
        along = self.judging.of(value).along[axis]
        if not along.is_alone:
            raise self._refusal(value, "all frames of a value are needed that shares their axis with others")
        if not self.caches.can_hold(value):
            raise self._refusal(
                value, f"a value of shape {[*map(str, dims(value))]} is no cache: its rows lie in no axis alone"
            )
        old = self.caches.carry(value, axis)
        self.joined[value] = old  # sizes may be read of it while the new frames are written
        cache_number = len(self.caches.left) - 1
        joined = self._behind([old, self.part(value, {axis: Part.NEW})], value, {axis: Part.SINCE}, axis)
        self.joined[value] = self.caches.left[cache_number] = joined
        return joined

    def _counted(self, marks: ir.Value, axis: int) -> None:
        """Replace the cache whose frames are only counted with a count per row.

        Raises:
            NotByRow: no rule computes the values of positions for each row.
        """
        place = self.sizes.known.pop(self.sizes.past, None)
        if self.sizes.total in self.sizes.known:
            raise NotByRow("all frames of a value are needed")
        if place is None:
            return
        if len(dims(marks)) > 2:
            raise NotByRow(f"frames of shape {[*map(str, dims(marks))]} are counted by more than rows")
        heard, cache_number = self.caches.carry_count(marks, axis), len(self.caches.left) - 1
        insert = graphs.Inserter(self.model, STAMP)
        self.caches.left[cache_number] = insert.op(
            "Add", [heard, self.sizes.one(self.frames)], name="heard", shape=heard.shape
        )
        (rows,) = dims(heard)
        if isinstance(rows, int):
            ir.convenience.replace_all_uses_with(place, heard)
            self.graph.sort()
            return
        first = graphs.Inserter(self.model, STAMP, before=next(iter(self.graph)))
        by_row = first.op("Unsqueeze", [heard, first.int64s(1)], name="heard_of_row", dtype=ir.DataType.INT64)
        self.graph.sort()
        graphs.infer_shapes(self.model)
        RowPositions(self.model, rows).write(place, by_row)

    def _recurred(self, node: ir.Node, value: ir.Value, parts: Mapping[int, Part]) -> ir.Value:
        """Write a recurrence over the new frames that continues from the cached state."""
        operand, shape = node.inputs[0], dims(value)
        assert operand is not None
        if not self.caches.can_hold(value):
            raise self._refusal(value, f"states of frames of shape {[*map(str, shape)]} cannot be carried")
        count = 2 if node.op_type == "LSTM" else 1
        node.resize_outputs(1 + count)
        first = len(self.caches.left)
        for state_output in node.outputs[1:]:
            state_output.name = state_output.name or graphs.fresh_name(self.judging.model.graph, f"{value.name}_state")
            state_output.type, state_output.shape = value.type, ir.Shape([written_size(dim) for dim in shape[1:]])
        begun = [first for first in first_states(node) if first is not None]
        olds = [self.caches.carry_state(output, row) for output, row in zip(node.outputs[1:], begun, strict=True)]
        weights = [
            None if weight is None else self.part(weight, {}) for weight in (*node.inputs[1:4], None, None, None)[:3]
        ]
        peepholes = [None if peephole is None else self.part(peephole, {}) for peephole in node.inputs[7:8]]
        cells = [*olds, *([None] if peepholes and count == 1 else [])]
        new = self.part(operand, {0: Part.NEW})
        result = self._node(node, [new, *weights, None, *cells, *peepholes], value, parts)
        recurrence = result.producer()
        assert recurrence is not None
        self.caches.left[first : first + count] = recurrence.outputs[1:]
        return result

    def _slid(self, node: ir.Node, value: ir.Value, parts: Mapping[int, Part]) -> ir.Value:
        """Write a convolution, Pad or running sum over cached frames followed by the new ones."""
        (axis, count), operand = self.judging.kept[node], node.inputs[0]
        assert operand is not None
        if graphs.is_op(node, "CumSum"):
            return self._summed(node, value, parts, axis)
        joined = self._newest(operand, axis, count, graphs.source_of(node))
        if graphs.is_op(node, "Pad"):
            insert, name = graphs.Inserter(self.model, STAMP, source=graphs.source_of(node)), str(value.name)
            bounds = [insert.int64s(each) for each in (0, -count, axis)]
            shape = [written_size(size) for size in self._shape(value, parts)]
            return insert.op("Slice", [joined, *bounds], name=name, shape=shape, dtype=value.dtype)
        rest = [None if each is None else self.part(each, {}) for each in node.inputs[1:]]
        return self._node(node, [joined, *rest], value, parts, behind_kept(node, axis, count))

    def _summed(self, node: ir.Node, value: ir.Value, parts: Mapping[int, Part], axis: int) -> ir.Value:
        """Write a running sum that goes on from its last entry: that of it and the new ones, without its own first."""
        operand = node.inputs[0]
        assert operand is not None
        if not self.caches.can_hold(value):
            raise self._refusal(value, f"sums of shape {[*map(str, dims(value))]} cannot be kept")
        old, cache_number, name = self.caches.carry(value, axis, 1), len(self.caches.left) - 1, str(value.name)
        insert = graphs.Inserter(self.model, STAMP, source=graphs.source_of(node))
        joined = self._op("Concat", [old, self.part(operand, {axis: Part.NEW})], operand, f"{name}_joined", axis=axis)
        axes = self.part(node.inputs[1], {}) if node.inputs[1] is not None else insert.int64s(axis)
        sums = insert.op("CumSum", [joined, axes], name=f"{name}_from_last", dtype=value.dtype)
        ends = [(-1, graphs.END), (1, graphs.END)]
        bounds = [[insert.int64s(bound) for bound in (*end, axis)] for end in ends]
        self.caches.left[cache_number] = insert.op(
            "Slice", [sums, *bounds[0]], name=f"{name}_kept", shape=old.shape, dtype=old.dtype
        )
        shape = [written_size(size) for size in self._shape(value, parts)]
        return insert.op("Slice", [sums, *bounds[1]], name=name, shape=shape, dtype=value.dtype)

    def _resized(self, node: ir.Node, value: ir.Value, parts: Mapping[int, Part]) -> ir.Value:
        """Write a node that makes another number of entries of every frame, whatever the number of frames."""
        operand = node.inputs[0]
        assert operand is not None
        rest = [None if each is None else self.part(each, {}) for each in node.inputs[1:3]]
        if graphs.is_op(node, "Resize") and len(node.inputs) > 3 and node.inputs[3] is not None:
            shape = self._shape(value, parts)
            sizes = [shape[axis] for axis in resized_axes(node, len(shape))]
            rest = [*rest, self.sizes.several(sizes, str(value.name))]
        return self._node(node, [self.part(operand, parts), *rest], value, parts)

    def _kept(self, value: ir.Value, axis: int) -> ir.Value:
        """Return the frames of a value that a sliding mask lets rows read."""
        if value not in self.newest:
            self.newest[value] = self._newest(value, axis, self.recent, graphs.source_of(value.producer()))
        return self.newest[value]

    def _newest(self, operand: ir.Value, axis: int, count: int, source: str) -> ir.Value:
        """Return the newest cached frames, zeros before the stream's start, followed by the new ones."""
        if not self.caches.can_hold(operand):
            raise self._refusal(operand, f"frames of shape {[*map(str, dims(operand))]} cannot be kept")
        old, cache_number, name = self.caches.carry(operand, axis, count), len(self.caches.left) - 1, str(operand.name)
        new = self.part(operand, {axis: Part.NEW})
        joined = self._op("Concat", [old, new], operand, f"{name}_joined", axis=axis)
        insert = graphs.Inserter(self.model, STAMP, source=source)
        bounds = [insert.int64s(bound) for bound in (-count, 2**63 - 1, axis)]
        self.caches.left[cache_number] = insert.op(
            "Slice", [joined, *bounds], name=f"{name}_kept", shape=old.shape, dtype=old.dtype
        )
        return joined

    def _behind(self, operands: Sequence[ir.Value], value: ir.Value, parts: Mapping[int, Part], axis: int) -> ir.Value:
        """Concatenate parts of a value along an axis."""
        if len(operands) == 1:
            return operands[0]
        joined = self._op("Concat", operands, value, f"{value.name}_joined", axis=axis)
        joined.shape = ir.Shape([written_size(size) for size in self._shape(value, parts)])
        return joined

    # Sizes

    def _shape(self, value: ir.Value, parts: Mapping[int, Part]) -> list[Dim]:
        """Return the shape of a part, in the axes of the derived graph."""
        along = self.judging.of(value).along
        return [
            self._size_of(along[at], parts[at]) if at in along and at in parts else dim
            for at, dim in enumerate(dims(value))
        ]

    def _size_of(self, along: Along, part: Part) -> Dim:
        """Return the size of a part of an axis."""
        count = self.sizes.count(part, along.before)
        sizes = [count if graphs.mentions(each, str(self.frames)) else each for each in along.factors]
        return graphs.normal_form(sympy.sympify(sympy.prod(sizes)))

    # A prefix

    def _shifted(self, node: ir.Node, value: ir.Value, parts: Mapping[int, Part]) -> ir.Value:
        """Return a part of the result of a Concat with a prefix, or of a Slice that removes one."""
        axis = self.judging.shifted[node]
        operands = [self.part(operand, dict(asked)) for operand, asked in self.asking.shifted_from(node, parts)]
        if node.op_type == "Concat" or parts.get(axis) is Part.NEW:
            return self._behind(operands, value, parts, axis)
        start = start_of(node, axis)
        end = start + self._shape(value, parts)[axis]
        if start == 0 and axis not in parts and end == self._along(node.inputs[0])[axis].before:
            return operands[0]
        insert = graphs.Inserter(self.model, STAMP, source=graphs.source_of(node))
        bounds = [self.sizes.one(graphs.normal_form(bound)) for bound in (start, end)]
        shape = [written_size(size) for size in self._shape(value, parts)]
        name = self._fresh(str(value.name), parts)
        return insert.op("Slice", [*operands, *bounds, insert.int64s(axis)], name=name, shape=shape, dtype=value.dtype)

    # Operators whose sizes are written anew

    def _regrouped(self, node: ir.Node, value: ir.Value, parts: Mapping[int, Part]) -> ir.Value:
        operand = node.inputs[0]
        assert operand is not None
        given = self.part(operand, {old: parts[new] for old, new in self.asking.places_before(operand, value).items()})
        if node.op_type != "Reshape":
            rest = [None if each is None else self.part(each, {}) for each in node.inputs[1:]]
            return self._node(node, [given, *rest], value, parts)
        return self._node(node, [given, self.sizes.several(self._shape(value, parts), str(value.name))], value, parts)

    def _expanded(self, node: ir.Node, value: ir.Value, parts: Mapping[int, Part], axis_map: AxisMap) -> ir.Value:
        assert node.inputs[0] is not None
        given = self.part(node.inputs[0], self.asking.wanted(node, axis_map, 0, parts))
        return self._node(node, [given, self.sizes.several(self._shape(value, parts), str(value.name))], value, parts)

    def _filled(self, node: ir.Node, value: ir.Value, parts: Mapping[int, Part], axis_map: AxisMap) -> ir.Value:
        return self._node(node, [self.sizes.several(self._shape(value, parts), str(value.name))], value, parts)

    def _range(self, node: ir.Node, value: ir.Value, parts: Mapping[int, Part], axis_map: AxisMap) -> ir.Value:
        """Write a Range of positions: those of a call start after the past frames."""
        start = (symbolic_values_of(node.inputs[0]) or (0,))[0]
        if not parts:
            return self._node(node, [None if v is None else self.part(v, {}) for v in node.inputs], value, parts)
        assert node.inputs[0] is not None and node.inputs[2] is not None
        before, kind = self.judging.of(value).along[0].before, value.dtype or ir.DataType.INT64
        if before != 0 or parts[0] is Part.RECENT:
            return self.placing.counted(value, start, parts[0], before)
        is_new = parts[0] is Part.NEW
        limit = self.sizes.scalar(graphs.normal_form(self.sizes.count(parts[0]) + start), kind)
        counted = self._node(node, [self.part(node.inputs[0], {}), limit, self.part(node.inputs[2], {})], value, parts)
        if not is_new:
            return counted
        return self._op("Add", [counted, self.sizes.scalar(self.sizes.past, kind)], value, f"{value.name}_placed")

    def _triangle(self, node: ir.Node, value: ir.Value, parts: Mapping[int, Part]) -> ir.Value:
        """Write a Trilu for the part of its rows and columns that a call computes, by their positions."""
        insert = graphs.Inserter(self.model, STAMP, source=graphs.source_of(node))
        row, column = sorted(parts)[-2:]
        assert node.inputs[0] is not None
        data = self.part(
            node.inputs[0], {axis: part for axis, part in parts.items() if axis in self._along(node.inputs[0])}
        )
        diagonal = graphs.array_of(node.inputs[1]) if len(node.inputs) > 1 else None
        shift = insert.int64s(0 if diagonal is None else int(diagonal.reshape(-1)[0]))
        positions = {
            axis: self.sizes.places(parts[axis], insert.source, self._along(value)[axis].before) for axis in parts
        }
        rows, columns = insert.op("Unsqueeze", [positions[row], insert.int64s(1)], name="rows"), positions[column]
        limits = insert.op("Add", [rows, shift], name="diagonal")
        kind = "GreaterOrEqual" if graphs.int_attribute(node, "upper", 1) else "LessOrEqual"
        inside = insert.op(kind, [columns, limits], name="triangle", dtype=ir.DataType.BOOL)
        assert value.dtype is not None
        shape = [written_size(size) for size in self._shape(value, parts)]
        if value.dtype == ir.DataType.BOOL:  # runtimes have no Where of truths
            return insert.op("And", [inside, data], name=str(value.name), dtype=value.dtype, shape=shape)
        nothing = insert.constant(np.zeros((), value.dtype.numpy()), "nothing")
        return insert.op("Where", [inside, data, nothing], name=str(value.name), shape=shape, dtype=value.dtype)

    def _along(self, value: ir.Value | None) -> Mapping[int, Along]:
        return self.judging.of(value).along

    def _slice_to(self, value: ir.Value, parts: Mapping[int, Part], more: Mapping[int, Part]) -> ir.Value:
        """Slice a part from a value computed for more entries: the new ones of all, or those in front of them."""
        if any(part is not Part.ALL or parts[at] is Part.RECENT for at, part in more.items()):
            raise self._refusal(value, "frames are asked for of what is computed in front of them")
        current = self.part(value, {**parts, **more})
        insert = graphs.Inserter(self.model, STAMP, source=graphs.source_of(value.producer()))
        name, along = self._fresh(str(value.name), {}), self._along(value)
        starts = [0 if parts[at] is Part.FIRST else self.sizes.past + along[at].before for at in more]
        ends = [start + self.sizes.count(parts[at], along[at].before) for start, at in zip(starts, more, strict=True)]
        bounds = [self.sizes.several([graphs.normal_form(each) for each in side], name) for side in (starts, ends)]
        shape = [written_size(size) for size in self._shape(value, parts)]
        return insert.op("Slice", [current, *bounds, insert.int64s(*more)], name=name, shape=shape, dtype=value.dtype)

    def _refusal(self, value: ir.Value, reason: str) -> Refused:
        node = value.producer()
        place = Location(node=str(node.name) if node else "", op=node.op_type if node else "", tensor=str(value.name),
                      source=graphs.source_of(node))  # fmt: skip
        return Refused(f"no steps can be derived: {reason}", cure=RULE_CURE, place=place)
