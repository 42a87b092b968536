"""Tiny models in ONNX text; every graph fits on a screen.

`streaming` is one attention layer over a growing cache, with a causal convolution behind it:

    joined = past ++ x;  weights = softmax(query (keys(joined) + table[:L]));  y = conv(context ++ weights joined)
"""

import dataclasses

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import Array, Feed, Lowered, State
from runtime_lite.format.cache_axis import CacheAxis

OPSET = 20
WINDOW, STEP, WIDTH, ROWS = 6, 2, 4, 16
BATCH = "batch"


def parse(text: str, weights: dict[str, Array] | None = None, opset: int = OPSET) -> ir.Model:
    """A model from ONNX text; inputs named in `weights` become initializers, and every node gets a source line.

    Args:
        text: the graph without its header, e.g. `(float[batch,2] x) => (float[batch,2] y) { y = Relu(x) }`.
        weights: content by input name.
        opset: of the standard operators.
    """
    acme = ', "com.acme" : 1' if "com.acme." in text else ""
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : {opset}{acme}]>\ntiny {text}')
    graph = model.graph
    for value in list(graph.inputs):
        array = (weights or {}).get(str(value.name))
        if array is not None:
            graph.inputs.remove(value)
            value.const_value = ir.tensor(array, name=value.name)
            value.shape, value.dtype = ir.Shape(array.shape), ir.DataType.from_numpy(array.dtype)
            graph.register_initializer(value)
    for value in graph.initializers.values():
        assert value.const_value is not None
        value.const_value = ir.tensor(value.const_value.numpy(), name=value.name)
    for line, node in enumerate(graph, start=1):
        node.name = f"{node.outputs[0].name}_{node.op_type.lower()}"
        node.metadata_props[graphs.SOURCE_KEY] = f"tiny.py:{line} in forward: {node.op_type}"
    graphs.forget_shapes(model)  # names of output axes in the text are placeholders
    graphs.infer_shapes(model)
    return model


def node_named(model: ir.Model, output: str) -> ir.Node:
    """The node that makes a value."""
    return next(node for node in model.graph if output in [value.name for value in node.outputs])


def ops_of(model: ir.Model) -> list[str]:
    """Operator names in order."""
    return [node.op_type for node in model.graph]


def random_weights(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, Array]:
    """Normal float32 arrays."""
    rng = np.random.default_rng(seed)
    return {name: (rng.standard_normal(shape) / 2).astype(np.float32) for name, shape in shapes.items()}


LOOKUPS = {
    "first": "rows = Slice(table, zero, length, one)",
    "last": "back = Sub(zero, length)  rows = Slice(table, back, end, one)",
    "projected": "rows_in = Slice(table, zero, length, one)  rows = MatMul(rows_in, wp)",
}
"""How the position table is read by the joined length: its first rows, its last rows, or projected first rows."""


def streaming(
    *,
    lookup: str | None = "first",
    mask_input: str | None = "mask",
    in_graph_window: bool = False,
    two_caches: bool = False,
    extra_reader: bool = False,
    batch: str | int = BATCH,
    window: int = WINDOW,
    step: int = STEP,
    body: str = "",
    outputs: str = "",
) -> Lowered:
    """One streaming attention layer.

    Args:
        lookup: key of LOOKUPS, or None for an attention without positions.
        mask_input: name of the mask input, or None when the graph computes it.
        in_graph_window: whether the model cuts its cache itself.
        two_caches: whether keys and values have a cache each.
        extra_reader: whether the cache is joined a second time.
        batch: the batch axis, or a fixed size.
        window: frames of the window.
        step: frames that a call adds.
        body: more lines.
        outputs: more outputs.
    """
    b, s, w = batch, step, WIDTH
    caches = "" if not two_caches else f", float[{b},cache,{w}] past_values"
    more = ("" if not two_caches else f", float[{b},total,{w}] next_past_values") + outputs
    cut = f"next_past = Slice(joined, cut_from, end, one)  # the last {window}" if in_graph_window else ""
    values = f"values = MatMul({'again' if extra_reader else 'normed'}, wv)"
    if two_caches:
        values = "next_past_values = Concat<axis = 1>(past_values, new_values)"
    text = f"""(float[{b},{s},{w}] x, float[{b},cache,{w}] past, float[{b},{w},2] context{caches},
       float[{w},{w}] wq, float[{w},{w}] wk, float[{w},{w}] wv, float[{w},{w}] wp, float[1,{ROWS},{w}] table,
       float[{w}] gamma, float[{w}] beta, float[{w},1,3] kernel)
    => (float[{b},{s},{w}] y, float[{b},kept,{w}] next_past, float[{b},{w},2] next_context{more})
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] end = {{9223372036854775807}},
     int64[1] newest = {{-2}}, int64[1] cut_from = {{-{window}}}>
    {{
        {"joined" if in_graph_window else "next_past"} = Concat<axis = 1>(past, x)
        {cut.split("#")[0]}
        normed = LayerNormalization<axis = -1>(JOINED, gamma, beta)
        keys = MatMul(normed, wk)
        new_values = MatMul(x, wv)
        {"again = Concat<axis = 1>(past, x)" if extra_reader else ""}
        {values}
        query = MatMul(x, wq)
        length = Shape<start = 1, end = 2>(JOINED)
        {LOOKUPS[lookup] if lookup else ""}
        {"keyed = Add(keys, rows)" if lookup else "keyed = Identity(keys)"}
        turned = Transpose<perm = [0, 2, 1]>(keyed)
        scores = MatMul(query, turned)
        weights = Softmax<axis = -1>(scores)
        mixed = MatMul(weights, {"next_past_values" if two_caches else "values"})
        channels = Transpose<perm = [0, 2, 1]>(mixed)
        wide = Concat<axis = 2>(context, channels)
        next_context = Slice(wide, newest, end, two)
        convolved = Conv<group = {w}>(wide, kernel)
        frames = Transpose<perm = [0, 2, 1]>(convolved)
        y = Add(frames, x)
        {body}
    }}"""
    text = text.replace("JOINED", "joined" if in_graph_window else "next_past")
    weights = random_weights(
        dict.fromkeys(("wq", "wk", "wv", "wp"), (w, w))
        | {"table": (1, ROWS, w), "gamma": (w,), "beta": (w,), "kernel": (w, 1, 3)}
    )
    model = parse(text, weights)
    states = [State("past", "next_past", 1, "cache"), State("context", "next_context", None)]
    if two_caches:
        states.append(State("past_values", "next_past_values", 1, "cache"))
    return Lowered(
        "tiny",
        model,
        states=tuple(states),
        caches=(CacheAxis("cache", window, step, "real_length", mask_input),),
        batch_axis=batch if isinstance(batch, str) else None,
    )


def first_call_of(lowered: Lowered) -> ir.Model:
    """The call that starts a stream of `streaming()`: no caches go in, the convolution pads with zeros."""
    step, w = (lowered.caches[0].step if lowered.caches else STEP), WIDTH
    text = f"""(float[{BATCH},{step},{w}] x,
       float[{w},{w}] wq, float[{w},{w}] wk, float[{w},{w}] wv, float[1,{ROWS},{w}] table,
       float[{w}] gamma, float[{w}] beta, float[{w},1,3] kernel)
    => (float[{BATCH},{step},{w}] y, float[{BATCH},kept,{w}] next_past, float[{BATCH},{w},2] next_context)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] end = {{9223372036854775807}},
     int64[1] newest = {{-2}}, int64[6] pads = {{0, 0, 2, 0, 0, 0}}>
    {{
        next_past = Identity(x)
        normed = LayerNormalization<axis = -1>(x, gamma, beta)
        keys = MatMul(normed, wk)
        values = MatMul(normed, wv)
        query = MatMul(x, wq)
        length = Shape<start = 1, end = 2>(x)
        rows = Slice(table, zero, length, one)
        keyed = Add(keys, rows)
        turned = Transpose<perm = [0, 2, 1]>(keyed)
        scores = MatMul(query, turned)
        weights = Softmax<axis = -1>(scores)
        mixed = MatMul(weights, values)
        channels = Transpose<perm = [0, 2, 1]>(mixed)
        wide = Pad<mode = "constant">(channels, pads)
        next_context = Slice(wide, newest, end, two)
        convolved = Conv<group = {w}>(wide, kernel)
        frames = Transpose<perm = [0, 2, 1]>(convolved)
        y = Add(frames, x)
    }}"""
    content = {name: value.const_value.numpy() for name, value in lowered.model.graph.initializers.items()
               if value.const_value is not None}  # fmt: skip
    return parse(text, content)


def copy_of(lowered: Lowered) -> Lowered:
    """The same graph, free to be changed; weight arrays are shared."""
    first = None if lowered.first_call is None else graphs.clone(lowered.first_call)
    return dataclasses.replace(lowered, model=graphs.clone(lowered.model), first_call=first)


def feeds_of(lowered: Lowered, count: int, rows: int = 1, seed: int = 7) -> list[Feed]:
    """Random data feeds: everything that is neither a state nor made by the runner."""
    made = {state.input for state in lowered.states}
    made |= {str(name) for cache in lowered.caches for name in (cache.length_input, cache.mask_input)}
    rng = np.random.default_rng(seed)
    values = [value for value in lowered.model.graph.inputs if value.name not in made]
    return [
        {
            str(value.name): rng.standard_normal(
                [rows if not isinstance(dim, int) else dim for dim in value.shape or ()]
            ).astype(value.dtype.numpy() if value.dtype else np.float32)
            for value in values
        }
        for _ in range(count)
    ]
