"""Times that do not depend on the machine: a graph takes as long as it has weights; and attention with caches."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.stages import Array, Lowered, State
from compiler.passes import compress
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from compiler.rewriting.pruning import channel_times
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.calibration import FixedCalibration
from tests.kit.graphs import BATCH, feeds_of, parse, random_weights

SECONDS_PER_WEIGHT = 1e-6


@dataclasses.dataclass(frozen=True)
class Weighed:
    """A call that nobody runs.

    Attributes:
        weights: numbers in the constants that its graph reads.
    """

    weights: int

    def __call__(self) -> None:
        raise AssertionError("it is not run")


def weighed(model: ir.Model, _feeds: object) -> Weighed:
    read = {value for node in model.graph for value in node.inputs if value is not None}
    return Weighed(sum(np.size(array) for array in map(graphs.array_of, read) if array is not None))


def weigh_graphs(patch: pytest.MonkeyPatch) -> None:
    """Let graphs take a time for each of their weights."""
    for module in (channel_times, compress):
        patch.setattr(module, "call_of", weighed)
        patch.setattr(module, "seconds_of", lambda calls: [SECONDS_PER_WEIGHT * call.weights for call in calls])


HEADS, SIZE, SLOTS = 4, 2, 8
"""Of the attention below: 4 heads of 2 channels, 8 cached frames."""

ATTENDING = f"""(float[{BATCH},4,8] x, float[{BATCH},cache,8] keys, float[{BATCH},4,cache,2] values, float[8,8] wq,
    float[8,8] wk, float[8,8] wv, float[8,8] wo, float[8] bo, float[4,1,2] bias, float[8] gamma)
=> (float[{BATCH},4,8] y, float[{BATCH},kept,8] next_keys, float[{BATCH},4,kept,2] next_values)
<int64[4] parted = {{0, 0, 4, 2}}, int64[3] joined = {{0, 0, -1}}>
{{
    normed = LayerNormalization<axis = -1>(x, gamma)
    q = MatMul(normed, wq)
    q_heads = Reshape(q, parted)
    queries = Transpose<perm = [0, 2, 1, 3]>(q_heads)
    biased = Add(queries, bias)
    k = MatMul(normed, wk)
    next_keys = Concat<axis = 1>(keys, k)
    k_heads = Reshape(next_keys, parted)
    turned = Transpose<perm = [0, 2, 3, 1]>(k_heads)
    v = MatMul(normed, wv)
    v_heads = Reshape(v, parted)
    new_values = Transpose<perm = [0, 2, 1, 3]>(v_heads)
    next_values = Concat<axis = 2>(values, new_values)
    scores = MatMul(biased, turned)
    weights = Softmax<axis = -1>(scores)
    mixed = MatMul(weights, next_values)
    frames = Transpose<perm = [0, 2, 1, 3]>(mixed)
    context = Reshape(frames, joined)
    out = MatMul(context, wo)
    behind = Add(out, bo)
    y = Add(x, behind)
}}"""


def attending_weights() -> dict[str, Array]:
    """The weights of the attention, by name."""
    shapes = dict.fromkeys(("wq", "wk", "wv", "wo"), (8, 8)) | {"bo": (8,), "bias": (4, 1, 2), "gamma": (8,)}
    return random_weights(shapes, seed=3)


def attending(changes: dict[str, Array] | None = None) -> Lowered:
    """A step of attention, its keys cached with the heads side by side and its values head by head."""
    states = (State("keys", "next_keys", 1, "cache"), State("values", "next_values", 2, "cache"))
    cache = CacheAxis("cache", SLOTS, 4, "real_length", "mask")
    model = parse(ATTENDING, attending_weights() | (changes or {}))
    graph = Lowered("attending", model, states=states, caches=(cache,), batch_axis=BATCH, data_outputs=("y",))
    for made in (PadAxes(), WindowStates()):
        graph = made.apply(graph).lowered
    return dataclasses.replace(graph, calibration=FixedCalibration([feeds_of(graph, 12, seed=seed) for seed in (1, 2)]))
