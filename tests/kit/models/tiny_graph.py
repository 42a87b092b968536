"""ONNX files of one screen, written as text: a cache that grows, attention over it, nothing else."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

STREAM_TEXT = """
<ir_version: 10, opset_import: ["" : 20{domains}]>
stream (float[batch,4,8] features, float[batch,cache,8] keys)
    => (float[batch,4,8] logits, float[batch,joined,8] next_keys)
{{
    next_keys = Concat<axis = 1>(keys, features)
    transposed = Transpose<perm = [0, 2, 1]>(next_keys)
    scores = MatMul(features, transposed)
    weights = Softmax<axis = -1>(scores)
    {extra}
    mixed = MatMul(weights, {attended})
    logits = Add(features, mixed)
}}
"""

STREAM_RECIPE = """\
name: stream
graphs:
  net:
    source: {onnx: stream.onnx}
    inputs:
      features: {shape: [batch, 4, 8], dtype: float32}
      keys:     {shape: [batch, cache, 8], dtype: float32, state: next_keys}
    outputs: [logits, next_keys]
    axes:
      batch: {buckets: [1, 2]}
      cache: {window: 8}
    passes: [simplify, pad_axes, window_states, simplify]
data:
  verification: {feeds: "tiny_data:verification", count: 2, files: [level.txt]}
targets: [{kind: onnx_static}]
gates: {parity: {net: {max_abs: 1.0e-5, chained_steps: 6}}}
"""

ONE_ROW_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
stream (float[1,4,8] features, float[{keys}] keys) => (float[1,4,8] logits, float[{joined}] next_keys)
<int64[1] front = {{0}}, int64[1] middle = {{1}}, int64[3] framed = {{1, 4, 8}}>
{{
    new = Squeeze(features, front)
    old = {old}
    all = Concat<axis = 0>(old, new)
    next_keys = {back}
    transposed = Transpose<perm = [1, 0]>(all)
    scores = MatMul(new, transposed)
    weights = Softmax<axis = -1>(scores)
    mixed = MatMul(weights, all)
    shaped = Reshape(mixed, framed)
    logits = Add(features, shaped)
}}
"""
"""The same stream for one row: a 1 for the batch in the features, in the cache behind the frames or nowhere."""


def write_one_row_stream(folder: Path, keys: str) -> None:
    """`one_row.onnx` and `one_row.yaml`.

    Args:
        folder: of the project.
        keys: shape of the cache in the original, `cache, 8` or `1, cache, 8`.
    """
    without = keys == "cache, 8"
    text = ONE_ROW_TEXT.format(
        keys=keys.replace(" ", ""),
        joined=keys.replace(" ", "").replace("cache", "joined"),
        old="Identity(keys)" if without else "Squeeze(keys, front)",
        back="Identity(all)" if without else "Unsqueeze(all, front)",
    )
    ir.save(ir.from_onnx_text(text), folder / "one_row.onnx")
    recipe = STREAM_RECIPE.replace("stream.onnx", "one_row.onnx").replace("[1, 2]", "[1, 4]")
    recipe = recipe.replace("8], dtype: float32}", "8], dtype: float32, original: [1, 4, 8]}")
    recipe = recipe.replace("state: next_keys}", f"state: next_keys, original: [{keys}]}}")
    (folder / "one_row.yaml").write_text(recipe.replace("[simplify, pad_axes", "[simplify, add_batch_axis, pad_axes"))


def stream_model(extra: str = "", attended: str = "next_keys", domains: str = "") -> ir.Model:
    """The graph, with one line more and another operand of the second product if wanted."""
    return ir.from_onnx_text(STREAM_TEXT.format(extra=extra, attended=attended, domains=domains))


def write_stream(folder: Path, model: ir.Model | None = None) -> None:
    """`stream.onnx` and `stream.yaml`."""
    ir.save(model or stream_model(), folder / "stream.onnx")
    (folder / "stream.yaml").write_text(STREAM_RECIPE)


def outside_weight(model: ir.Model, location: str) -> ir.Model:
    """The same graph with a weight that lies in another file."""
    tensor = ir.ExternalTensor(location, 0, 32, ir.DataType.FLOAT, shape=ir.Shape([8]), name="outside")
    value = ir.Value(name="outside", const_value=tensor, shape=ir.Shape([8]), type=ir.TensorType(ir.DataType.FLOAT))
    model.graph.register_initializer(value)
    mixed = next(node for node in model.graph if node.outputs[0].name == "mixed")
    added = ir.node("Add", [mixed.outputs[0], value], outputs=[ir.Value(name="shifted")], name="shift")
    model.graph.insert_after(mixed, added)
    last = next(node for node in model.graph if node.outputs[0].name == "logits")
    last.replace_input_with(1, added.outputs[0])
    return model


def step_by_hand(chunks: Sequence[Mapping[str, np.ndarray]], window: int = 8) -> list[np.ndarray]:
    """What the graph answers, in NumPy."""
    past, answers = np.zeros((1, 0, 8), np.float32), []
    for chunk in chunks:
        joined = np.concatenate([past[:, -window:], chunk["features"]], 1)
        scores = chunk["features"] @ joined.transpose(0, 2, 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        answers.append(chunk["features"] + weights / weights.sum(-1, keepdims=True) @ joined)
        past = joined
    return answers
