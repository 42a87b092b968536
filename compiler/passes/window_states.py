"""Slices every cache that a call returns to its newest frames, as many as the cache has slots.

Before:
    next_cache [batch, 144, W] = Concat(cache[128], new[16])
After:
    next_cache [batch, 128, W] = Slice(Concat(cache[128], new[16]), 16, 144)

Requires: a static cache axis whose padding, if any, is in front (pad_axes).
Ensures: each such state output has the shape of the input it feeds.
Keeps: states without a frames axis, and states that have no more frames than slots already.
Numerics: exact; a static slice of a right-aligned axis keeps the newest frames for every true length, because padding
    moves out in front.
Source: right-aligned caches, compiler/proof/facts/facts.py.
"""

import dataclasses
from typing import ClassVar

import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome
from compiler.proof.facts.lengths import smallest


@dataclasses.dataclass(frozen=True)
class WindowStates:
    """Keep as many frames as there are slots, the newest."""

    name: ClassVar[str] = "window_states"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("pad_axes",)
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Insert one Slice per state that is longer than its cache.

        Raises:
            Refused: the model keeps fewer frames of a state than the window has.
        """
        inputs, matched, rewritten = graphs.inputs_named(lowered.model), 0, 0
        for state in lowered.states:
            if state.frames_axis is None or lowered.cache_of(state) is None:
                continue
            matched += 1
            rewritten += _slice_state(lowered, state.output, state.frames_axis, inputs[state.input])
        return Outcome(lowered, matched, rewritten)


def _slice_state(lowered: Lowered, output: str, axis: int, fed: ir.Value) -> int:
    model = lowered.model
    value = graphs.outputs_named(model)[output]
    assert value.shape is not None and fed.shape is not None
    have, want = (graphs.dims_of(value) or ())[axis], fed.shape[axis]
    if have == want:
        return 0
    assert isinstance(want, int)
    least = smallest(have, {axis.axis: axis.minimum for axis in lowered.padded_axes})
    if least < want:
        raise Refused(
            f"the model keeps {have} frames of {output!r}, which can be fewer than the window of {want}",
            cure=f"make the window {least} frames, or let the model keep more" if least else f"let it keep {want}",
            place=Location(tensor=output, source=graphs.source_of(value.producer())),
        )
    insert = graphs.Inserter(model, WindowStates.name, source=graphs.source_of(value.producer()))
    shape = list(value.shape)
    shape[axis] = want
    newest_frames = insert.op(
        "Slice",
        [value, insert.int64s(least - want), insert.int64s(least), insert.int64s(axis)]
        if isinstance(have, int)
        else [value, insert.int64s(-want), insert.int64s(graphs.END), insert.int64s(axis)],
        name=f"{output}_newest",
        shape=shape,
        dtype=value.dtype,
    )
    rename_output(model, value, newest_frames, output)
    return 1


def rename_output(model: ir.Model, old: ir.Value, new: ir.Value, name: str) -> None:
    """Make `new` the graph output called `name` in place of `old`."""
    outputs = list(model.graph.outputs)
    model.graph.outputs[outputs.index(old)] = new
    old.name = graphs.fresh_name(model.graph, f"{name}_whole")
    new.name = name
