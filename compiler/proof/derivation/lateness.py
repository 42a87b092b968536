"""Rewrites a graph with look-ahead into a causal graph that returns the same results some frames later.

Before:
    y = Conv(x, pads (1, 1)); z = Add(x, y)                       y[t] reads x[t - 1] .. x[t + 1]
After:
    x0 = Where(marks, x, 0); y' = Conv(x0, pads (2, 0))           y'[t] = y[t - 1]
    z' = Add(Pad(x, (1, -1)), y')                                 z'[t] = z[t - 1]
    z" = Where(Pad(marks, (1, -1)), z', 0)

Every value is as many of its own entries late as the layers in front of it read ahead; where values meet, the earlier
ones are moved back. What a layer reads in front of the first frame, and behind the last, are zeros in the graph
before: a new input, `marks`, is 1 for every frame of the sequence and 0 for those that are fed behind its end, and
moved back it tells which entries are there. Behind the end, as many frames are fed as answers come late, with any
numbers.

Source: a layer over late frames gives late results, where all that it reads is late alike.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph import model as graphs
from compiler.graph.axis_map import NotMapped, axis_map_of, dims
from compiler.graph.model import Dim
from compiler.graph.operators.traits import VIEWS
from compiler.graph.operators.windows import window_of, with_pads
from compiler.proof.derivation.judging import FILLING, Judging
from compiler.proof.derivation.reading import READING, RECURRENT, pads_of, read_along
from compiler.proof.derivation.written_sizes import STAMP, written_size


class NotLate(Exception):
    """No rule says how a value is computed later; the text names the node."""


@dataclasses.dataclass(frozen=True)
class _Timed:
    """The one axis of frames of a value.

    Attributes:
        axis: its position.
        rate: entries of every frame along it.
        late: by how many of these entries the value that is written is behind the value that it stands for.
    """

    axis: int
    rate: int
    late: int


def write_late(model: ir.Model, judging: Judging, marks: str) -> int:
    """Rewrite a graph such that no frame reads a later one.

    Args:
        model: a graph over whole sequences; changed.
        judging: of that graph; its offences are frames that are read ahead, and no others.
        marks: name of the new input, float32, with one number per frame.

    Returns:
        By how many frames answers come later.

    Raises:
        NotLate: something reads all frames, or no rule covers it.
    """
    return _Writer(model, judging, marks).write()


class _Writer:
    def __init__(self, model: ir.Model, judging: Judging, marks: str) -> None:
        self.model, self.judging, self.frames = model, judging, judging.frames
        self.late: dict[ir.Value, int] = {}
        self.moved: dict[tuple[ir.Value, int], ir.Value] = {}
        self.masks: dict[tuple[object, ...], ir.Value] = {}
        fed = min((value for value in model.graph.inputs if judging.of(value).along), key=lambda each: len(dims(each)))
        others = [dim for dim in dims(fed) if not isinstance(dim, int) and dim != self.frames]
        self.rows: Dim | None = others[0] if others and dims(fed)[0] == others[0] else None
        shape = [written_size(dim) for dim in (self.rows, self.frames) if dim is not None]
        self.marks = ir.Value(name=marks, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))

    def write(self) -> int:
        self.model.graph.inputs.append(self.marks)
        for node in list(self.model.graph):
            try:
                self._node(node)
            except NotMapped as unknown:
                raise NotLate(f"{node.name} ({node.op_type}): {unknown}") from None
        outputs = list(self.model.graph.outputs)
        timed = [self._timed(value) for value in outputs]
        frames = max((-(-each.late // each.rate) for each in timed if each is not None), default=0)
        insert = graphs.Inserter(self.model, STAMP)
        for number, (value, each) in enumerate(zip(outputs, timed, strict=True)):
            if each is None:
                if self.judging.of(value).along:
                    raise NotLate(f"{value.name} has several axes of frames")
                continue
            result = self._masked(
                insert, self._moved(insert, value, frames * each.rate - each.late), frames * each.rate
            )
            name, value.name = str(value.name), graphs.fresh_name(self.model.graph, f"{value.name}_late")
            result.name, result.shape = name, value.shape
            self.model.graph.outputs[number] = result
        self.model.graph.sort()
        return frames

    def _timed(self, value: ir.Value | None) -> _Timed | None:
        """Return the one axis of frames of a value; None where it has none, or frames share it."""
        along = self.judging.of(value).along
        if value is None or len(along) != 1:
            return None
        ((axis, of_frames),) = along.items()
        return None if of_frames.rate is None else _Timed(axis, of_frames.rate, self.late.get(value, 0))

    # Nodes

    def _node(self, node: ir.Node) -> None:
        """Write a node on late operands, and note how late its results are."""
        if node.op_type in ("Shape", "Size"):
            return None  # late frames are as many
        timed = {at: each for at, operand in enumerate(node.inputs) if (each := self._timed(operand)) is not None}
        is_late = any(each.late for each in timed.values())
        insert = graphs.Inserter(self.model, STAMP, before=node, source=graphs.source_of(node))
        along = self.judging.of(node.inputs[0]).along if node.inputs else {}
        if node.op_type in READING and len(along) == 1 and 0 in timed:
            read = read_along(node, timed[0].axis, timed[0].rate)
            if not read.is_here and (is_late or read.ahead > 0):
                return self._reading(insert, node, timed[0], read.ahead)
        if not is_late:
            return None
        if node.op_type in VIEWS - {"Identity"}:
            return self._regrouped(insert, node, timed[0])
        return self._together(insert, node, timed)

    def _reading(self, insert: graphs.Inserter, node: ir.Node, timed: _Timed, ahead: float) -> None:
        """Write a node that reads entries around its own, over entries that are there and zeros elsewhere."""
        if math.isinf(ahead):
            raise NotMapped(f"reads all frames of the sequence, [-inf, {ahead:g}]")
        if node.op_type in RECURRENT:
            raise NotMapped("a recurrence behind layers that look ahead begins before the first frame")
        operand = node.inputs[0]
        assert operand is not None
        if graphs.is_op(node, "Resize"):
            return self._note(node, timed.late, timed.rate)
        if graphs.is_op(node, "Pad"):
            count = (pads_of(node) or {}).get(timed.axis, (0, 0))[0]
            if count <= 0:
                raise NotMapped("a Pad that moves frames ahead")
            node.replace_input_with(0, self._masked(insert, operand, timed.late))
            return self._note(node, timed.late, timed.rate)
        window = window_of(node, len(dims(operand)))
        if window is None or window.pads is None:
            raise NotMapped(f"{node.op_type} adds as many entries as its sizes say")
        spatial = timed.axis - 2
        taps, stride, (front, behind) = window.kernel[spatial], window.strides[spatial], window.pads[spatial]
        assert taps is not None
        reach, pads = window.dilations[spatial] * (taps - 1), list(window.pads)
        is_pool = node.op_type not in ("Conv", "ConvTranspose")
        if is_pool and (front, reach) != (0, stride - 1):
            raise NotMapped(f"{node.op_type} has windows that overlap, or begin in front of the first frame")
        if graphs.is_op(node, "ConvTranspose"):
            pads[spatial] = (0, front + behind)
            late, moved = timed.late * stride + front, 0
        else:
            own = max(reach - stride + 1, 0)
            moved = (front - own - timed.late) % stride
            while own + timed.late + moved < front:
                moved += stride
            late = (own + timed.late + moved - front) // stride
            pads[spatial] = (own, 0)
        there = operand if is_pool else self._masked(insert, operand, timed.late)
        node.replace_input_with(0, self._moved(insert, there, moved))
        attributes = with_pads(node, pads)
        node.attributes.clear()
        node.attributes.update({attribute.name: attribute for attribute in attributes})
        return self._note(node, late, timed.rate)

    def _note(self, node: ir.Node, late: int, rate: int) -> None:
        """Note by how many entries the result is late; of a Resize, as many times as it repeats each one."""
        after = self._timed(node.outputs[0])
        assert after is not None  # as its operand has one axis of frames
        if graphs.is_op(node, "Resize"):
            late = late * after.rate // rate
        self.late[node.outputs[0]] = late

    def _regrouped(self, insert: graphs.Inserter, node: ir.Node, timed: _Timed) -> None:
        """Write a Reshape over frames that are late by whole groups of the entries that it parts."""
        after, operand = self._timed(node.outputs[0]), node.inputs[0]
        if after is None or operand is None:
            raise NotMapped("late frames are merged with others")
        group = timed.rate // math.gcd(timed.rate, after.rate)
        moved = -timed.late % group
        node.replace_input_with(0, self._moved(insert, operand, moved))
        self.late[node.outputs[0]] = (timed.late + moved) * after.rate // timed.rate

    def _together(self, insert: graphs.Inserter, node: ir.Node, timed: Mapping[int, _Timed]) -> None:
        """Write a node that computes of entries at one place, all of them as late as the latest."""
        axis_map = axis_map_of(node)
        results = [value for value in node.outputs if value.name]
        after = self._timed(results[0])
        if after is None or any(axis_map.mixes(at, each.axis) for at, each in timed.items()):
            if graphs.is_op(node, "CumSum") and after is not None:
                return self._summed(insert, node, timed[0])
            raise NotMapped("frames that are late are mixed")
        late = max(each.late for each in timed.values())
        for at, operand in enumerate(node.inputs):
            if operand is None or not self.judging.of(operand).along:
                continue
            each = timed.get(at)
            if each is None or each.rate != after.rate or axis_map.axes[after.axis].get(at) != each.axis:
                raise NotMapped("late frames meet others")
            if not self.judging.of(operand).is_data:
                maker = operand.producer()
                if maker is None or maker.op_type not in FILLING:
                    raise NotMapped("positions meet frames that are late")
                continue  # the same number everywhere
            node.replace_input_with(at, self._moved(insert, operand, late - each.late))
        self.late |= dict.fromkeys(results, late)
        return None

    def _summed(self, insert: graphs.Inserter, node: ir.Node, timed: _Timed) -> None:
        operand = node.inputs[0]
        assert operand is not None
        node.replace_input_with(0, self._masked(insert, operand, timed.late))
        self.late[node.outputs[0]] = timed.late

    # What is moved back, and which of it is there

    def _moved(self, insert: graphs.Inserter, value: ir.Value, count: int) -> ir.Value:
        """Return a value moved back by a number of its entries."""
        timed = self._timed(value)
        if not count or timed is None:
            return value
        if (value, count) not in self.moved:
            pads = [0] * 2 * len(dims(value))
            pads[timed.axis], pads[timed.axis + len(pads) // 2] = count, -count
            early = graphs.Inserter(self.model, STAMP, before=insert.before, source=insert.source)
            moved = early.op("Pad", [value, early.int64s(*pads)], name=f"{value.name}_moved", shape=value.shape,
                             dtype=value.dtype)  # fmt: skip
            self.moved[value, count] = moved
            self.judging.known[moved] = self.judging.of(value)
            self.late[moved] = timed.late + count
        return self.moved[value, count]

    def _masked(self, insert: graphs.Inserter, value: ir.Value, late: int) -> ir.Value:
        """Return a value with zeros where none of the sequence's frames is."""
        timed = self._timed(value)
        assert timed is not None and value.dtype is not None
        key = value, late, "masked"
        if key not in self.masks:
            there = self._there(insert, value, timed, late)
            zero = insert.constant(np.zeros((), value.dtype.numpy()), "nothing")
            masked = insert.op("Where", [there, value, zero], name=f"{value.name}_heard", shape=value.shape,
                               dtype=value.dtype)  # fmt: skip
            self.judging.known[masked] = self.judging.of(value)
            self.late[masked] = timed.late
            self.masks[key] = masked
        return self.masks[key]

    def _there(self, insert: graphs.Inserter, value: ir.Value, timed: _Timed, late: int) -> ir.Value:
        """Return which entries of a value are of frames of the sequence, in a shape that is broadcast to it."""
        shape = dims(value)
        rows = next((axis for axis, dim in enumerate(shape) if dim == self.rows and self.rows is not None), None)
        if self.rows is not None and (rows is None or rows > timed.axis):
            raise NotMapped("frames that are late lie in front of their rows")
        key = timed.rate, late, timed.axis, rows, len(shape)
        if key not in self.masks:
            front = [] if self.rows is None else [self.rows]
            marks, frames = self.marks, len(front)
            if timed.rate > 1:
                sizes = insert.int64s(*[1] * (frames + 1), timed.rate)
                wide = insert.op("Unsqueeze", [marks, insert.int64s(frames + 1)], name="marks_apart")
                wide = insert.op("Expand", [wide, sizes], name="marks_repeated")
                known: Sequence[Dim] = [*front, timed.rate * sympy.sympify(self.frames)]
                marks = insert.op("Reshape", [wide, insert.int64s(*[0] * frames, -1)], name="marks_of_entries",
                                  shape=[written_size(size) for size in known])  # fmt: skip
            if late:
                pads = insert.int64s(*[0] * frames, late, *[0] * frames, -late)
                marks = insert.op("Pad", [marks, pads], name="marks_moved", shape=marks.shape)
            half = insert.constant(np.array(0.5, np.float32), "half")
            there = insert.op("Greater", [marks, half], name="there", dtype=ir.DataType.BOOL, shape=marks.shape)
            axes = [axis for axis in range(len(shape)) if axis not in (rows, timed.axis)]
            if axes:
                there = insert.op("Unsqueeze", [there, insert.int64s(*axes)], name="there_along", dtype=there.dtype)
            self.masks[key] = there
        return self.masks[key]
