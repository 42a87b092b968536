"""Runs one graph: checks feeds, chooses the bucket, pads inputs, runs, and slices outputs."""

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn

import numpy as np

from runtime_lite.calls.blocks import HOST, Block, BlockPool, by_place, joined, leading_block, leave, settle, share
from runtime_lite.calls.bucket import Bucket, Buffers, cut_outputs, full_feed, places_of_outputs
from runtime_lite.calls.feeds import Feed, FeedCheck, RowLengths, check_ragged_feed, part_of_feed
from runtime_lite.calls.in_place import Writer, after_run, hand_over, homes, is_in_place
from runtime_lite.calls.plan import bucket_fault, plan_runs, smallest_bucket
from runtime_lite.calls.state import StreamState, check_lengths, initial_lengths, longest
from runtime_lite.errors import BadInput
from runtime_lite.executors.executor import Executor
from runtime_lite.executors.memory import Crossed, memory_of
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Graph


class GraphRunner:
    """Runs one graph of a bundle.

    Args:
        name: graph name, for messages.
        graph: the graph's record in the manifest.
        executor: the backend that runs it.
        check_finite: refuse NaN and infinity in feeds.
    """

    def __init__(self, name: str, graph: Graph, executor: Executor, check_finite: bool) -> None:
        """Store the parts; no buffers are allocated yet."""
        self.name = name
        self.graph = graph
        self.executor = executor
        self._check_finite = check_finite
        self._feeds = FeedCheck(graph, check_finite)
        self._buckets: dict[tuple[int | None, ...], Bucket] = {}
        self._blocks = BlockPool(graph, memory_of(executor) or HOST)
        self._writer = Writer(graph, self._blocks.memory) if is_in_place(graph) else None
        self._has_held = any(axis.is_held for axis in graph.axes.values())

    @property
    def fed(self) -> dict[str, int | None]:
        """The batch axis of every input that a caller feeds, by name; None for an input without one."""
        return {tensor.name: self.graph.rows_at(tensor) for tensor in self.graph.inputs if tensor.role == "data"}

    @property
    def batched(self) -> dict[str, int]:
        """The batch axis of every output of role data, by name; empty if the graph has none."""
        found = {tensor.name: self.graph.rows_at(tensor) for tensor in self.graph.outputs if tensor.role == "data"}
        return {name: axis for name, axis in found.items() if axis is not None}

    def batching_fault(self) -> str | None:
        """Return why rows of several callers may not share a run, or None if they may."""
        if self.graph.batch_axis is None:
            return "one without an axis of rows"
        if not self.graph.rows_independent:
            return "one whose rows are not proved independent"
        shared = [name for name, rows_at in self.fed.items() if rows_at is None]
        return f"one whose input {shared[0]!r} holds for all rows" if shared else None

    @property
    def has_states(self) -> bool:
        """Whether the graph has states."""
        return bool(self.graph.states)

    @property
    def crossed(self) -> Crossed | None:
        """What has crossed between host and device in steps of the calling thread; None where they run on the host."""
        return self._blocks.memory.crossed

    @property
    def most_rows(self) -> int:
        """Number of rows of the largest bucket."""
        return self.graph.row_buckets[-1]

    @property
    def slots(self) -> dict[str, int]:
        """The largest length of a stream by axis, as `longest` returns it."""
        return longest(self.graph)

    def initial_state(self, rows: int) -> StreamState:
        """Return the state of a new stream."""
        values = self._blocks.initial(rows) if self.graph.states else {}
        return StreamState(rows, initial_lengths(self.graph, rows), values)

    def check(
        self,
        where: str,
        feeds: Mapping[str, Array],
        rows: int = 1,
        wired: Mapping[str, Array] = MappingProxyType({}),
        copy: bool = False,
    ) -> Feed:
        """Check a feed and return it, as `check_feed` does."""
        return self._feeds.check(where, feeds, rows, wired, copy)

    def known(self, feeds: Mapping[str, Array]) -> Feed | None:
        """Return the feed with unchecked values; None if no feed of its shapes and dtypes was checked before."""
        return self._feeds.known(feeds)

    def check_values(self, where: str, feed: Feed, copy: bool) -> Feed:
        """Check the values of a feed that `known` returned; return it, or a copy of it."""
        return self._feeds.check_values(where, feed, copy)

    def check_ragged(
        self, where: str, feeds: Mapping[str, Array], lengths: Mapping[str, RowLengths], copy: bool = False
    ) -> list[Feed]:
        """Return one checked feed per row."""
        return check_ragged_feed(where, self.graph, feeds, lengths, self._check_finite, copy)

    def plan(self, feeds: Sequence[Feed]) -> list[list[int]]:
        """Return, for every run, the indices of the feeds that share it."""
        return plan_runs(self.graph, feeds)

    def split(self, feed: Feed) -> list[Feed]:
        """Split a feed into parts of at most as many rows as the largest bucket, in order."""
        axis, most = self.graph.batch_axis, self.graph.row_buckets[-1]
        if axis is None or feed.rows <= most:
            return [feed]
        starts = range(0, feed.rows, most)
        return [part_of_feed(self.graph, feed, {axis: slice(start, start + most)}) for start in starts]

    def run(self, feeds: Sequence[Feed]) -> list[dict[str, Array]]:
        """Run checked feeds from the initial states, in as few runs as possible.

        Args:
            feeds: each with no more rows than the largest bucket; several only of a graph whose rows are independent.

        Returns:
            The outputs of role data of every feed, in the order of the feeds.
        """
        answers: dict[int, dict[str, Array]] = {}
        for numbers in self.plan(feeds):
            together = [feeds[number] for number in numbers]
            states = [self.initial_state(feed.rows) for feed in together]
            steps = self.step_streams(together, states, smallest_bucket(self.graph, together))
            answers |= {number: outputs for number, (outputs, _) in zip(numbers, steps, strict=True)}
        return [answers[number] for number in range(len(feeds))]

    def step(self, feed: Feed, state: StreamState) -> tuple[dict[str, Array], StreamState]:
        """Run a checked feed of one stream in the smallest bucket; return its outputs and the next state."""
        return self.step_streams([feed], [state], smallest_bucket(self.graph, [feed]))[0]

    def step_streams(
        self, feeds: Sequence[Feed], states: Sequence[StreamState], sizes: Mapping[str, int], fill: float = 0.0
    ) -> list[tuple[dict[str, Array], StreamState]]:
        """Run the next checked feeds of several streams together; each stream has its own lengths and age.

        Args:
            feeds: one per stream; their rows lie one after the other in the bucket.
            states: the state of each stream, with as many rows as its feed. They are not changed, whether the run
                succeeds or fails.
            sizes: bucket of every axis.
            fill: value of the padding of floating-point inputs.

        Returns:
            For every stream the valid part of its outputs of role data, in arrays of its own, and its next state.

        Raises:
            BadInput: the streams may not share a run or do not fit into the bucket, a state has another number of rows
                than its feed, or the length of a feed along an axis of a state differs from that of earlier calls.
        """
        where = f"{self.name}.step_streams"
        if len(feeds) > 1 and (fault := self.batching_fault()):
            _refuse(where, "a graph that may take rows of several streams", fault, "run each stream alone")
        if [feed.rows for feed in feeds] != [state.rows for state in states]:
            rows = f"{[feed.rows for feed in feeds]} rows fed to states of {[state.rows for state in states]}"
            _refuse(where, "a state for the rows of every feed", rows, "give each feed its own stream's state")
        order = None if len(states) == 1 else by_place([state.values for state in states])
        if order is not None:
            feeds, states = [feeds[index] for index in order], [states[index] for index in order]
        if self._has_held:
            check_lengths(where, self.graph, [feed.sizes for feed in feeds], states)
        bucket = self._bucket(where, feeds, sizes)
        buffers = bucket.take()
        self._blocks.keep_for(bucket.made)
        try:
            if self._writer is None:
                answers, after = self._run_replaced(bucket, buffers, feeds, states, fill)
            else:
                answers, after = self._run_in_place(self._writer, bucket, buffers, feeds, states, fill)
        except BaseException:
            bucket.lose()
            raise
        bucket.give_back(buffers)
        if order is None:
            return [(answers[0], after[0])]
        steps = dict(zip(order, zip(answers, after, strict=True), strict=True))
        return [steps[index] for index in range(len(steps))]

    def _run_replaced(
        self, bucket: Bucket, buffers: Buffers, feeds: Sequence[Feed], states: Sequence[StreamState], fill: float
    ) -> tuple[list[dict[str, Array]], list[StreamState]]:
        """Run feeds; return the outputs, and next states that lie in a block which the run has written."""
        carried = [state.values for state in states]
        outputs = places_of_outputs(bucket, feeds, buffers.outputs)
        block = self._blocks.take(bucket.rows) if self.graph.states else None
        if block is not None:
            outputs |= {state.output: block.arrays[state.input] for state in self.graph.states}
        together = joined(self._blocks, carried, bucket.rows) if self.graph.states else {}
        inputs = full_feed(bucket, feeds, states, together, buffers.inputs, fill)
        self.executor.run(bucket.sizes, inputs, outputs)
        answers = cut_outputs(self.name, bucket, outputs, feeds)
        after = self._next_states(block, states, feeds)
        leave(states)
        return answers, after

    def _run_in_place(
        self,
        writer: Writer,
        bucket: Bucket,
        buffers: Buffers,
        feeds: Sequence[Feed],
        states: Sequence[StreamState],
        fill: float,
    ) -> tuple[list[dict[str, Array]], list[StreamState]]:
        """Run feeds; return the outputs, and next states that lie in the rows of the states before them.

        The new frames of the run are written into these rows later.
        """
        held = homes(writer, self._blocks, states, bucket.rows)
        after = next_states(self.graph, states, held, [feed.sizes for feed in feeds])  # refused if they do not fit
        outputs = places_of_outputs(bucket, feeds, buffers.outputs)
        state_outputs = self._blocks.memory.empty(bucket.given)
        block = leading_block(held, bucket.rows)
        views = [rows.views() for rows in held]
        together = joined(self._blocks, views, bucket.rows) if block is None else block.arrays
        inputs = full_feed(bucket, feeds, states, together, buffers.inputs, fill)
        self.executor.run(bucket.sizes, inputs, outputs | state_outputs)
        answers = cut_outputs(self.name, bucket, outputs, feeds)
        for new, values in zip(after, after_run(self.graph, states, held, feeds, state_outputs), strict=True):
            new.values = values
        hand_over(states, after)
        return answers, after

    def trim(self) -> None:
        """Free the memory that is kept for later runs and not in use."""
        for bucket in self._buckets.values():
            bucket.trim()
        self._blocks.trim()

    def close(self) -> None:
        """Close the backend and free all buffers; call it when nothing runs any more."""
        self.executor.close()
        self._buckets.clear()
        self._blocks.close()

    def _next_states(
        self, block: Block | None, states: Sequence[StreamState], feeds: Sequence[Feed]
    ) -> list[StreamState]:
        values: Sequence[Mapping[str, Array]] = (
            [{}] * len(states) if block is None else settle(block, [state.rows for state in states])
        )
        after = next_states(self.graph, states, values, [feed.sizes for feed in feeds])
        share(after)
        return after

    def _bucket(self, where: str, feeds: Sequence[Feed], sizes: Mapping[str, int]) -> Bucket:
        """Return the bucket of a run of some feeds; BadInput if it does not hold them."""
        at = tuple(sizes.get(axis) for axis in self.graph.axes)
        bucket = self._buckets.get(at)
        if bucket is not None and len(feeds) == 1 and feeds[0].sizes == bucket.sizes:
            return bucket
        if fault := bucket_fault(self.graph, feeds, sizes):
            _refuse(where, f"feeds that the bucket {dict(sizes)} holds", fault, "choose another bucket")
        return bucket or self._new_bucket({axis: sizes[axis] for axis in self.graph.axes})

    def _new_bucket(self, sizes: Mapping[str, int]) -> Bucket:
        """Add a bucket; one whose number of rows was not built uses the memory of the next larger one."""
        at = tuple(sizes[axis] for axis in self.graph.axes)
        built = dict(sizes)
        if (batch := self.graph.batch_axis) is not None:
            built[batch] = next(rows for rows in self.graph.row_buckets if rows >= sizes[batch])
        if built == sizes:
            return self._buckets.setdefault(at, Bucket(self.graph, sizes))
        within = self._buckets.get(tuple(built[axis] for axis in self.graph.axes)) or self._new_bucket(built)
        return self._buckets.setdefault(at, Bucket(self.graph, sizes, within))


def next_states(
    graph: Graph,
    states: Sequence[StreamState],
    values: Sequence[Mapping[str, Array]],
    sizes: Sequence[Mapping[str, int]],
) -> list[StreamState]:
    """Return the states of streams after they have run together.

    Args:
        graph: the graph that ran.
        states: the state of each stream before the run.
        values: the new state arrays of each stream, by graph input.
        sizes: true sizes of the feed of each stream.
    """
    rows = [state.rows for state in states]
    lengths: list[dict[str, Array]] = [{} for _ in states]
    for cache in graph.caches:
        added = cache.step if cache.added is None else np.repeat([cache.frames_of(fed) for fed in sizes], rows)
        after = cache.after_call(np.concatenate([state.lengths[cache.axis] for state in states]), added)
        for stream_lengths, start, count in zip(lengths, itertools.accumulate(rows, initial=0), rows, strict=False):
            stream_lengths[cache.axis] = after[start : start + count]
    for axis in [name for name, record in graph.axes.items() if record.is_held]:
        for stream_lengths, fed, count in zip(lengths, sizes, rows, strict=True):
            stream_lengths[axis] = np.full(count, fed[axis])
    return [StreamState(*fields) for fields in zip(rows, lengths, values, strict=True)]


def _refuse(where: str, expected: str, got: str, cure: str) -> NoReturn:
    raise BadInput(f"{where}: expected {expected}, got {got}; {cure}")
