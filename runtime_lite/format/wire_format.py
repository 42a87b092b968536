"""Reads the wire format of Protocol Buffers, as far as ONNX files use it; contents are not copied."""

from collections.abc import Iterator

from runtime_lite.format.checked_json import refuse

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; groups (3, 4) do not occur in ONNX


def fields_of(message: memoryview, where: str) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of every field; fixed-width values are skipped.

    Raises:
        BundleRefused: it is not a well-formed message.
    """
    for number, value, _, _ in spans_of(message, where):
        if value is not None:
            yield number, value


def spans_of(message: memoryview, where: str) -> Iterator[tuple[int, int | memoryview | None, int, int]]:
    """Yield number, value, start and end of every field; the value of a fixed-width field is None.

    Raises:
        BundleRefused: it is not a well-formed message.
    """
    position = 0
    while position < len(message):
        start = position
        key, position = varint(message, position, where)
        number, wire_type = key >> 3, key & 7
        if wire_type == _VARINT:
            value, position = varint(message, position, where)
            yield number, value, start, position
            continue
        if wire_type == _BYTES:
            size, position = varint(message, position, where)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            refuse(where, "an ONNX file", f"wire type {wire_type} at byte {position}")
        if size > len(message) - position:
            refuse(where, "an ONNX file", f"a field of {size} bytes where {len(message) - position} are left")
        content = message[position : position + size] if wire_type == _BYTES else None
        position += size
        yield number, content, start, position


def varint(message: memoryview, at: int, where: str) -> tuple[int, int]:
    """Return the number at the position `at`, and the position after it.

    Raises:
        BundleRefused: the number does not end.
    """
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    refuse(where, "an ONNX file", f"a number without end at byte {at}")


def bytes_field(number: int, content: bytes) -> bytes:
    """Return the encoding of a field that contains bytes, text or a message."""
    header, size = bytearray([number << 3 | _BYTES]), len(content)
    while size > 0x7F:
        header.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*header, size]) + content
