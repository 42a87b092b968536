"""A graph that gives new frames alone, for caches that are written in place, and a state beside them."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.format.golden import Golden, GoldenStep, npz_from_golden
from runtime_lite.format.manifest import Artifact, Axis, Graph, State, Tensor
from runtime_lite.states import APPENDED, KINDS
from runtime_lite.states.kind import StateKind
from tests.runtime_lite.bundles import streaming_graph, write_bundle

SLOTS, WIDTH, TIMES = 12, 2, (1, 4)

# what lies behind the end of a row is NaN, as if it could not be seen; free slots hold zeros
IN_PLACE_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
in_place (float[{n},{t},2] x, int64[{n}] time_length, int64[{n}] past_length,
          float[{n},12,2] keys, float[{n},2,12] values, float[{n},1] total)
      => (float[{n},{t},2] y, float[{n},{t},2] new_keys, float[{n},2,{t}] new_values, float[{n},1] new_total)
<int64[1] one = {{1}}, int64[1] two = {{2}}, int64[{t}] slots = {{{slots}}}, int64 nothing = {{0}},
 float thousand = {{1000}}, float zero = {{0}}, float negative = {{-1}}>
{{
    key_sum = ReduceSum<keepdims = 1>(keys, one)
    value_sum = ReduceSum<keepdims = 0>(values, two)
    value_row = Unsqueeze(value_sum, one)
    twice = Add(value_row, value_row)
    total_row = Unsqueeze(total, one)
    large = Mul(total_row, thousand)
    with_keys = Add(x, key_sum)
    with_values = Add(with_keys, twice)
    y = Add(with_values, large)
    length = Unsqueeze(time_length, one)
    valid = Less(slots, length)
    column = Unsqueeze(valid, two)
    poison = Log(negative)
    new_keys = Where(column, x, poison)
    new_values = Transpose<perm = [0, 2, 1]>(new_keys)
    first = Gather<axis = 2>(x, nothing)
    clean = Where(valid, first, zero)
    added = ReduceSum<keepdims = 1>(clean, one)
    new_total = Add(total, added)
}}
"""

WRITTEN_IN_PLACE = [kind for kind in KINDS if not kind.is_given_whole]


def in_place_graph(buckets: tuple[int, ...] = (1, 2, 4), slots: int = SLOTS, kind: StateKind = APPENDED) -> Graph:
    """A graph that adds to every new frame the sum of what it has cached, and of all frames before its call."""
    cache = CacheAxis("past", slots, 1, "past_length", None, added="time", is_whole=kind.needs_whole).as_kind(kind)
    states = (
        State("keys", "keys", "new_keys", ("batch", slots, WIDTH), "float32", 0.0, 1, "past", ("keys",)),
        State("values", "values", "new_values", ("batch", WIDTH, slots), "float32", 0.0, 2, "past", ("values",)),
        State("total", "total", "new_total", ("batch", 1), "float32", 0.0, None, None, ("total",)),
    )
    inputs = (
        Tensor("x", ("batch", "time", WIDTH), "float32", "data"),
        Tensor("time_length", ("batch",), "int64", "length"),
        Tensor("past_length", ("batch",), "int64", "length"),
        *(Tensor(each.input, each.shape, "float32", "state") for each in states),
    )
    outputs = (
        Tensor("y", ("batch", "time", WIDTH), "float32", "data"),
        Tensor("new_keys", ("batch", "time", WIDTH), "float32", "state"),
        Tensor("new_values", ("batch", WIDTH, "time"), "float32", "state"),
        Tensor("new_total", ("batch", 1), "float32", "state"),
    )
    return dataclasses.replace(
        streaming_graph(),
        inputs=inputs,
        outputs=outputs,
        axes={"batch": Axis(buckets), "time": Axis(TIMES, "time_length")},
        states=states,
        caches=(cache,),
        artifacts=tuple(
            Artifact({"batch": rows, "time": time}, f"g{rows}.{time}.onnx", ()) for rows in buckets for time in TIMES
        ),
        batch_axis="batch",
    )


def in_place_files() -> Mapping[str, bytes]:
    """The graph files of the standard sizes, which are the same for all kinds, and the certificate."""
    files = {"certificates/streaming.json": b"{}\n"}
    for artifact in in_place_graph().artifacts:
        rows, time = artifact.sizes["batch"], artifact.sizes["time"]
        text = IN_PLACE_TEXT.format(n=rows, t=time, slots=", ".join(map(str, range(time))))
        files[artifact.file] = bytes(ir.to_proto(ir.from_onnx_text(text)).SerializeToString())
    return files


def in_place_golden() -> Golden:
    """One call of one frame, which finds nothing cached."""
    x = np.ones((1, 1, WIDTH), np.float32)
    return Golden((GoldenStep({"x": x}, {"y": x}),), 1e-5)


def write_in_place_bundle(directory: Path, kind: StateKind) -> Path:
    """Write a bundle with the graph only."""
    files = {**in_place_files(), "golden/streaming.npz": npz_from_golden(in_place_golden())}
    return write_bundle(directory, {"streaming": in_place_graph(kind=kind)}, files)
