"""An attention over cached keys and values whose free slots are filled, as padding leaves it, with parts to replace."""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from compiler.graph.stages import Array, Lowered, State
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.graphs import BATCH, parse

STEP, SLOTS, WIDTH = 2, 4, 3

PARTS = {
    "first": "first = Sub(slots, length)",
    "seen": "seen = GreaterOrEqual(all_places, first)",
    "hidden": "hidden = Where(seen_wide, scores, lowest)",
    "shares": "shares = Softmax<axis = -1>(hidden)",
    "y": "y = MatMul(shares, all_values)",
    "z": "z = Neg(x)",
    "next_keys": "next_keys = Slice(all_keys, two, six, one)",
}
"""What a test may write otherwise."""

CODED = {
    "shares": """shares = Softmax<axis = -1>(hidden)
        share_codes = QuantizeLinear(shares, fine, zero)  read_shares = DequantizeLinear(share_codes, fine, zero)
        value_codes = QuantizeLinear(all_values, coarse, signed)
        read_values = DequantizeLinear(value_codes, coarse, signed)""",
    "y": "y = MatMul(read_shares, read_values)",
}
"""Shares and values on integers."""


def guarded(parts: Mapping[str, str] | None = None, lowest: float = -np.inf, scale: float = 1 / 255) -> Lowered:
    """The graph.

    Args:
        parts: in the place of those of `PARTS`.
        lowest: what scores that are not seen become.
        scale: of the codes of shares.
    """
    written = PARTS | dict(parts or {})
    weights: dict[str, Array] = {
        "lowest": np.array(lowest, np.float32), "fine": np.array(scale, np.float32),
        "coarse": np.array(0.02, np.float32), "zero": np.array(0, np.uint8), "signed": np.array(0, np.int8),
        "nil": np.array(0, np.float32),
    }  # fmt: skip
    declared = ", ".join(f"{_TYPES[array.dtype.name]} {name}" for name, array in weights.items())
    text = f"""(float[{BATCH},{STEP},{WIDTH}] x, float[{BATCH},{SLOTS},{WIDTH}] keys,
      float[{BATCH},{SLOTS},{WIDTH}] values, int64[{BATCH}] real_length, {declared})
    => (float[{BATCH},{STEP},{WIDTH}] y, float[{BATCH},p,q] z, float[{BATCH},{SLOTS},{WIDTH}] next_keys,
        float[{BATCH},{SLOTS},{WIDTH}] next_values)
    <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] six = {{6}}, int64[1] slots = {{4}}, int64[1] five = {{5}},
     int64[1,4] places = {{0, 1, 2, 3}}, int64[1,6] all_places = {{0, 1, 2, 3, 4, 5}}>
    {{
        length = Unsqueeze(real_length, one)
        {written["first"]}
        valid = GreaterOrEqual(places, first)
        wide = Unsqueeze(valid, two)
        clean_keys = Where(wide, keys, nil)
        clean_values = Where(wide, values, nil)
        all_keys = Concat<axis = 1>(clean_keys, x)
        all_values = Concat<axis = 1>(clean_values, x)
        turned = Transpose<perm = [0, 2, 1]>(all_keys)
        scores = MatMul(x, turned)
        x_turned = Transpose<perm = [0, 2, 1]>(x)
        {written["seen"]}
        seen_wide = Unsqueeze(seen, one)
        {written["hidden"]}
        {written["shares"]}
        {written["y"]}
        {written["z"]}
        {written["next_keys"]}
        next_values = Slice(all_values, two, six, one)
    }}"""
    states = (State("keys", "next_keys", 1, "cache"), State("values", "next_values", 1, "cache"))
    return Lowered(
        "guarded", parse(text, weights), states=states,
        caches=(CacheAxis("cache", SLOTS, STEP, "real_length", None),), batch_axis=BATCH, data_outputs=("y", "z"),
        is_padded=True, rows_independent=True,
    )  # fmt: skip


def filled_inputs(lowered: Lowered) -> list[str]:
    """The inputs that a selection fills."""
    nodes = (node for node in lowered.model.graph if node.op_type == "Where")
    read = [node.inputs[1] for node in nodes]
    return [str(value.name) for value in read if isinstance(value, ir.Value) and value.is_graph_input()]


_TYPES = {"float32": "float", "uint8": "uint8", "int8": "int8"}
