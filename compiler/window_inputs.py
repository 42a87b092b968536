"""How the true length of a right-aligned window reaches a graph: its inputs, and what is computed from them.

real_length int64 [batch] -> first valid slot, position of every slot and of every new frame
mask float32 [batch, window + new] -> the same as bool; computed from real_length when it is not an input
"""

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.analysis.facts import refuse
from compiler.stages import Window


class WindowInputs:
    """The length and mask inputs of a graph, and every mask, condition and row index, each made once.

    Args:
        model: the graph; gains the inputs at once, the rest in front of its first node.
        window: names and sizes.
        batch: first axis of the caches.
        stamp: name of the pass.

    Raises:
        Refused: the graph has an input of such a name.
    """

    def __init__(self, model: ir.Model, window: Window, batch: int | str, stamp: str) -> None:
        self.model = model
        self.window = window
        self.batch = batch
        self.total = window.frames + window.step_frames
        self.real_length = self._input(window.length_input, ir.DataType.INT64, [batch])
        self.mask_input = (
            self._input(window.mask_input, ir.DataType.FLOAT, [batch, self.total]) if window.mask_input else None
        )
        first = next(iter(model.graph), None)
        self.insert = house.Inserter(model, stamp, before=first)
        self.made: dict[tuple[str, int, int, int], ir.Value] = {}
        self.valid, self.mask = self._base()

    def _input(self, name: str, dtype: ir.DataType, shape: list[int | str]) -> ir.Value:
        if name in house.inputs_named(self.model):
            raise refuse(f"the graph has an input {name!r} already", "choose another length_input or mask_input")
        value = ir.Value(name=name, shape=ir.Shape(shape))
        value.dtype = dtype
        self.model.graph.inputs.append(value)
        return value

    def _base(self) -> tuple[ir.Value, ir.Value]:
        """The validity of every slot as bool and as float32, [batch, total]."""
        shape = [self.batch, self.total]
        if self.mask_input is not None:
            to_bool = {"to": ir.DataType.BOOL}  # no comparison: targets that take the mask as an input may lack it
            valid = self.insert.op(
                "Cast", [self.mask_input], to_bool, name="valid", shape=shape, dtype=ir.DataType.BOOL
            )
            return valid, self.mask_input
        slots = self.insert.constant(np.arange(self.total, dtype=np.int64)[None], "slots")
        valid = self.insert.op(
            "GreaterOrEqual", [slots, self._first_slot()], name="valid", shape=shape, dtype=ir.DataType.BOOL
        )
        mask = self.insert.op(
            "Cast", [valid], {"to": ir.DataType.FLOAT}, name="mask_of_valid", shape=shape, dtype=ir.DataType.FLOAT
        )
        return valid, mask

    def _first_slot(self) -> ir.Value:
        """The first valid slot, int64 [batch, 1]: window - real_length."""
        key = ("first", 0, 0, 0)
        if key not in self.made:
            slots = self.insert.constant(np.array(self.window.frames, np.int64), "window_frames")
            first = self.insert.op("Sub", [slots, self.real_length], name="padded_frames", shape=[self.batch])
            first.dtype = ir.DataType.INT64
            self.made[key] = self.insert.op(
                "Unsqueeze", [first, self.insert.int64s(1)], name="first_slot", shape=[self.batch, 1]
            )
        return self.made[key]

    def shaped(self, kind: str, axis: int, rank: int, slots: int) -> ir.Value:
        """`valid` or `mask` over the first `slots` slots, broadcastable to a value of `rank` padded along `axis`."""
        key = (kind, axis, rank, slots)
        if key in self.made:
            return self.made[key]
        base = self.valid if kind == "valid" else self.mask
        if slots != self.total:
            base = self.insert.op(
                "Slice",
                [base, self.insert.int64s(0), self.insert.int64s(slots), self.insert.int64s(1)],
                name=f"{kind}_first_{slots}",
                shape=[self.batch, slots],
            )
        if rank > 2:
            others = [index for index in range(1, rank) if index != axis]
            shape: list[int | str] = [1] * rank
            shape[0], shape[axis] = self.batch, slots
            base = self.insert.op(
                "Unsqueeze", [base, self.insert.int64s(*others)], name=f"{kind}_axis{axis}of{rank}", shape=shape
            )
        self.made[key] = base
        return base

    def new_rows(self) -> ir.Value:
        """Logical position of every new frame, int64 [batch, step_frames]: real_length + 0, 1, ..."""
        key = ("new_rows", 0, 0, 0)
        if key not in self.made:
            count = self.window.step_frames
            offsets = self.insert.constant(np.arange(count, dtype=np.int64)[None], "offsets")
            cached = self.insert.op(
                "Unsqueeze", [self.real_length, self.insert.int64s(1)], name="cached_frames", shape=[self.batch, 1]
            )
            self.made[key] = self.insert.op("Add", [cached, offsets], name="new_rows", shape=[self.batch, count])
        return self.made[key]

    def rows(self) -> ir.Value:
        """Logical position of every slot, int64 [batch, total]; padded slots look up row 0."""
        key = ("rows", 0, 0, 0)
        if key not in self.made:
            slots = self.insert.constant(np.arange(self.total, dtype=np.int64)[None], "slots")
            shape = [self.batch, self.total]
            distance = self.insert.op("Sub", [slots, self._first_slot()], name="slot_position", shape=shape)
            zero = self.insert.constant(np.array(0, np.int64), "first_row")
            self.made[key] = self.insert.op("Max", [distance, zero], name="position_rows", shape=shape)
        return self.made[key]
