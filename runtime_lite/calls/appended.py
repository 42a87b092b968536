"""States to which a call appends: its new frames are written behind the valid ones, in the memory that a stream has.

A step then moves one frame of a cache, not all of it. No frame that lies there is written again, so that a state stays
what it was while a later one lies in the same memory: whoever goes on from a state whose next slots are taken, by a
run that was cancelled or from a state that was kept, gets a copy. Slots without a frame hold the initial value.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from runtime_lite.calls.blocks import Block, BlockPool, RowsOfBlock, leave, share, whole_block
from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.state import StreamState
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Graph


def is_appended(graph: Graph) -> bool:
    """Whether the states of a graph lie along a cache to which calls append."""
    return any(not cache.kind.is_given_whole for cache in graph.caches)


def homes(graph: Graph, pool: BlockPool, states: Sequence[StreamState], rows: int) -> list[RowsOfBlock]:
    """Return where the rows of some streams lie that are to run together: what they carry, and room for new frames.

    They stay where they are, but where what comes behind their frames is written already. Several that fill a bucket
    and lie apart are copied into one block, where they stay together.

    Args:
        graph: what is to run.
        pool: its blocks.
        states: what each stream carries; not changed.
        rows: of the bucket that was built for the run.
    """
    kept = [_kept(state) for state in states]
    carried = [each for each in kept if each is not None]
    fills = sum(state.rows for state in states) == rows
    if len(carried) == len(states) and (len(states) == 1 or not fills or whole_block(carried, rows) is not None):
        return carried
    together = pool.take(rows) if fills and len(states) > 1 else None
    found, start = [], 0
    for state, own in zip(states, kept, strict=True):
        if together is not None:
            found.append(_copied(graph, state, together, start))
        else:
            found.append(_copied(graph, state, pool.take(state.rows), 0) if own is None else own)
        start += state.rows
    return found


def _kept(state: StreamState) -> RowsOfBlock | None:
    """The rows in which a state lies, if nothing is written behind its frames there."""
    values = state.values
    if not isinstance(values, RowsOfBlock):
        return None
    rows = slice(values.start, values.start + values.rows)
    taken = values.block.taken
    return values if all(np.array_equal(taken[axis][rows], own) for axis, own in state.lengths.items()) else None


def _copied(graph: Graph, state: StreamState, block: Block, start: int) -> RowsOfBlock:
    """A state in rows of a block; what lies behind its frames is left behind."""
    values = state.values
    for each in graph.states:
        assert each.cache is not None and each.frames_axis is not None and not isinstance(each.initial, tuple)
        place = block.rows_of(each.input, start, state.rows)
        np.copyto(place, values[each.input])
        for row, length in enumerate(state.lengths[each.cache].tolist()):
            _of_row(graph, place, row)[_frames(each.frames_axis, graph, slice(length, None))] = each.initial
    for axis, lengths in state.lengths.items():
        block.taken[axis][start : start + state.rows] = lengths
    return RowsOfBlock(block, start, state.rows)


def append_frames(
    graph: Graph,
    states: Sequence[StreamState],
    carried: Sequence[RowsOfBlock],
    feeds: Sequence[Feed],
    outputs: Mapping[str, Array],
) -> None:
    """Write the frames that a run has given behind those of its streams.

    Args:
        graph: what ran.
        states: what the streams carried; there is room for the frames.
        carried: where they lie.
        feeds: what they were fed.
        outputs: of the run, new frames first, rows of all streams one after the other.
    """
    first = 0
    for state, values, feed in zip(states, carried, feeds, strict=True):
        for cache in graph.caches:
            lengths, added = state.lengths[cache.axis], cache.frames_of(feed.sizes)
            # before anything is written: who copies these rows meanwhile sees that the slots are taken
            values.block.taken[cache.axis][values.start : values.start + values.rows] = lengths + added
            for each in graph.states:
                assert each.frames_axis is not None
                place, given = values[each.input], outputs[each.output]
                for row, length in enumerate(lengths.tolist()):
                    for slots, frames in cache.kind.moves(cache.slots, length, added):
                        new = _of_row(graph, given, first + row)[_frames(each.frames_axis, graph, frames)]
                        _of_row(graph, place, row)[_frames(each.frames_axis, graph, slots)] = new
        first += state.rows


def _of_row(graph: Graph, array: Array, row: int) -> Array:
    return array if graph.batch_axis is None else array[row]


def _frames(axis: int, graph: Graph, frames: slice) -> tuple[slice, ...]:
    """Some frames of a row; rows lie in front."""
    return (slice(None),) * (axis if graph.batch_axis is None else axis - 1) + (frames,)


def hand_over(states: Sequence[StreamState], after: Sequence[StreamState]) -> None:
    """Let those who share a block know of states that came in the place of others, or that lie elsewhere now."""
    moved = [old for old, new in zip(states, after, strict=True) if _block(old) is not _block(new)]
    leave(moved)
    for old, new in zip(states, after, strict=True):
        block = _block(new)
        if old not in moved and block is not None:
            block.put_in_place(old, new)
    if moved:
        share(after)


def _block(state: StreamState) -> Block | None:
    return state.values.block if isinstance(state.values, RowsOfBlock) else None
