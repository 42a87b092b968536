"""Scans an ONNX file, without the onnx package, for what is checked before a backend opens it.

A backend opens the files at the `external_data` locations in an ONNX file. This module finds all of these locations, in
initializers, attributes, subgraphs and functions, so that the executor can refuse one that the manifest does not list.
Tensor contents are skipped, not copied.

It also limits what could keep a backend busy for hours or take all memory: the numbers of nodes, of tensors and of
readers of one value (the time to open a graph grows with their square), depth, functions, sparse tensors, and loops
without a constant number of trips.
"""

import collections
from dataclasses import dataclass, field

from runtime_lite.errors import show
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.wire_format import bytes_field, fields_of, varint

MAX_DEPTH = 64
MAX_NODES = 50_000
MAX_READERS = 4096  # of one value that is no constant
MAX_TENSORS = 100_000
MAX_TRIPS = 1_000_000  # of a loop, all loops around it counted

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
EXTERNAL_DATA = 13  # TensorProto.external_data, entries of StringStringEntryProto key = 1, value = 2
_IR_VERSION, _OPSET_IMPORT, _METADATA = 1, 8, 14  # of ModelProto; OperatorSetIdProto has domain = 1, version = 2
_NODE, INITIALIZER, GRAPH = 1, 5, 7  # of GraphProto, and of ModelProto
_NODE_INPUT, _OP_TYPE, _ATTRIBUTE = 1, 4, 5  # of NodeProto
_TENSOR_NAME, _RAW_DATA, _INT64_DATA = 8, 9, 7  # of TensorProto
_REFUSED = {"FunctionProto": "functions", "SparseTensorProto": "sparse tensors", "TrainingInfoProto": "training steps"}


@dataclass(frozen=True)
class ExternalData:
    """The location of a tensor's content outside of the ONNX file.

    Attributes:
        location: path relative to the folder of the ONNX file, as the file states it.
        offset: offset of the first byte of the content; 0 if it is not stated.
        length: bytes of the content; 0 if it is not stated, which means the rest of the file.
    """

    location: str
    offset: int
    length: int

    @property
    def end(self) -> int:
        """Offset of the first byte after the content, if its length is stated."""
        return self.offset + self.length


@dataclass
class OnnxFile:
    """Facts about an ONNX file.

    Attributes:
        ir_version: IR version; 0 if absent.
        opset: version of the default domain; 0 if absent.
        external: all external tensors.
        nodes: number of nodes, those of subgraphs included.
        readers: number of nodes that read each value, by name.
        tensors: number of initializers and constants.
        constants: names of initializers.
        has_loops: whether there is a Loop anywhere.
    """

    ir_version: int = 0
    opset: int = 0
    external: list[ExternalData] = field(default_factory=list)
    nodes: int = 0
    readers: collections.Counter[bytes] = field(default_factory=collections.Counter)
    tensors: int = 0
    constants: set[bytes] = field(default_factory=set)
    has_loops: bool = False


def scan_onnx(content: bytes, where: str) -> OnnxFile:
    """Return the versions, the external data and the counts of an ONNX file.

    Raises:
        BundleRefused: it is no well-formed Protocol Buffers message, is nested too deep, or exceeds a limit.
    """
    facts = OnnxFile()
    _scan(memoryview(content), "ModelProto", facts, where, 0)
    read = ((name, count) for name, count in facts.readers.most_common() if name and name not in facts.constants)
    name, count = next(read, (b"", 0))
    if count > MAX_READERS:
        got = f"{count} that read {show(name.decode('utf-8', 'backslashreplace'))}"
        refuse(where, f"at most {MAX_READERS} nodes that read one value", got)
    if facts.has_loops:
        for number, value in fields_of(memoryview(content), where):
            if number == GRAPH and not isinstance(value, int):
                _check_loops(value, where, 1, {})
    return facts


def external_data_of(tensor: memoryview, where: str) -> ExternalData | None:
    """Return the location of a tensor's content outside of the file, or None.

    Raises:
        BundleRefused: it is no well-formed message, or states a key twice.
    """
    fields = fields_of(tensor, where)
    entries = [_entry(each, where) for number, each in fields if number == EXTERNAL_DATA and not isinstance(each, int)]
    return _external_data(entries, where) if entries else None


def metadata_of(content: bytes, where: str) -> dict[str, bytes]:
    """Return the metadata of an ONNX file; the rest of the file is not checked.

    Raises:
        BundleRefused: its top level is no well-formed message, or a key occurs twice.
    """
    metadata: dict[str, bytes] = {}
    for number, value in fields_of(memoryview(content), where):
        if number == _METADATA and not isinstance(value, int):
            parts = {key: bytes(part) for key, part in fields_of(value, where) if not isinstance(part, int)}
            name = parts.get(1, b"").decode("utf-8", "backslashreplace")
            if name in metadata:
                refuse(where, "every key of the metadata once", f"{show(name)} twice")
            metadata[name] = parts.get(2, b"")
    return metadata


def with_metadata(content: bytes, key: str, text: str) -> bytes:
    """Return an ONNX file with one more entry of metadata, which is appended, as Protocol Buffers allow."""
    entry = b"".join(bytes_field(number, each.encode()) for number, each in ((1, key), (2, text)))
    return content + bytes_field(_METADATA, entry)


def _scan(message: memoryview, kind: str, found: OnnxFile, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        refuse(where, f"graphs nested at most {MAX_DEPTH} deep", "deeper ones")
    _count(kind, found, where)
    for number, value in fields_of(message, where):
        if isinstance(value, int):
            if kind == "ModelProto" and number == _IR_VERSION:
                found.ir_version = value
        elif number in CHILDREN[kind]:
            _scan(value, CHILDREN[kind][number], found, where, depth + 1)
        elif kind == "NodeProto":
            if number == _NODE_INPUT:
                found.readers[bytes(value)] += 1
            elif number == _OP_TYPE and bytes(value) == b"Loop":
                found.has_loops = True
        elif kind == "ModelProto" and number == _OPSET_IMPORT:
            _scan_opset(value, found, where)
        elif kind == "TensorProto" and number == _TENSOR_NAME:
            found.constants.add(bytes(value))
    outside = external_data_of(message, where) if kind == "TensorProto" else None
    if outside is not None:
        found.external.append(outside)


def _count(kind: str, found: OnnxFile, where: str) -> None:
    """Count nodes and tensors up to their limits, and refuse parts that no build writes."""
    if kind in _REFUSED:
        refuse(where, f"a graph without {_REFUSED[kind]}", "some")
    found.nodes += kind == "NodeProto"
    found.tensors += kind == "TensorProto"
    if found.nodes > MAX_NODES:
        refuse(where, f"at most {MAX_NODES} nodes", "more")
    if found.tensors > MAX_TENSORS:
        refuse(where, f"at most {MAX_TENSORS} constants", "more")


def _check_loops(graph: memoryview, where: str, around: int, known: dict[bytes, int]) -> None:
    """Check that every loop has a constant number of trips, and that nested loops stay within the limit."""
    parts = [(number, value) for number, value in fields_of(graph, where) if not isinstance(value, int)]
    constants = known | dict(_number(value, where) for number, value in parts if number == INITIALIZER)
    for node in (value for number, value in parts if number == _NODE):
        fields = list(fields_of(node, where))
        names = {key: [bytes(v) for n, v in fields if n == key and not isinstance(v, int)] for key in (1, 2, _OP_TYPE)}
        attributes = [_attribute(v, where) for n, v in fields if n == _ATTRIBUTE and not isinstance(v, int)]
        if names[_OP_TYPE] == [b"Constant"]:
            constants |= {name: _number(t, where)[1] for name in names[2] for tensors, _ in attributes for t in tensors}
        trips = around
        if names[_OP_TYPE] == [b"Loop"]:
            read = names[_NODE_INPUT][0] if names[_NODE_INPUT] else b""
            if read not in constants:
                refuse(where, "loops with a constant number of trips", "one that may run without end")
            trips *= max(constants[read], 1)
            if trips > MAX_TRIPS:
                refuse(where, f"loops of at most {MAX_TRIPS} trips, loops around them counted", f"one of {trips}")
        for _, graphs in attributes:
            for body in graphs:
                _check_loops(body, where, trips, constants)


def _attribute(message: memoryview, where: str) -> tuple[list[memoryview], list[memoryview]]:
    """Return the tensors and the graphs of an attribute."""
    fields = [(number, value) for number, value in fields_of(message, where) if not isinstance(value, int)]
    kinds = CHILDREN["AttributeProto"]
    return tuple([v for n, v in fields if kinds.get(n) == kind] for kind in ("TensorProto", "GraphProto"))  # type: ignore[return-value]


def _number(tensor: memoryview, where: str) -> tuple[bytes, int]:
    """Return name and value of a tensor of one int64; for any other tensor a value above the limit."""
    name, value = b"", MAX_TRIPS + 1
    for number, content in fields_of(tensor, where):
        if isinstance(content, int):
            value = content if number == _INT64_DATA else value
        elif number == _TENSOR_NAME:
            name = bytes(content)
        elif number == _RAW_DATA and len(content) == 8:
            value = int.from_bytes(content, "little")
        elif number == _INT64_DATA:
            value = varint(content, 0, where)[0] if len(content) else value
    return name, value


def _scan_opset(message: memoryview, found: OnnxFile, where: str) -> None:
    domain, version = b"", 0
    for number, value in fields_of(message, where):
        if number == 1 and not isinstance(value, int):
            domain = bytes(value)
        elif number == 2 and isinstance(value, int):
            version = value
    if domain in (b"", b"ai.onnx"):
        found.opset = version


def _entry(message: memoryview, where: str) -> tuple[str, str]:
    texts = {1: "", 2: ""}
    for number, value in fields_of(message, where):
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
    return ExternalData(known["location"], int(known["offset"]), int(known["length"]))
