"""Runs each subgraph of a rewritten graph on values of the graph before the pass, to measure its own error alone.

    before:   x -> a -> b -> c                    values a, b, c by name
    after:    x -> a' -> (new) -> b' -> c'        c' is wrong: by its own fault, or by that of a' or b'?
    forced:   x -> a'   a -> (new) -> b'   b -> c'

Values of the same name are the same quantity: a pass that changes what a value holds gives it another name. The part
of the graph between such values is a *section*, named after the value that it ends in; its local error is what it makes
of right inputs, free of all that went wrong in front of it and in earlier calls: states are given, too.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.coded_states import codes_of, outputs_in_numbers
from compiler.graph.runners.instrumented import FORCED, exposed, forced, values_named
from compiler.graph.runners.stream import OriginalCall, mapped, rolled_rows
from compiler.graph.stages import Array, Feed, Lowered, newest


def common_values(before: Lowered, after: Lowered) -> list[str]:
    """Return the names of computed floating-point values in both graphs, in the order of `after`."""
    known = set(_countable(before))
    return [name for name in _countable(after) if name in known]


def _countable(lowered: Lowered) -> list[str]:
    return [
        str(output.name)
        for node in lowered.model.graph
        if node.op_type != "Constant" and any(each is not None for each in node.inputs)
        for output in node.outputs
        if output.name and output.dtype is not None and output.dtype.is_floating_point()
        if not lowered.padded_axes or _is_counted(output, lowered)
    ]


def _is_counted(value: ir.Value, lowered: Lowered) -> bool:
    """Whether the size of a value depends on the lengths alone, so that padding can be cut from it."""
    known = {graphs.symbol(name) for name in (lowered.batch_axis, *(each.axis for each in lowered.padded_axes)) if name}
    dims = graphs.dims_of(value)
    return dims is not None and all(isinstance(dim, int) or dim.free_symbols <= known for dim in dims)


def section_of(lowered: Lowered, name: str, ends: Iterable[str]) -> tuple[ir.Node, ...]:
    """Return the nodes between the values `ends`, or the inputs, and a value; in graph order."""
    stop = set(ends)
    start = values_named(lowered.model, [name])[name].producer()
    nodes: set[ir.Node] = set()
    waiting = [start] if start is not None else []
    while waiting:
        node = waiting.pop()
        if node in nodes:
            continue
        nodes.add(node)
        for value in (*node.inputs, *graphs.read_inside(node)):
            producer = None if value is None or str(value.name) in stop else value.producer()
            if producer is not None:
                waiting.append(producer)
    return tuple(node for node in lowered.model.graph if node in nodes)


def read_by(nodes: Sequence[ir.Node]) -> list[ir.Value]:
    """Return the values that nodes read but do not compute, without constants, in order."""
    made = {output for node in nodes for output in node.outputs}
    read = dict.fromkeys(
        value
        for node in nodes
        for value in (*node.inputs, *graphs.read_inside(node))
        if value is not None and value not in made and not value.is_initializer()
    )
    return list(read)


class Bench:
    """Runs the later calls of a graph one by one, its states given each time, in the types that the graph takes.

    Args:
        lowered: the graph.
        optimize: whether the runtime may rewrite it.
    """

    def __init__(self, lowered: Lowered, *, optimize: bool = False) -> None:
        self.runner = runner_of(lowered, optimize=optimize)
        self.dtypes = {str(value.name): value.dtype for value in lowered.model.graph.inputs}
        self.lowered = lowered

    def full_feed(self, feed: Feed, states: Mapping[str, Array]) -> dict[str, Array]:
        """Return every input of the next call."""
        self.runner.states = self._typed(states)
        return self.runner.full_feed(feed)

    def call(self, feed: Feed, states: Mapping[str, Array] | None = None, more: Feed | None = None) -> dict[str, Array]:
        """Run one call and return all outputs, with padding.

        Args:
            feed: the caller's inputs.
            states: states to use in place of those of the previous call, by input name.
            more: further inputs of the graph.
        """
        if states is not None:
            self.runner.states = self._typed(states)
        return outputs_in_numbers(self.lowered, self.runner.call(feed, self._typed(more or {})))

    def _typed(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        found = {}
        for name, array in arrays.items():
            dtype, codes = self.dtypes.get(name), codes_of(self.lowered, name)
            if codes is not None and array.dtype.kind == "f":
                found[name] = codes.codes(array)
                continue
            with np.errstate(over="ignore"):  # what half precision cannot hold is infinite there
                found[name] = array if dtype is None else array.astype(dtype.numpy())
        return found

    def continue_at(self, lengths: Mapping[str, Array]) -> None:
        """Make the next call a later one, with caches of these true lengths."""
        self.runner.reset(self.runner.states, lengths)


@dataclasses.dataclass(frozen=True)
class TeacherForcedRun:
    """One call of the graphs before and after a pass, with every part of the later graph run on values of the earlier.

    Attributes:
        step: number of the call.
        feed: the caller's inputs.
        inputs_before: every input of the graph before the pass.
        inputs_after: every input of the graph after it.
        length: true length of the caches, None for a graph that has none.
        before_states: the states fed to the graph before the pass, by input name.
        states: the states fed to the graph after it.
        before: values of the graph before, by name, with their padding.
        right: the same without it; states as the pass has reshaped them.
        own: values of the graph after when it starts from the right states.
        local: what every section of the graph after makes of right values.
        origins: per value the part of `before` that is no padding behind an axis.
        places: per value the part of `own` and `local` that `right` corresponds to.
    """

    step: int
    feed: Feed
    inputs_before: Feed
    inputs_after: Feed
    lengths: Mapping[str, Array]
    before_states: Mapping[str, Array]
    states: Mapping[str, Array]
    before: Mapping[str, Array]
    right: Mapping[str, Array]
    own: Mapping[str, Array]
    local: Mapping[str, Array]
    origins: Mapping[str, tuple[slice, ...]]
    places: Mapping[str, tuple[slice, ...]]

    def expected(self, name: str) -> Array:
        """Return the right value of a section, as float64, in the shape of `got`."""
        right = self.right[name]
        got = self.own[name]
        if right.ndim == got.ndim:
            sizes = [part.indices(size) for part, size in zip(self.places[name], got.shape, strict=True)]
            for axis, (start, stop, _) in enumerate(sizes):
                right = newest(right, axis, stop - start)
        return right.astype(np.float64).reshape(self.got(name, self.own).shape)

    def got(self, name: str, values: Mapping[str, Array] | None = None) -> Array:
        """Return the comparable part of a section's result."""
        array = (self.local if values is None else values)[name]
        return array[self.places[name]].astype(np.float64)

    def given(self, name: str) -> Array:
        """Return the right value in the shape of the graph after; padding keeps the graph's own content."""
        whole = self.own[name].copy()
        with np.errstate(over="ignore"):
            whole[self.places[name]] = self.expected(name).astype(whole.dtype)
        return whole


class TeacherForcedRuns:
    """Runs both graphs call by call, and every part of the graph after on the values of the graph before.

    Args:
        before: the graph before the pass.
        after: the graph after it.
        names: values by which they are compared.
        optimize: whether the runtime may rewrite the graph after.
    """

    def __init__(self, before: Lowered, after: Lowered, names: Sequence[str], *, optimize: bool = False) -> None:
        self.before, self.after, self.names = before, after, names
        self.start = None if before.first_call is None else Bench(before)
        self.old = Bench(exposed(before, names))
        self.new = Bench(exposed(after, names), optimize=optimize)
        self.forced = Bench(forced(after, names), optimize=optimize)
        self.maps = after.state_maps[len(before.state_maps) :]

    def run(self, steps: Sequence[OriginalCall]) -> Iterator[TeacherForcedRun]:
        """Yield one run per call, in order; a separate first call is left out."""
        for bench in (self.start, self.old, self.new, self.forced):
            if bench is not None:
                bench.runner.reset()
        states = dict(self.old.runner.states)
        for number, step in enumerate(steps):
            if number == 0 and self.start is not None:
                self.start.call(step.feed)
                states = dict(self.start.runner.states)
                for bench in (self.old, self.new, self.forced):
                    bench.continue_at(self.start.runner.lengths)
                continue
            yield self._forced_run(number, step.feed, states)
            states = dict(self.old.runner.states)

    def _forced_run(self, number: int, feed: Feed, states: Mapping[str, Array]) -> TeacherForcedRun:
        lengths, new_states = dict(self.old.runner.lengths), mapped(self.maps, self._in_front(states))
        inputs = self.old.full_feed(feed, states), self.new.full_feed(feed, new_states)
        right = self.old.call(feed, states)
        own_results = self.new.call(feed, new_states)
        following = mapped(self.maps, self.old.runner.states)
        right_values = {name: right[name] for name in self.names}
        right_values |= {
            state.output: following[state.input] for state in self.after.states if state.input in following
        }
        places = {name: self._place(name, right_values[name], own_results[name], feed) for name in right_values}
        origins = {name: self.old.runner.valid(name, array, feed) for name, array in right_values.items()}
        cut = {name: array[origins[name]] for name, array in right_values.items()}
        forced_run = TeacherForcedRun(
            number, feed, *inputs, lengths, states, new_states, right, cut, own_results, {}, origins, places
        )
        more = {f"{FORCED}{name}": forced_run.given(name) for name in self.names}
        return dataclasses.replace(forced_run, local=self.forced.call(feed, new_states, more))

    def _in_front(self, states: Mapping[str, Array]) -> dict[str, Array]:
        """Return states of the graph before, starting with the oldest frame where the graph after needs that."""
        moved, kinds = dict(states), {cache.axis: cache.kind for cache in self.after.caches}
        for state in self.before.states if self.before.is_padded else ():
            cache, axis = self.before.cache_of(state), state.frames_axis
            if cache is None or axis is None:
                continue
            if cache.kind.is_given_whole and not kinds.get(cache.axis, cache.kind).is_given_whole:
                lengths = self.old.runner.lengths[cache.axis].tolist()
                moved[state.input] = rolled_rows(self.before, states[state.input], axis, lengths)
        return moved

    def _place(self, name: str, right: Array, own: Array, feed: Feed) -> tuple[slice, ...]:
        """Return the index of a value without padding; for caches, of the newest entries in both graphs."""
        if self.after.padded_axes or right.ndim != own.ndim:
            return self.new.runner.valid(name, own, feed)
        return tuple(slice(max(b - a, 0), b) for a, b in zip(right.shape, own.shape, strict=True))
