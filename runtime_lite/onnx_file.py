"""Reads from an ONNX file, without the onnx package, what must be known before a backend may open it.

A backend follows the `external_data` locations inside the file to other files of the machine; this finds every one of
them, in initializers, attributes, subgraphs and functions, so that the executor can refuse a location that the manifest
does not list. Only the Protocol Buffers wire format is walked; tensor contents are skipped, not copied.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from runtime_lite.checked_json import refuse
from runtime_lite.errors import show

MAX_DEPTH = 64

# message -> field number -> message: the paths on which a TensorProto can lie (onnx.proto, IR version 13)
CHILDREN: dict[str, dict[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "TensorProto": {},
}
_EXTERNAL_DATA = 13  # TensorProto.external_data, entries of StringStringEntryProto key = 1, value = 2
_IR_VERSION, _OPSET_IMPORT = 1, 8  # of ModelProto; OperatorSetIdProto has domain = 1, version = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; groups (3, 4) do not occur in ONNX


@dataclass(frozen=True)
class ExternalData:
    """Where a tensor's content lies outside the ONNX file.

    Attributes:
        location: path relative to the folder of the ONNX file, as it is written there.
        end: offset of the first byte after the content, as far as it is written there.
    """

    location: str
    end: int


@dataclass
class OnnxFile:
    """What was found in an ONNX file.

    Attributes:
        ir_version: 0 when absent.
        opset: version of the default domain, 0 when absent.
        external: every external tensor.
    """

    ir_version: int = 0
    opset: int = 0
    external: list[ExternalData] = field(default_factory=list)


def scan_onnx(content: bytes, where: str) -> OnnxFile:
    """Return what an ONNX file says about its versions and its external data.

    Raises:
        BundleRefused: it is not a well-formed Protocol Buffers message or nests without end.
    """
    found = OnnxFile()
    _scan(memoryview(content), "ModelProto", found, where, 0)
    return found


def _scan(message: memoryview, kind: str, found: OnnxFile, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        refuse(where, f"graphs nested at most {MAX_DEPTH} deep", "deeper ones")
    entries: list[tuple[str, str]] = []
    for number, value in _fields(message, where):
        if isinstance(value, int):
            if kind == "ModelProto" and number == _IR_VERSION:
                found.ir_version = value
        elif number in CHILDREN[kind]:
            _scan(value, CHILDREN[kind][number], found, where, depth + 1)
        elif kind == "ModelProto" and number == _OPSET_IMPORT:
            _scan_opset(value, found, where)
        elif kind == "TensorProto" and number == _EXTERNAL_DATA:
            entries.append(_entry(value, where))
    if entries:
        found.external.append(_external_data(entries, where))


def _scan_opset(message: memoryview, found: OnnxFile, where: str) -> None:
    domain, version = b"", 0
    for number, value in _fields(message, where):
        if number == 1 and not isinstance(value, int):
            domain = bytes(value)
        elif number == 2 and isinstance(value, int):
            version = value
    if domain in (b"", b"ai.onnx"):
        found.opset = version


def _entry(message: memoryview, where: str) -> tuple[str, str]:
    texts = {1: "", 2: ""}
    for number, value in _fields(message, where):
        if number in texts and not isinstance(value, int):
            if len(value) > 4096:
                refuse(where, "external_data entries of at most 4096 bytes", str(len(value)))
            texts[number] = bytes(value).decode("utf-8", "backslashreplace")
    return texts[1], texts[2]


def _external_data(entries: list[tuple[str, str]], where: str) -> ExternalData:
    known = dict(entries)
    if len(known) != len(entries) or "location" not in known:
        refuse(where, "external_data with one location and every key once", show(entries))
    for key in ("offset", "length"):
        text = known.setdefault(key, "0")
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            refuse(where, f"external_data with a decimal {key}", show(text))
    return ExternalData(known["location"], int(known["offset"]) + int(known["length"]))


def _fields(message: memoryview, where: str) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of every field; fixed-width values are skipped."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at, where)
        number, wire_type = key >> 3, key & 7
        if wire_type == _VARINT:
            value, at = _varint(message, at, where)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, at = _varint(message, at, where)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            refuse(where, "an ONNX file", f"wire type {wire_type} at byte {at}")
        if size > len(message) - at:
            refuse(where, "an ONNX file", f"a field of {size} bytes where {len(message) - at} are left")
        if wire_type == _BYTES:
            yield number, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int, where: str) -> tuple[int, int]:
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
