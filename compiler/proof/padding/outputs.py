"""Checks that callers can cut the padding off a graph's outputs, and that states hold the frames that callers expect.

Callers cut suffix padding away and have the batch in front; a state holds its newest frames in its newest slots, and
what is no cache of frames has one size.
"""

from collections.abc import Mapping

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, State
from compiler.proof.facts.facts import Fact, refuse
from compiler.proof.facts.layout import Frames
from compiler.proof.facts.lengths import keeps_all_counted
from compiler.proof.padding.length_inputs import frames_of_call
from compiler.proof.propagation.propagate import Derivation
from runtime_lite.format.cache_axis import CacheAxis


def check_outputs(derivation: Derivation, lowered: Lowered) -> None:
    """Require that callers can cut off the padding of outputs, and that states hold cached and new frames."""
    states = {state.output: state for state in lowered.states}
    inputs = graphs.inputs_named(lowered.model)
    for name, value in graphs.outputs_named(lowered.model).items():
        fact = derivation.fact(value)
        node = value.producer()
        place = {"tensor": name, "node": str(node.name) if node else "", "op": node.op_type if node else ""}
        place["source"] = graphs.source_of(node)
        _check_rows(fact, lowered.batch_axis, place)
        if fact.is_number:
            raise refuse(
                "the output is an axis length that all rows share",
                "return one per row (expand it to the batch in front), or leave it out: callers know their lengths",
                **place,
            )
        if name in states:
            _check_fixed(derivation.fact(inputs[states[name].input]), fact, states[name], place)
            cache = lowered.cache_of(states[name])
            if cache is not None:
                _check_cached(fact, states[name], value, cache, place)
            continue
        for axis, layout in fact.axes:
            frames = fact.frames(axis)
            if any(isinstance(factor, Frames) for factor in layout) and (frames is None or not frames.is_suffix_padded):
                raise refuse(
                    f"axis {axis} of the output is {' * '.join(map(str, layout))}",
                    "return the new frames only, declare the output as a state, or keep its axes apart",
                    **place,
                )


def _check_rows(fact: Fact, batch: str | None, place: Mapping[str, str]) -> None:
    axis = fact.rows_axis
    if axis is None or (axis == 0 and len(fact.tracked[0]) == 1):
        return
    raise refuse(f"the batch {batch!r} is not the first axis of the output", "transpose the output", **place)


def _check_fixed(fed: Fact, given: Fact, state: State, place: Mapping[str, str]) -> None:
    """Require that a state has a fixed size besides its frames, as the next call may be longer or shorter."""
    for end, fact in (("is fed", fed), ("comes back", given)):
        along = [axis for axis in fact.padded if axis != state.frames_axis]
        if along:
            layout = " * ".join(map(str, fact.axis(along[0]) or ()))
            raise refuse(
                f"state {state.input!r} {end} with an axis {along[0]} of {layout}, and the next call may be of another "
                "length",
                "feed back a state of one size, or declare the axis along which it keeps frames with a window",
                **place,
            )


def _check_cached(fact: Fact, state: State, value: ir.Value, cache: CacheAxis, place: Mapping[str, str]) -> None:
    """Require that the newest frames of a state are its newest slots, with zeros where there are none."""
    axis = state.frames_axis
    assert axis is not None
    frames = fact.frames(axis)
    fixed = None if value.shape is None else value.shape[axis]
    counted = graphs.symbol(cache.axis) + frames_of_call(cache)
    if frames is None:
        if isinstance(fixed, int) and keeps_all_counted(fixed, counted, cache.axis, cache.slots):
            return
    elif (
        frames.is_prefix_padded
        and fact.padding(axis).is_zero
        and keeps_all_counted(frames.size, counted, cache.axis, cache.slots)
    ):
        return
    raise refuse(
        f"the state holds {fact}, not the cached frames and then {frames_of_call(cache)} new ones",
        "join the cache with the new frames, cache first, and feed the whole back",
        axis=cache.axis,
        **place,
    )


def check_empty(least: int, cache: CacheAxis) -> None:
    """Require that a graph runs on an empty cache, with which a stream starts."""
    if least > 0:
        raise refuse(
            f"something needs at least {least} cached frames, and a stream starts with none",
            "join at least one new frame to the cache before softmax or a reduction",
            axis=cache.axis,
        )
