"""Describes a bundle as text tables for a terminal, and as JSON for programs."""

import dataclasses
from collections.abc import Iterable, Sequence

from runtime_lite.format.canonical_json import canonical_json
from runtime_lite.format.initial_value import Initial, shape_of_initial
from runtime_lite.format.latencies import latencies_of
from runtime_lite.format.manifest import Graph, Tensor, Voice, bucket_name
from runtime_lite.format.manifest_json import plain_manifest
from runtime_lite.format.reader import Bundle

JSON_SCHEMA_VERSION = 1
"""Schema version of `json_of_bundle`; the manifest in it has its own."""


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an indented table with left-aligned columns."""
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    ]
    return "\n".join(lines)


def describe_bundle(bundle: Bundle) -> str:
    """Return tables of all that a bundle contains."""
    manifest = bundle.manifest
    total_bytes = sum(entry.bytes for entry in manifest.files.values())
    parts = [
        f"{manifest.name}  (schema {manifest.schema_version}, {len(manifest.files)} files, {_bytes(total_bytes)})",
        f"  {bundle.path}\n  manifest sha256 {bundle.manifest_sha256}",
    ]
    parts += [_describe_graph(name, graph, bundle) for name, graph in manifest.graphs.items()]
    if models := latencies_of(manifest):
        rows = [(of, name, graph) for of, graphs in models.items() for name, graph in graphs.items()]
        parts.append("latencies, one chosen by open_stream\n" + format_table(("model", "latency", "graph"), rows))
    if manifest.wiring:
        wires = [(f"{wire.from_graph}.{wire.output}", f"{wire.to_graph}.{wire.input}") for wire in manifest.wiring]
        parts.append("wiring, run together as one request\n" + format_table(("output", "goes to"), wires))
    if manifest.voice is not None:
        parts.append("voice, a request of say\n" + format_table(("key", "value"), _voice(manifest.voice)))
    if manifest.front_end:
        parts.append("front end\n" + format_table(("parameter", "value"), manifest.front_end.items()))
    sources = [("recipe", "", manifest.sha256.recipe)]
    sources += [("checkpoint", name, digest) for name, digest in manifest.sha256.checkpoint.items()]
    sources += [("data", name, digest) for name, digest in manifest.sha256.data.items()]
    parts.append("made from\n" + format_table(("what", "name", "sha256"), sources))
    parts.append("made with\n" + format_table(("tool", "version"), manifest.tools.items()))
    files = [(name, _bytes(entry.bytes), entry.sha256) for name, entry in sorted(manifest.files.items())]
    parts.append("files, all hashes checked\n" + format_table(("file", "size", "sha256"), files))
    return "\n\n".join(parts)


def json_of_bundle(bundle: Bundle) -> bytes:
    """Return the contents of `describe_bundle` and the rest of the manifest as canonical JSON."""
    return canonical_json(
        {
            "schema_version": JSON_SCHEMA_VERSION,
            "path": str(bundle.path),
            "bytes": sum(entry.bytes for entry in bundle.manifest.files.values()),
            "manifest_sha256": bundle.manifest_sha256,
            "manifest": plain_manifest(bundle.manifest),
            "costs": {
                graph: {bucket: dataclasses.asdict(cost) for bucket, cost in table.items()}
                for graph, table in bundle.costs.items()
            },
        }
    )


def _voice(voice: Voice) -> list[tuple[str, str]]:
    frames, sampling = voice.frames, voice.sampling
    limit = f"{sampling.max_tokens} frames at most"
    if frames is not None:
        limit += f", and {frames.per_entry:g} an entry of {frames.input} and {frames.more} more"
    return [
        ("step", f"{voice.step}: {voice.tokens} to {voice.scores}"),
        ("codec", f"{voice.codec}: {voice.codes} to {voice.sound}"),
        ("sound", f"{voice.samples_per_frame} samples a frame at {voice.sample_rate_hz} Hz"),
        ("length", limit),
        ("ends at", ", ".join(map(str, sorted(sampling.stop))) or "no token"),
    ]


def _describe_graph(name: str, graph: Graph, bundle: Bundle) -> str:
    lines = [f"graph {name}  ({graph.target}, opset {graph.opset}, IR version {graph.ir_version})"]
    tensors = [("input", *_tensor(tensor)) for tensor in graph.inputs]
    tensors += [("output", *_tensor(tensor)) for tensor in graph.outputs]
    lines.append(format_table(("", "name", "shape", "dtype", "role"), tensors))
    if graph.axes:
        axes = [
            (
                name,
                ", ".join(str(size) for size in axis.buckets),
                axis.length_input or "-",
                axis.minimum,
                "yes" if axis.is_held else "-",
            )
            for name, axis in graph.axes.items()
        ]
        lines.append(format_table(("axis", "buckets", "length per row", "at least", "one per stream"), axes))
    rows = "independent" if graph.rows_independent else "not proved independent, one at a time"
    lines.append(f"  rows: {rows}; proofs in {graph.certificate}")
    if graph.states:
        states = [
            (
                state.name,
                f"{state.input} <- {state.output}",
                _initial(state.initial),
                state.cache or "-",
                len(state.parts) or "-",
            )
            for state in graph.states
        ]
        lines.append(format_table(("state", "carried", "initial", "along", "parts"), states))
    for cache in graph.caches:
        mask = f", mask {cache.mask_input}" if cache.mask_input else ""
        lines.append(
            f"  cache {cache.axis}: {cache.slots} slots, {cache.added or cache.step} frames a push, "
            f"{cache.side}-aligned, {cache.update}, length {cache.length_input}{mask}"
        )
    if graph.options:
        lines.append(f"  options: {', '.join(f'{name} {value}' for name, value in graph.options.items())}")
    if graph.engine is not None:
        state = graph.engine.status if graph.engine.reason is None else f"NOT BUILT: {graph.engine.reason}"
        with_what = ", ".join(f"{what} {value}" for what, value in graph.engine.built_with.items())
        lines.append(f"  engine: {state}{f' with {with_what}' if with_what else ''}; plan {graph.engine.plan}")
    costs = bundle.costs.get(name, {})
    buckets = []
    for artifact in graph.artifacts:
        bucket = bucket_name(artifact.sizes)
        cost = costs.get(bucket)
        time = "-" if cost is None else f"{cost.p50_ms:.3f} / {cost.p95_ms:.3f} ms, {cost.threads} threads"
        buckets.append((bucket, artifact.file, ", ".join(artifact.files) or "-", time))
    lines.append(format_table(("bucket", "file", "reads", "p50 / p95"), buckets))
    return "\n\n".join(lines)


def _tensor(tensor: Tensor) -> tuple[str, str, str, str]:
    span = "" if tensor.range is None else f" from {tensor.range[0]} to {tensor.range[1]}"
    return tensor.name, "[" + ", ".join(str(size) for size in tensor.shape) + "]", f"{tensor.dtype}{span}", tensor.role


def _bytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 100_000 else f"{count} bytes"


def _initial(initial: Initial) -> str:
    """Return a number as text, or the sizes of the axes along which numbers differ."""
    shape = shape_of_initial(initial)
    return f"{list(shape)} numbers" if shape else str(initial)
