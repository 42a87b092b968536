"""A stream whose chunks are of any length, on one screen: a cache, and a convolution with its context."""

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import Feed, Lowered, PaddedAxis, State
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from compiler.states.kept_frames import keep_newest
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.graphs import parse

SLOTS = 6

TEXT = """
(float[batch,chunk,4] features, float[batch,cache,4] keys, float[batch,2,4] context, float[4,4,3] kernel)
    => (float[batch,chunk,4] logits, float[batch,all,4] next_keys, float[batch,2,4] next_context)
<int64[1] last = {-2}, int64[1] end = {9223372036854775807}, int64[1] one = {1}>
{
    whole = Concat<axis = 1>(context, features)
    next_context = Slice(whole, last, end, one)
    channels = Transpose<perm = [0, 2, 1]>(whole)
    convolved = Conv(channels, kernel)
    frames = Transpose<perm = [0, 2, 1]>(convolved)
    next_keys = Concat<axis = 1>(keys, frames)
    turned = Transpose<perm = [0, 2, 1]>(next_keys)
    scores = MatMul(frames, turned)
    weights = Softmax<axis = -1>(scores)
    logits = MatMul(weights, next_keys)
}
"""


def captured() -> Lowered:
    """The graph as capture hands it on."""
    kernel = np.random.default_rng(0).standard_normal((4, 4, 3)).astype(np.float32) / 3
    model = parse(TEXT, {"kernel": kernel})
    keep_newest(model, SLOTS, {"next_keys": 1})
    return Lowered(
        "net",
        model,
        states=(State("keys", "next_keys", 1, "cache"), State("context", "next_context", None)),
        caches=(CacheAxis("cache", SLOTS, 1, "real_length", None, added="chunk"),),
        batch_axis="batch",
        data_outputs=("logits",),
        padded_axes=(PaddedAxis("chunk", "chunk_length"),),
    )


def padded() -> Lowered:
    """The same after the passes that make it static."""
    return WindowStates().apply(PadAxes().apply(captured()).lowered).lowered


def frozen(lowered: Lowered, rows: int, slots: int) -> ir.Model:
    """A copy of the graph of one bucket."""
    model = graphs.clone(lowered.model)
    sizes = {"batch": rows, "chunk": slots}
    for value in model.graph.inputs:
        value.shape = ir.Shape([sizes.get(str(dim), dim) for dim in value.shape or ()])
    return model


def chunk(length: int, seed: int) -> Feed:
    """One row of random frames."""
    return {"features": np.random.default_rng(seed).standard_normal((1, length, 4)).astype(np.float32)}
