"""Serialises the state of a stream, so that another process can continue it, and reads such bytes without trust.

A header of fixed size is followed by the arrays, one after the other without gaps, in little-endian C order: lengths
by axis, then values by graph input, each sorted by name. The bytes do not say what the arrays are: the reader has a
stream of the same bundle, and a digest of names, dtypes and shapes must agree with it. So the length that is expected
is known before anything is read, and no size that the bytes state leads to an allocation.

    offset  bytes
         0      8  magic
         8      2  version of the format
        10     32  SHA-256 of all bytes behind it
        42     32  identity of the bundle
        74     32  digest of the schema: graph, rows, names, dtypes and shapes
       106     32  SHA-256 of the name of the stream; zeros without a name
       138      8  generation of the stream
       146      8  number of chunks that had been run
       154         arrays

The digest finds damage. It authenticates nothing: whoever can write the bytes can write values of a state.
"""

import hashlib
import struct
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

import numpy as np

from runtime_lite.calls.state import StreamState, check_state
from runtime_lite.errors import BadInput, show
from runtime_lite.format.arrays import Array
from runtime_lite.format.canonical_json import canonical_json

MAGIC, VERSION = b"SLIPSNAP", 1
HEADER = struct.Struct("<8sH32s32s32s32sQQ")
SIGNED_FROM = struct.calcsize("<8sH32s")
"""Offset of the first byte that the SHA-256 in the header covers."""

MOST_CHUNKS = 2**63 - 1
"""Largest number of chunks and largest generation that fit the header and a signed integer of its readers."""


class Origin(NamedTuple):
    """The stream that a state belongs to, and the moment.

    Attributes:
        bundle: identity of the bundle, a SHA-256 in lower-case hex.
        graph: graph name, or the names of wired graphs.
        stream: the caller's name of the stream; empty for a stream without one.
        generation: generation of the stream; 0 for a stream without one.
        sequence: number of chunks that had been run.
    """

    bundle: str
    graph: str
    stream: str = ""
    generation: int = 0
    sequence: int = 0


def bytes_of_state(origin: Origin, state: StreamState) -> bytes:
    """Return the bytes of a state; their number is that of the arrays and of a header of 154 bytes."""
    digests = bytes.fromhex(origin.bundle), _schema(origin.graph, state), _name_digest(origin.stream)
    body = [array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes() for _, array in _arrays(state)]
    fields = MAGIC, VERSION, bytes(32), *digests, origin.generation, origin.sequence
    signed = HEADER.pack(*fields)[SIGNED_FROM:]
    digest = hashlib.sha256(signed)
    for part in body:
        digest.update(part)
    return b"".join([HEADER.pack(MAGIC, VERSION, digest.digest(), *digests, *fields[6:]), *body])


def state_from_bytes(
    where: str, content: bytes, expected: Origin, initial: StreamState, slots: Mapping[str, int]
) -> tuple[StreamState, int]:
    """Read the state of a stream that `bytes_of_state` has written.

    Args:
        where: names the call in messages.
        content: untrusted bytes.
        expected: bundle, graph, stream and generation that the state must have; its `sequence` is not compared.
        initial: state of a new stream of the same graphs and rows.
        slots: the largest length of a stream, by axis.

    Returns:
        The state, which shares no memory with the bytes, and the number of chunks that had been run.

    Raises:
        BadInput: the bytes are of something else, of another version, bundle, graph, number of rows, stream or
            generation, damaged or cut off, or a length is out of range.
    """
    if type(content) is not bytes or content[: len(MAGIC)] != MAGIC or len(content) < HEADER.size:
        got = show(content[:16]) if type(content) is bytes else f"a {type(content).__name__}"
        _refuse(where, "the bytes of a snapshot", got, "pass what to_bytes() or a drain gave")
    _, version, digest, bundle, schema, name, generation, sequence = HEADER.unpack_from(content)
    if version != VERSION:
        _refuse(where, f"a snapshot of version {VERSION}", f"version {version}", "use one version of the runtime")
    if bundle.hex() != expected.bundle:
        _refuse(
            where,
            f"a snapshot of the bundle {expected.bundle[:12]}",
            f"one of the bundle {bundle.hex()[:12]}",
            "a state belongs to the weights that made it: restore it where that bundle is loaded",
        )
    if schema != _schema(expected.graph, initial):
        _refuse(
            where,
            f"the states of the graph {expected.graph!r} for {initial.rows} rows",
            "those of another graph or number of rows",
            "open the stream with the graph and rows of the one that the snapshot is of",
        )
    if name != _name_digest(expected.stream):
        _refuse(where, f"a snapshot of {_stream(expected)}", "one of another stream", "restore each to its own stream")
    if generation != expected.generation:
        _refuse(
            where,
            f"a snapshot of generation {expected.generation}",
            f"one of generation {generation}",
            "restore the newest snapshot of the stream",
        )
    size = HEADER.size + sum(array.nbytes for _, array in _arrays(initial))
    if len(content) != size:
        _refuse(where, f"{size} bytes", str(len(content)), "send the snapshot again, it may be cut off")
    if hashlib.sha256(memoryview(content)[SIGNED_FROM:]).digest() != digest or sequence > MOST_CHUNKS:
        _refuse(where, "bytes with the SHA-256 of their header", "others", "send the snapshot again, it is damaged")
    state = _read(where, content, initial)
    check_state(where, state, initial, slots)
    return state, sequence


def generation_in(content: bytes) -> int:
    """Return the generation that the header of a snapshot states; 0 for bytes without a header, which are no snapshot.

    Nothing is checked: `state_from_bytes` does that, with the generation as the expected one.
    """
    if type(content) is not bytes or len(content) < HEADER.size:
        return 0
    generation: int = HEADER.unpack_from(content)[6]
    return generation


def _arrays(state: StreamState) -> list[tuple[str, Array]]:
    """Return the arrays of a state in the order of the bytes."""
    lengths, values = state.lengths, state.values
    return [*((axis, lengths[axis]) for axis in sorted(lengths)), *((name, values[name]) for name in sorted(values))]


def _read(where: str, content: bytes, initial: StreamState) -> StreamState:
    offset = HEADER.size
    read: list[Array] = []
    for name, like in _arrays(initial):
        stored = np.frombuffer(content, like.dtype.newbyteorder("<"), like.size, offset).reshape(like.shape)
        if like.dtype == bool and np.any(stored.view(np.uint8) > 1):
            _refuse(f"{where}: {name!r}", "booleans", "bytes other than 0 and 1", "restore what snapshot() gave")
        read.append(stored.astype(like.dtype))
        offset += like.nbytes
    count = len(initial.lengths)
    lengths = dict(zip(sorted(initial.lengths), read[:count], strict=True))
    return StreamState(initial.rows, lengths, dict(zip(sorted(initial.values), read[count:], strict=True)))


def _schema(graph: str, state: StreamState) -> bytes:
    """Return the digest of everything that decides where an array lies in the bytes."""
    arrays = [[name, str(array.dtype), list(array.shape)] for name, array in _arrays(state)]
    content = {"graph": graph, "rows": state.rows, "lengths": len(state.lengths), "arrays": arrays}
    return hashlib.sha256(canonical_json(content)).digest()


def _name_digest(stream: str) -> bytes:
    return hashlib.sha256(stream.encode("utf-8", "surrogatepass")).digest() if stream else bytes(32)


def _stream(origin: Origin) -> str:
    return f"the stream {show(origin.stream)}" if origin.stream else "a stream without a name"


def _refuse(where: str, expected: str, got: str, cure: str) -> NoReturn:
    raise BadInput(f"{where}: expected {expected}, got {got}; {cure}")
