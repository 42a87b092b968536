"""Makes a call return only the new frames of its caches, and attend over cached and new frames separately.

Before:
    clean = Where(valid, cache, 0);  joined = Concat(clean, new);  next_cache = newest 512 frames of joined
    y = MatMul(Softmax(mask + MatMul(q, joined_keys)), joined_values)
After:
    next_cache = new; whoever runs the graph writes it behind the frames in his cache, the oldest in the first slot
    scores = Concat(MatMul(q, cache_keys), MatMul(q, new_keys));  p, p_new = Softmax(mask + scores), split
    y = MatMul(p, cache_values) + MatMul(p_new, new_values)

A step then reads a cache once and writes one frame of it, where it wrote all of it several times.

Requires: one cache in which every frame has a slot of its own, along which all states lie (as steps are derived);
    rows proved; states that are not packed yet.
Ensures: left-aligned caches to which calls append; their free slots hold zeros, as the runtime keeps them.
Keeps: everything that does not touch cached frames.
Numerics: order of summation.
Source: cached frames may lie in any order where all that lies beside them does (`compiler.states.appending.order`);
    that a value holds the new frames, and a condition the frames of a cache, is found by running them
    (`compiler.states.appending.evidence`).
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.graph.stages import Array, Lowered, Outcome, State, StateMap
from compiler.passes.pad_axes import RightAligned
from compiler.passes.window_states import rename_output
from compiler.states.appending.evidence import CURE, is_alike_when_full, require_new_frames, says_where_frames_lie
from compiler.states.appending.order import Cached, write_apart
from runtime_lite.states import APPENDED
from runtime_lite.states.kind import StateKind


@dataclasses.dataclass(frozen=True)
class AppendStates:
    """Caches to which calls append."""

    name: ClassVar[str] = "append_states"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("pad_axes", "window_states")
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite a graph to return new frames only, for caches that grow; see the module docstring.

        Raises:
            Refused: caches have another form, or a node depends on the order of cached frames.
        """
        if not lowered.caches:
            return Outcome(lowered)
        cache = lowered.caches[0]
        require(
            lowered,
            {
                **what_new_frames_need(lowered),
                "a cache in which every frame has a slot of its own, as steps are derived": not cache.is_whole,
                "frames that are counted by the axis of the call": cache.added is None,
                "states along the cache alone": any(state.cache != cache.axis for state in lowered.states),
            },
        )
        return give_new_frames(lowered, APPENDED, self.name)


def give_new_frames(lowered: Lowered, kind: StateKind, stamp: str) -> Outcome:
    """Rewrite a graph to return only the new frames of its cache, and to read cached frames in the kind's slots.

    Args:
        lowered: a graph that satisfies `what_new_frames_need`; changed.
        kind: kind of the states along its cache.
        stamp: name of the pass.

    Raises:
        Refused: a node depends on the order of cached frames.
    """
    (cache,) = lowered.caches
    states = [state for state in lowered.states if state.cache == cache.axis]
    cached = [_cached(lowered, state) for state in states]
    for state, frames_of in zip(states, cached, strict=True):
        require_new_frames(lowered, cache, state, frames_of.new)
    for state, frames_of in zip(states, cached, strict=True):
        _give(lowered.model, state.output, frames_of.new, stamp)
    graphs.prune(lowered.model)
    lies = functools.cache(functools.partial(says_where_frames_lie, lowered, cache))
    is_alike = None if kind.needs_whole else functools.partial(is_alike_when_full, lowered, cache)
    write_apart(lowered.model, cache, cached, lies, stamp, is_alike)
    graphs.prune(lowered.model)
    graphs.infer_shapes(lowered.model)
    graphs.fold_sizes(lowered.model)
    done = dataclasses.replace(
        lowered,
        caches=(cache.as_kind(kind),),
        state_maps=tuple(LeftAligned(state_map.frames) if isinstance(state_map, RightAligned) else state_map
                         for state_map in lowered.state_maps),
    )  # fmt: skip
    return Outcome(done, matched=len(cached), rewritten=len(cached))


@dataclasses.dataclass(frozen=True)
class LeftAligned(StateMap):
    """State map: the named states move to the beginning of their slots, zeros behind.

    Attributes:
        frames: per state its frames axis, and how many slots that axis gets.
    """

    frames: tuple[tuple[str, int, int], ...]

    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        """Return state values by input name, moved from right-aligned slots to the first ones."""
        found = dict(states)
        for name, axis, slots in self.frames:
            padding = [(0, 0)] * found[name].ndim
            padding[axis] = (0, slots - found[name].shape[axis])
            found[name] = np.pad(found[name], padding)
        return found


def what_new_frames_need(lowered: Lowered) -> dict[str, bool]:
    """Return the conditions for a graph to return new frames alone, each with whether it is violated."""
    cache, counted = lowered.caches[0], {None, *(each.axis for each in lowered.padded_axes)}
    return {
        "one cache axis": len(lowered.caches) != 1,
        "as many new frames as an axis of the call has, or as every call adds": cache.added not in counted,
        "right-aligned caches that are given whole": not cache.kind.is_given_whole,
        "no mask input": cache.mask_input is not None,
        "an axis of rows, which are proved": not lowered.rows_independent,
        "pad_axes to have run": not lowered.is_padded,
    }


def require(lowered: Lowered, wrong: Mapping[str, bool]) -> None:
    """Refuse a graph that violates a condition.

    Raises:
        Refused: a condition is violated; the message states the first one.
    """
    for expected, is_so in wrong.items():
        if is_so:
            raise Refused(
                f"expected {expected}", cure=CURE, place=Location(graph=lowered.graph, axis=lowered.caches[0].axis)
            )


def _cached(lowered: Lowered, state: State) -> Cached:
    """Return a state, and the frames that the graph joins to it.

    Raises:
        Refused: no frames are joined to its input, or to the input with cleared free slots.
    """
    value = graphs.inputs_named(lowered.model)[state.input]
    assert state.frames_axis is not None
    clean = [node.outputs[0] for node in graphs.consumers_of(value) if graphs.is_op(node, "Where")]
    for source in (value, *clean):
        for node in graphs.consumers_of(source):
            joins = graphs.is_op(node, "Concat") and axis_of(node, len(value.shape or ())) == state.frames_axis
            if joins and len(node.inputs) == 2 and node.inputs[0] is source and node.inputs[1] is not None:
                return Cached(value, node.inputs[1], state.frames_axis)
    raise Refused(
        f"expected new frames to be joined behind {state.input!r}",
        cure="list the pass in front of pack_states, behind which no state lies alone",
        place=Location(graph=lowered.graph, tensor=state.input),
    )


def _give(model: ir.Model, output: str, new: ir.Value, stamp: str) -> None:
    """Make the graph return the new frames in place of the whole state."""
    insert = graphs.Inserter(model, stamp, source=graphs.source_of(new.producer()))
    given = insert.op("Identity", [new], name=f"{output}_new", shape=new.shape, dtype=new.dtype)
    rename_output(model, graphs.outputs_named(model)[output], given, output)
