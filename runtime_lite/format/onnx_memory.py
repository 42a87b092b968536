"""Rewrites an ONNX file so that its external tensors are in memory, for a backend that opens files by itself.

The backend then reads the checked bytes and opens no file. The location is written as ONNX Runtime does for other
backends: a location that is no file name, and an address in place of the offset.
"""

from collections.abc import Callable, Mapping

from runtime_lite.errors import show
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.onnx_file import EXTERNAL_DATA, GRAPH, INITIALIZER, external_data_of, scan_onnx
from runtime_lite.format.wire_format import bytes_field, spans_of

IN_MEMORY = "*/_ORT_MEM_ADDR_/*"


def in_memory(content: bytes, where: str, addresses: Mapping[str, int]) -> bytes:
    """Return an ONNX file whose external tensors refer to memory.

    Args:
        content: the file.
        where: its name, for messages.
        addresses: address of the first byte of every external file, by location as the ONNX file states it.

    Raises:
        BundleRefused: an external tensor is no initializer of the main graph, or has no length.
    """

    def moved(tensor: memoryview) -> bytes:
        return _moved(tensor, where, addresses)

    def with_moved(graph: memoryview) -> bytes:
        return _edited(graph, where, INITIALIZER, moved)

    edited = _edited(memoryview(content), where, GRAPH, with_moved)
    left = [tensor.location for tensor in scan_onnx(edited, where).external if tensor.location != IN_MEMORY]
    if left:
        refuse(where, "external data in initializers of the main graph", f"{show(left[0])} elsewhere")
    return edited


def _moved(tensor: memoryview, where: str, addresses: Mapping[str, int]) -> bytes:
    found = external_data_of(tensor, where)
    if found is None:
        return bytes(tensor)
    if found.length == 0:
        refuse(where, "external_data with its length", "none")
    place = {"location": IN_MEMORY, "offset": addresses[found.location] + found.offset, "length": found.length}
    kept = [bytes(tensor[start:end]) for number, _, start, end in spans_of(tensor, where) if number != EXTERNAL_DATA]
    entries = [bytes_field(1, key.encode()) + bytes_field(2, str(value).encode()) for key, value in place.items()]
    return b"".join([*kept, *(bytes_field(EXTERNAL_DATA, entry) for entry in entries)])


def _edited(message: memoryview, where: str, wanted: int, edit: Callable[[memoryview], bytes]) -> bytes:
    """Return a message with `edit` applied to every field of one number."""
    return b"".join(
        bytes_field(number, edit(value))
        if number == wanted and isinstance(value, memoryview)
        else bytes(message[start:end])
        for number, value, start, end in spans_of(message, where)
    )
