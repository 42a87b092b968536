"""Small graphs of operators whose legal spellings differ, and pairs of graphs that say the same in other operators."""

from collections.abc import Callable, Iterator

from compiler.graph.stages import Lowered
from tests.kit.agreement import lowered
from tests.property.small_graphs import BODIES, CHANNELS, LENGTH, SCORES, corpus, text_of

PAIRS_OF = "d = Concat<axis = 2>(x, x)  e = Reshape(d, merged)  c = Transpose<perm = [0, 2, 1]>(e)  "
"""Twice as many frames, channels first."""

ROW = "s = Shape<end = 1>(x)  b = Squeeze(s)  f = Range(first, b, step)  r = Unsqueeze(f, lasttwo)  z = Mul(r, zero)  "
"""Numbers of rows and zeros, [batch, 1, 1] each."""

REST = LENGTH + "k = Neg(n)  r = Mod(k, two)  b = Shape<end = 1>(x)  "
"""How many frames are missing to an even number, and the number of rows."""

SPELLED = {
    # --- cuts of lists of sizes, of tables, of all axes
    "first sizes": "z = Shape(x)  s = Slice(z, zero, two)  q = Concat<axis = 0>(s, two, two)  y = Reshape(x, q)",
    "last size": "z = Shape(x)  s = Slice(z, minus, end)  q = Concat<axis = 0>(minus, s)  y = Reshape(x, q)",
    "sizes turned round": """z = Shape(x)  s = Slice(z, minus, begin, zero, minus)  a = Slice(s, one, two)
        q = Concat<axis = 0>(zero, a, four)  y = Reshape(x, q)""",
    "sizes in front of the last": """z = Shape(x)  s = Slice(z, zero, minus)  q = Concat<axis = 0>(s, minus)
        y = Reshape(x, q)""",
    "every second size": """z = Shape(x)  s = Slice(z, zero, end, zero, two)  q = Concat<axis = 0>(s, minus)
        y = Reshape(x, q)""",
    "first rows of a table": LENGTH + "r = Slice(square, zero, n)  y = Add(x, r)",
    "last frames of all axes": "y = Slice(x, begins, ends, axes3, steps3)",
    "newest and every other channel": "y = Slice(x, newest2, ends2, axes2, steps2)",
    "delayed": "p = Pad(x, behind1)  y = Slice(p, zero, minus, one)",
    "cut of a cut": "a = Slice(x, one, end, one)  b = Slice(a, zero, minus, one)  y = Relu(b)",
    "whole axis": "a = Slice(x, zero, end, two)  y = Relu(a)",
    # --- movements
    "flat frames": "a = Unsqueeze(x, one)  b = Flatten<axis = 1>(x)  y = Relu(a)",
    "flattened": "s = Slice(x, minus2, end, one)  y = Flatten<axis = 1>(s)",
    "expanded to frames": "s = Shape<start = 0, end = 2>(x)  t = Concat<axis = 0>(s, one)  e = Expand(half1, t)  "
    "y = Mul(x, e)",
    "channels chosen": "a = Gather<axis = 2>(x, picks)  y = MatMul(a, w)",
    "channels chosen one by one": """s = Shape(x)  i = ConstantOfShape<value = int64[1] {3}>(s)
        y = GatherElements<axis = 2>(x, i)""",
    "frames chosen": "a = Gather<axis = 1>(x, zero)  y = Sub(x, a)",
    "entries of a table": "y = GatherND<batch_dims = 0>(x, zero)",
    "last frame of every row": """s = Shape<end = 1>(x)  t = Concat<axis = 0>(s, one)
        i = ConstantOfShape<value = int64[1] {-1}>(t)  a = GatherND<batch_dims = 1>(x, i)  y = Unsqueeze(a, one)""",
    "channels turned to the front and chosen": """a = Transpose<perm = [2, 0, 1]>(x)  b = GatherND(a, places)
        y = Transpose<perm = [1, 2, 0]>(b)""",
    "first frame of every row": """s = Shape<end = 1>(x)  t = Concat<axis = 0>(s, one)
        i = ConstantOfShape<value = int64[1] {0}>(t)  a = GatherND<batch_dims = 1>(x, i)  y = Unsqueeze(a, one)""",
    "first frame of every row written": ROW + """i = Concat<axis = 2>(r, z)  g = Gather<axis = 1>(x, zero)
        u = Neg(g)  y = ScatterND(x, i, u)""",
    "last frame of every row written": ROW + """m = Sub(z, one)  i = Concat<axis = 2>(r, m)
        g = Gather<axis = 1>(x, zero)  u = Neg(g)  y = ScatterND(x, i, u)""",
    "frames added where they are": ROW + """l = Shape<start = 1, end = 2>(x)  n = Squeeze(l)  p = Range(first, n, step)
        t = Shape<end = 2>(x)  e = Concat<axis = 0>(t, one)  of = Expand(r, e)  q = Unsqueeze(p, minus)
        own = Expand(q, e)  i = Concat<axis = 2>(of, own)  u = Neg(x)  v = Mul(u, half1)
        y = ScatterND<reduction = "add">(x, i, v)""",
    "channels turned to the front and written": """a = Transpose<perm = [2, 0, 1]>(x)  b = GatherND(a, places)
        u = Neg(b)  d = ScatterND(a, places, u)  y = Transpose<perm = [1, 2, 0]>(d)""",
    "channels written": """s = Shape(x)  t = Slice(s, zero, two)  q = Concat<axis = 0>(t, one)
        i = ConstantOfShape<value = int64[1] {1}>(q)
        u = Slice(x, zero, one, two)  y = ScatterElements<axis = 2>(x, i, u)""",
    "zeros of a shape": "s = Shape(x)  o = ConstantOfShape(s)  y = Add(x, o)",
    "lower triangle": SCORES + "l = Trilu<upper = 0>(s)  y = MatMul(l, x)",
    "upper triangle of the first": SCORES + "l = Trilu<upper = 1>(s, step)  y = MatMul(l, x)",
    "triangle that says its diagonal": SCORES + "l = Trilu<upper = 0>(s, first)  y = MatMul(l, x)",
    "ones and zeros of channels": """a = ArgMax<axis = 2, keepdims = 0>(x)  v = Concat<axis = 0>(none1, half1)
        y = OneHot<axis = -1>(a, four, v)""",
    "classes in front of frames": """a = ArgMax<axis = 2, keepdims = 0>(x)  v = Concat<axis = 0>(none1, half1)
        b = OneHot<axis = 1>(a, four, v)  y = Transpose<perm = [0, 2, 1]>(b)""",
    # --- functions
    "clip below": "y = Clip(x, none)",
    "clip above": "y = Clip(x, , high)",
    "clip between": "y = Clip(x, none, high)",
    "clip of nothing": "y = Clip(x)",
    "types": "h = Cast<to = 7>(x)  y = CastLike(h, x)",
    "remainder": "y = Mod<fmod = 1>(x, high)",
    "elu": "y = Elu<alpha = 1.0>(x)",
    "hard sigmoid": "y = HardSigmoid<alpha = 0.2, beta = 0.5>(x)",
    "dropout with its mask": "y, mask = Dropout(x)  ",
    "dropout that trains not": "y = Dropout(x, half)",
    # --- products
    "gemm without a bias": "r = Reshape(x, rows)  g = Gemm(r, w)  s = Shape(x)  y = Reshape(g, s)",
    "gemm of turned weights": """r = Reshape(x, rows)  g = Gemm<transB = 1, alpha = 0.5, beta = 2.0>(r, w, bias)
        s = Shape(x)  y = Reshape(g, s)""",
    "einsum of frames": 'y = Einsum<equation = "bij,jk->bik">(x, w)',
    "einsum of any axes": 'y = Einsum<equation = "...d,de->...e">(x, w)',
    "vector": "a = MatMul(x, gain)  y = Unsqueeze(a, two)",
    "attention": 'u = Unsqueeze(x, one)  a = Attention(u, u, u)  y = Squeeze(a, one)',
    "causal attention of one operator": "u = Unsqueeze(x, one)  a = Attention<is_causal = 1>(u, u, u)  "
    "y = Squeeze(a, one)",
    "attention of any keys": "u = Unsqueeze(x, one)  k = Neg(u)  a = Attention<scale = 0.5>(u, k, u)  "
    "y = Squeeze(a, one)",
    # --- normalisation
    "layer norm without a bias": "y = LayerNormalization<axis = -1>(x, gain)",
    "layer norm of two axes": "u = Reshape(x, heads4)  a = LayerNormalization<axis = 2>(u, square2)  y = Relu(a)",
    "layer norm with statistics": "y, m, d = LayerNormalization<axis = -1>(x, gain, bias)",
    "batch norm": CHANNELS + "a = Abs(gain)  y = BatchNormalization(c, gain, bias, bias, a)",
    "rms norm": "y = RMSNormalization<axis = -1>(x, gain)",
    "lp norm": "y = LpNormalization<axis = -1, p = 2>(x)",
    # --- windows
    "same convolution by pads": CHANNELS + "y = Conv<pads = [1, 1]>(c, kernel, bias)",
    "wide dilated convolution": CHANNELS + "y = Conv<pads = [4, 4], dilations = [2]>(c, wide, bias)",
    "even convolution": CHANNELS + "y = Conv<pads = [1, 2]>(c, turned)",
    "plain convolution": CHANNELS + "y = Conv(c, kernel)",
    "transposed without pads": CHANNELS + "y = ConvTranspose<strides = [2]>(c, turned)",
    "transposed with a bias": CHANNELS + "y = ConvTranspose<strides = [2], pads = [1, 1]>(c, turned, bias)",
    "image pool": "u = Unsqueeze(x, one)  d = MaxPool<kernel_shape = [3, 1], pads = [1, 0, 1, 0]>(u)  "
    "y = Squeeze(d, one)",
    "valid max pool": CHANNELS + "y = MaxPool<kernel_shape = [2]>(c)",
    "valid mean pool": CHANNELS + "y = AveragePool<kernel_shape = [2]>(c)",
    "same convolution in steps": PAIRS_OF + "y = Conv<strides = [2], pads = [0, 1]>(c, kernel)",
    "same convolution of the odd entry in front": PAIRS_OF + "y = Conv<strides = [2], pads = [1, 0]>(c, kernel)",
    "same max pool in steps": PAIRS_OF + "y = MaxPool<kernel_shape = [3], strides = [2], pads = [0, 1]>(c)",
    "pairs of frames": PAIRS_OF + "y = Conv<strides = [2]>(c, pair)",
    "valid convolution in steps": CHANNELS + "y = Conv<strides = [2]>(c, kernel)",
    "valid mean pool in steps": CHANNELS + "y = AveragePool<kernel_shape = [3], strides = [2]>(c)",
    "twice by scales": CHANNELS + 'y = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric", '
    'nearest_mode = "floor">(c, , twice)',
    "twice by nearest half pixels": CHANNELS + 'y = Resize<mode = "nearest">(c, , twice)',
    "twice along an axis": CHANNELS + 'y = Resize<mode = "linear", axes = [2]>(c, , double)',
    "twice by sizes": CHANNELS + LENGTH + """k = Mul(n, two)  b = Shape<start = 0, end = 2>(c)
        z = Concat<axis = 0>(b, k)  y = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",
        nearest_mode = "floor">(c, , , z)""",
    # --- searches, reductions
    "two best channels": "y, i = TopK<axis = 2, largest = 1, sorted = 1>(x, two)",
    "two smallest frames": "y, i = TopK<axis = 1, largest = 0>(x, two)",
    "places of the best channels": "v, i = TopK(x, three)  y = Cast<to = 1>(i)",
    "mean of channels that are not kept": "a = ReduceMean<keepdims = 0>(x, two)  y = Unsqueeze(a, two)",
    "sum of nothing": "y = ReduceSum<noop_with_empty_axes = 1>(x)",
    "sum of an empty list": "y = ReduceSum<noop_with_empty_axes = 1>(x, nothing)",
    "mean of all by an empty list": "a = ReduceMean(x, nothing)  y = Sub(x, a)",
    "sum of all axes, of none without": "a = ReduceSum<noop_with_empty_axes = 1>(x, axes3)  y = Mul(x, a)",
    "sum of all": "a = ReduceSum<keepdims = 1>(x)  y = Mul(x, a)",
    "mean of two axes": "a = ReduceMean(x, lasttwo)  y = Sub(x, a)",
    # --- recurrences
    "rnn": """z = Transpose<perm = [1, 0, 2]>(x)  o, h = RNN<hidden_size = 4>(z, rnn, rnnagain)
        q = Squeeze(o, one)  y = Transpose<perm = [1, 0, 2]>(q)""",
    "gru with a bias": """z = Transpose<perm = [1, 0, 2]>(x)
        o, h = GRU<hidden_size = 4>(z, gru, gruagain, grubias)
        q = Squeeze(o, one)  y = Transpose<perm = [1, 0, 2]>(q)""",
    "last state of a lstm": """z = Transpose<perm = [1, 0, 2]>(x)  , h = LSTM<hidden_size = 4>(z, lstm, again)
        q = Squeeze(h, zero)  y = Unsqueeze(q, one)""",
    "lstm with a bias of zeros": """z = Transpose<perm = [1, 0, 2]>(x)
        o, h, k = LSTM<hidden_size = 4>(z, lstm, again, lstmbias)  q = Squeeze(o, one)
        y = Transpose<perm = [1, 0, 2]>(q)""",
}  # fmt: skip
"""Bodies of x [.., time, 4]; more constants than those of `small_graphs` are in `MORE`."""

MORE = {
    "begins": "int64[3] begins = {0, -3, 0}", "ends": "int64[3] ends = {9223372036854775807, 9223372036854775807, 4}",
    "axes3": "int64[3] axes3 = {0, 1, 2}", "steps3": "int64[3] steps3 = {1, 1, 1}",
    "newest2": "int64[2] newest2 = {-2, 1}", "ends2": "int64[2] ends2 = {9223372036854775807, 4}",
    "axes2": "int64[2] axes2 = {1, 2}", "steps2": "int64[2] steps2 = {1, 2}",
    "behind1": "int64[6] behind1 = {0, 1, 0, 0, 0, 0}", "picks": "int64[2] picks = {1, 3}",
    "heads4": "int64[4] heads4 = {0, -1, 2, 2}", "square2": "float[2,2] square2 = {1.0, 0.5, 2.0, 1.5}",
    "nothing": "int64[0] nothing = {}", "places": "int64[2,1] places = {2, 1}",
    "pair": "float[4,4,2] pair = {" + ", ".join(["0.25", "-0.5"] * 16) + "}",
    "double": "float[1] double = {2.0}",
    "rnn": "float[1,4,4] rnn = {" + ", ".join(["0.25", "-0.5"] * 8) + "}",
    "rnnagain": "float[1,4,4] rnnagain = {" + ", ".join(["0.125", "-0.25"] * 8) + "}",
    "grubias": "float[1,24] grubias = {" + ", ".join(["0.0"] * 24) + "}",
    "lstmbias": "float[1,32] lstmbias = {" + ", ".join(["0.0"] * 32) + "}",
}  # fmt: skip

NEW = {"Attention": 23, "RMSNormalization": 23}
"""Operators that are newer than set 20."""

PAIRS: tuple[tuple[str, int, str, int, str], ...] = (
    ("softmax of old", 11, "y = Softmax<axis = 2>(x)", 20, "y = Softmax<axis = 2>(x)"),
    ("softmax without an axis", 20, "y = Softmax(x)", 20, "y = Softmax<axis = -1>(x)"),
    ("sum with attributes", 11, "y = ReduceSum<axes = [-2]>(x)", 20, "y = ReduceSum<keepdims = 1>(x, one)"),
    ("mean with attributes", 13, "y = ReduceMean<axes = [-2]>(x)", 20, "y = ReduceMean<keepdims = 1>(x, one)"),
    ("cut with attributes", 9, "y = Slice<axes = [-2], starts = [1], ends = [9223372036854775807]>(x)", 20,
     "y = Slice(x, one, end, one)"),
    ("first axes with attributes", 9, "y = Slice<starts = [0, 1], ends = [9223372036854775807, 2147483647]>(x)", 20,
     "y = Slice(x, one, end, one)"),
    ("squeezed with attributes", 11, "a = Unsqueeze<axes = [-1]>(x)  y = Squeeze<axes = [-1]>(a)", 20,
     "a = Unsqueeze(x, three)  y = Squeeze(a, three)"),
    ("clip with attributes", 9, "y = Clip<min = 0.0>(x)", 20, "y = Clip(x, none)"),
    ("vector", 20, "a = MatMul(x, gain)  y = Unsqueeze(a, two)", 20, "u = Unsqueeze(gain, one)  y = MatMul(x, u)"),
    ("every axis by name", 20, "y = ReduceSum<keepdims = 1>(x)", 20, "y = ReduceSum<keepdims = 1>(x, axes3)"),
    ("identities", 20, "a = Identity(x)  b = Identity(a)  c = Relu(b)  y = Identity(c)", 20, "y = Relu(x)"),
    ("numbers of attributes", 20, "h = Constant<value_float = 0.5>()  y = Mul(x, h)", 20, "y = Mul(x, half)"),
    ("lists of attributes", 20, "s = Constant<value_ints = [1]>()  y = ReduceSum(x, s)", 20, "y = ReduceSum(x, one)"),
    ("a number of attributes", 20, "s = Constant<value_int = 1>()  y = CumSum(x, s)", 20, "y = CumSum(x, axis)"),
    ("a tensor of attributes", 20, "s = Constant<value = int64[1] {1}>()  y = ReduceSum(x, s)", 20,
     "y = ReduceSum(x, one)"),
    ("cut by attributes", 20, "b = Constant<value_ints = [-2]>()  a = Constant<value_ints = [-2]>()  "
     "y = Slice(x, b, end, a)", 20, "y = Slice(x, minus2, end, one)"),
    ("floats of attributes", 20, "f = Constant<value_floats = [0.5]>()  y = Mul(x, f)", 20, "y = Mul(x, half1)"),
    ("last frame repeated", 20, REST + """e = Concat<axis = 0>(b, r, four)  l = Slice(x, minus, end, one)
     f = Expand(l, e)  y = Concat<axis = 1>(x, f)""", 20, REST + """
     p = Concat<axis = 0>(zero, zero, zero, zero, r, zero)  y = Pad<mode = "edge">(x, p)"""),
    ("one frame by a cut", 20, "y = Slice(x, zero, one, one)", 20, "y = Gather<axis = 1>(x, zero)"),
)  # fmt: skip
"""A name, and twice an operator set and a body: both bodies compute the same."""


def graph(body: str, inputs: str = "float[batch,time,4] x", *, batch: str | None = "batch", opset: int = 20) -> Lowered:
    """A body with the constants that it mentions, in the operator set that its operators need."""
    outputs = "float[p,q,r] y" + (", bool[p,q,r] mask" if " mask" in body else "")
    text = text_of(body, inputs, outputs)
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    more = ", ".join(each for name, each in MORE.items() if name in words)
    if more and "<" in text.split("{")[0].split("=>")[1]:
        head, _, rest = text.partition("=> (")
        outs, _, tail = rest.partition(") <")
        text = f"{head}=> ({outs}) <{more}, {tail}"
    elif more:
        text = text.replace(") {", f") <{more}> {{", 1)
    newest = max([opset, *(since for op, since in NEW.items() if f"{op}(" in body or f"{op}<" in body)])
    return lowered(text, batch=batch, opset=newest)


def spelled_graphs() -> Iterator[tuple[str, Callable[[], Lowered]]]:
    """The graphs that are spelled anew: those of this module, each with and without a batch, and the small ones."""
    for name, body in SPELLED.items():
        yield name, lambda body=body: graph(body)  # type: ignore[misc]
        yield f"{name}, literal batch", lambda body=body: graph(body, "float[1,time,4] x", batch=None)  # type: ignore[misc]
    known = [name for name in BODIES if name != "group norm"]  # a file may not hold the operator of set 18 in set 20
    names = {*known, *(f"{name}, literal batch" for name in known)}
    yield from ((each.name, each.make) for each in corpus() if each.name in names)
