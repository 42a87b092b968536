"""Tiny hand-made bundles: a windowed streaming graph, a stateless one and one of ragged rows; their truth in NumPy."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from runtime_lite.format.arrays import Array
from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.format.golden import Golden, GoldenStep, npz_from_golden
from runtime_lite.format.graph_contract import contract_of, with_contract
from runtime_lite.format.manifest import (
    Artifact,
    Axis,
    FileEntry,
    Graph,
    Latency,
    Manifest,
    Scalar,
    Sources,
    State,
    Tensor,
    Voice,
    Wire,
)
from runtime_lite.format.manifest_json import json_from_manifest, manifest_from_json

WINDOW, STEP, WIDTH = 5, 3, 2
BUCKETS = (1, 4)
FRONT_END: dict[str, Scalar] = {"sample_rate_hz": 16000, "dither": 0.5, "window": "povey", "snip_edges": True}
CACHE = CacheAxis("cache", WINDOW, STEP, "real_length", "mask")
TIMES, SHORTEST = (4, 8), 3  # buckets of the axis with a length per row, and its minimum
MARKS = np.array([0.0, 1.0, -1.0], np.float32)
WEIGHT = np.array([[0.5, -1.0], [2.0, 0.25]], np.float32)

# the mean of the valid frames (window ++ chunk) is added to every frame of the chunk, then projected
STREAMING_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
streaming (float[{n},3,2] x, int64[{n}] real_length, float[{n},8] mask, float[{n},5,2] keys)
    => (float[{n},3,2] y, float[{n},5,2] next_keys)
<float[2,2] weight = {{0, 0, 0, 0}}, int64[1] minus_one = {{-1}}, int64[1] three = {{3}}, int64[1] eight = {{8}},
 int64[1] one = {{1}}, float zero = {{0}}>
{{
    frames = Concat<axis = 1>(keys, x)
    column = Unsqueeze(mask, minus_one)
    valid = Cast<to = 9>(column)
    clean = Where(valid, frames, zero)
    total = ReduceSum(clean, one)
    count = ReduceSum(column, one)
    mean = Div(total, count)
    added = Add(x, mean)
    projected = MatMul(added, weight)
    length = Cast<to = 1>(real_length)
    length_wide = Unsqueeze(length, minus_one)
    length_column = Unsqueeze(length_wide, minus_one)
    y = Add(projected, length_column)
    next_keys = Slice(frames, three, eight, one)
}}
"""

PLAIN_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
plain (float[{n},{f},2] x, int64[{n}] shift) => (float[{n},{f},2] y)
<float[2,2] weight = {{0, 0, 0, 0}}, int64[1] minus_one = {{-1}}>
{{
    projected = MatMul(x, weight)
    number = Cast<to = 1>(shift)
    wide = Unsqueeze(number, minus_one)
    column = Unsqueeze(wide, minus_one)
    y = Add(projected, column)
}}
"""

# each row is marked by its tokens, gets the mean of its valid frames, is projected, and every other frame is kept
RAGGED_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
ragged (float[{n},{t},2] x, int64[{n},{t}] tokens, int64[{n}] time_length) => (float[{n},{half},2] y, float[{n},2] mean)
<float[2,2] weight = {{0, 0, 0, 0}}, float[3] marks = {{0, 1, -1}}, int64[{t}] slots = {{{slots}}},
 float zero = {{0}}, int64[1] minus_one = {{-1}}, int64[1] nothing = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}},
 int64[1] end = {{99}}>
{{
    mark = Gather(marks, tokens)
    mark_column = Unsqueeze(mark, minus_one)
    frames = Add(x, mark_column)
    length = Unsqueeze(time_length, one)
    valid = Less(slots, length)
    valid_column = Unsqueeze(valid, minus_one)
    clean = Where(valid_column, frames, zero)
    total = ReduceSum<keepdims = 0>(clean, one)
    count = Cast<to = 1>(length)
    mean = Div(total, count)
    mean_wide = Unsqueeze(mean, one)
    added = Add(frames, mean_wide)
    projected = MatMul(added, weight)
    y = Slice(projected, nothing, end, one, two)
}}
"""


def truth_of_stream(chunks: Array) -> Iterator[tuple[Array, Array]]:
    """Yield output and next keys for each chunk of `[chunks, rows, 3, 2]`, with the whole past at hand."""
    past = np.zeros((chunks.shape[1], 0, WIDTH), np.float32)
    for chunk in chunks:
        cached = past[:, -WINDOW:]
        mean = np.concatenate([cached, chunk], 1).mean(1, keepdims=True)
        past = np.concatenate([past, chunk], 1)
        padding = np.zeros((chunk.shape[0], max(0, WINDOW - past.shape[1]), WIDTH), np.float32)
        yield (chunk + mean) @ WEIGHT + cached.shape[1], np.concatenate([padding, past[:, -WINDOW:]], 1)


def truth_of_plain(x: Array, shift: Array) -> Array:
    """Return the output of the stateless graph."""
    result: Array = x @ WEIGHT + shift[:, None, None].astype(np.float32)
    return result


def truth_of_ragged(x: Array, tokens: Array) -> tuple[Array, Array]:
    """Return both outputs of the ragged graph for rows of one length."""
    frames = x + MARKS[tokens][:, :, None]
    mean = frames.mean(1)
    return ((frames + mean[:, None]) @ WEIGHT)[:, ::2], mean


def random_row(length: int, seed: int = 0) -> dict[str, Array]:
    """Return the feed of one row of the ragged graph."""
    random = np.random.default_rng((seed, length))
    x = random.standard_normal((1, length, WIDTH)).astype(np.float32)
    return {"x": x, "tokens": random.integers(0, 3, (1, length))}


def random_chunks(count: int, rows: int = 1, seed: int = 0) -> Array:
    """Return `[count, rows, 3, 2]` chunks."""
    return np.random.default_rng(seed).standard_normal((count, rows, STEP, WIDTH)).astype(np.float32)


def onnx_bytes(text: str, location: str = "weights.bin", offset: int = 0, length: int | None = None) -> bytes:
    """Return an ONNX file whose initializer `weight` lies in an external file."""
    model = ir.from_onnx_text(text)
    model.graph.initializers["weight"].const_value = ir.ExternalTensor(
        location,
        offset,
        WEIGHT.nbytes if length is None else length,
        ir.DataType.FLOAT,
        shape=ir.Shape([2, 2]),
        name="weight",
    )
    return bytes(ir.to_proto(model).SerializeToString())


def streaming_graph() -> Graph:
    """Return the record of the windowed streaming graph."""
    keys = State("keys", "keys", "next_keys", ("batch", 5, 2), "float32", 0.0, 1, "cache", ("layer.keys",))
    return Graph(
        target="onnx_static",
        opset=20,
        ir_version=10,
        inputs=(
            Tensor("x", ("batch", STEP, WIDTH), "float32", "data"),
            Tensor("real_length", ("batch",), "int64", "length"),
            Tensor("mask", ("batch", WINDOW + STEP), "float32", "mask"),
            Tensor("keys", ("batch", WINDOW, WIDTH), "float32", "state"),
        ),
        outputs=(
            Tensor("y", ("batch", STEP, WIDTH), "float32", "data"),
            Tensor("next_keys", ("batch", WINDOW, WIDTH), "float32", "state"),
        ),
        axes={"batch": Axis(BUCKETS)},
        states=(keys,),
        caches=(CACHE,),
        artifacts=tuple(
            Artifact({"batch": n}, f"graphs/streaming.batch{n}.onnx", ("graphs/weights.bin",)) for n in BUCKETS
        ),
        golden="golden/streaming.npz",
        rows_independent=True,
        certificate="certificates/streaming.json",
        batch_axis="batch",
    )


def plain_graph() -> Graph:
    """Return the record of the stateless graph, whose frames axis has buckets too."""
    sizes = [{"batch": n, "frames": f} for n in BUCKETS for f in (2, 3)]
    return Graph(
        target="onnx_static",
        opset=20,
        ir_version=10,
        inputs=(
            Tensor("x", ("batch", "frames", WIDTH), "float32", "data"),
            Tensor("shift", ("batch",), "int64", "data"),
        ),
        outputs=(Tensor("y", ("batch", "frames", WIDTH), "float32", "data"),),
        axes={"batch": Axis(BUCKETS), "frames": Axis((2, 3))},
        states=(),
        caches=(),
        artifacts=tuple(
            Artifact(s, f"graphs/plain.batch{s['batch']}.frames{s['frames']}.onnx", ("graphs/weights.bin",))
            for s in sizes
        ),
        golden="golden/plain.npz",
        rows_independent=True,
        certificate="certificates/plain.json",
        batch_axis="batch",
    )


def ragged_graph() -> Graph:
    """Return the record of the graph whose rows have lengths of their own."""
    return Graph(
        target="onnx_static",
        opset=20,
        ir_version=10,
        inputs=(
            Tensor("x", ("batch", "time", WIDTH), "float32", "data"),
            Tensor("tokens", ("batch", "time"), "int64", "data"),
            Tensor("time_length", ("batch",), "int64", "length"),
        ),
        outputs=(
            Tensor("y", ("batch", "(time - 1) // 2 + 1", WIDTH), "float32", "data"),
            Tensor("mean", ("batch", WIDTH), "float32", "data"),
        ),
        axes={"batch": Axis(BUCKETS), "time": Axis(TIMES, "time_length", SHORTEST)},
        states=(),
        caches=(),
        artifacts=tuple(
            Artifact({"batch": n, "time": t}, f"graphs/ragged.batch{n}.time{t}.onnx", ("graphs/weights.bin",))
            for n in BUCKETS
            for t in TIMES
        ),
        golden="golden/ragged.npz",
        rows_independent=True,
        certificate="certificates/ragged.json",
        batch_axis="batch",
    )


def streaming_golden() -> Golden:
    """Return five chained steps; the window overflows at the second."""
    chunks = random_chunks(5)
    steps = []
    for index, (chunk, (output, keys)) in enumerate(zip(chunks, truth_of_stream(chunks), strict=True)):
        states = {"next_keys": keys} if index == len(chunks) - 1 else {}
        steps.append(GoldenStep({"x": chunk}, {"y": output, **states}))
    return Golden(tuple(steps), 1e-5)


def plain_golden() -> Golden:
    """Return one step per bucket of the frames axis."""
    steps = []
    for frames in (2, 3):
        x, shift = random_chunks(1, seed=frames)[0][:, :frames], np.array([frames])
        steps.append(GoldenStep({"x": x, "shift": shift}, {"y": truth_of_plain(x, shift)}))
    return Golden(tuple(steps), 1e-5)


def ragged_golden() -> Golden:
    """Return rows of several lengths, the smallest and the largest among them."""
    steps = []
    for length in (SHORTEST, 4, 6, 8):
        feed = random_row(length)
        y, mean = truth_of_ragged(feed["x"], feed["tokens"])
        steps.append(GoldenStep(feed, {"y": y, "mean": mean}))
    return Golden(tuple(steps), 1e-5)


def graph_files() -> dict[str, bytes]:
    """Return the files of all graphs, without their golden files."""
    files = {"graphs/weights.bin": WEIGHT.tobytes()}
    files |= {f"certificates/{name}.json": b"{}\n" for name in ("streaming", "plain", "ragged")}
    for n in BUCKETS:
        files[f"graphs/streaming.batch{n}.onnx"] = onnx_bytes(STREAMING_TEXT.format(n=n))
        for f in (2, 3):
            files[f"graphs/plain.batch{n}.frames{f}.onnx"] = onnx_bytes(PLAIN_TEXT.format(n=n, f=f))
        for t in TIMES:
            slots = ", ".join(str(slot) for slot in range(t))
            text = RAGGED_TEXT.format(n=n, t=t, half=(t - 1) // 2 + 1, slots=slots)
            files[f"graphs/ragged.batch{n}.time{t}.onnx"] = onnx_bytes(text)
    return files


def entry_of(content: bytes) -> FileEntry:
    """Return size and hash of a file."""
    return FileEntry(len(content), hashlib.sha256(content).hexdigest())


def manifest_of(
    graphs: Mapping[str, Graph],
    files: Mapping[str, bytes],
    wiring: tuple[Wire, ...] = (),
    voice: Voice | None = None,
) -> Manifest:
    """Return a manifest of graphs and files."""
    return Manifest(
        name="tiny",
        graphs=dict(graphs),
        front_end=FRONT_END,
        sha256=Sources(checkpoint={"model.safetensors": "a" * 64}, recipe="b" * 64, data={}),
        tools={"onnxruntime": "1.31.1"},
        receipts="receipts.json",
        recipe="recipe.yaml",
        files={name: entry_of(content) for name, content in files.items()},
        wiring=wiring,
        voice=voice,
    )


def write_bundle(
    directory: Path,
    graphs: Mapping[str, Graph],
    files: Mapping[str, bytes],
    wiring: tuple[Wire, ...] = (),
    voice: Voice | None = None,
) -> Path:
    """Write a bundle directory and return it; files that no graph names are left out."""
    named = {path for graph in graphs.values() for item in graph.artifacts for path in (item.file, *item.files)}
    named |= {path for graph in graphs.values() for path in (graph.golden, graph.certificate)}
    kept = {name: content for name, content in files.items() if name in named}
    for name, graph in graphs.items():
        digest = entry_of(kept[graph.certificate]).sha256
        for item in {item.file: item for item in graph.artifacts}.values():
            kept[item.file] = with_contract(kept[item.file], contract_of(name, graph, item, FRONT_END, digest))
    kept |= {"receipts.json": b"{}\n", "recipe.yaml": b"name: tiny\n"}
    for name, content in kept.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    (directory / "manifest.json").write_bytes(json_from_manifest(manifest_of(graphs, kept, wiring, voice)))
    return directory


def write_streaming_bundle(directory: Path) -> Path:
    """Write a bundle with the streaming graph only."""
    files = graph_files() | {"golden/streaming.npz": npz_from_golden(streaming_golden())}
    return write_bundle(directory, {"streaming": streaming_graph()}, files)


def write_plain_bundle(directory: Path) -> Path:
    """Write a bundle with the stateless graph only."""
    files = graph_files() | {"golden/plain.npz": npz_from_golden(plain_golden())}
    return write_bundle(directory, {"plain": plain_graph()}, files)


def write_ragged_bundle(directory: Path) -> Path:
    """Write a bundle with the graph of ragged rows only."""
    files = graph_files() | {"golden/ragged.npz": npz_from_golden(ragged_golden())}
    return write_bundle(directory, {"ragged": ragged_graph()}, files)


def write_double_bundle(directory: Path) -> Path:
    """Write a bundle with the first two graphs, which share one weights file."""
    files = graph_files() | {"golden/streaming.npz": npz_from_golden(streaming_golden())}
    files |= {"golden/plain.npz": npz_from_golden(plain_golden())}
    return write_bundle(directory, {"streaming": streaming_graph(), "plain": plain_graph()}, files)


WIRES = (Wire("streaming", "y", "plain", "x"), Wire("streaming", "y", "ragged", "x"))


def write_latencies_bundle(directory: Path, *, beside: bool = False) -> Path:
    """Write a bundle of the model `asr` at the latencies `fast` and `exact`; the stateless graph may lie beside it."""
    files, graphs = graph_files(), dict[str, Graph]()
    for latency in ("fast", "exact"):
        graph, name = streaming_graph(), f"asr_{latency}"
        artifacts = [dataclasses.replace(each, file=f"{each.file}.{latency}.onnx") for each in graph.artifacts]
        files |= {new.file: files[old.file] for old, new in zip(graph.artifacts, artifacts, strict=True)}
        graphs[name] = dataclasses.replace(graph, artifacts=tuple(artifacts), latency=Latency("asr", latency))
    files |= {"golden/streaming.npz": npz_from_golden(streaming_golden())}
    if beside:
        graphs["plain"] = plain_graph()
        files |= {"golden/plain.npz": npz_from_golden(plain_golden())}
    return write_bundle(directory, graphs, files)


def write_wired_bundle(directory: Path, wiring: tuple[Wire, ...] = WIRES) -> Path:
    """Write a bundle of the graphs that some wires touch; by default the streaming one feeds both others."""
    known = {
        "streaming": (streaming_graph(), streaming_golden()),
        "plain": (plain_graph(), plain_golden()),
        "ragged": (ragged_graph(), ragged_golden()),
    }
    touched = {name for wire in wiring for name in (wire.from_graph, wire.to_graph)}
    files = graph_files() | {f"golden/{name}.npz": npz_from_golden(golden) for name, (_, golden) in known.items()}
    return write_bundle(directory, {name: known[name][0] for name in known if name in touched}, files, wiring)


OPEN_FILE = "graphs/streaming.batch.onnx"


def open_graph() -> Graph:
    """Return the record of the streaming graph whose buckets share one file, in which the rows are open."""
    graph = streaming_graph()
    artifacts = tuple(dataclasses.replace(each, file=OPEN_FILE) for each in graph.artifacts)
    return dataclasses.replace(graph, artifacts=artifacts)


def open_files() -> dict[str, bytes]:
    """Return the file of that graph."""
    return {OPEN_FILE: onnx_bytes(STREAMING_TEXT.format(n="batch"))}


def write_open_bundle(directory: Path) -> Path:
    """Write a bundle of the streaming graph whose buckets share one file, in which the rows are open."""
    files = graph_files() | {"golden/streaming.npz": npz_from_golden(streaming_golden())}
    return write_bundle(directory, {"streaming": open_graph()}, files | open_files())


def edit_manifest(directory: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest's JSON as an attacker would, past the records."""
    path = directory / "manifest.json"
    plain = json.loads(path.read_bytes())
    edit(plain)
    path.write_text(json.dumps(plain))


def replace_graph(directory: Path, name: str, content: bytes) -> None:
    """Exchange a graph file for one that says it was written for the manifest as it is."""
    manifest = manifest_from_json((directory / "manifest.json").read_bytes())
    for graph, record in manifest.graphs.items():
        for item in record.artifacts:
            if item.file == name:
                certificate = manifest.files[record.certificate].sha256
                contract = contract_of(graph, record, item, manifest.front_end, certificate)
                replace_hashed(directory, name, with_contract(content, contract))


def rewrite_contracts(directory: Path) -> None:
    """Let the graph files agree with whatever the manifest says: what an author of the whole bundle can do."""
    for path in sorted((directory / "graphs").glob("*.onnx")):
        proto = onnx.load(path, load_external_data=False)
        del proto.metadata_props[:]
        replace_graph(directory, path.relative_to(directory).as_posix(), proto.SerializeToString())


def replace_hashed(directory: Path, name: str, content: bytes) -> None:
    """Change or add a file together with its hash: what a hostile author can do and an accident cannot."""
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(content)
    edit_manifest(directory, lambda plain: plain["files"].update({name: dataclasses.asdict(entry_of(content))}))


def for_openvino(directory: Path, precision: str = "float32") -> Path:
    """Let a bundle's graphs be of the target that OpenVINO runs."""

    def edit(plain: dict[str, Any]) -> None:
        for graph in plain["graphs"].values():
            graph.update(target="openvino", options={"precision": precision})

    edit_manifest(directory, edit)
    rewrite_contracts(directory)
    return directory
