"""Some hundred small graphs as researchers write them: every family of operators, axis by axis, opset by opset.

A body turns x [batch, time, 4] into y. Each is tried with a batch axis, and with a literal 1 in its place; some in
many operator sets, with a second input, or with a cache. What must come of each is in `tests.property.test_agreement`.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator

import numpy as np

from compiler.graph.stages import Lowered, State
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.agreement import lowered


def _numbers(seed: int, *shape: int) -> str:
    drawn = np.random.default_rng(seed).standard_normal(shape).reshape(-1) / 2
    return ", ".join(f"{number:.3f}" for number in drawn)


WEIGHTS = {
    "w": (4, 4), "up": (4, 8), "down": (8, 4), "gain": (4,), "bias": (4,), "kernel": (4, 4, 3), "wide": (4, 4, 5),
    "depth": (4, 1, 3), "turned": (4, 4, 4), "table": (1, 96, 4), "square": (72, 4), "flat": (1, 1, 3, 3),
    "spread": (1, 8), "lstm": (1, 16, 4), "again": (1, 16, 4), "gru": (1, 12, 4), "gruagain": (1, 12, 4),
}  # fmt: skip
INTEGERS = {
    "zero": [0], "one": [1], "two": [2], "three": [3], "four": [4], "minus": [-1], "minus2": [-2], "minus3": [-3],

        "end": [2**63 - 1], "begin": [-(2**63) + 1], "c64": [64], "c66": [66], "c72": [72], "c76": [76],
    "heads": [0, -1, 2, 2], "merged": [0, -1, 4],
    "rows": [-1, 4], "front": [0, 0, 2, 0, 0, 0], "behind": [0, 0, 0, 0, 0, 2], "both": [0, 0, 1, 0, 0, 1],
    "image": [0, 1, -1, 4], "halves": [2, 2], "lasttwo": [1, 2],
}  # fmt: skip
SCALARS = {"first": 0, "step": 1, "last": -1, "axis": 1}
FLOATS = {"low": -1e30, "half": 0.5, "eps": 1e-5, "high": 4.0, "none": 0.0, "single": 1.0}

ONES = "shape = Shape(x)  o = Expand(single, shape)  "
COUNT = ONES + "g = Slice(o, zero, one, two)  n = ReduceSum(g, lasttwo)  k = Sub(n, single)  "
SHARED = "n = Shape<start = 1, end = 2>(x)  s = Concat<axis = 0>(one, n)  o = Expand(single, s)  "

CHANNELS = "c = Transpose<perm = [0, 2, 1]>(x)  "
LENGTH = "n = Shape<start = 1, end = 2>(x)  m = Squeeze(n)  "
PLACES = LENGTH + "i = Range(first, m, step)  "
SCORES = "q = MatMul(x, w)  t = Transpose<perm = [0, 2, 1]>(x)  s = MatMul(q, t)  "

BODIES = {
    # --- elementwise
    "activations": "a = Relu(x)  b = Sigmoid(a)  d = Tanh(b)  e = Elu(d)  f = Softplus(e)  y = Erf(f)",
    "gelu": "y = Gelu(x)",
    "swish": "s = Sigmoid(x)  y = Mul(x, s)",
    "mish and friends": "a = Mish(x)  b = HardSwish(a)  y = Selu(b)",
    "clip": "y = Clip(x, none, high)",
    "log of energy": "e = Mul(x, x)  f = Add(e, eps)  y = Log(f)",
    "root and quotient": "e = Mul(x, x)  f = Add(e, half)  r = Sqrt(f)  y = Div(x, r)",
    "power": "e = Abs(x)  f = Add(e, half)  y = Pow(f, half)",
    "exponent": "y = Exp(x)",
    "rounding": "a = Floor(x)  b = Ceil(x)  d = Round(x)  e = Add(a, b)  y = Add(e, d)",
    "signs": "a = Sign(x)  b = Neg(a)  y = Mul(a, b)",
    "comparison": "g = Greater(x, none)  f = Cast<to = 1>(g)  y = Mul(x, f)",
    "selection": "g = Less(x, none)  y = Where(g, none, x)",
    "logic": "g = Less(x, none)  h = Greater(x, high)  o = Or(g, h)  p = Not(o)  y = Cast<to = 1>(p)",
    "prelu": "y = PRelu(x, gain)",
    "integers": "f = Mul(x, high)  i = Cast<to = 7>(f)  j = Mod(i, three)  y = Cast<to = 1>(j)",
    "half precision": "h = Cast<to = 10>(x)  a = Relu(h)  y = Cast<to = 1>(a)",
    "dropout": "y = Dropout(x)",
    "maximum of two": "a = Neg(x)  b = Max(a, x)  y = Min(b, high)",
    # --- products
    "linear": "a = MatMul(x, w)  y = Add(a, bias)",
    "feed forward": "a = MatMul(x, up)  b = Relu(a)  d = MatMul(b, down)  y = Add(x, d)",
    "gemm": "r = Reshape(x, rows)  g = Gemm(r, w, bias)  s = Shape(x)  y = Reshape(g, s)",
    "einsum": """q = MatMul(x, w)  s = Einsum<equation = "btd,bsd->bts">(q, x)
        y = Einsum<equation = "bts,bsd->btd">(s, x)""",
    "einsum of channels": 'y = Einsum<equation = "btd,de->bte">(x, w)',
    "gate": "a = MatMul(x, up)  b, d = Split<axis = -1, num_outputs = 2>(a)  g = Sigmoid(d)  y = Mul(b, g)",
    # --- normalisation
    "layer norm": "y = LayerNormalization<axis = -1>(x, gain, bias)",
    "layer norm and linear": "l = LayerNormalization<axis = -1>(x, gain, bias)  y = MatMul(l, w)",
    "layer norm by hand": """a = ReduceMean<keepdims = 1>(x, minus)  b = Sub(x, a)  d = Mul(b, b)
        e = ReduceMean<keepdims = 1>(d, minus)  f = Add(e, eps)  g = Sqrt(f)  y = Div(b, g)""",
    "root mean square": "d = Mul(x, x)  e = ReduceMean(d, minus)  f = Add(e, eps)  g = Sqrt(f)  y = Div(x, g)",
    "batch norm": CHANNELS + "a = Abs(gain)  y = BatchNormalization(c, gain, bias, bias, a)",
    "instance norm": CHANNELS + "y = InstanceNormalization(c, gain, bias)",
    "group norm": CHANNELS + "p = Slice(gain, zero, two)  y = GroupNormalization<num_groups = 2>(c, p, p)",
    "mean over time taken away": "a = ReduceMean(x, one)  y = Sub(x, a)",
    "mean and deviation": """a = ReduceMean(x, one)  b = Sub(x, a)  d = Mul(b, b)  e = ReduceMean(d, one)
        f = Add(e, eps)
        g = Sqrt(f)  y = Div(b, g)""",
    "lp norm": "y = LpNormalization<axis = -1, p = 2>(x)",
    "lp norm over time": "y = LpNormalization<axis = 1, p = 2>(x)",
    # --- reductions
    "mean": "y = ReduceMean(x, one)",
    "maximum": "y = ReduceMax(x, one)",
    "minimum": "y = ReduceMin(x, one)",
    "sum": "y = ReduceSum(x, one)",
    "product": "y = ReduceProd(x, one)",
    "l1": "y = ReduceL1(x, one)",
    "l2": "y = ReduceL2(x, one)",
    "log sum exp": "y = ReduceLogSumExp(x, one)",
    "sum of squares": "y = ReduceSumSquare(x, one)",
    "mean of time and channels": "y = ReduceMean(x, lasttwo)",
    "mean by the length": "a = ReduceSum(x, one)  " + LENGTH + "f = Cast<to = 1>(n)  y = Div(a, f)",
    "softmax over time": "y = Softmax<axis = 1>(x)",
    "softmax over channels": "y = Softmax<axis = -1>(x)",
    "log softmax": "y = LogSoftmax<axis = -1>(x)",
    "log softmax over time": "y = LogSoftmax<axis = 1>(x)",
    "hardmax": "y = Hardmax<axis = -1>(x)",
    "arg max of channels": "a = ArgMax<axis = -1, keepdims = 1>(x)  y = Cast<to = 1>(a)",
    "arg max of time": "a = ArgMax<axis = 1, keepdims = 1>(x)  y = Cast<to = 1>(a)",
    "arg min of time": "a = ArgMin<axis = 1, keepdims = 1>(x)  y = Cast<to = 1>(a)",
    "top two channels": "y, i = TopK<axis = -1>(x, two)",
    "top two frames": "y, i = TopK<axis = 1>(x, two)",
    "cumulative sum": "y = CumSum(x, axis)",
    "cumulative mean": """a = CumSum(x, axis)  """ + PLACES
    + "j = Add(i, step)  f = Cast<to = 1>(j)  g = Unsqueeze(f, one)  y = Div(a, g)",
    "reversed cumulative sum": "y = CumSum<reverse = 1>(x, axis)",
    "pooled statistics": "a = ReduceMean<keepdims = 0>(x, one)  b = ReduceMax<keepdims = 0>(x, one)  "
    "y = Concat<axis = 1>(a, b)",
    "squeeze and excite": "a = ReduceMean(x, one)  b = MatMul(a, w)  d = Sigmoid(b)  y = Mul(x, d)",
    # --- convolution and pooling
    "convolution": CHANNELS + "y = Conv<pads = [1, 1]>(c, kernel, bias)",
    "valid convolution": CHANNELS + "y = Conv(c, kernel)",
    "causal convolution": CHANNELS + "y = Conv<pads = [2, 0]>(c, kernel)",
    "padded and convolved": CHANNELS + "p = Pad(c, front)  y = Conv(p, kernel)",
    "dilated convolution": CHANNELS + "y = Conv<pads = [4, 4], dilations = [2]>(c, wide)",
    "strided convolution": CHANNELS + "y = Conv<pads = [1, 1], strides = [2]>(c, kernel)",
    "depthwise convolution": CHANNELS + "y = Conv<pads = [1, 1], group = 4>(c, depth)",
    "subsampling": CHANNELS + "d = Conv<strides = [2]>(c, kernel)  e = Relu(d)  y = Conv<strides = [2]>(e, kernel)",
    "same convolution": CHANNELS + 'y = Conv<auto_pad = "SAME_UPPER">(c, kernel)',
    "strided same convolution": CHANNELS + 'y = Conv<auto_pad = "SAME_UPPER", strides = [2]>(c, kernel)',
    "strided same lower convolution": CHANNELS + 'y = Conv<auto_pad = "SAME_LOWER", strides = [3]>(c, kernel)',
    "transposed convolution": CHANNELS + "y = ConvTranspose<strides = [2], pads = [1, 1]>(c, turned)",
    "transposed convolution with more": CHANNELS
    + "y = ConvTranspose<strides = [2], pads = [1, 1], output_padding = [1]>(c, turned)",
    "image convolution": """u = Unsqueeze(x, one)  d = Conv<pads = [1, 1, 1, 1]>(u, flat)
        y = Squeeze(d, one)""",
    "convolution module": CHANNELS + """d = Conv<pads = [1, 1], group = 4>(c, depth)
        e = BatchNormalization(d, gain, bias, bias, gain2)  f = Sigmoid(e)  g = Mul(e, f)
        y = Transpose<perm = [0, 2, 1]>(g)""",
    "max pool": CHANNELS + "y = MaxPool<kernel_shape = [3], pads = [1, 1]>(c)",
    "strided max pool": CHANNELS + "y = MaxPool<kernel_shape = [2], strides = [2]>(c)",
    "max pool rounded up": CHANNELS + "y = MaxPool<kernel_shape = [3], strides = [2], ceil_mode = 1>(c)",
    "mean pool": CHANNELS + "y = AveragePool<kernel_shape = [2], strides = [2]>(c)",
    "mean pool rounded up": CHANNELS + "y = AveragePool<kernel_shape = [3], strides = [2], ceil_mode = 1>(c)",
    "mean pool rounded up and padded": CHANNELS
    + "y = AveragePool<kernel_shape = [3], strides = [2], ceil_mode = 1, pads = [1, 1]>(c)",
    "mean pool with pads": CHANNELS + "y = AveragePool<kernel_shape = [3], pads = [1, 1], count_include_pad = 1>(c)",
    "mean pool without pads counted": CHANNELS + "y = AveragePool<kernel_shape = [3], pads = [1, 1]>(c)",
    "same mean pool": CHANNELS + 'y = AveragePool<kernel_shape = [3], strides = [2], auto_pad = "SAME_UPPER">(c)',
    "same max pool": CHANNELS + 'y = MaxPool<kernel_shape = [3], strides = [2], auto_pad = "SAME_LOWER">(c)',
    "rounded up and behind": CHANNELS + "d = MaxPool<kernel_shape = [2], strides = [2], ceil_mode = 1>(c)  "
    "y = Conv<pads = [1, 1]>(d, kernel)",
    "global mean pool": CHANNELS + "y = GlobalAveragePool(c)",
    "global max pool": CHANNELS + "y = GlobalMaxPool(c)",
    "lp pool": CHANNELS + "y = LpPool<kernel_shape = [2], strides = [2]>(c)",
    "nearest": CHANNELS + "y = Resize<mode = \"nearest\", coordinate_transformation_mode = \"asymmetric\", "
    "nearest_mode = \"floor\">(c, , twice)",
    "linear interpolation": CHANNELS + "y = Resize<mode = \"linear\">(c, , twice)",
    # --- movements
    "transpose": CHANNELS + "y = Relu(c)",
    "first frames": "y = Slice(x, zero, three, one)",
    "first frames and their mean": "s = Slice(x, zero, three, one)  y = ReduceMean(s, one)",
    "last frames": "y = Slice(x, minus3, end, one)",
    "last frames and their mean": "s = Slice(x, minus3, end, one)  y = ReduceMean(s, one)",
    "last frames as one": "s = Slice(x, minus2, end, one)  y = Flatten(s)",
    "without the first": "y = Slice(x, one, end, one)",
    "without the last": "y = Slice(x, zero, minus, one)",
    "every second": "y = Slice(x, zero, end, one, two)",
    "every second of the last": "y = Slice(x, minus3, end, one, two)",
    "differences": "a = Slice(x, one, end, one)  b = Slice(x, zero, minus, one)  y = Sub(a, b)",
    "cut of a cut that keeps nothing": """a = Slice(x, minus2, end, one)  b = Slice(a, minus2, minus2, one)
        y = Concat<axis = 1>(b, x)""",
    "kernel over more frames, which keeps nothing": """a = Slice(x, minus2, end, one)
        c = Transpose<perm = [0, 2, 1]>(a)  d = Conv<dilations = [2]>(c, kernel)  e = Transpose<perm = [0, 2, 1]>(d)
        y = MatMul(e, w)""",
    "positions by floating point of a cut of a cut, which keeps nothing": """a = Slice(x, minus2, end, one)
        b = Slice(a, minus2, end, one)  n = Shape<start = 1, end = 2>(b)  m = Squeeze(n)  f = Cast<to = 1>(m)
        i = Range(none, f, single)  j = Unsqueeze(i, one)  y = Mul(b, j)""",
    "largest of the last frames": "s = Slice(x, minus3, end, one)  m = ReduceMax(s, one)  y = Sub(x, m)",
    "one of as many as there are frames": """f = Abs(x)  g = ReduceSum<keepdims = 0>(f, minus)  i = Cast<to = 7>(g)
        j = Abs(i)  m = Shape<start = 1, end = 2>(x)  v = Concat<axis = 0>(none1, half1)  o = OneHot(j, m, v)
        y = MatMul(o, x)""",
    "turned round": "y = Slice(x, minus, begin, one, minus)",
    "shifted by one": "p = Pad(x, shift)  y = Slice(p, zero, minus, one)",
    "first frame": "y = Gather<axis = 1>(x, first)",
    "last frame": "y = Gather<axis = 1>(x, last)",
    "last frame by its number": LENGTH + "k = Sub(m, step)  y = Gather<axis = 1>(x, k)",
    "middle frame": LENGTH + "k = Div(n, two)  y = Gather<axis = 1>(x, k)",
    "padded": CHANNELS + "y = Pad(c, both, half)",
    "padded by reflection": CHANNELS + 'y = Pad<mode = "reflect">(c, both)',
    "padded by the edge": CHANNELS + 'y = Pad<mode = "edge">(c, both)',
    "padded to even": LENGTH + """r = Mod(n, two)  z5 = Concat<axis = 0>(zero, zero, zero, zero)
        p = Concat<axis = 0>(z5, r, zero)  y = Pad(x, p)""",
    "heads": """a = Reshape(x, heads)  b = Transpose<perm = [0, 2, 1, 3]>(a)  d = Softmax<axis = -1>(b)
        e = Transpose<perm = [0, 2, 1, 3]>(d)  y = Reshape(e, merged)""",
    "merged rows": "a = Reshape(x, rows)  b = Relu(a)  s = Shape(x)  y = Reshape(b, s)",
    "joined with itself": "y = Concat<axis = 1>(x, x)",
    "joined channels": "a = Neg(x)  y = Concat<axis = 2>(x, a)",
    "split channels": "a, b = Split<axis = 2>(x, halves)  y = Concat<axis = 2>(b, a)",
    "split frames": "a, b = Split<axis = 1, num_outputs = 2>(x)  y = Relu(a)",
    "repeated": "r = Concat<axis = 0>(one, two, one)  y = Tile(x, r)",
    "expanded": "s = Shape(x)  y = Expand(half1, s)",
    "stacked frames": """a = Slice(x, zero, minus, one)  b = Slice(x, one, end, one)  y = Concat<axis = 2>(a, b)""",
    "depth to time": "y = Reshape(x, pairs)",
    "squeezed and back": "a = Unsqueeze(x, two)  b = Relu(a)  y = Squeeze(b, two)",
    # --- positions and lengths
    "positions": LENGTH + "r = Slice(table, zero, n, one)  y = Add(x, r)",
    "positions from the end": LENGTH + "k = Neg(n)  r = Slice(table, k, end, one)  y = Add(x, r)",
    "positions about the middle": LENGTH + "f = Sub(c64, n)  r = Slice(table, f, c64, one)  y = Add(x, r)",
    "positions summed about the middle": LENGTH + """f = Sub(c64, n)  r = Slice(table, f, c72, one)
        a = ReduceSum(r, one)  y = Add(x, a)""",
    "positions multiplied": LENGTH + """f = Sub(c64, n)  r = Slice(table, f, c72, one)
        t = Transpose<perm = [0, 2, 1]>(r)
        s = MatMul(x, t)  y = Softmax<axis = -1>(s)""",
    "positions of a square table": LENGTH + "r = Slice(square, zero, n, zero)  y = Add(x, r)",
    "positions looked up": PLACES + "r = Gather<axis = 0>(square, i)  y = Add(x, r)",
    "positions divided": PLACES + "f = Cast<to = 1>(i)  d = Cast<to = 1>(m)  g = Div(f, d)  u = Unsqueeze(g, one)  "
    "y = Mul(x, u)",
    "sines": PLACES + "f = Cast<to = 1>(i)  u = Unsqueeze(f, one)  a = Mul(u, gain)  b = Sin(a)  y = Add(x, b)",
    "length as data": LENGTH + "f = Cast<to = 1>(n)  y = Mul(x, f)",
    "half the length as data": LENGTH + "h = Div(n, two)  f = Cast<to = 1>(h)  y = Add(x, f)",
    "half the length rounded up": LENGTH + "o = Add(n, one)  h = Div(o, two)  f = Cast<to = 1>(h)  y = Add(x, f)",
    "length less some": LENGTH + "o = Sub(n, four)  h = Div(o, two)  f = Cast<to = 1>(h)  y = Add(x, f)",
    "negative length": LENGTH + "o = Neg(n)  h = Div(o, two)  f = Cast<to = 1>(h)  y = Add(x, f)",
    "negative quotient taken off": LENGTH + "o = Neg(n)  h = Div(o, two)  l = Sub(n, h)  f = Cast<to = 1>(l)  "
    "y = Add(x, f)",
    "remainder": LENGTH + "o = Mod(n, three)  f = Cast<to = 1>(o)  y = Add(x, f)",
    "remainder of a negative": LENGTH + "k = Neg(n)  o = Mod(k, three)  f = Cast<to = 1>(o)  y = Add(x, f)",
    "fmod": LENGTH + "o = Mod<fmod = 1>(n, three)  f = Cast<to = 1>(o)  y = Add(x, f)",
    "fmod of a negative": LENGTH + "k = Neg(n)  o = Mod<fmod = 1>(k, three)  f = Cast<to = 1>(o)  y = Add(x, f)",
    "distance of the length": LENGTH + "k = Sub(n, four)  o = Abs(k)  f = Cast<to = 1>(o)  y = Add(x, f)",
    "smaller of two lengths": LENGTH + "k = Min(n, four)  f = Cast<to = 1>(k)  y = Add(x, f)",
    "square root of the length": LENGTH + "f = Cast<to = 1>(n)  r = Sqrt(f)  y = Div(x, r)",
    "width as data": "n = Shape<start = 2, end = 3>(x)  f = Cast<to = 1>(n)  r = Sqrt(f)  y = Div(x, r)",
    "length or nothing": LENGTH + "k = Min(n, zero)  f = Cast<to = 1>(k)  y = Add(x, f)",
    "remainder that is always none": LENGTH + "d = Mul(n, two)  k = Mod(d, two)  f = Cast<to = 1>(k)  y = Add(x, f)",
    "cut at a remainder": LENGTH + "d = Mul(n, two)  k = Mod(d, two)  y = Slice(x, k, end, one)",
    "compared with a remainder": LENGTH + "d = Mul(n, two)  k = Mod(d, two)  g = Equal(k, zero)  y = Where(g, x, none)",
    "length by itself": LENGTH + "k = Div(n, n)  f = Cast<to = 1>(k)  y = Add(x, f)",
    "rows by themselves": "n = Shape<start = 0, end = 1>(x)  k = Div(n, n)  f = Cast<to = 1>(k)  y = Add(x, f)",
    "length through layers": LENGTH + """f = Cast<to = 1>(n)  u = Unsqueeze(f, zero)  a = MatMul(u, spread)  b = Relu(a)
        d = Slice(b, two, end, one)  e = Slice(d, zero, four, one)  g = Gemm(e, w, bias)  y = Add(x, g)""",
    "length through a turned layer": LENGTH + """f = Cast<to = 1>(n)  u = Unsqueeze(f, zero)  a = Expand(u, lasttwo)
        b = Concat<axis = 1>(a, u, u)  g = Gemm<transB = 1, alpha = 0.5, beta = 2.0>(b, w, bias)
        h = Gemm<transB = 1>(g, w)  y = Mul(x, h)""",
    "ones of the length": "s = Shape(x)  o = ConstantOfShape<value = float[1] {1.0}>(s)  y = Add(x, o)",
    "a mask of zeros": "e = Equal(x, none)  f = Cast<to = 1>(e)  g = ReduceSum(f, minus)  y = Mul(x, g)",
    # --- what means nothing for short inputs
    "mean by the length less one": "a = ReduceSum(x, one)  " + LENGTH + "k = Sub(n, one)  f = Cast<to = 1>(k)  "
    "y = Div(a, f)",
    "whole quotient by the length less one": LENGTH + "k = Sub(n, one)  q = Div(c64, k)  f = Cast<to = 1>(q)  "
    "y = Mul(x, f)",
    "remainder by the length less one": LENGTH + "k = Sub(n, one)  q = Mod(c64, k)  f = Cast<to = 1>(q)  y = Mul(x, f)",
    "whole quotient by a remainder": LENGTH + "k = Mod(n, three)  q = Div(c64, k)  f = Cast<to = 1>(q)  y = Mul(x, f)",
    "quotient by a remainder of the length": LENGTH + "k = Mod(n, three)  f = Cast<to = 1>(k)  y = Div(x, f)",
    "reciprocal of the length less one": LENGTH + "k = Sub(n, one)  f = Cast<to = 1>(k)  r = Reciprocal(f)  "
    "y = Mul(x, r)",
    "log of the length less one": LENGTH + "k = Sub(n, one)  f = Cast<to = 1>(k)  r = Log(f)  y = Mul(x, r)",
    "quotient by the log of the length": LENGTH + "f = Cast<to = 1>(n)  r = Log(f)  y = Div(x, r)",
    "root of the length less two": LENGTH + "k = Sub(n, two)  f = Cast<to = 1>(k)  r = Sqrt(f)  y = Mul(x, r)",
    "inverse root of the length less one": LENGTH + "k = Sub(n, one)  f = Cast<to = 1>(k)  h = Neg(half)  "
    "r = Pow(f, h)  y = Mul(x, r)",
    "positions from 0 to 1": PLACES + "f = Cast<to = 1>(i)  k = Sub(m, step)  d = Cast<to = 1>(k)  g = Div(f, d)  "
    "u = Unsqueeze(g, one)  y = Mul(x, u)",
    "remainder of positions by the length": PLACES + "k = Sub(m, step)  g = Mod(i, k)  h = Cast<to = 1>(g)  "
    "u = Unsqueeze(h, one)  y = Mul(x, u)",
    "corners aligned, of the length": PLACES + """k = Sub(m, step)  d = Cast<to = 1>(k)  e = Add(d, d)  g = Div(d, e)
        f = Cast<to = 1>(i)  h = Mul(f, g)  j = Cast<to = 7>(h)  y = Gather<axis = 1>(x, j)""",
    "third last frame by its number": LENGTH + "k = Sub(n, three)  y = Gather<axis = 1>(x, k)",
    "frames from three before on": PLACES + "k = Sub(i, three)  y = Gather<axis = 1>(x, k)",
    "three rows of a table up to the length": LENGTH + "k = Sub(n, three)  r = Slice(table, k, n, one)  "
    "a = ReduceSum(r, one)  y = Add(x, a)",
    "row of a table far before the length": LENGTH + "k = Sub(n, c76)  r = Gather<axis = 0>(square, k)  y = Add(x, r)",
    "frames behind the second, folded": "s = Slice(x, two, end, one)  p = Reshape(s, rows)  z = Shape(s)  "
    "y = Reshape(p, z)",
    "whole groups of four, apart": LENGTH + """q = Div(n, four)  v = Mul(q, four)  s = Slice(x, zero, v, one)
        z = Concat<axis = 0>(minus, q, four, four)  p = Reshape(s, z)  y = Reshape(p, merged)""",
    "mean by the count of a mask of ones less one": COUNT + "a = ReduceSum(x, one)  y = Div(a, k)",
    "root of the count of a mask less four": COUNT + "m = Sub(n, high)  r = Sqrt(m)  y = Mul(x, r)",
    "inverse hyperbolic cosine of the count less one": COUNT + "r = Acosh(k)  y = Mul(x, r)",
    "whole quotient by the whole count of a mask less one": ONES + """i = Cast<to = 7>(o)  g = Slice(i, zero, one, two)
        n = ReduceSum(g, lasttwo)  k = Sub(n, one)  q = Div(c64, k)  f = Cast<to = 1>(q)  y = Mul(x, f)""",
    "whole quotient by a count that is rounded": COUNT + "i = Cast<to = 7>(k)  q = Div(c64, i)  "
    "f = Cast<to = 1>(q)  y = Mul(x, f)",
    "whole quotient by the count of a mask less one, kept above 0": COUNT + "i = Cast<to = 7>(k)  j = Max(i, one)  "
    "q = Div(c64, j)  f = Cast<to = 1>(q)  y = Mul(x, f)",
    "whole quotients by one length for every frame": LENGTH + "k = Sub(n, one)  e = Expand(k, n)  q = Div(c64, e)  "
    "f = Cast<to = 1>(q)  u = Unsqueeze(f, one)  y = Mul(x, u)",
    "shares of a row that all share, by its count less one": SHARED + """p = Softmax<axis = 1>(o)  c = ReduceSum(o, one)
        k = Sub(c, single)  r = Div(p, k)  u = Unsqueeze(r, two)  y = Mul(x, u)""",
    "root of shares of a row that all share, less four": SHARED + """p = Softmax<axis = 1>(o)  c = ReduceSum(p, one)
        k = Sub(c, high)  r = Sqrt(k)  y = Mul(x, r)""",
    "reciprocal where the log of the count begins": COUNT + "l = Log(k)  m = Sub(k, single)  r = Reciprocal(m)  "
    "a = Mul(x, l)  y = Mul(a, r)",
    "zeros filled in, three less than frames": LENGTH + "k = Sub(n, three)  s = Concat<axis = 0>(one, k, four)  "
    "z = ConstantOfShape(s)  a = ReduceSum(z, one)  y = Add(x, a)",
    "best frame of each row": """b = Shape<start = 0, end = 1>(x)  n = Squeeze(b)  i = Range(first, n, step)
        a = ReduceMax<keepdims = 0>(x, two)  j = ArgMax<axis = 1, keepdims = 0>(a)  r = Unsqueeze(i, one)
        u = Unsqueeze(j, one)  k = Concat<axis = 1>(r, u)  g = GatherND(x, k)  v = Unsqueeze(g, one)  y = Add(x, v)""",
    "whole pairs, upsampled": LENGTH + """q = Div(n, two)  v = Mul(q, two)  s = Slice(x, zero, v, one)
        c = Transpose<perm = [0, 2, 1]>(s)
        t = ConvTranspose<strides = [2], pads = [0, 1], output_padding = [1]>(c, turned)
        y = Transpose<perm = [0, 2, 1]>(t)""",
    "behind the first, pooled with ends": """s = Slice(x, one, end, one)  c = Transpose<perm = [0, 2, 1]>(s)
        q = AveragePool<kernel_shape = [2], pads = [1, 1]>(c)  y = Transpose<perm = [0, 2, 1]>(q)""",
    "maximum behind the second": "s = Slice(x, two, end, one)  y = ReduceMax(s, one)",
    # --- attention
    "attention": SCORES + "p = Softmax<axis = -1>(s)  y = MatMul(p, x)",
    "scaled attention": SCORES + "d = Mul(s, half)  p = Softmax<axis = -1>(d)  y = MatMul(p, x)",
    "causal attention": PLACES + SCORES + """r = Unsqueeze(i, one)  v = GreaterOrEqual(r, i)  h = Where(v, s, low)
        p = Softmax<axis = -1>(h)  y = MatMul(p, x)""",
    "causal attention of a triangle": SCORES + """z = Shape(s)  o = ConstantOfShape<value = float[1] {1.0}>(z)
        v = Trilu<upper = 0>(o)  e = Equal(v, none)  h = Where(e, low, s)  p = Softmax<axis = -1>(h)
        y = MatMul(p, x)""",
    "band": PLACES + SCORES + """r = Unsqueeze(i, one)  d = Sub(r, i)  a = Abs(d)  v = LessOrEqual(a, two)
        h = Where(v, s, low)
        p = Softmax<axis = -1>(h)  y = MatMul(p, x)""",
    "distances in scores": PLACES + SCORES + """r = Unsqueeze(i, one)  d = Sub(r, i)  f = Cast<to = 1>(d)
        b = Mul(f, half)
        h = Add(s, b)  p = Softmax<axis = -1>(h)  y = MatMul(p, x)""",
    "linear attention": """k = Softmax<axis = 1>(x)  t = Transpose<perm = [0, 2, 1]>(k)  o = MatMul(t, x)
        y = MatMul(x, o)""",
    "attention pooling": "g = MatMul(x, w)  p = Softmax<axis = 1>(g)  a = Mul(p, x)  y = ReduceSum(a, one)",
    "encoder block": SCORES + """p = Softmax<axis = -1>(s)  a = MatMul(p, x)  b = Add(x, a)
        l = LayerNormalization<axis = -1>(b, gain, bias)  e = MatMul(l, up)  f = Relu(e)  g = MatMul(f, down)
        o = Add(l, g)  y = LayerNormalization<axis = -1>(o, gain, bias)""",
    # --- recurrence
    "lstm": """z = Transpose<perm = [1, 0, 2]>(x)  o, h, k = LSTM<hidden_size = 4>(z, lstm, again)  q = Squeeze(o, one)
        y = Transpose<perm = [1, 0, 2]>(q)""",
    "gru": """z = Transpose<perm = [1, 0, 2]>(x)  o, h = GRU<hidden_size = 4>(z, gru, gruagain)  q = Squeeze(o, one)
        y = Transpose<perm = [1, 0, 2]>(q)""",
    "last state": """z = Transpose<perm = [1, 0, 2]>(x)  o, h, k = LSTM<hidden_size = 4>(z, lstm, again)
        y = Squeeze(h, zero)""",
    "backward lstm": """z = Transpose<perm = [1, 0, 2]>(x)
        o, h, k = LSTM<hidden_size = 4, direction = "reverse">(z, lstm, again)  q = Squeeze(o, one)
        y = Transpose<perm = [1, 0, 2]>(q)""",
    # --- what has to be refused
    "mean over rows": "a = ReduceMean(x, zero)  y = Sub(x, a)",
    "sort of frames": LENGTH + "y, i = TopK<axis = 1>(x, n)",
    "frames interleaved": "a = Reshape(x, across)  y = Transpose<perm = [0, 2, 1]>(a)",
    "cut after interleaving": """a = Reshape(x, across)  b = Slice(a, minus60, end, two)  y = Reshape(b, back)""",
    "places of what is not zero": "g = Greater(x, none)  i = NonZero(g)  y = Cast<to = 1>(i)",
}  # fmt: skip

MORE = """int64[6] shift = {0, 1, 0, 0, 0, 0}, float[3] twice = {1.0, 1.0, 2.0}, int64[3] pairs = {0, -1, 8},
 int64[3] across = {0, 4, -1}, int64[3] back = {0, -1, 4}, int64[1] minus60 = {-60}, float[1] half1 = {0.5},
 float[1] none1 = {0.0}, float[4] gain2 = {1.0, 0.5, 2.0, 1.5}"""


def _constants(used: set[str]) -> str:
    told = [f"int64[{len(each)}] {name} = {{{', '.join(map(str, each))}}}" for name, each in INTEGERS.items()]
    told += [f"int64 {name} = {{{number}}}" for name, number in SCALARS.items()]
    told += [f"float {name} = {{{number}}}" for name, number in FLOATS.items()]
    told += [
        f"float[{','.join(map(str, shape))}] {name} = {{{_numbers(at, *shape)}}}"
        for at, (name, shape) in enumerate(WEIGHTS.items())
    ]
    told += [each.strip() for each in re.split(r",\s*(?=int64|float)", MORE)]
    return ", ".join(each for each in told if each.split(" = ")[0].split()[-1] in used)


def text_of(body: str, inputs: str, outputs: str = "float[p,q,r] y") -> str:
    """A graph with the constants that its body mentions."""
    constants = _constants(set(re.findall(r"\w+", body)))
    return f"({inputs}) => ({outputs}) " + (f"<{constants}> " if constants else "") + f"{{ {body} }}"


OLD = {

        (9, "slice, pad, clip, dropout and split with attributes"): """
        s = Slice<axes = [1], starts = [-2], ends = [9223372036854775807]>(x)
        p = Pad<pads = [0, 1, 0, 0, 1, 0], mode = "reflect">(s)  c = Clip<min = 0.0, max = 1.0>(p)
        d = Dropout<ratio = 0.1>(c)  a, b = Split<axis = 2, split = [2, 2]>(d)  y = Add(a, b)""",
    (9, "top channels"): "y, i = TopK<axis = 2, k = 2>(x)",
    (9, "mean over time"): "m = ReduceMean<axes = [1]>(x)  y = Sub(x, m)",
    (9, "upsampled"): CHANNELS + 'y = Upsample<mode = "nearest">(c, twice)',
    (9, "batch norm and pool"): CHANNELS + """a = Abs(gain)  d = BatchNormalization(c, gain, bias, bias, a)
        y = MaxPool<kernel_shape = [2], strides = [2]>(d)""",
    (10, "mean pool rounded up"): CHANNELS + "y = AveragePool<kernel_shape = [3], strides = [2], ceil_mode = 1>(c)",
    (10, "slice with inputs"): "y = Slice(x, minus3, end, one)",
    (10, "resized"): CHANNELS + 'y = Resize<mode = "nearest">(c, twice)',
    (11, "sum over time"): "s = ReduceSum<axes = [1], keepdims = 1>(x)  y = Sub(x, s)",
    (11, "softmax of channels"): "y = Softmax<axis = 2>(x)",
    (11, "softmax from time on"): "y = Softmax<axis = 1>(x)",
    (11, "softmax from the batch on"): "y = Softmax<axis = 0>(x)",
    (11, "log softmax"): "y = LogSoftmax<axis = -1>(x)",
    (11, "unsqueezed"): "a = Unsqueeze<axes = [2]>(x)  y = Squeeze<axes = [2]>(a)",
    (11, "attention"): "t = Transpose<perm = [0, 2, 1]>(x)  s = MatMul(x, t)  p = Softmax<axis = 2>(s)  "
    "y = MatMul(p, x)",
    (11, "positions"): """n = Shape(x)  k = Gather<axis = 0>(n, axis)  u = Unsqueeze<axes = [0]>(k)
        r = Slice(table, zero, u, one)  y = Add(x, r)""",
    (11, "clip with inputs"): "y = Clip(x, none, high)",
    (11, "cumulative sum"): "y = CumSum(x, axis)",
    (12, "softmax from time on"): "y = Softmax<axis = 1>(x)",
    (12, "arg max"): "a = ArgMax<axis = 2, keepdims = 1>(x)  y = Cast<to = 1>(a)",
    (12, "einsum"): 'y = Einsum<equation = "btd,de->bte">(x, w)',
    (13, "mean over time"): "m = ReduceMean<axes = [1]>(x)  y = Sub(x, m)",
    (13, "sum over time"): "y = ReduceSum(x, one)",
    (13, "maximum over time"): "y = ReduceMax<axes = [1]>(x)",
    (13, "split in two"): "a, b = Split<axis = 2>(x)  y = Mul(a, b)",
    (13, "layer norm by hand"): """a = ReduceMean<axes = [-1]>(x)  b = Sub(x, a)  d = Mul(b, b)
        e = ReduceMean<axes = [-1]>(d)
        f = Add(e, eps)  g = Sqrt(f)  y = Div(b, g)""",
    (14, "batch norm"): CHANNELS + "a = Abs(gain)  y = BatchNormalization(c, gain, bias, bias, a)",
    (14, "hard swish"): "y = HardSwish(x)",
    (15, "length as data"): LENGTH + "f = Cast<to = 1>(n)  y = Mul(x, f)",
    (16, "selection"): "g = Less(x, none)  y = Where(g, none, x)",
    (17, "layer norm"): "y = LayerNormalization<axis = -1>(x, gain, bias)",
    (17, "pad"): CHANNELS + "y = Pad(c, both, half)",
    (18, "group norm"): CHANNELS + "p = Slice(gain, zero, two)  y = GroupNormalization<num_groups = 2>(c, p, p)",
    (19, "mean pool rounded up"): CHANNELS + "y = AveragePool<kernel_shape = [3], strides = [2], ceil_mode = 1>(c)",
    (21, "group norm"): CHANNELS + "y = GroupNormalization<num_groups = 2>(c, gain, bias)",
    (23, "rms norm"): "y = RMSNormalization<axis = -1>(x, gain)",
}  # fmt: skip
"""Bodies in the spelling of old operator sets, and of the newest, by the set."""

SAME = (
    "linear", "gate", "layer norm", "instance norm", "mean", "maximum", "softmax over time", "log softmax",
    "arg max of time", "convolution", "strided convolution", "transposed convolution", "max pool rounded up",
    "mean pool with pads",
    "last frames and their mean", "padded", "heads", "positions", "half the length as data", "attention",
    "causal attention", "encoder block", "lstm", "gru", "first frames", "cumulative mean", "linear interpolation",
)  # fmt: skip
"""Bodies that are spelled alike in these sets."""

SETS = (18, 21, 22, 23)

BESIDE = {
    "sum": "y = Add(x, z)",
    "joined channels": "y = Concat<axis = 2>(x, z)",
    "attention to another": "t = Transpose<perm = [0, 2, 1]>(z)  s = MatMul(x, t)  p = Softmax<axis = -1>(s)  "
    "y = MatMul(p, z)",
    "apart": "y = Relu(x)  y2 = MatMul(z, w)",
    "its mean": "a = ReduceMean(z, one)  y = Mul(x, a)",
    "joined frames": "y = Concat<axis = 1>(x, z)",
}
"""Bodies of x and z [.., time, 4]."""

GATED = {
    "a gate": "h = Sigmoid(g)  a = Mul(x, h)  t = Transpose<perm = [0, 2, 1]>(a)  y = Conv<pads = [1, 1]>(t, kernel)",
    "a divisor": "h = Abs(g)  d = Add(h, half)  a = Div(x, d)  y = Softmax<axis = 1>(a)",
    "an exponent": "h = Clip(g, none, high)  a = Abs(x)  b = Add(a, half)  d = Pow(b, h)  y = ReduceSum(d, one)",
    "a norm": "h = Exp(g)  l = LayerNormalization<axis = -1>(x, h, bias)  y = ReduceMax(l, one)",
}
"""Bodies of x and an input g [4] that all rows share, of whose bounds something follows."""

SECOND = {
    "the same axes": "float[batch,time,4] z",
    "another name of the batch": "float[rows,time,4] z",
    "a literal batch": "float[1,time,4] z",
    "an axis without a name": "float[batch,other,4] z",
    "no name of either": "float[rows,other,4] z",
    "another padded axis": "float[batch,later,4] z",
}  # fmt: skip

STREAMS = {
    "attention": """t = Transpose<perm = [0, 2, 1]>(joined)  s = MatMul(x, t)  p = Softmax<axis = -1>(s)
        y = MatMul(p, joined)  next = Identity(joined)""",
    "normed keys": """l = LayerNormalization<axis = -1>(joined, gain, bias)  k = MatMul(l, w)
        t = Transpose<perm = [0, 2, 1]>(k)  s = MatMul(x, t)  p = Softmax<axis = -1>(s)  y = MatMul(p, k)
        next = Identity(joined)""",
    "mean of what was heard": "y = ReduceMean(joined, one)  next = Identity(joined)",
    "maximum of what was heard": "y = ReduceMax(joined, one)  next = Identity(joined)",
    "the newest frames": "y = Slice(joined, minus2, end, one)  next = Identity(joined)",
    "three frames of context": "y = Slice(joined, minus3, end, one)  next = Identity(joined)",
    "positions": """n = Shape<start = 1, end = 2>(joined)  r = Slice(table, zero, n, one)  a = Add(joined, r)
        t = Transpose<perm = [0, 2, 1]>(a)  s = MatMul(x, t)  p = Softmax<axis = -1>(s)  y = MatMul(p, joined)
        next = Identity(joined)""",
    "positions up to a fixed row": """n = Shape<start = 1, end = 2>(joined)  f = Sub(c64, n)
        r = Slice(table, f, c64, one)
        a = Add(joined, r)  t = Transpose<perm = [0, 2, 1]>(a)  s = MatMul(x, t)  p = Softmax<axis = -1>(s)
        y = MatMul(p, joined)  next = Identity(joined)""",
    "positions beyond the cache": """n = Shape<start = 1, end = 2>(past)  f = Sub(c64, n)  r = Slice(table, f, c66, one)
        a = Add(joined, r)  t = Transpose<perm = [0, 2, 1]>(a)  s = MatMul(x, t)  p = Softmax<axis = -1>(s)
        y = MatMul(p, joined)  next = Identity(joined)""",
}  # fmt: skip
"""Bodies of x [.., 2, 4], the cache past [.., cache, 4] and both joined; what is cached is made of x by a FRONT."""

FRONTS = {
    "frames": "new = Identity(x)",
    "a linear layer of norms": "l0 = LayerNormalization<axis = -1>(x, gain, bias)  new = MatMul(l0, w)",
    "an activation": "new = Tanh(x)",
}


def _offline(text: str, **options: object) -> Callable[[], Lowered]:
    return lambda: lowered(text, **options)  # type: ignore[arg-type]


def _stream(text: str, batch: str | None) -> Callable[[], Lowered]:
    return lambda: lowered(
        text,
        batch=batch,
        axes=(),
        caches=(CacheAxis("cache", 6, 2, "real_length", None),),
        states=(State("past", "next", 1, "cache"),),
    )


@dataclasses.dataclass(frozen=True)
class Small:
    """One graph: what it is called, and how to make it."""

    name: str
    make: Callable[[], Lowered]


def corpus() -> Iterator[Small]:
    """All graphs."""
    for name, body in BODIES.items():
        yield Small(name, _offline(text_of(body, "float[batch,time,4] x")))
        yield Small(f"{name}, literal batch", _offline(text_of(body, "float[1,time,4] x"), batch=None))
    for name in SAME:
        for opset in SETS:
            text = text_of(BODIES[name], "float[batch,time,4] x")
            yield Small(f"{name}, opset {opset}", _offline(text, opset=opset))
    for (opset, name), body in OLD.items():
        yield Small(f"{name}, opset {opset}", _offline(text_of(body, "float[batch,time,4] x"), opset=opset))
        text = text_of(body, "float[1,time,4] x")
        yield Small(f"{name}, opset {opset}, literal batch", _offline(text, opset=opset, batch=None))
    for name, body in GATED.items():
        yield Small(f"{name} of all rows", _offline(text_of(body, "float[batch,time,4] x, float[4] g")))
    for name, body in BESIDE.items():
        for what, second in SECOND.items():
            outputs = "float[p,q,r] y" + (", float[p,q,r] y2" if "y2" in body else "")
            text = text_of(body, f"float[batch,time,4] x, {second}", outputs)
            axes = ("time", "later") if "later" in second else ("time",)
            yield Small(f"{name} beside {what}", _offline(text, axes=axes))
    for name, body in STREAMS.items():
        for front, made in FRONTS.items():
            for batch in ("batch", None):
                rows = batch or "1"
                whole = f"{made}  joined = Concat<axis = 1>(past, new)  {body}"
                inputs = f"float[{rows},2,4] x, float[{rows},cache,4] past"
                text = text_of(whole, inputs, "float[p,q,r] y, float[p,q,r] next")
                yield Small(f"{name} of {front}" + ("" if batch else ", literal batch"), _stream(text, batch))
