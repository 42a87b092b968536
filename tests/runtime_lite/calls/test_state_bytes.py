"""States as bytes: they come back as they were, and whatever else comes is refused by name, before it costs memory."""

import dataclasses
import hashlib
import random
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from runtime_lite.calls.state import StreamState, initial_state, longest
from runtime_lite.calls.state_bytes import (
    HEADER,
    MAGIC,
    SIGNED_FROM,
    Origin,
    bytes_of_state,
    generation_in,
    state_from_bytes,
)
from runtime_lite.errors import BadInput
from runtime_lite.format.manifest import Graph
from tests.runtime_lite.bundles import streaming_graph

GRAPH = streaming_graph()
ORIGIN = Origin("ab" * 32, "streaming", "room 7", 3, 12)


def filled(graph: Graph = GRAPH, rows: int = 2) -> StreamState:
    state = initial_state(graph, rows)
    draw = np.random.default_rng(4)
    values = {name: draw.integers(0, 2, like.shape).astype(like.dtype) for name, like in state.values.items()}
    return StreamState(rows, {axis: np.arange(rows) for axis in state.lengths}, values)


def read(content: bytes, expected: Origin = ORIGIN, graph: Graph = GRAPH, rows: int = 2) -> tuple[StreamState, int]:
    return state_from_bytes("here", content, expected, initial_state(graph, rows), longest(graph))


def signed(content: bytes) -> bytes:
    """With the right digest, as somebody writes who means it."""
    return content[:10] + hashlib.sha256(content[SIGNED_FROM:]).digest() + content[SIGNED_FROM:]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", "uint8"])
def test_a_state_comes_back_bit_for_bit_with_a_header_of_154_bytes_beside_it(dtype: str) -> None:
    keys = dataclasses.replace(GRAPH.states[0], dtype=dtype)
    graph = dataclasses.replace(GRAPH, states=(keys,))
    state = filled(graph)
    content = bytes_of_state(ORIGIN, state)
    found, sequence = read(content, graph=graph)
    assert sequence == 12 and found.rows == 2
    for name in state.values:
        assert found.values[name].dtype == state.values[name].dtype
        np.testing.assert_array_equal(found.values[name], state.values[name])
        found.values[name][...] = 0  # its memory is its own
    np.testing.assert_array_equal(found.lengths["cache"], [0, 1])
    arrays = [*state.lengths.values(), *state.values.values()]
    assert len(content) == 154 + sum(array.nbytes for array in arrays)
    assert HEADER.size == 154 and generation_in(content) == 3
    assert generation_in(b"") == 0


def test_equal_states_give_equal_bytes() -> None:
    assert bytes_of_state(ORIGIN, filled()) == bytes_of_state(ORIGIN, filled())


CONTENT = bytes_of_state(ORIGIN, filled())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: read(b""), "expected the bytes of a snapshot, got b''"),
        (lambda: read(CONTENT[:100]), "expected the bytes of a snapshot"),
        (lambda: read(b"PK\x03\x04" + bytes(400)), "expected the bytes of a snapshot, got b'PK"),
        (lambda: read(bytearray(CONTENT)), "expected the bytes of a snapshot, got a bytearray"),  # type: ignore[arg-type]
        (lambda: read(CONTENT[:-1]), f"expected {len(CONTENT)} bytes, got {len(CONTENT) - 1}; .*cut off"),
        (lambda: read(CONTENT + b"x"), f"expected {len(CONTENT)} bytes, got {len(CONTENT) + 1}"),
        (lambda: read(MAGIC + b"\x02\x00" + CONTENT[10:]), "expected a snapshot of version 1, got version 2"),
        (lambda: read(CONTENT, ORIGIN._replace(bundle="cd" * 32)), "a state belongs to the weights that made it"),
        (lambda: read(CONTENT, ORIGIN._replace(graph="other")), "expected the states of the graph 'other' for 2 rows"),
        (lambda: read(CONTENT, rows=1), "expected the states of the graph 'streaming' for 1 rows, got those of"),
        (
            lambda: read(CONTENT, ORIGIN._replace(stream="room 8")),
            "a snapshot of the stream 'room 8', got one of anoth",
        ),
        (lambda: read(CONTENT, ORIGIN._replace(stream="")), "expected a snapshot of a stream without a name"),
        (lambda: read(CONTENT, ORIGIN._replace(generation=4)), "expected a snapshot of generation 4, got one of gen"),
    ],
)
def test_what_is_something_else_is_refused_by_name(call: Callable[[], object], message: str) -> None:
    with pytest.raises(BadInput, match=f"here: .*{message}"):
        call()


def test_every_damaged_bit_is_found() -> None:
    draw = random.Random(3)
    for _ in range(400):
        damaged = bytearray(CONTENT)
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        with pytest.raises(BadInput, match=r"^here: expected .*, got .*; "):
            read(bytes(damaged))


def test_forged_bytes_with_the_right_digest_cannot_leave_the_bounds_of_a_stream() -> None:
    too_long = filled()
    too_long.lengths["cache"][...] = 6
    with pytest.raises(BadInput, match=r"'cache': expected lengths from 0 to 5, got \[6, 6\]"):
        read(bytes_of_state(ORIGIN, too_long))
    with pytest.raises(BadInput, match="SHA-256"):
        read(signed(CONTENT[:146] + b"\xff" * 8 + CONTENT[154:]))  # more chunks than a number holds
    keys = dataclasses.replace(GRAPH.states[0], dtype="bool")
    graph = dataclasses.replace(GRAPH, states=(keys,))
    content = bytes_of_state(ORIGIN, filled(graph))
    with pytest.raises(BadInput, match="'keys': expected booleans, got bytes other than 0 and 1"):
        read(signed(content[:-1] + b"\x07"), graph=graph)


def test_bytes_that_say_that_they_are_large_cost_no_memory() -> None:
    """What is expected follows from the reader's graph: no size in the bytes is believed."""
    content = CONTENT[: HEADER.size] + bytes(2**24)
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match=f"expected {len(CONTENT)} bytes, got"):
            read(content)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
