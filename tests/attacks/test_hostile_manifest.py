"""Attacks through the text of `manifest.json`: each is stopped by one sentence before anything else is read."""

import json
from pathlib import Path
from typing import Any

import pytest

from runtime_lite import read_bundle
from tests.attacks.edits import Edit, drop_at, exact_axis, graph_of, set_at, stopped
from tests.runtime_lite.bundles import edit_manifest, write_streaming_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_streaming_bundle(tmp_path / "bundle")


TEXTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "expected UTF-8 JSON, got 'Expecting value: line 1 column 1 (char 0)'; copy the bundle again"),
    "truncated": (b'{"schema_version": 1, "graphs": {"a', "expected UTF-8 JSON, got 'Unterminated string"),
    "two documents": (b"{} {}", "expected UTF-8 JSON, got 'Extra data"),
    "byte order mark": (b"\xef\xbb\xbf{}", "expected UTF-8 JSON"),
    "utf-16": ("{}".encode("utf-16"), "expected UTF-8 JSON"),
    "not utf-8": (b'{"name": "\xff"}', "expected UTF-8 JSON, got"),
    "nul byte": (b'{"name": "a\x00b"}', "expected UTF-8 JSON, got 'Invalid control character"),
    "nested without end": (b"[" * 200_000, "expected JSON nested a few levels deep"),
    "nested objects without end": (b'{"a":' * 100_000, "expected JSON nested a few levels deep"),
    "duplicate key": (
        b'{"schema_version": 1, "schema_version": 2}',
        "expected every key once, got key 'schema_version' twice",
    ),
    "nan": (b'{"schema_version": NaN}', "expected finite numbers, got 'NaN'"),
    "infinity": (b'{"schema_version": -Infinity}', "expected finite numbers, got '-Infinity'"),
    "float overflow": (b'{"schema_version": 1e999}', "expected finite numbers, got '1e999'"),
    "huge integer": (b'{"schema_version": ' + b"9" * 100_000 + b"}", "expected integers of at most 19 digits"),
    "oversized": (b" " * (4 * 2**20 + 1), "expected manifest.json of at most 4194304 bytes, got 4194305 bytes"),
    "not an object": (b"[1]", "manifest.json: expected an object, got [1]"),
    "null": (b"null", "manifest.json: expected an object, got None"),
    "no version": (b"{}", "manifest.json: expected the key 'schema_version'"),
}


@pytest.mark.parametrize("attack", TEXTS)
def test_hostile_text(bundle: Path, attack: str) -> None:
    text, sentence = TEXTS[attack]
    (bundle / "manifest.json").write_bytes(text)
    assert sentence in stopped(bundle)


def rename_file(plain: dict[str, Any], name: str) -> None:
    plain["files"][name] = plain["files"].pop("recipe.yaml")
    plain["recipe"] = name


def many(plain: dict[str, Any]) -> None:
    plain["tools"] = {f"t{index}": "1" for index in range(5000)}


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


def explode(plain: dict[str, Any]) -> None:
    names = [f"a{index}" for index in range(8)]
    graph_of(plain)["axes"] = {name: exact_axis(1, 2, 3, 4, 5, 6, 7, 8) for name in names} | {"batch": exact_axis(1)}
    graph_of(plain)["inputs"][0]["shape"] = ["batch", *names]


EDITS: dict[str, tuple[Edit, str]] = {
    # versions, keys, types
    "newer schema": (lambda m: m.update(schema_version=5), "schema_version: expected 4, got 5; update runtime_lite"),
    "older schema": (lambda m: m.update(schema_version=1), "schema_version: expected 4, got 1; rebuild the bundle"),
    "schema as text": (lambda m: m.update(schema_version="1"), "schema_version: expected an integer from 0"),
    "schema as boolean": (lambda m: m.update(schema_version=True), "schema_version: expected an integer from 0"),
    "unknown key": (lambda m: m.update(evil=1), "got unknown key 'evil'"),
    "unknown key in a graph": (set_at("plugin", to="evil.so"), "graphs.streaming: expected only the keys"),
    "missing key": (lambda m: m.pop("files"), "manifest.json: expected the key 'files'"),
    "older schema in today's words": (
        lambda m: m.update(schema_version=3),
        "graphs.streaming: expected only the keys",
    ),
    "missing key in a state": (drop_at("states", 0, "cache"), "states[0]: expected the key 'cache'"),
    "list as object": (lambda m: m.update(graphs=[]), "graphs: expected an object, got []"),
    "object as list": (set_at("inputs", to={}), "inputs: expected a list, got {}"),
    "number as text": (lambda m: m.update(name=7), "name: expected a printable text"),
    "float as integer": (set_at("opset", to=20.0), "opset: expected an integer from 1 to 1000, got 20.0"),
    "terminal escape": (lambda m: m.update(name="\x1b]0;owned\x07"), "name: expected a printable text"),
    "lone surrogate": (lambda m: m.update(name="\ud800"), "name: expected a printable text"),
    "line break in a tool": (lambda m: m["tools"].update(a="b\nc"), "tools.a: expected a printable text"),
    "endless text": (lambda m: m.update(name="x" * 5000), "name: expected a printable text of 1 to 4096 characters"),
    "too many entries": (many, "tools: expected at most 4096 entries, got 5000"),
    "list in the front end": (
        lambda m: m["front_end"].update(a=[1]),
        "front_end.a: expected a boolean, a number or a text",
    ),
    # file names
    "path traversal": (lambda m: rename_file(m, "../recipe.yaml"), "got '../recipe.yaml', which leaves its folder"),
    "inner traversal": (lambda m: rename_file(m, "a/../../b"), "which leaves its folder"),
    "absolute path": (lambda m: rename_file(m, "/etc/passwd"), "got '/etc/passwd', which is absolute"),
    "drive letter": (lambda m: rename_file(m, "c:recipe.yaml"), "which is absolute"),
    "backslash": (lambda m: rename_file(m, "graphs\\x"), "which has a backslash"),
    "nul in a name": (lambda m: rename_file(m, "recipe.yaml\0.txt"), "characters that are not printable ASCII"),
    "non-ascii name": (lambda m: rename_file(m, "r\u00e9cipe.yaml"), "characters that are not printable ASCII"),
    "right-to-left name": (lambda m: rename_file(m, "a\u202eyaml"), "characters that are not printable ASCII"),
    "empty name": (lambda m: rename_file(m, ""), "a path of 0 characters"),
    "long name": (lambda m: rename_file(m, "x" * 300), "a path of 300 characters"),
    "dot part": (lambda m: rename_file(m, "./recipe.yaml"), "which has a part that is not letters"),
    "double slash": (lambda m: rename_file(m, "a//b"), "which has a part that is not letters"),
    "hidden file": (lambda m: rename_file(m, ".bashrc"), "which has a part that is not letters"),
    "shell characters": (lambda m: rename_file(m, "$(reboot)"), "which has a part that is not letters"),
    "trailing dot": (lambda m: rename_file(m, "recipe."), "which has a part that is not letters"),
    "name as number": (lambda m: m.update(recipe=1), "recipe: expected a file name, got 1"),
    "case collision": (
        lambda m: m["files"].update({"Recipe.yaml": m["files"]["recipe.yaml"]}),
        "expected names that differ in more than case, got 'recipe.yaml' and 'Recipe.yaml'",
    ),
    "case collision of folders": (
        lambda m: m["files"].update({"Graphs/x": m["files"]["recipe.yaml"]}),
        "expected names that differ in more than case, got 'graphs' and 'Graphs'",
    ),
    "case collision with the manifest": (
        lambda m: m["files"].update({"MANIFEST.JSON": m["files"]["recipe.yaml"]}),
        "got 'manifest.json' and 'MANIFEST.JSON'",
    ),
    "file as folder": (
        lambda m: m["files"].update({"recipe.yaml/x": m["files"]["recipe.yaml"]}),
        "expected a name to be a file or a folder, got 'recipe.yaml' as both",
    ),
    "manifest lists itself": (
        lambda m: m["files"].update({"manifest.json": m["files"]["recipe.yaml"]}),
        "expected every file but manifest.json and costs.json, got 'manifest.json'",
    ),
    # sizes and hashes
    "negative size": (lambda m: m["files"]["recipe.yaml"].update(bytes=-1), "bytes: expected an integer from 0"),
    "huge size": (lambda m: m["files"]["recipe.yaml"].update(bytes=2**40), "bytes: expected an integer from 0 to"),
    "huge total": (
        lambda m: [entry.update(bytes=2**34) for entry in m["files"].values()],
        "files: expected at most 68719476736 bytes in all",
    ),
    "short hash": (
        lambda m: m["files"]["recipe.yaml"].update(sha256="ab"),
        "expected a SHA-256 of 64 lower-case hex digits",
    ),
    "upper-case hash": (
        lambda m: m["files"]["recipe.yaml"].update(sha256="A" * 64),
        "expected a SHA-256 of 64 lower-case hex digits",
    ),
    # references
    "artifact file not listed": (
        set_at("artifacts", 0, "file", to="graphs/other.onnx"),
        "graphs.streaming.artifacts: expected a file listed under 'files', got 'graphs/other.onnx'",
    ),
    "weights not listed": (
        set_at("artifacts", 0, "files", to=["w.bin"]),
        "expected a file listed under 'files', got 'w.bin'",
    ),
    "golden not listed": (
        set_at("golden", to="g.npz"),
        "graphs.streaming.golden: expected a file listed under 'files'",
    ),
    "artifact leaves the bundle": (set_at("artifacts", 0, "file", to="../x.onnx"), "which leaves its folder"),
    "certificate not listed": (set_at("certificate", to="c.json"), "certificate: expected a file listed under 'files'"),
    "receipts not listed": (lambda m: m.update(receipts="r.json"), "receipts: expected a file listed under 'files'"),
    # shapes
    "negative dimension": (set_at("inputs", 0, "shape", to=["batch", -3, 2]), "shape[1]: expected an integer from 1"),
    "zero dimension": (set_at("inputs", 0, "shape", to=["batch", 0, 2]), "shape[1]: expected an integer from 1"),
    "huge dimension": (set_at("inputs", 0, "shape", to=["batch", 2**40, 2]), "shape[1]: expected an integer from 1"),
    "product overflows": (
        set_at("inputs", 0, "shape", to=["batch", 2**31 - 1, 2**31 - 1, 2**31 - 1]),
        "streaming.x.shape: expected a tensor of at most 4294967296 bytes",
    ),
    "endless rank": (set_at("inputs", 0, "shape", to=[1] * 17), "shape: expected at most 16 dimensions, got 17"),
    "fractional dimension": (set_at("inputs", 0, "shape", to=["batch", 3.5]), "shape[1]: expected an integer"),
    "boolean dimension": (set_at("inputs", 0, "shape", to=["batch", True]), "shape[1]: expected an integer"),
    "unknown axis": (
        set_at("inputs", 0, "shape", to=["batch", "time", 2]),
        "expected axes declared under 'axes' (batch), got 'time'",
    ),
    "axis twice": (set_at("inputs", 0, "shape", to=["batch", "batch", 2]), "shape: expected every axis name once"),
    "axis name as code": (
        set_at("inputs", 0, "shape", to=["batch", "1;x", 2]),
        "shape[1]: formula '1;x': expected integers",
    ),
    "output without rows": (
        set_at("outputs", 0, "shape", to=[3, 2]),
        "expected the axis 'batch', which the graph declares",
    ),
    "unknown dtype": (set_at("inputs", 0, "dtype", to="object"), "dtype: expected one of bool, float16"),
    "range of a mask": (
        set_at("inputs", 2, "range", to=[0, 1]),
        "range: expected null but for numbers that callers feed",
    ),
    "range that is empty": (set_at("inputs", 0, "range", to=[1.0, 0.5]), "range: expected the smaller number first"),
    "range without end": (set_at("inputs", 0, "range", to=[0, 10**18 * 10**290]), "integers of at most 19 digits"),
    "range of one number": (set_at("inputs", 0, "range", to=[1]), "range: expected two numbers, or null"),
    "range of words": (set_at("inputs", 0, "range", to=["a", "b"]), "range: expected two numbers, or null"),
    "unknown role": (set_at("inputs", 0, "role", to="root"), "role: expected one of data, length, mask, state"),
    "no data output": (set_at("outputs", 0, "role", to="state"), "outputs: expected an output of role 'data'"),
    "name twice": (set_at("outputs", 0, "name", to="x"), "expected every input and output name once, got a name twice"),
    "space in a name": (set_at("outputs", 0, "name", to="a b"), "expected a name of at most 240 ASCII characters"),
    # buckets
    "no buckets": (set_at("axes", "batch", "buckets", to=[]), "buckets: expected ascending, distinct sizes, got []"),
    "descending buckets": (
        set_at("axes", "batch", "buckets", to=[4, 1]),
        "buckets: expected ascending, distinct sizes",
    ),
    "repeated bucket": (set_at("axes", "batch", "buckets", to=[1, 1]), "buckets: expected ascending, distinct sizes"),
    "missing artifact": (
        drop_at("artifacts", 1),
        "artifacts: expected one per combination of buckets, got 1 for 2",
    ),
    "artifact twice": (set_at("artifacts", 1, "sizes", to={"batch": 1}), "expected every combination of buckets once"),
    "artifact of no bucket": (
        set_at("artifacts", 1, "sizes", to={"batch": 3}),
        "expected a bucket of axis 'batch', got 3",
    ),
    "artifact of no axis": (set_at("artifacts", 1, "sizes", to={"rows": 4}), "expected sizes for the axes ['batch']"),
    "combinations explode": (
        explode,
        "artifacts: expected one per combination of buckets, got 2 for 16777216",
    ),
    "axis that no feed decides": (
        set_at("axes", to={"batch": exact_axis(1, 4), "beams": exact_axis(1)}),
        "axes: expected axes that an input of role 'data' has, their sizes come from the feed, got 'beams'",
    ),
    # states and stream
    "state without input": (set_at("states", 0, "input", to="x"), "states: expected every input of role 'state' once"),
    "state forgotten": (set_at("states", to=[]), "states: expected every input of role 'state' once"),
    "state of another shape": (
        set_at("states", 0, "shape", to=["batch", 5, 3]),
        "states.keys: expected the shape and dtype of input 'keys'",
    ),
    "state of another dtype": (
        set_at("states", 0, "dtype", to="float16"),
        "expected the shape and dtype of input 'keys'",
    ),
    "initial as text": (set_at("states", 0, "initial", to="0"), "initial: expected a number, got '0'"),
    "initial in text": (set_at("states", 0, "initial", to=[[["0"]]]), "initial[0][0][0]: expected a number, got '0'"),
    "initial of other axes": (set_at("states", 0, "initial", to=[0.0]), "one number for a state along a cache"),
    "initial without end": (
        lambda plain: graph_of(plain)["states"][0].update(initial=nested(40)),
        "expected numbers within at most 16 lists",
    ),
    "initial overflows": (set_at("states", 0, "initial", to=1e39), "initial: expected a number that float32 holds"),
    "initial as boolean": (set_at("states", 0, "initial", to=True), "initial: expected a number that float32 holds"),
    "update of a state itself": (set_at("states", 0, "update", to="replace"), "got unknown key 'update'"),
    "frames axis beyond rank": (
        set_at("states", 0, "frames_axis", to=7),
        "frames_axis: expected the axis of size 5, got 7",
    ),
    "cache without frames axis": (
        set_at("states", 0, "frames_axis", to=None),
        "expected frames_axis and cache both given",
    ),
    "frames axis without cache": (set_at("states", 0, "cache", to=None), "expected frames_axis and cache both given"),
    "state along no cache": (
        set_at("states", 0, "cache", to="past"),
        "states.keys.cache: expected one of the cache axes (cache), got 'past'",
    ),
    "state along the rows": (
        set_at("states", 0, "cache", to="batch"),
        "states.keys.cache: expected one of the cache axes (cache), got 'batch'",
    ),
    "no caches": (set_at("caches", to=[]), "states.keys.cache: expected one of the cache axes (none), got 'cache'"),
    "cache twice": (
        lambda m: graph_of(m)["caches"].append(graph_of(m)["caches"][0]),
        "caches: expected a name of its own for every axis, got ['batch', 'cache', 'cache']",
    ),
    "cache without states": (
        lambda m: graph_of(m)["caches"].append({**graph_of(m)["caches"][0], "axis": "other"}),
        "caches: expected a state along 'other', got none",
    ),
    "cache that is called like the rows": (
        set_at("caches", 0, "axis", to="batch"),
        "caches: expected a name of its own for every axis, got ['batch', 'batch']",
    ),
    "cache names no mask": (
        set_at("caches", 0, "mask_input", to=None),
        "inputs: expected [] as the inputs of role 'mask', got ['mask']",
    ),
    "length of a cache that is no input": (
        set_at("caches", 0, "length_input", to="x"),
        "inputs: expected ['x'] as the inputs of role 'length', got ['real_length']",
    ),
    "cache of another size": (set_at("caches", 0, "slots", to=6), "frames_axis: expected the axis of size 6, got 1"),
    "mask of another size": (set_at("caches", 0, "step", to=4), "mask: expected float32 of shape ['batch', 9]"),
    "no slots": (set_at("caches", 0, "slots", to=0), "slots: expected an integer from 1"),
    "unknown side": (set_at("caches", 0, "side", to="middle"), "side: expected one of right, left, got 'middle'"),
    "side as a list": (set_at("caches", 0, "side", to=["right"]), "side: expected one of right, left"),
    "unknown update": (
        set_at("caches", 0, "update", to="exec"),
        "update: expected one of replace, append, ring, got 'exec'",
    ),
    "a side of another kind": (
        set_at("caches", 0, "update", to="append"),
        "got right-aligned caches that append; update runtime_lite if the bundle is newer, else rebuild the bundle",
    ),
    "appended caches that are given whole": (
        lambda plain: graph_of(plain)["caches"][0].update(side="left", update="append", is_whole=True),
        "states.keys: expected the shape and dtype of output 'next_keys', got [['batch', 3, 2], 'float32']",
    ),
    # rows
    "rows along no axis": (set_at("batch_axis", to="rows"), "batch_axis: expected one of the axes (batch) or null"),
    "rows along a cache": (set_at("batch_axis", to="cache"), "batch_axis: expected one of the axes (batch) or null"),
    "rows as a number": (set_at("batch_axis", to=0), "batch_axis: expected an axis name of letters"),
    "no rows": (set_at("batch_axis", to=None), "states.keys.shape: expected integers and the axis None"),
    "length as float": (
        set_at("inputs", 1, "dtype", to="float32"),
        "real_length: expected int32 or int64 of shape [rows]",
    ),
    "frames of a call by an axis without lengths": (
        set_at("caches", 0, "added", to="batch"),
        "caches[0].added: expected a formula of axes with a length per row (none), got batch",
    ),
    "frames of a call as a program": (
        set_at("caches", 0, "added", to="__import__('os')"),
        "caches[0].added: ",
    ),
    "frames of a call as a number": (set_at("caches", 0, "added", to=3), "caches[0].added: expected"),
    "fixed frames of a call by a formula": (
        set_at("caches", 0, "added", to="2"),
        "caches[0].added: expected null beside a mask_input",
    ),
    "a stream completed by a chunk of one size": (
        set_at("flush", to={"x": 3}),
        "flush.x: expected the entries of one chunk along axes with a length per row, got 3",
    ),
    "a stream completed by a state": (
        set_at("flush", to={"keys": 3}),
        "flush: expected every input of role 'data' of a graph with states (['x']), got ['keys']",
    ),
    "a stream completed without end": (set_at("flush", to={"x": 2**60}), "flush.x: expected an integer from 1"),
    "a stream completed by a list": (set_at("flush", to=["x"]), "flush: expected an object"),
    "a stream completed by a number of nothing": (
        set_at("flush_values", to={"x": 3}),
        "flush_values: expected inputs that flush names ([]), got 'x'",
    ),
    "a stream completed by what is no number": (
        set_at("flush_values", to={"x": "1"}),
        "flush_values.x: expected a number",
    ),
    "endless step": (set_at("caches", 0, "step", to=2**40), "step: expected an integer from 1"),
}


@pytest.mark.parametrize("attack", EDITS)
def test_hostile_record(bundle: Path, attack: str) -> None:
    edit, sentence = EDITS[attack]
    edit_manifest(bundle, edit)
    assert sentence in stopped(bundle)


def test_the_attacked_bundle_is_sound_without_the_attack(bundle: Path) -> None:
    edit_manifest(bundle, lambda plain: None)
    with read_bundle(bundle) as opened:
        assert json.loads((bundle / "manifest.json").read_bytes())["name"] == opened.manifest.name
