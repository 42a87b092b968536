"""Manifest records from strict JSON, and canonical JSON from manifest records.

`manifest_from_json` trusts nothing: it caps the text before parsing it, bounds every number and string, and
cross-checks axes, states, stream, artifacts and files before it returns the records. `json_from_manifest` reads back
what it writes, so that nothing is written that would be refused later.
"""

import itertools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, fields

from runtime_lite.checked_json import REBUILD, JsonValue, refuse
from runtime_lite.errors import show
from runtime_lite.manifest import (
    BATCH_AXIS,
    COSTS_FILE,
    DTYPES,
    INPUT_ROLES,
    ITEM_BYTES,
    MANIFEST_FILE,
    OUTPUT_ROLES,
    SCHEMA_VERSION,
    Artifact,
    Axis,
    FileEntry,
    Graph,
    Manifest,
    Sources,
    State,
    StreamSpec,
    Tensor,
    bucket_name,
    static_shape,
    tensor_bytes,
)

MAX_MANIFEST_BYTES = 4 * 2**20
MAX_FILE_BYTES = 16 * 2**30
MAX_TOTAL_BYTES = 64 * 2**30
MAX_DIMENSION = 2**31 - 1
MAX_TENSOR_BYTES = 4 * 2**30

_AXIS = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def json_from_manifest(manifest: Manifest) -> bytes:
    """Return the canonical JSON of a manifest: sorted keys, indent 1, newline at the end.

    Raises:
        BundleRefused: the manifest would be refused when read.
    """
    plain = {**asdict(manifest), "wiring": []}
    text = json.dumps(plain, sort_keys=True, indent=1, allow_nan=False).encode() + b"\n"
    manifest_from_json(text)
    return text


def manifest_from_json(text: bytes) -> Manifest:
    """Return the manifest that a JSON text holds.

    Raises:
        BundleRefused: it is too large, malformed, of an unknown schema version, or contradicts itself.
    """
    if len(text) > MAX_MANIFEST_BYTES:
        refuse(MANIFEST_FILE, f"at most {MAX_MANIFEST_BYTES} bytes", f"{len(text)} bytes")
    top = JsonValue.parse(text, MANIFEST_FILE)
    version = top.key("schema_version").integer(0, MAX_DIMENSION)
    if version != SCHEMA_VERSION:
        cure = "update runtime_lite" if version > SCHEMA_VERSION else REBUILD
        refuse("manifest.json.schema_version", str(SCHEMA_VERSION), str(version), cure)
    top.keys_are([f.name for f in fields(Manifest)] + ["wiring"])
    if top.key("wiring").items():
        refuse("manifest.json.wiring", "an empty list", "wired graphs", "update runtime_lite")
    sources = top.key("sha256").keys_are([f.name for f in fields(Sources)])
    manifest = Manifest(
        name=top.key("name").text(),
        graphs=top.key("graphs").table(_graph, keys=JsonValue.identifier),
        front_end=top.key("front_end").table(JsonValue.scalar),
        sha256=Sources(
            checkpoint=sources.key("checkpoint").table(JsonValue.sha256),
            recipe=sources.key("recipe").sha256(),
            data=sources.key("data").table(JsonValue.sha256),
        ),
        tools=top.key("tools").table(JsonValue.text),
        receipts=top.key("receipts").path(),
        recipe=top.key("recipe").path(),
        files=top.key("files").table(_file_entry, keys=JsonValue.path),
        schema_version=version,
    )
    _check_files(manifest)
    for name, graph in manifest.graphs.items():
        _check_graph(f"manifest.json.graphs.{name}", graph)
    return manifest


def _file_entry(value: JsonValue) -> FileEntry:
    value.keys_are([f.name for f in fields(FileEntry)])
    return FileEntry(bytes=value.key("bytes").integer(0, MAX_FILE_BYTES), sha256=value.key("sha256").sha256())


def _shape(value: JsonValue) -> tuple[int | str, ...]:
    items = value.items()
    if len(items) > 16:
        value.refuse("at most 16 dimensions", str(len(items)))
    return tuple(_axis_name(item) if type(item.value) is str else item.integer(1, MAX_DIMENSION) for item in items)


def _axis_name(value: JsonValue) -> str:
    if type(value.value) is not str or not _AXIS.fullmatch(value.value):
        value.refuse("an axis name of letters, digits and '_'")
    return value.value


def _tensor(value: JsonValue, roles: tuple[str, ...]) -> Tensor:
    value.keys_are([f.name for f in fields(Tensor)])
    return Tensor(
        name=value.key("name").identifier(),
        shape=_shape(value.key("shape")),
        dtype=value.key("dtype").one_of(DTYPES),
        role=value.key("role").one_of(roles),
    )


def _axis(value: JsonValue) -> Axis:
    value.keys_are([f.name for f in fields(Axis)])
    buckets = tuple(item.integer(1, MAX_DIMENSION) for item in value.key("buckets").items())
    if not buckets or any(small >= large for small, large in itertools.pairwise(buckets)):
        value.key("buckets").refuse("ascending, distinct sizes")
    length_input = value.key("length_input")
    return Axis(
        buckets,
        length_input=None if length_input.value is None else length_input.identifier(),
        minimum=value.key("minimum").integer(0, MAX_DIMENSION),
    )


def _initial(value: JsonValue) -> bool | int | float:
    number = value.scalar()
    if isinstance(number, str):
        value.refuse("a number")
    return number


def _state(value: JsonValue) -> State:
    value.keys_are([f.name for f in fields(State)])
    frames_axis, window = value.key("frames_axis"), value.key("window")
    if (frames_axis.value is None) != (window.value is None):
        window.refuse("frames_axis and window both given or both null")
    return State(
        name=value.key("name").identifier(),
        input=value.key("input").identifier(),
        output=value.key("output").identifier(),
        shape=_shape(value.key("shape")),
        dtype=value.key("dtype").one_of(DTYPES),
        initial=_initial(value.key("initial")),
        update=value.key("update").one_of(("replace",)),
        frames_axis=None if frames_axis.value is None else frames_axis.integer(0, 15),
        window=None if window.value is None else window.integer(1, MAX_DIMENSION),
        parts=tuple(item.identifier() for item in value.key("parts").items()),
    )


def _stream(value: JsonValue) -> StreamSpec | None:
    if value.value is None:
        return None
    value.keys_are([f.name for f in fields(StreamSpec)])
    mask_input = value.key("mask_input")
    return StreamSpec(
        length_input=value.key("length_input").identifier(),
        mask_input=None if mask_input.value is None else mask_input.identifier(),
        window=value.key("window").integer(1, MAX_DIMENSION),
        step_frames=value.key("step_frames").integer(1, MAX_DIMENSION),
        alignment=value.key("alignment").one_of(("right",)),
    )


def _artifact(value: JsonValue) -> Artifact:
    value.keys_are([f.name for f in fields(Artifact)])
    return Artifact(
        sizes=value.key("sizes").table(lambda size: size.integer(1, MAX_DIMENSION), keys=_axis_name),
        file=value.key("file").path(),
        files=tuple(item.path() for item in value.key("files").items()),
    )


def _graph(value: JsonValue) -> Graph:
    value.keys_are([f.name for f in fields(Graph)])
    return Graph(
        target=value.key("target").identifier(),
        opset=value.key("opset").integer(1, 1000),
        ir_version=value.key("ir_version").integer(1, 1000),
        inputs=tuple(_tensor(item, INPUT_ROLES) for item in value.key("inputs").items()),
        outputs=tuple(_tensor(item, OUTPUT_ROLES) for item in value.key("outputs").items()),
        axes=value.key("axes").table(_axis, keys=_axis_name),
        states=tuple(_state(item) for item in value.key("states").items()),
        stream=_stream(value.key("stream")),
        artifacts=tuple(_artifact(item) for item in value.key("artifacts").items()),
        golden=value.key("golden").path(),
        rows_independent=value.key("rows_independent").boolean(),
        certificate=value.key("certificate").path(),
    )


def _check_files(manifest: Manifest) -> None:
    """Check that file names cannot collide, that sizes stay within the caps, and that every file named is listed."""
    where = f"{MANIFEST_FILE}.files"
    spellings: dict[str, str] = {}
    for path in [MANIFEST_FILE, COSTS_FILE, *manifest.files]:
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            prefix = "/".join(parts[:depth])
            known = spellings.setdefault(prefix.lower(), prefix)
            if known != prefix:
                refuse(where, "names that differ in more than case", f"{known!r} and {prefix!r}")
            if known in manifest.files and depth < len(parts):
                refuse(where, "a name to be a file or a folder", f"{known!r} as both")
    for path in (MANIFEST_FILE, COSTS_FILE):
        if path in manifest.files:
            refuse(where, f"every file but {MANIFEST_FILE} and {COSTS_FILE}", f"{path!r}")
    total_bytes = sum(entry.bytes for entry in manifest.files.values())
    if total_bytes > MAX_TOTAL_BYTES:
        refuse(where, f"at most {MAX_TOTAL_BYTES} bytes in all", f"{total_bytes}")
    named = [("receipts", manifest.receipts), ("recipe", manifest.recipe)]
    for name, graph in manifest.graphs.items():
        named += [(f"graphs.{name}.golden", graph.golden), (f"graphs.{name}.certificate", graph.certificate)]
        named += [(f"graphs.{name}.artifacts", path) for item in graph.artifacts for path in (item.file, *item.files)]
    for place, path in named:
        if path not in manifest.files:
            refuse(f"{MANIFEST_FILE}.{place}", "a file listed under 'files'", repr(path))


def _check_graph(where: str, graph: Graph) -> None:
    """Check that the records of one graph agree with each other."""
    tensors = {tensor.name: tensor for tensor in graph.inputs + graph.outputs}
    if len(tensors) != len(graph.inputs) + len(graph.outputs):
        refuse(where, "every input and output name once", "a name twice")
    if not any(tensor.role == "data" for tensor in graph.outputs):
        refuse(f"{where}.outputs", "an output of role 'data'", "none")
    largest = {name: axis.buckets[-1] for name, axis in graph.axes.items()}
    for tensor in tensors.values():
        symbols = [size for size in tensor.shape if isinstance(size, str)]
        if len(set(symbols)) != len(symbols):
            refuse(f"{where}.{tensor.name}.shape", "every axis name once", show(list(tensor.shape)))
        if unknown := [symbol for symbol in symbols if symbol not in graph.axes]:
            refuse(
                f"{where}.{tensor.name}.shape",
                f"axes declared under 'axes' ({', '.join(graph.axes) or 'none'})",
                repr(unknown[0]),
            )
        if tensor_bytes(static_shape(tensor.shape, largest), tensor.dtype) > MAX_TENSOR_BYTES:
            refuse(
                f"{where}.{tensor.name}.shape",
                f"a tensor of at most {MAX_TENSOR_BYTES} bytes",
                show(list(tensor.shape)),
            )
        if (
            BATCH_AXIS in graph.axes
            and BATCH_AXIS not in symbols
            and (tensor in graph.outputs or tensor.role != "data")
        ):
            refuse(
                f"{where}.{tensor.name}.shape",
                f"the axis {BATCH_AXIS!r}, which the graph declares",
                show(list(tensor.shape)),
            )
    fed = {size for tensor in graph.inputs if tensor.role == "data" for size in tensor.shape}
    if unfed := sorted(graph.axes.keys() - fed - {BATCH_AXIS}):
        refuse(f"{where}.axes", "axes that an input of role 'data' has, their sizes come from the feed", repr(unfed[0]))
    _check_artifacts(where, graph)
    _check_states(where, graph)
    _check_stream(where, graph, tensors)


def _check_artifacts(where: str, graph: Graph) -> None:
    count = math.prod(len(axis.buckets) for axis in graph.axes.values())
    if len(graph.artifacts) != count:
        refuse(f"{where}.artifacts", "one per combination of buckets", f"{len(graph.artifacts)} for {count}")
    for artifact in graph.artifacts:
        if set(artifact.sizes) != set(graph.axes):
            refuse(f"{where}.artifacts", f"sizes for the axes {sorted(graph.axes)}", show(dict(artifact.sizes)))
        if unknown := [axis for axis, size in artifact.sizes.items() if size not in graph.axes[axis].buckets]:
            refuse(f"{where}.artifacts", f"a bucket of axis {unknown[0]!r}", str(artifact.sizes[unknown[0]]))
    if len({bucket_name(artifact.sizes) for artifact in graph.artifacts}) != count:
        refuse(f"{where}.artifacts", "every combination of buckets once", "one twice")


def _check_states(where: str, graph: Graph) -> None:
    for side, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        declared = {tensor.name: tensor for tensor in tensors if tensor.role == "state"}
        used = [state.input if side == "input" else state.output for state in graph.states]
        if sorted(used) != sorted(declared):
            refuse(
                f"{where}.states", f"every {side} of role 'state' once ({show(sorted(declared))})", show(sorted(used))
            )
        for state, name in zip(graph.states, used, strict=True):
            if (declared[name].shape, declared[name].dtype) != (state.shape, state.dtype):
                refuse(
                    f"{where}.states.{state.name}",
                    f"the shape and dtype of {side} {name!r}",
                    show([list(state.shape), state.dtype]),
                )
    for state in graph.states:
        if any(isinstance(size, str) and size != BATCH_AXIS for size in state.shape):
            expected = f"integers and the axis {BATCH_AXIS!r}, a stream keeps its states over all its feeds"
            refuse(f"{where}.states.{state.name}.shape", expected, show(list(state.shape)))
        if state.frames_axis is not None and (
            state.frames_axis >= len(state.shape) or state.shape[state.frames_axis] != state.window
        ):
            refuse(
                f"{where}.states.{state.name}.frames_axis", f"the axis of size {state.window}", str(state.frames_axis)
            )
        if not _holds(state.dtype, state.initial):
            refuse(f"{where}.states.{state.name}.initial", f"a number that {state.dtype} holds", show(state.initial))


def _holds(dtype: str, number: bool | int | float) -> bool:
    if dtype == "bool":
        return type(number) is bool
    if type(number) is bool:
        return False
    if dtype.startswith("float"):
        return abs(number) <= {"float16": 65504.0, "float32": 3.4e38, "float64": 1.7e308}[dtype]
    bits = 8 * ITEM_BYTES[dtype]
    low, high = (0, 2**bits) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return type(number) is int and low <= number < high


def _check_stream(where: str, graph: Graph, tensors: Mapping[str, Tensor]) -> None:
    by_role = {role: [tensor.name for tensor in graph.inputs if tensor.role == role] for role in ("length", "mask")}
    stream = graph.stream
    expected = {
        "length": [] if stream is None else [stream.length_input],
        "mask": [] if stream is None or stream.mask_input is None else [stream.mask_input],
    }
    for role, names in expected.items():
        if by_role[role] != names:
            refuse(f"{where}.stream", f"{show(by_role[role])} as the inputs of role {role!r}", show(names))
    if stream is None:
        return
    if not graph.states:
        refuse(f"{where}.stream", "states that the stream carries", "none")
    length = tensors[stream.length_input]
    if len(length.shape) != 1 or length.dtype not in ("int32", "int64"):
        refuse(f"{where}.{length.name}", "int32 or int64 of shape [rows]", show([list(length.shape), length.dtype]))
    if stream.mask_input is not None:
        mask, slots = tensors[stream.mask_input], stream.window + stream.step_frames
        if mask.dtype != "float32" or mask.shape != (length.shape[0], slots):
            refuse(
                f"{where}.{mask.name}",
                f"float32 of shape {show([length.shape[0], slots])}",
                show([list(mask.shape), mask.dtype]),
            )
