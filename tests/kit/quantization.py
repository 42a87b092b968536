"""A small streaming graph with everything that is quantised: convolutions, products, a normalisation, a cache."""

import dataclasses

import numpy as np
import onnx_ir as ir

from compiler.graph.stages import Array, Feed, Lowered, State
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.calibration import FixedCalibration
from tests.kit.graphs import BATCH, feeds_of, parse, random_weights

STEP, WINDOW, WIDTH, HIDDEN = 4, 8, 8, 24

TEXT = f"""(float[{BATCH},{STEP},{WIDTH}] x, float[{BATCH},cache,{WIDTH}] past, float[{BATCH},{WIDTH},2] context,
   float[{WIDTH},1,3,3] front, float[{WIDTH}] front_b, float[48,{WIDTH}] project, float[{WIDTH}] project_b,
   float[{WIDTH}] gamma, float[{WIDTH}] beta, float[{WIDTH},{HIDDEN}] expand, float[{HIDDEN}] expand_b,
   float[{HIDDEN},{WIDTH}] reduce, float[{WIDTH}] reduce_b, float[{WIDTH},{WIDTH}] wq, float[{WIDTH},1,3] kernel,
   float[{WIDTH}] kernel_b, float[{WIDTH},12] output, float[12] output_b)
=> (float[{BATCH},{STEP},12] y, float[{BATCH},kept,{WIDTH}] next_past, float[{BATCH},{WIDTH},2] next_context)
<int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] newest = {{-2}}, int64[1] end = {{9223372036854775807}},
 int64[3] flat = {{0, {STEP}, 48}}>
{{
    image = Unsqueeze(x, one)
    slid = Conv<pads = [1, 0, 1, 0]>(image, front, front_b)
    lit = Relu(slid)
    turned = Transpose<perm = [0, 2, 1, 3]>(lit)
    rows = Reshape(turned, flat)
    projected = MatMul(rows, project)
    h = Add(projected, project_b)
    normed = LayerNormalization<axis = -1>(h, gamma, beta)
    expanded = MatMul(normed, expand)
    wide = Add(expanded, expand_b)
    gate = Sigmoid(wide)
    swish = Mul(wide, gate)
    reduced = MatMul(swish, reduce)
    narrow = Add(reduced, reduce_b)
    r = Add(h, narrow)
    next_past = Concat<axis = 1>(past, r)
    query = MatMul(r, wq)
    keys = Transpose<perm = [0, 2, 1]>(next_past)
    scores = MatMul(query, keys)
    weights = Softmax<axis = -1>(scores)
    mixed = MatMul(weights, next_past)
    channels = Transpose<perm = [0, 2, 1]>(mixed)
    joined = Concat<axis = 2>(context, channels)
    next_context = Slice(joined, newest, end, two)
    depth = Conv<group = {WIDTH}>(joined, kernel, kernel_b)
    frames = Transpose<perm = [0, 2, 1]>(depth)
    logits = MatMul(frames, output)
    y = Add(logits, output_b)
}}"""

SHAPES: dict[str, tuple[int, ...]] = {
    "front": (WIDTH, 1, 3, 3), "front_b": (WIDTH,), "project": (48, WIDTH), "project_b": (WIDTH,), "gamma": (WIDTH,),
    "beta": (WIDTH,), "expand": (WIDTH, HIDDEN), "expand_b": (HIDDEN,), "reduce": (HIDDEN, WIDTH),
    "reduce_b": (WIDTH,), "wq": (WIDTH, WIDTH), "kernel": (WIDTH, 1, 3), "kernel_b": (WIDTH,), "output": (WIDTH, 12),
    "output_b": (12,),
}  # fmt: skip


GAINS = {"project": 0.3, "expand": 0.5, "reduce": 0.3, "wq": 0.05}
"""So that attention is no decision between two frames: rounding must not decide it."""


def speech(changes: dict[str, Array] | None = None) -> Lowered:
    """The graph with its cache static and its padding proved, and calibration streams."""
    weights = random_weights(SHAPES)
    for name, gain in GAINS.items():
        weights[name] *= np.float32(gain)
    model = parse(TEXT, weights | (changes or {}))
    states = (State("past", "next_past", 1, "cache"), State("context", "next_context", None))
    cache = CacheAxis("cache", WINDOW, STEP, "real_length", "mask")
    graph = Lowered("speech", model, states=states, caches=(cache,), batch_axis=BATCH, data_outputs=("y",))
    for made in (PadAxes(), WindowStates()):
        graph = made.apply(graph).lowered
    return dataclasses.replace(graph, calibration=FixedCalibration(streams(graph)))


def streams(graph: Lowered) -> list[list[Feed]]:
    """Two calibration streams of different loudness."""
    return [
        [
            {name: (array * gain).astype(np.float32) for name, array in feed.items()}
            for feed in feeds_of(graph, 12, seed=seed)
        ]
        for seed, gain in ((1, 1.0), (2, 2.0))
    ]


ONE_PRODUCT = """
<ir_version: 10, opset_import: ["" : 20]>
stream (float[batch,4,8] features, float[batch,cache,8] keys)
    => (float[batch,4,8] logits, float[batch,joined,8] next_keys)
<float[8,8] w = {WEIGHTS}>
{
    next_keys = Concat<axis = 1>(keys, features)
    queries = MatMul(features, w)
    transposed = Transpose<perm = [0, 2, 1]>(next_keys)
    scores = MatMul(queries, transposed)
    weights = Softmax<axis = -1>(scores)
    mixed = MatMul(weights, next_keys)
    logits = Add(features, mixed)
}
"""


def one_product() -> ir.Model:
    """A stream of one attention layer with one product of constant weights, as a file would hold it."""
    weights = ", ".join(f"{number:.3f}" for number in np.linspace(-1, 1, 64))
    return ir.from_onnx_text(ONE_PRODUCT.replace("WEIGHTS", weights))
