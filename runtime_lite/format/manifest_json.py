"""Converts manifests from and to JSON, with strict checks.

`manifest_from_json` trusts nothing: it limits the size of the text before parsing it, bounds every number and string,
and checks that the records agree with each other (`manifest_check.py`). `json_from_manifest` reads its own output back,
so that no manifest is written that would be refused later.
"""

import itertools
import re
import sys
from dataclasses import asdict, fields
from typing import Any

from runtime_lite.errors import BadInput, BundleRefused, show
from runtime_lite.format.arrays import MAX_DIMENSIONS
from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.format.canonical_json import canonical_json
from runtime_lite.format.checked_json import REBUILD, UPDATE, JsonValue, refuse
from runtime_lite.format.formula import parse_formula
from runtime_lite.format.initial_value import Initial
from runtime_lite.format.later_keys import OF_AXIS, OF_CACHE, OF_GRAPH, OF_MANIFEST, OF_TENSOR, filled, trimmed_manifest
from runtime_lite.format.manifest import (
    DTYPES,
    ENGINE_STATUSES,
    INPUT_ROLES,
    MANIFEST_FILE,
    OUTPUT_ROLES,
    SCHEMA_VERSION,
    Artifact,
    Axis,
    Engine,
    FileEntry,
    FrameLimit,
    Graph,
    Latency,
    Manifest,
    Sources,
    State,
    Tensor,
    Voice,
    Wire,
)
from runtime_lite.format.manifest_check import MAX_DIMENSION, check_manifest
from runtime_lite.format.sampling import Sampling
from runtime_lite.format.schema_3 import upgraded
from runtime_lite.states import CACHES, SIDES, UPDATES

MAX_MANIFEST_BYTES = 4 * 2**20
MAX_FILE_BYTES = 16 * 2**30
MAX_NUMBER = sys.float_info.max

_AXIS = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def json_from_manifest(manifest: Manifest) -> bytes:
    """Return the canonical JSON of a manifest: sorted keys, indent 1, newline at the end.

    Raises:
        BundleRefused: the manifest would be refused when read.
    """
    if not isinstance(manifest, Manifest):
        refuse(MANIFEST_FILE, "a Manifest", show(manifest), "make one with manifest_from_json")
    if manifest.schema_version != SCHEMA_VERSION:
        refuse(MANIFEST_FILE, f"a Manifest of schema {SCHEMA_VERSION}", f"one of schema {manifest.schema_version}")
    text = canonical_json(trimmed_manifest(plain_manifest(manifest)))
    manifest_from_json(text)
    return text


def plain_manifest(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest as values that JSON has."""
    plain = asdict(manifest)
    if manifest.voice is not None:
        plain["voice"]["sampling"]["stop"] = sorted(manifest.voice.sampling.stop)
    return plain


def manifest_from_json(text: bytes) -> Manifest:
    """Return the manifest that a JSON text contains.

    Raises:
        BundleRefused: it is too large, malformed, of an unknown schema version, or contradicts itself.
    """
    if not isinstance(text, bytes):
        refuse(MANIFEST_FILE, "JSON as bytes", show(text), "read the file as bytes")
    if len(text) > MAX_MANIFEST_BYTES:
        refuse(MANIFEST_FILE, f"at most {MAX_MANIFEST_BYTES} bytes", f"{len(text)} bytes")
    top = JsonValue.parse(text, MANIFEST_FILE)
    version = top.key("schema_version").integer(0, MAX_DIMENSION)
    if version == SCHEMA_VERSION - 1:
        top = upgraded(top)
    elif version != SCHEMA_VERSION:
        cure = "update runtime_lite" if version > SCHEMA_VERSION else REBUILD
        refuse("manifest.json.schema_version", str(SCHEMA_VERSION), str(version), cure)
    top = filled(top, OF_MANIFEST).keys_are([f.name for f in fields(Manifest)])
    sources = top.key("sha256").keys_are([f.name for f in fields(Sources)])
    manifest = Manifest(
        name=top.key("name").name(),
        graphs=top.key("graphs").table(_graph, keys=JsonValue.name),
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
        wiring=tuple(_wire(item) for item in top.key("wiring").items()),
        voice=_voice(top.key("voice")),
        schema_version=version,
    )
    check_manifest(manifest)
    return manifest


def _file_entry(value: JsonValue) -> FileEntry:
    value.keys_are([f.name for f in fields(FileEntry)])
    return FileEntry(bytes=value.key("bytes").integer(0, MAX_FILE_BYTES), sha256=value.key("sha256").sha256())


def _shape(value: JsonValue) -> tuple[int | str, ...]:
    items = value.items()
    if len(items) > MAX_DIMENSIONS:
        value.refuse(f"at most {MAX_DIMENSIONS} dimensions", str(len(items)))
    return tuple(_formula(item) if type(item.value) is str else item.integer(1, MAX_DIMENSION) for item in items)


def _formula(value: JsonValue) -> str:
    text = value.text()
    try:
        parse_formula(text)
    except BundleRefused as error:
        raise BundleRefused(f"{value.where}: {error}") from error
    return text


def _axis_name(value: JsonValue) -> str:
    if type(value.value) is not str or not _AXIS.fullmatch(value.value):
        value.refuse("an axis name of letters, digits and '_'")
    return value.value


def _tensor(value: JsonValue, roles: tuple[str, ...]) -> Tensor:
    value = filled(value, OF_TENSOR).keys_are([f.name for f in fields(Tensor)])
    return Tensor(
        name=value.key("name").identifier(),
        shape=_shape(value.key("shape")),
        dtype=value.key("dtype").one_of(DTYPES),
        role=value.key("role").one_of(roles),
        range=_range(value.key("range")),
    )


def _range(value: JsonValue) -> tuple[float, float] | None:
    if value.value is None:
        return None
    items = value.items()
    if len(items) != 2 or any(type(item.value) not in (int, float) for item in items):
        value.refuse("two numbers, or null")
    return items[0].value, items[1].value


def _axis(value: JsonValue) -> Axis:
    value = filled(value, OF_AXIS).keys_are([f.name for f in fields(Axis)])
    buckets = tuple(item.integer(1, MAX_DIMENSION) for item in value.key("buckets").items())
    if not buckets or any(small >= large for small, large in itertools.pairwise(buckets)):
        value.key("buckets").refuse("ascending, distinct sizes")
    length_input = value.key("length_input")
    return Axis(
        buckets,
        length_input=None if length_input.value is None else length_input.identifier(),
        minimum=value.key("minimum").integer(0, MAX_DIMENSION),
        is_held=value.key("is_held").boolean(),
    )


def _initial(value: JsonValue, depth: int = 0) -> Initial:
    if type(value.value) is list:
        if depth == MAX_DIMENSIONS:
            value.refuse(f"numbers within at most {MAX_DIMENSIONS} lists")
        return tuple(_initial(item, depth + 1) for item in value.items())
    number = value.scalar()
    if isinstance(number, str):
        value.refuse("a number")
    return number


def _state(value: JsonValue) -> State:
    value.keys_are([f.name for f in fields(State)])
    frames_axis, cache = value.key("frames_axis"), value.key("cache")
    if (frames_axis.value is None) != (cache.value is None):
        cache.refuse("frames_axis and cache both given or both null")
    return State(
        name=value.key("name").identifier(),
        input=value.key("input").identifier(),
        output=value.key("output").identifier(),
        shape=_shape(value.key("shape")),
        dtype=value.key("dtype").one_of(DTYPES),
        initial=_initial(value.key("initial")),
        frames_axis=None if frames_axis.value is None else frames_axis.integer(0, 15),
        cache=None if cache.value is None else _axis_name(cache),
        parts=tuple(item.identifier() for item in value.key("parts").items()),
    )


def _cache(value: JsonValue) -> CacheAxis:
    value = filled(value, OF_CACHE).keys_are([f.name for f in fields(CacheAxis)])
    mask_input, added = value.key("mask_input"), value.key("added")
    side, update = value.key("side").one_of(SIDES), value.key("update").one_of(UPDATES)
    if (side, update) not in CACHES:
        known = " or ".join(kind.name for kind in CACHES.values())
        refuse(value.where, known, f"{side}-aligned caches that {update}", UPDATE)
    return CacheAxis(
        axis=_axis_name(value.key("axis")),
        slots=value.key("slots").integer(1, MAX_DIMENSION),
        step=value.key("step").integer(1, MAX_DIMENSION),
        length_input=value.key("length_input").identifier(),
        mask_input=None if mask_input.value is None else mask_input.identifier(),
        side=side,
        update=update,
        added=None if added.value is None else _formula(added),
        is_whole=value.key("is_whole").boolean(),
        chunk=value.key("chunk").integer(1, MAX_DIMENSION),
    )


def _wire(value: JsonValue) -> Wire:
    value.keys_are([f.name for f in fields(Wire)])
    return Wire(*(value.key(f.name).identifier() for f in fields(Wire)))


def _voice(value: JsonValue) -> Voice | None:
    if value.value is None:
        return None
    value.keys_are([f.name for f in fields(Voice)])
    start, noise = value.key("start"), value.key("noise")
    return Voice(
        step=value.key("step").name(),
        tokens=value.key("tokens").identifier(),
        scores=value.key("scores").identifier(),
        start=None if start.value is None else start.integer(0, MAX_DIMENSION),
        codec=value.key("codec").name(),
        codes=value.key("codes").identifier(),
        noise=None if noise.value is None else noise.identifier(),
        sound=value.key("sound").identifier(),
        samples_per_frame=value.key("samples_per_frame").integer(1, MAX_DIMENSION),
        sample_rate_hz=value.key("sample_rate_hz").integer(1, MAX_DIMENSION),
        frames=_frame_limit(value.key("frames")),
        sampling=_sampling(value.key("sampling")),
    )


def _frame_limit(value: JsonValue) -> FrameLimit | None:
    if value.value is None:
        return None
    value.keys_are([f.name for f in fields(FrameLimit)])
    return FrameLimit(
        input=value.key("input").identifier(),
        per_entry=value.key("per_entry").number(0.0, MAX_DIMENSION),
        more=value.key("more").integer(1, MAX_DIMENSION),
    )


def _sampling(value: JsonValue) -> Sampling:
    value.keys_are([f.name for f in fields(Sampling)])
    stop = frozenset(item.integer(0, MAX_DIMENSION) for item in value.key("stop").items())
    try:
        return Sampling(**{**value.value, "stop": stop})
    except BadInput as error:
        refuse(value.where, "settings as Sampling takes them", str(error))


def _artifact(value: JsonValue) -> Artifact:
    value.keys_are([f.name for f in fields(Artifact)])
    return Artifact(
        sizes=value.key("sizes").table(lambda size: size.integer(1, MAX_DIMENSION), keys=_axis_name),
        file=value.key("file").path(),
        files=tuple(item.path() for item in value.key("files").items()),
    )


def _engine(value: JsonValue) -> Engine | None:
    if value.value is None:
        return None
    value.keys_are([f.name for f in fields(Engine)])
    return Engine(
        status=value.key("status").one_of(ENGINE_STATUSES),
        reason=value.key("reason").optional_text(),
        plan=value.key("plan").path(),
        files=value.key("files").table(JsonValue.path, keys=JsonValue.path),
        built_with=value.key("built_with").table(JsonValue.text),
    )


def _latency(value: JsonValue) -> Latency | None:
    if value.value is None:
        return None
    value.keys_are([f.name for f in fields(Latency)])
    return Latency(value.key("of").identifier(), value.key("name").identifier())


def _graph(value: JsonValue) -> Graph:
    value = filled(value, OF_GRAPH).keys_are([f.name for f in fields(Graph)])
    batch_axis = value.key("batch_axis")
    return Graph(
        target=value.key("target").identifier(),
        opset=value.key("opset").integer(1, 1000),
        ir_version=value.key("ir_version").integer(1, 1000),
        inputs=tuple(_tensor(item, INPUT_ROLES) for item in value.key("inputs").items()),
        outputs=tuple(_tensor(item, OUTPUT_ROLES) for item in value.key("outputs").items()),
        axes=value.key("axes").table(_axis, keys=_axis_name),
        states=tuple(_state(item) for item in value.key("states").items()),
        caches=tuple(_cache(item) for item in value.key("caches").items()),
        artifacts=tuple(_artifact(item) for item in value.key("artifacts").items()),
        golden=value.key("golden").path(),
        rows_independent=value.key("rows_independent").boolean(),
        certificate=value.key("certificate").path(),
        batch_axis=None if batch_axis.value is None else _axis_name(batch_axis),
        engine=_engine(value.key("engine")),
        flush=value.key("flush").table(lambda count: count.integer(1, MAX_DIMENSION), keys=JsonValue.identifier),
        flush_values=value.key("flush_values").table(
            lambda entry: entry.number(-MAX_NUMBER, MAX_NUMBER), keys=JsonValue.identifier
        ),
        options=value.key("options").table(JsonValue.scalar, keys=JsonValue.identifier),
        latency=_latency(value.key("latency")),
    )
