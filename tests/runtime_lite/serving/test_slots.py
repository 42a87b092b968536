"""A slot is freed once, and nothing stale writes to it."""

import random

import pytest

from runtime_lite.calls.blocks import Block, BlockPool, RowsOfBlock, settle, share
from runtime_lite.calls.state import StreamState
from runtime_lite.serving.live_streams import Slots
from runtime_lite.serving.request import Hold
from tests.runtime_lite.bundles import streaming_graph


def state() -> StreamState:
    return StreamState(1, {}, {})


def test_a_stale_hold_reads_writes_and_frees_nothing() -> None:
    slots = Slots(1)
    first, after = state(), state()
    old = slots.take(first)
    assert old is not None and slots.take(state()) is None
    assert slots.state(old) is first
    assert slots.commit(old, after) and slots.state(old) is after
    assert slots.free(old) and not slots.free(old)
    new = slots.take(first)
    assert new is not None and new.slot == old.slot and new != old
    assert not slots.commit(old, after) and not slots.free(old) and slots.state(old) is None
    assert slots.state(new) is first and slots.taken == 1


def in_one_block() -> list[StreamState]:
    """Two states that share a block: the first has so much of it that it is too large for the second."""
    states = [
        StreamState(rows, {}, values)
        for rows, values in zip((7, 1), settle(BlockPool(streaming_graph()).take(8), (7, 1)), strict=True)
    ]
    share(states)
    return states


def rows_of_its_block(state: StreamState) -> int:
    assert isinstance(state.values, RowsOfBlock)
    return state.values.block.rows


def test_what_a_slot_lets_go_of_leaves_the_block_that_it_shared() -> None:
    for let_go in (Slots.free, lambda slots, hold: slots.commit(hold, state())):
        slots, (first, second) = Slots(2), in_one_block()
        hold, _ = slots.take(first), slots.take(second)
        assert hold is not None and rows_of_its_block(second) == 8
        assert let_go(slots, hold)
        assert rows_of_its_block(second) == 1


def test_a_state_that_took_the_place_of_the_one_before_asks_no_sharer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every stream of a run would look at all others."""
    slots, (first, second) = Slots(2), in_one_block()
    assert isinstance(first.values, RowsOfBlock)
    block = first.values.block
    after = StreamState(7, {}, RowsOfBlock(block, 0, 7))
    block.put_in_place(first, after)
    hold, _ = slots.take(first), slots.take(second)
    assert hold is not None
    monkeypatch.setattr(Block, "let_go", None)
    assert slots.commit(hold, after)
    assert [sharer() for sharer in block.sharers] == [after, second]


def test_a_state_that_comes_too_late_leaves_the_block_that_it_shared() -> None:
    slots, (late, in_time) = Slots(1), in_one_block()
    hold = slots.take(state())
    assert hold is not None and slots.free(hold)
    assert not slots.commit(hold, late)
    assert rows_of_its_block(in_time) == 1


def test_any_order_of_takes_and_frees_loses_no_slot() -> None:
    order, slots = random.Random(1), Slots(5)
    live: dict[Hold, StreamState] = {}
    stale: list[Hold] = []
    for _ in range(3000):
        action = order.random()
        if action < 0.5:
            fresh = state()
            hold = slots.take(fresh)
            assert (hold is None) == (len(live) == 5)
            if hold is not None:
                assert hold not in live and hold not in stale
                live[hold] = fresh
        elif action < 0.8 and live:
            hold = order.choice(list(live))
            assert slots.free(hold)
            stale.append(hold)
            del live[hold]
        elif stale:
            assert not slots.free(order.choice(stale))
        assert slots.taken == len(live)
        assert all(slots.state(hold) is value for hold, value in live.items())
