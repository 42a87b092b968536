"""Computes after how many calls of a stream a count passes the end of a lookup table.

A count is a state that every call moves on by a constant, from 0. The indices of each lookup that a count reaches,
through whatever operators, are computed by the graph itself: for every one of the first calls, and for calls far
beyond.

    offset_after = Add(offset, 4); rows = Gather(table [1000, 8], offset + 0..3)      251 calls: the last has 1000..1003
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.graph.runners.part import Part
from compiler.graph.stages import Array, Lowered

FIRST_CALLS = 1 << 16
"""Every call up to here is looked at: 2.9 hours of chunks of 160 ms."""

TOGETHER = 1 << 12
"""Calls that are computed at once, as rows of one batch."""

FURTHEST = 2**31 - 1
"""Beyond, calls about the powers of two are looked at while counts are no larger: 2.7 years of 25 frames a second."""


@dataclasses.dataclass(frozen=True)
class Lookup:
    """A lookup by a count.

    Attributes:
        node: its name.
        source: the model's line.
        entries: of the table.
        calls: that a stream has before an index leads behind the end; None where none was found that does.
        is_exact: whether every earlier call was checked.
        beside: an input that callers feed, or a state that is no count, and that the indices follow from as well:
            nothing is known then. Empty for none.
    """

    node: str
    source: str
    entries: int
    calls: int | None = None
    is_exact: bool = True
    beside: str = ""


def counts_of(lowered: Lowered) -> dict[str, int]:
    """Return, by input, the constant by which each call increases a state."""
    inputs, outputs = graphs.inputs_named(lowered.model), graphs.outputs_named(lowered.model)
    steps = {}
    for state in lowered.states:
        node = outputs[state.output].producer()
        while node is not None and graphs.is_op(node, "Identity") and node.inputs[0] is not None:
            node = node.inputs[0].producer()
        if node is None or not graphs.is_op(node, "Add") or state.frames_axis is not None:
            continue
        for first, second in (node.inputs, tuple(reversed(node.inputs))):
            step = graphs.array_of(second)
            if first is inputs[state.input] and step is not None and step.size == 1 and step.dtype.kind in "iu":
                steps[state.input] = int(step.item())
    return steps


def lookups_by_counts(lowered: Lowered) -> list[Lookup]:
    """Return every lookup in a table of fixed size whose indices depend on a count.

    Args:
        lowered: a graph whose axes are static, except for the batch.
    """
    counts = counts_of(lowered)
    length_inputs = {cache.length_input: cache for cache in lowered.caches}
    lookups = []
    for node in lowered.model.graph:
        if not graphs.is_op(node, "Gather", "GatherElements") or node.inputs[1] is None or node.inputs[0] is None:
            continue
        dims = graphs.dims_of(node.inputs[0])
        entries = None if dims is None else dims[axis_of(node, len(dims))]
        reached = graphs.contents_behind([node.inputs[1]])
        if not isinstance(entries, int) or not reached & counts.keys():
            continue
        lookup = Lookup(str(node.name), graphs.source_of(node), entries)
        beside = sorted(reached - counts.keys() - length_inputs.keys())
        if beside:
            lookups.append(dataclasses.replace(lookup, beside=beside[0]))
        else:
            lookups.append(_measured(lowered, node.inputs[1], lookup, counts))
    return lookups


def _measured(lowered: Lowered, indices: ir.Value, lookup: Lookup, counts: Mapping[str, int]) -> Lookup:
    """Return the lookup with the number of the first call whose indices exceed the table."""
    run = _Indices(lowered, indices, counts)
    for calls in _calls(max(counts.values())):
        wrong = run.calls_beyond(calls, lookup.entries)
        if wrong.size:
            first = int(wrong[0])
            return dataclasses.replace(lookup, calls=first, is_exact=first < FIRST_CALLS)
    return lookup


def _calls(step: int) -> Iterator[Array]:
    """Yield the numbers of calls to try, ascending."""
    for start in range(0, FIRST_CALLS, TOGETHER):
        yield np.arange(start, start + TOGETHER)
    far = np.concatenate([2**power + np.arange(-8, 9) for power in range(17, 31)])
    yield far[far < FURTHEST // max(step, 1) - step]


class _Indices:
    """Computes the indices of a lookup at many calls at once.

    Args:
        lowered: the graph.
        indices: the value.
        counts: by input, the step.
    """

    def __init__(self, lowered: Lowered, indices: ir.Value, counts: Mapping[str, int]) -> None:
        self.lowered, self.counts = lowered, counts
        self.part = Part(lowered.model.graph, [indices])
        self.rank = len(graphs.dims_of(indices) or ())

    def calls_beyond(self, calls: Array, entries: int) -> Array:
        """Return which of the calls have indices outside a table, ascending.

        Without a batch axis calls are computed one by one, up to the first such one.
        """
        if self.lowered.batch_axis is None and calls.size > 1:
            return next(
                (call for call in np.split(calls, calls.size) if self.calls_beyond(call, entries).size), calls[:0]
            )
        feed = {name: self._given(value, calls) for name, value in self.part.inputs.items()}
        if not calls.size:
            return calls
        (got,) = self.part.run(feed)
        if got.ndim == 0 or got.shape[0] != calls.size:  # the same for all rows
            return calls[:1] if ((got < -entries) | (got >= entries)).any() else calls[:0]
        rows = got.reshape(calls.size, -1)
        beyond: Array = calls[((rows < -entries) | (rows >= entries)).any(axis=1)]
        return beyond

    def _given(self, value: ir.Value, calls: Array) -> Array:
        """Return an input's content at each of the calls: counts and lengths, else zeros of its shape."""
        name, dtype = str(value.name), value.dtype
        assert dtype is not None
        sizes = [dim if isinstance(dim, int) else calls.size for dim in graphs.dims_of(value) or ()]
        cache = next((cache_axis for cache_axis in self.lowered.caches if cache_axis.length_input == name), None)
        if name in self.counts:
            numbers = calls * self.counts[name]
        elif cache is not None:
            numbers = np.minimum(calls * cache.step, cache.slots)
        else:
            return np.zeros(sizes, dtype.numpy())
        aligned = numbers.reshape([-1, *[1] * (len(sizes) - 1)] if sizes else [])
        return np.array(np.broadcast_to(aligned, sizes), dtype.numpy())


def words_of(lookup: Lookup) -> str:
    """Return the finding on a lookup as text."""
    table = f"a table of {lookup.entries} entries at {lookup.source or lookup.node}"
    if lookup.beside:
        return f"follows from {lookup.beside} as well: nobody can tell when it leads behind the end of {table}"
    if lookup.calls is None:
        return f"never seen to lead behind the end of {table}"
    return f"{'' if lookup.is_exact else 'at most '}{lookup.calls} calls, then it leads behind the end of {table}"


def shortest(lookups: Sequence[Lookup]) -> int | None:
    """Return the number of calls of the lookup that ends first; None where none was seen to end."""
    return min((each.calls for each in lookups if each.calls is not None), default=None)
