"""One product of dequantised values."""

import numpy as np
import onnx_ir as ir

from compiler.graph.stages import Array
from tests.kit.graphs import parse

ZERO = 2
"""Of all weights of `product`."""

TYPES = {"f": "float", "u": "uint8", "i": "int8"}


def declared(name: str, array: Array) -> str:
    """A constant as the text of a graph declares it."""
    return f"{TYPES[array.dtype.kind]}[{','.join(map(str, array.shape))}] {name}".replace("[]", "")


def product(
    *, bias: str = "", kinds: tuple[str, str] = ("uint8", "int8"), axis: int = 1, data_scales: bool = False
) -> ir.Model:
    """[batch, 2, 3] codes times [3, 4] weights with scales along an axis; the bias of a shape, or of another kind."""
    sizes = (3, 4)
    arrays: dict[str, Array] = {
        "w": np.arange(-6, 6).reshape(sizes).clip(0 if kinds[1] == "uint8" else -6, 6).astype(kinds[1]),
        "ws": np.arange(1, 1 + sizes[axis], dtype=np.float32) / 2,
        "wz": np.full(sizes[axis], ZERO, kinds[1]),
        "xs": np.arange(1, 4, dtype=np.float32) if data_scales else np.array(0.25, np.float32),
        "xz": np.full(3 if data_scales else (), 7, kinds[0]),
    }
    added = "y = Identity(sum)"
    if bias.startswith("["):
        shape = [int(size) for size in bias.strip("[]").split(",")]
        arrays["b"] = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        added = "y = Add(sum, b)"
    elif bias == "computed":
        added = "more = ReduceMax<keepdims = 1>(a)  y = Add(sum, more)"
    elif bias == "read twice":
        arrays["b"] = np.arange(4, dtype=np.float32)
        added = "once = Add(sum, b)  y = Add(once, sum)"
    constants = ", ".join(declared(*each) for each in arrays.items())
    text = f"""({kinds[0]}[batch,2,3] x, {constants}) => (float[batch,2,4] y)
    {{
        a = DequantizeLinear<axis = 2>(x, xs, xz)
        b_real = DequantizeLinear<axis = {axis}>(w, ws, wz)
        sum = MatMul(a, b_real)
        {added}
    }}"""
    return parse(text, arrays)
