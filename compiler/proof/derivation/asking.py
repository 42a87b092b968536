"""Derives which frames of every value a call needs, going back from the call's results to its inputs and caches.

Every time axis of a value is requested as one `Part`: an axis along which entries mix with all frames, or with the
newest, if masks show that no more are read; every other axis with the frames that are requested of the result.
"""

from collections.abc import Mapping

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.axis_map import AxisMap, axis_map_of, dims
from compiler.graph.operators.traits import VIEWS
from compiler.proof.derivation.caching import Caches
from compiler.proof.derivation.judging import Judging
from compiler.proof.derivation.regrouping import regrouped
from compiler.proof.derivation.written_sizes import Part, Parts


class Asking:
    """Which parts of which values make the results of a call.

    Args:
        judging: of the whole graph.
        caches: of the derived graph.
        recent: frames that are kept where masks slide along; 0 where all are.
    """

    def __init__(self, judging: Judging, caches: Caches, recent: int) -> None:
        self.judging, self.caches, self.recent = judging, caches, recent

    def in_order(self) -> list[tuple[ir.Value, Parts]]:
        """Return every value that the derived graph needs, operands first, with the parts of it that are needed."""
        asked: dict[ir.Value, dict[Parts, None]] = {}
        nodes = list(self.judging.model.graph)
        for value in self.judging.model.graph.outputs:
            asked.setdefault(value, {})[
                tuple((axis_number, Part.NEW) for axis_number in sorted(self.judging.of(value).along))
            ] = None
        for node in reversed(nodes):
            for value in node.outputs:
                for parts in list(asked.get(value, {})):
                    if self.is_cached_part(value, dict(parts)):
                        ((axis, along),) = self.judging.of(value).along.items()
                        asked[value][((axis, Part.NEW),)] = None
                        if along.before != 0:
                            asked[value][((axis, Part.FIRST),)] = None
                    if more := self.mixed_within(node, value, dict(parts)):
                        asked[value][
                            tuple((axis_number, more.get(axis_number, part)) for axis_number, part in parts)
                        ] = None
                for parts in asked.get(value, {}):
                    if self._is_leaf(value, dict(parts)):
                        continue
                    for operand, wanted in self.asked_of(node, value, dict(parts)):
                        asked.setdefault(operand, {})[tuple(sorted(wanted.items()))] = None
        results = (value for node in nodes for value in node.outputs)
        return [(value, parts) for value in results for parts in asked.get(value, {})]

    def asked_of(
        self, node: ir.Node, value: ir.Value, parts: Mapping[int, Part]
    ) -> list[tuple[ir.Value, dict[int, Part]]]:
        """Return the operands of a node, with the parts that a part of its result is computed from."""
        asked_operands = []
        if node.op_type in VIEWS - {"Identity"}:
            operand = node.inputs[0]
            assert operand is not None
            return [(operand, {old: parts[new] for old, new in self.places_before(operand, value).items()})]
        if node in self.judging.shifted:
            return self.shifted_from(node, parts)
        if node in self.judging.kept and node.inputs[0] is not None:
            return [(node.inputs[0], {self.judging.kept[node][0]: Part.NEW})]
        if node in self.judging.resized and node.inputs[0] is not None:
            return [(node.inputs[0], dict(parts))]
        axis_map = axis_map_of(node) if self.judging.of(value).along or self.reads_time(node) else None
        for number, operand in enumerate(node.inputs):
            if operand is not None and graphs.array_of(operand) is None and not self.judging.is_number(operand):
                asked_operands.append((operand, self.wanted(node, axis_map, number, parts)))
        return asked_operands

    def wanted(
        self, node: ir.Node, axis_map: AxisMap | None, operand: int, parts: Mapping[int, Part]
    ) -> dict[int, Part]:
        """Return which part of each time axis of an operand is needed for a part of the result."""
        value = node.inputs[operand]
        along = self.judging.of(value).along
        if not along or axis_map is None:
            return {}
        mixed = {
            operand_axis for group in axis_map.mixed for number, operand_axis in group.items() if number == operand
        }
        known = ((operand_axis, self.judging.rows.get((node, operand, operand_axis))) for operand_axis in mixed)
        rows = {operand_axis: row_axis for operand_axis, row_axis in known if row_axis is not None}
        wanted = {own: self._mixed_part(node, operand, own, parts.get(rows.get(own, -1))) for own in along}
        for result_axis, pairs in axis_map.axes.items():
            operand_axis = pairs.get(operand)
            if operand_axis is not None and operand_axis in along and operand_axis not in mixed:
                wanted[operand_axis] = parts[result_axis]
        return wanted

    def _mixed_part(self, node: ir.Node, operand: int, own: int, rows: Part | None) -> Part:
        """Return which part of a mixed axis of an operand is needed to compute some rows."""
        if rows is Part.FIRST:
            return Part.FIRST
        count, *_ = self.judging.recent.get((node, operand, own), (self.judging.longest, None))
        return Part.RECENT if rows is Part.NEW and count <= self.recent and self.recent else Part.ALL

    def mixed_within(self, node: ir.Node, value: ir.Value, parts: Mapping[int, Part]) -> dict[int, Part]:
        """Return the axes of a result of which a node computes more entries than needed, with that larger part."""
        if (
            node.op_type in VIEWS
            or node in {*self.judging.shifted, *self.judging.kept, *self.judging.resized}
            or not parts
            or value in self.judging.tables
        ):
            return {}
        axis_map = axis_map_of(node)
        wanted = self.wanted(node, axis_map, 0, parts) if node.inputs else {}
        mixed = {group[0] for group in axis_map.mixed if 0 in group}
        operand_axes = {
            result_axis: pairs[0]
            for result_axis, pairs in axis_map.axes.items()
            if pairs.get(0) in mixed and result_axis in parts
        }
        return {
            result_axis: wanted[operand_axis]
            for result_axis, operand_axis in operand_axes.items()
            if operand_axis in wanted and wanted[operand_axis] is not parts[result_axis]
        }

    def places_before(self, operand: ir.Value, value: ir.Value) -> dict[int, int]:
        """Map the time axes of a Reshape's operand to the axes of its result."""
        along = self.judging.of(operand).along
        before = [along[at].factors if at in along else (dim,) for at, dim in enumerate(dims(operand))]
        places = regrouped(before, dims(value), self.judging.frames) if along else {}
        return {old: new for old, (new, _) in places.items()}

    def shifted_from(self, node: ir.Node, parts: Mapping[int, Part]) -> list[tuple[ir.Value, dict[int, Part]]]:
        """Return the operands and parts that a Concat with a prefix, or a Slice that removes one, is computed from."""
        axis = self.judging.shifted[node]
        part = parts.get(axis, Part.FIRST)
        operands = [each for each in node.inputs if each is not None]
        *front, last = operands if node.op_type == "Concat" else operands[:1]
        if node.op_type == "Concat" and part is Part.FIRST and self.judging.of(last).along[axis].before == 0:
            asked = front
        else:
            asked = [*([] if part is Part.NEW else front), last]
        return [(each, {at: part if at == axis else parts[at] for at in self.judging.of(each).along}) for each in asked]

    def _is_leaf(self, value: ir.Value, parts: Mapping[int, Part]) -> bool:
        """Whether a part of a value is written without reading parts of the node's operands."""
        return self.judging.is_number(value) or value in self.judging.tables or self.is_cached_part(value, parts)

    def is_cached_part(self, value: ir.Value, parts: Mapping[int, Part]) -> bool:
        """Whether a part of a value is read from a cache that holds all or the newest frames of that value."""
        fact = self.judging.of(value)
        if not fact.is_data or not {Part.ALL, Part.RECENT} & set(parts.values()) or len(fact.along) != 1:
            return False
        (axis,) = fact.along
        return self.caches.cached_source(value, axis) is value

    def reads_time(self, node: ir.Node) -> bool:
        return any(self.judging.of(value).along for value in node.inputs)
