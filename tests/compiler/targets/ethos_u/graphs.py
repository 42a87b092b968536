"""Graphs of tests, for the NPU."""

import numpy as np
import onnx_ir as ir

from compiler.graph.stages import Lowered
from compiler.passes.freeze_axes import FreezeAxes
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from tests.kit.graphs import copy_of, parse, streaming

ATTENTION = """(float[1,4,16] x, float[1,8,16] cache, int64[1] length, float[1,12] mask, float[16,16] w, float[16] b)
    => (float[1,4,16] y, float[1,8,16] next) {
    front = Constant<value = int64[1] {0}>()  behind = Constant<value = int64[1] {8}>()
    axis = Constant<value = int64[1] {1}>()  last = Constant<value = int64[1] {2}>()
    start = Constant<value = int64[1] {4}>()  end = Constant<value = int64[1] {12}>()
    zero = Constant<value = float {0.0}>()  hidden = Constant<value = float {-10000.0}>()
    old = Slice(mask, front, behind, axis)
    old_valid = Cast<to = 9>(old)
    old_rows = Unsqueeze(old_valid, last)
    filled = Where(old_rows, cache, zero)
    joined = Concat<axis = 1>(filled, x)
    keys = Transpose<perm = [0, 2, 1]>(joined)
    scores = MatMul(x, keys)
    valid = Cast<to = 9>(mask)
    columns = Unsqueeze(valid, axis)
    shown = Where(columns, scores, hidden)
    shares = Softmax<axis = -1>(shown)
    read = MatMul(shares, joined)
    product = MatMul(read, w)
    y = Add(product, b)
    next = Slice(joined, start, end, axis)
}"""
"""A step with a cache of 8 frames that takes 4, whose hidden places are filled, and scores that are hidden."""

LENGTHS = ("length", "mask")


def attention() -> ir.Model:
    """Return the step, with shapes on all values."""
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((16, 16)), "b": random.standard_normal(16)}
    return parse(ATTENTION, {name: array.astype(np.float32) for name, array in weights.items()})


def feeds(valid: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return inputs of a call with so many valid frames in the cache, and NaN where it is hidden."""
    random = np.random.default_rng(seed)
    cache = random.standard_normal((1, 8, 16)).astype(np.float32)
    cache[:, : 8 - valid] = np.nan
    mask = np.ones((1, 12), np.float32)
    mask[:, : 8 - valid] = 0.0
    x = random.standard_normal((1, 4, 16)).astype(np.float32)
    return {"x": x, "cache": cache, "length": np.array([valid]), "mask": mask}


def static_stream() -> Lowered:
    """Return a streaming attention layer as targets get it: padded, with a window, every size a number."""
    lowered = streaming()
    for made in (PadAxes(), WindowStates(), FreezeAxes((("batch", 1),))):
        lowered = made.apply(copy_of(lowered)).lowered
    return lowered
