"""A decoder of tokens: scores of the sum of all tokens so far, which a cache keeps; and the same by hand."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx_ir as ir

from runtime_lite.format.golden import Golden, GoldenStep, npz_from_golden
from runtime_lite.format.manifest import Artifact, Axis, State, Tensor
from tests.runtime_lite.bundles import write_bundle
from tests.runtime_lite.in_place_graph import in_place_graph

TOKENS, WIDTH, SLOTS = 9, 4, 40
ROWS, TIMES = (1, 2, 4), (1, 4)

EMBEDDING = np.random.default_rng(1).normal(size=(TOKENS, WIDTH)).astype(np.float32)
LAST = 3 * np.random.default_rng(2).normal(size=(WIDTH, TOKENS)).astype(np.float32)

TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
decoder (int64[{n},{t}] tokens, int64[{n}] time_length, int64[{n}] past_length, float[{n},40,4] keys)
      => (float[{n},{t},9] scores, float[{n},{t},4] new_keys)
<int64[1] one = {{1}}, int64[1] two = {{2}}, int64[{t}] slots = {{{slots}}}, float zero = {{0}},
 float[9,4] embedding = {{{embedding}}}, float[4,9] last = {{{last}}}>
{{
    entries = Gather(embedding, tokens)
    length = Unsqueeze(time_length, one)
    valid = Less(slots, length)
    column = Unsqueeze(valid, two)
    new_keys = Where(column, entries, zero)
    before = ReduceSum<keepdims = 1>(keys, one)
    along = Squeeze(one)
    running = CumSum(new_keys, along)
    heard = Add(running, before)
    bounded = Sin(heard)
    scores = MatMul(bounded, last)
}}
"""


def write_token_bundle(directory: Path) -> Path:
    """Write a bundle with the decoder, for 1, 2 and 4 rows of 1 and 4 tokens, and a window of 40."""
    base = in_place_graph(ROWS, SLOTS)
    graph = dataclasses.replace(
        base,
        inputs=(
            Tensor("tokens", ("batch", "time"), "int64", "data", range=(0, TOKENS - 1)),
            Tensor("time_length", ("batch",), "int64", "length"),
            Tensor("past_length", ("batch",), "int64", "length"),
            Tensor("keys", ("batch", SLOTS, WIDTH), "float32", "state"),
        ),
        outputs=(
            Tensor("scores", ("batch", "time", TOKENS), "float32", "data"),
            Tensor("new_keys", ("batch", "time", WIDTH), "float32", "state"),
        ),
        axes={"batch": Axis(ROWS), "time": Axis(TIMES, "time_length")},
        states=(State("keys", "keys", "new_keys", ("batch", SLOTS, WIDTH), "float32", 0.0, 1, "past", ("keys",)),),
        artifacts=tuple(
            Artifact({"batch": rows, "time": time}, f"g{rows}.{time}.onnx", ()) for rows in ROWS for time in TIMES
        ),
    )
    files = {"certificates/streaming.json": b"{}\n"}
    for artifact in graph.artifacts:
        rows, time = artifact.sizes["batch"], artifact.sizes["time"]
        text = TEXT.format(
            n=rows,
            t=time,
            slots=", ".join(map(str, range(time))),
            embedding=", ".join(f"{number:.9g}" for number in EMBEDDING.reshape(-1)),
            last=", ".join(f"{number:.9g}" for number in LAST.reshape(-1)),
        )
        model = ir.from_onnx_text(text)
        files[artifact.file] = bytes(ir.to_proto(model).SerializeToString())
    token = np.zeros((1, 1), np.int64)
    golden = Golden((GoldenStep({"tokens": token}, {"scores": scores_after([0])[None, None]}),), 1e-5)
    return write_bundle(directory, {"decoder": graph}, files | {"golden/streaming.npz": npz_from_golden(golden)})


def scores_after(tokens: Iterable[int]) -> np.ndarray:
    """The scores of the next token, float32 [9]."""
    return np.asarray(np.sin(EMBEDDING[list(tokens)].sum(axis=0)) @ LAST, np.float32)
