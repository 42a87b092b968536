"""Attention over whole sequences in ONNX text: heads side by side, positions turned, added or absent."""

import itertools

import numpy as np

from compiler.graph.stages import Array, Feed, Lowered
from tests.kit.calibration import with_streams
from tests.kit.graphs import BATCH, parse

HEADS, SIZE, WIDTH, LONGEST = 4, 4, 16, 64

POSITIONS = ("none", "turned", "added")

ROWS = ("time first", "merged", "time first, merged")
"""How `text` may lay out the rows of its projections beside batch first."""


def text(
    positions: str = "none", key: str = "k_turned", keys: str = "", gate: str = "", rows: str = "batch first"
) -> str:
    """One causal attention with a residual.

    Args:
        positions: "none"; "turned": rotary by halves; "added": to the scores, head by head.
        key: the value that the scores read for keys, [batch, heads, time, d].
        keys: nodes that make `key`.
        gate: nodes between the context and the projection behind, from `flat` to `gated`.
        rows: "batch first", or one of `ROWS`: those of every projection.
    """
    time_first, merged = "time first" in rows, "merged" in rows
    order = "frames, row" if time_first else "row, frames"
    laid = "laid = Transpose<perm = [1, 0, 2]>(x)" if time_first else "laid = Identity(x)"
    laid += "  source = Reshape(laid, in_rows)" if merged else "  source = Identity(laid)"
    result = (
        f"""of_rows = Gemm(gated, wo, bo)  wide = Concat<axis = 0>({order}, width)  given = Reshape(of_rows, wide)"""
        if merged
        else "given = MatMul(gated, wo)"
    )
    result += "  result = Transpose<perm = [1, 0, 2]>(given)" if time_first else "  result = Identity(given)"
    turn = "\n".join(
        f"""{x}_first = Slice({x}_heads, zero, half, three)
        {x}_second = Slice({x}_heads, half, whole, three)
        {x}_minus = Neg({x}_second)
        {x}_across = Concat<axis = 3>({x}_minus, {x}_first)
        {x}_cos = Mul({x}_heads, cos)  {x}_sin = Mul({x}_across, sin)
        {x}_turned = Add({x}_cos, {x}_sin)"""
        for x in "qk"
    )
    if positions != "turned":
        turn = "q_turned = Identity(q_heads)  k_turned = Identity(k_heads)"
    heads = "\n".join(
        f"""{x}_product = MatMul(source, w{x})  {x}_biased = Add({x}_product, b{x})
        {x}_split = Reshape({x}_biased, {"of_heads" if merged else "split"})
        {x}_heads = Transpose<perm = {[1, 2, 0, 3] if time_first else [0, 2, 1, 3]}>({x}_split)"""
        for x in "qkv"
    )
    biased = "biased = Add(scaled, far_heads)" if positions == "added" else "biased = Identity(scaled)"
    return f"""(float[{BATCH},time,{WIDTH}] x, float[{WIDTH},{WIDTH}] wq, float[{WIDTH},{WIDTH}] wk,
      float[{WIDTH},{WIDTH}] wv, float[{WIDTH},{WIDTH}] wo, float[{WIDTH}] bq, float[{WIDTH}] bk, float[{WIDTH}] bv,
      float[{WIDTH}] bo,
      float[{LONGEST},{SIZE}] cosines, float[{LONGEST},{SIZE}] sines, float[{HEADS},1,1] slopes)
    => (float[{BATCH},time,{WIDTH}] y)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] three = {{3}},
     int64[1] half = {{{SIZE // 2}}},
     int64[1] whole = {{{SIZE}}}, int64 nothing = {{0}}, int64 unit = {{1}}, int64[4] split = {{0, 0, {HEADS}, {SIZE}}},
     int64[5] apart = {{0, {HEADS}, -1, {SIZE // 2}, 2}}, int64[4] together = {{0, {HEADS}, -1, {SIZE}}},
     int64[1] width = {{{WIDTH}}}, int64[2] apart_heads = {{{HEADS}, {SIZE}}}, int64[2] in_rows = {{-1, {WIDTH}}},
     int64[3] side_by_side = {{0, 0, {WIDTH}}}, float scale = {{{SIZE**-0.5}}}, float lowest = {{-1e9}}>
    {{
      shape = Shape(x)  frames = Slice(shape, one, two, zero)  count = Squeeze(frames, zero)
      row = Slice(shape, zero, one, zero)  of_heads = Concat<axis = 0>({order}, apart_heads)
      {laid}
      cos = Slice(cosines, zero, frames, zero)  sin = Slice(sines, zero, frames, zero)
      {heads}
      {turn}
      {keys}
      across = Transpose<perm = [0, 1, 3, 2]>({key})
      scores = MatMul(q_turned, across)
      scaled = Mul(scores, scale)
      places = Range(nothing, count, unit)
      columns = Unsqueeze(places, zero)  rows = Unsqueeze(places, one)
      distance = Sub(columns, rows)  far = Cast<to = 1>(distance)
      far_heads = Mul(far, slopes)
      {biased}
      past = LessOrEqual(columns, rows)
      masked = Where(past, biased, lowest)
      weights = Softmax<axis = 3>(masked)
      context = MatMul(weights, v_heads)
      turned = Transpose<perm = {[2, 0, 1, 3] if time_first else [0, 2, 1, 3]}>(context)
      flat = Reshape(turned, {"in_rows" if merged else "side_by_side"})
      {gate or "gated = Identity(flat)"}
      {result}
      y = Add(x, result)
    }}"""


def weights(*, related: bool = False, turned: bool = False, seed: int = 0) -> dict[str, Array]:
    """Content of the graph's weights.

    Args:
        related: whether heads 0 and 2, and heads 1 and 3, are images of each other, so that nothing is lost when they
            share.
        turned: whether keys are images by complex numbers, pair by pair, as positions that turn them ask for.
        seed: of the generator.
    """
    rng = np.random.default_rng(seed)
    found = {name: (rng.standard_normal((WIDTH, WIDTH)) / 4).astype(np.float32) for name in ("wq", "wk", "wv", "wo")}
    found |= {name: (rng.standard_normal(WIDTH) / 4).astype(np.float32) for name in ("bq", "bk", "bv")}
    found["bo"] = (np.random.default_rng(seed + 1).standard_normal(WIDTH) / 4).astype(np.float32)
    for name, (first, second) in itertools.product("kv", ((0, 2), (1, 3))) if related else ():
        image = _turning(rng) if turned and name == "k" else rng.standard_normal((SIZE, SIZE))
        for prefix in "wb":
            of_head = found[f"{prefix}{name}"].reshape(-1, HEADS, SIZE)
            of_head[:, second] = of_head[:, first] @ image.astype(np.float32)
    angles = np.outer(np.arange(LONGEST), [1.0, 0.1])
    found["cosines"] = np.tile(np.cos(angles), 2).astype(np.float32)
    found["sines"] = np.tile(np.sin(angles), 2).astype(np.float32)
    found["slopes"] = np.array([0.5, 0.1, 0.3, 0.02], np.float32).reshape(HEADS, 1, 1)
    return found


def _turning(rng: np.random.Generator) -> Array:
    """Multiplication of pairs (i, i + d / 2) by complex numbers, [d, d]."""
    factors = rng.standard_normal(SIZE // 2) + 1j * rng.standard_normal(SIZE // 2)
    real, imaginary = np.diag(factors.real), np.diag(factors.imag)
    return np.block([[real, imaginary], [-imaginary, real]])


def feeds(count: int, frames: int = 24, seed: int = 1) -> list[list[Feed]]:
    """Streams of one call of one row each."""
    rng = np.random.default_rng(seed)
    return [[{"x": rng.standard_normal((1, frames, WIDTH)).astype(np.float32)}] for _ in range(count)]


def attention(positions: str = "none", *, related: bool = False, **parts: str) -> Lowered:
    """A graph with calibration streams.

    Args:
        positions: see `text`.
        related: see `weights`.
        parts: for `text`.
    """
    model = parse(text(positions, **parts), weights(related=related, turned=positions == "turned"))
    return with_streams(Lowered("decoder", model, batch_axis=BATCH, data_outputs=("y",)), *feeds(5))
