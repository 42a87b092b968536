"""The wire format: what is walked is what was written, and what is broken is refused where it breaks."""

import onnx
import pytest

from runtime_lite import BundleRefused
from runtime_lite.format.wire_format import bytes_field, fields_of, spans_of, varint

# numbers, a text, repeated floats without packing, and a message within: every wire type that ONNX has
TENSOR = (
    b"\x08\x02\x10\x01" + bytes_field(8, b"weight") + b"\x25\x00\x00\x80\x3f\x25\x00\x00\x00\x40" + bytes_field(13, b"")
)


def test_fields_that_are_put_together_again_are_the_message() -> None:
    message = memoryview(TENSOR)
    spans = list(spans_of(message, "m"))
    assert b"".join(bytes(message[start:end]) for *_, start, end in spans) == TENSOR
    assert [number for number, *_ in spans] == [1, 2, 8, 4, 4, 13]
    assert [value if isinstance(value, int) else bytes(value) for _, value in fields_of(message, "m")] == [
        2, 1, b"weight", b"",
    ]  # fmt: skip


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2_000_000])
def test_a_field_is_written_as_protocol_buffers_write_it(size: int) -> None:
    content = onnx.TensorProto(raw_data=bytes(size)).SerializeToString()
    assert bytes_field(9, bytes(size)) == content
    ((number, value),) = fields_of(memoryview(content), "m")
    assert number == 9 and not isinstance(value, int) and bytes(value) == bytes(size)


@pytest.mark.parametrize(
    ("message", "got"),
    [
        (b"\x0b", "wire type 3 at byte 1"),
        (b"\x0a\x05abc", "a field of 5 bytes where 3 are left"),
        (b"\x0d\x00\x00", "a field of 4 bytes where 2 are left"),
        (b"\x08\xff", "a number without end at byte 2"),
        (b"\xff" * 20, "a number without end at byte 10"),
    ],
)
def test_a_broken_message_is_refused_where_it_breaks(message: bytes, got: str) -> None:
    with pytest.raises(BundleRefused, match=f"m: expected an ONNX file, got {got}"):
        list(fields_of(memoryview(message), "m"))


def test_numbers_are_read_to_their_ends() -> None:
    assert varint(memoryview(b"\x00\xac\x02"), 1, "m") == (300, 3)
    assert varint(memoryview(b"\xff" * 9 + b"\x01"), 0, "m") == (2**64 - 1, 10)
