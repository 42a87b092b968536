"""Replaces a context state by values computed from it frame by frame, so that a call computes new frames only.

Before:
    joined = Concat(context [batch, 256, 14], x [batch, 256, 16]);  next_context = joined[:, :, -14:]
    y = DepthwiseConv(GLU(Conv1x1(joined)))                                # 30 frames for 16 new ones
After:
    wide = Concat(carried [batch, 256, 14], GLU(Conv1x1(x)));  next_carried = wide[:, :, -14:]
    y = DepthwiseConv(wide)                                 # a stream begins with GLU(Conv1x1(zeros)), GLU of the bias

What to carry is chosen as `select_states` chooses along a cache axis: a minimum cut at the same prices.

Requires: symbolic shapes; the first call merged.
Ensures: the work and transfers of a step, as priced, are the least.
Keeps: a context that is read elsewhere, that is not joined in front of new frames, or of which the newest frames are
    not fed back; one whose frames are mixed as they are; one in whose place a stream would begin with infinite numbers.
Numerics: exact up to the order of summation in a matrix product of other height: a row-wise f commutes with
    concatenation.
Source: f(Concat(a, b)) = Concat(f(a), f(b)) for row-wise f, as judged by the rule table; the new initial state is f of
    the former one.
"""

import dataclasses
import math
from typing import ClassVar

import numpy as np

from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.operator_costs import Rates
from compiler.graph.stages import Lowered, Outcome, Refusal
from compiler.states.state_rewriting.projected import Projected, map_of
from compiler.states.state_rewriting.split import Split
from compiler.states.streaming.carrying_cut import Choice, choose
from compiler.states.streaming.contexts import find_context
from compiler.states.streaming.stable import Cache, Frames, Stable
from compiler.states.streaming.state_network import MEGA, network_of, work_of
from runtime_lite.format.initial_value import (
    MAX_ALONG,
    MAX_NUMBERS,
    Initial,
    array_of_initial,
    initial_of_array,
    shape_of_initial,
)


@dataclasses.dataclass(frozen=True)
class CarryContexts:
    """Carry behind what works on single frames."""

    name: ClassVar[str] = "carry_contexts"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("add_batch_axis", "merge_first_call", "unstack_states")
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Replace contexts by the values computed from them where that is cheaper, in place."""
        graphs.infer_shapes(lowered.model)
        matched, done, refused = 0, list[_Work](), list[Refusal]()
        for state in [state for state in lowered.states if state.frames_axis is None]:
            context = find_context(lowered, state)
            matched += isinstance(context, tuple)
            replaced = _carried(lowered, *context) if isinstance(context, tuple) else context
            if isinstance(replaced, Refusal):
                refused.append(replaced)
            elif replaced is not None:
                lowered, work = replaced
                done.append(work)
        return Outcome(lowered, matched, len(done), tuple(refused), detail=_figures(done))


@dataclasses.dataclass(frozen=True)
class _Work:
    """Multiply-adds of a call before and after, and how many states there are in the place of one."""

    before: int
    after: int
    states: int


def _figures(done: list[_Work]) -> str:
    if not done:
        return ""
    before, after, states = (sum(getattr(each, key) for each in done) for key in ("before", "after", "states"))
    return (
        f"values carried for {len(done)} contexts: {states}, "
        f"{before / MEGA:.4g} -> {after / MEGA:.4g} M multiply-adds of theirs"
    )


def _carried(lowered: Lowered, context: Cache, frames: Frames) -> tuple[Lowered, _Work] | Refusal | None:
    """Return the graph with the cheapest states in place of a context; None where the context is the cheapest."""
    place = Location(tensor=context.state.input)
    if lowered.first_call is not None:
        return Refusal("the call that starts a stream is a graph of its own, and takes no context", place)
    stable = Stable(lowered.model, (context,), frames)
    choice = choose(network_of(stable, Rates()))
    if choice.carried <= {context.joined.name}:
        return None
    begins = _beginning(lowered, context, stable, choice)
    if isinstance(begins, str):
        return Refusal(f"{begins}, and the context is carried as it is", place)
    split = Split(lowered.model, stable, choice, CarryContexts.name)
    before, after = work_of(stable, choice)
    split.write()
    is_carried = context.joined.name in choice.carried
    gone = () if is_carried else (context.state.input,)
    states = [dataclasses.replace(state, initial=begin) for state, begin in zip(split.states, begins, strict=True)]
    position = lowered.states.index(context.state)
    new = dataclasses.replace(
        lowered,
        states=(*lowered.states[:position], *states, *lowered.states[position + (not is_carried) :]),
        state_maps=(*lowered.state_maps, Projected(split.map, gone)),
    )
    return new, _Work(before, after, len(choice.carried))


def _beginning(lowered: Lowered, context: Cache, stable: Stable, choice: Choice) -> list[Initial] | str:
    """Return the initial values of the states that replace a context, or why they are unknown."""
    carried = [value for value in stable.axes if value.name in choice.carried and value is not context.joined]
    names = [f"{value.name}_begins" for value in carried]
    state = context.state
    assert context.old.shape is not None and context.old.dtype is not None
    shape = [dim if isinstance(dim, int) else 1 for dim in context.old.shape]
    begin = np.full(shape, array_of_initial(state.initial, context.old.dtype.numpy().name))
    projected = Projected(map_of(lowered.model, stable, carried, names), (state.input,)).apply({state.input: begin})
    arrays = [projected[name] for name in names]
    if not all(np.isfinite(array).all() for array in arrays):
        return "a stream would begin with numbers that are not finite"
    initial = [initial_of_array(array) for array in arrays]
    shapes = [shape_of_initial(value) or () for value in initial]
    if any(math.prod(shape) > MAX_NUMBERS or max(shape, default=1) > MAX_ALONG for shape in shapes):
        return f"a stream would begin with more than {MAX_NUMBERS} numbers, or {MAX_ALONG} along one axis"
    return initial
