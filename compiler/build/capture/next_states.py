"""Updates the original's states between two calls as its caller would: appends frames, increments counters.

The built graph makes these updates itself (appended_frames.py, counts.py, held_states.py); the original needs
them from outside.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from compiler.build.capture.appended_frames import is_appended
from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.stages import Array, Feed, State
from compiler.recipe.graph import Graph
from runtime_lite.format.formula import parse_formula


def lengths_of(spec: Graph, feed: Feed) -> dict[str, int]:
    """Return the true length of a call along every padded axis of its feed."""
    return {
        axis: feed[name].shape[at]
        for name, given in spec.inputs.items()
        if name in feed
        for at, axis in enumerate(given.shape)
        if isinstance(axis, str) and axis in spec.padded
    }


def moved_on(
    spec: Graph,
    states: Sequence[State],
    counted: Mapping[str, Dim],
    feed: Feed,
    fed: Mapping[str, Array],
    outputs: Mapping[str, Array],
) -> dict[str, Array]:
    """Return the outputs as the built graph returns them: whole caches, filled slots, updated counts.

    Args:
        spec: the graph's record.
        states: states that are fed back.
        counted: by counting input, the number of frames that a call adds.
        feed: of the call.
        fed: the states of the call; empty caches and zeros at a first call of its own.
        outputs: the model's outputs, with the batch as first axis.
    """
    completed_outputs = dict(outputs)
    lengths = lengths_of(spec, feed)
    for state in states:
        before = fed[state.input]
        if state.input in counted:
            frames = parse_formula(graphs.written(counted[state.input])).value(lengths)
            completed_outputs[state.output] = before + np.array(frames, before.dtype)
        elif is_appended(spec, state):
            assert state.frames_axis is not None
            completed_outputs[state.output] = np.concatenate(
                [before, completed_outputs[state.output]], axis=state.frames_axis
            )
        elif state.output in completed_outputs and spec.held_along(state.input):
            completed_outputs[state.output] = _filled_up(spec, state.input, completed_outputs[state.output])
    return completed_outputs


def _filled_up(spec: Graph, name: str, array: Array) -> Array:
    """Return a state padded with zeros to all slots that hold it."""
    shape, held = spec.inputs[name].shape, spec.held_along(name)
    behind = [
        (0, spec.slots(str(dim)) - size if dim in held else 0) for dim, size in zip(shape, array.shape, strict=True)
    ]
    return np.pad(array, behind)
