"""A streaming graph of twelve layers and small width: deep enough for errors to accumulate and to hide a defect.

layer:  y = x + softmax(query(n) keys(cache ++ n)') values(cache ++ n),  n = norm(x);   x = y + down(relu(up(y)))
"""

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.forced_values import Bench
from compiler.graph.runners.instrumented import exposed
from compiler.graph.runners.stream import OriginalCall, chained_steps
from compiler.graph.stages import Array, Feed, Lowered, State
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.graphs import node_named, parse

LAYERS, WIDTH, STEP, WINDOW = 12, 16, 4, 8

LAYER = """
    normed_{i} = LayerNormalization<axis = -1>(x_{i}, gain, bias)
    next_cache_{i} = Concat<axis = 1>(cache_{i}, normed_{i})
    query_{i} = MatMul(normed_{i}, wq_{i})
    key_{i} = MatMul(next_cache_{i}, wk_{i})
    value_{i} = MatMul(next_cache_{i}, wv_{i})
    turned_{i} = Transpose<perm = [0, 2, 1]>(key_{i})
    scores_{i} = MatMul(query_{i}, turned_{i})
    scaled_{i} = Mul(scores_{i}, quarter)
    weights_{i} = Softmax<axis = -1>(scaled_{i})
    mixed_{i} = MatMul(weights_{i}, value_{i})
    y_{i} = Add(x_{i}, mixed_{i})
    up_{i} = MatMul(y_{i}, wu_{i})
    active_{i} = Relu(up_{i})
    down_{i} = MatMul(active_{i}, wd_{i})
    x_{next} = Add(y_{i}, down_{i})"""


def deep_model(layers: int = LAYERS) -> ir.Model:
    """The graph with random weights of a fixed seed; every node has a source line `tiny.py:N in forward: Op`."""
    rng = np.random.default_rng(1)
    weights: dict[str, Array] = {
        "gain": np.ones(WIDTH, np.float32),
        "bias": np.zeros(WIDTH, np.float32),
        "quarter": np.array(WIDTH**-0.5, np.float32),
        "wo": _matrix(rng, WIDTH, WIDTH),
    }
    for i in range(layers):
        for name in ("wq", "wk", "wv"):
            weights[f"{name}_{i}"] = _matrix(rng, WIDTH, WIDTH)
        weights[f"wu_{i}"], weights[f"wd_{i}"] = _matrix(rng, WIDTH, 2 * WIDTH), 0.5 * _matrix(rng, 2 * WIDTH, WIDTH)
    text = "".join(LAYER.format(i=i, next=i + 1) for i in range(layers))
    caches = "".join(f", float[batch,cache,{WIDTH}] cache_{i}" for i in range(layers))
    nexts = "".join(f", float[batch,joined,{WIDTH}] next_cache_{i}" for i in range(layers))
    given = "".join(f", float[{','.join(map(str, array.shape))}] {name}" for name, array in weights.items())
    return parse(
        f"(float[batch,{STEP},{WIDTH}] x_0{caches}{given}) => (float[batch,{STEP},{WIDTH}] logits{nexts})"
        f" {{ {text} logits = MatMul(x_{layers}, wo) }}",
        weights,
    )


def _matrix(rng: np.random.Generator, rows: int, columns: int) -> Array:
    return np.asarray(rng.standard_normal((rows, columns)) / np.sqrt(rows), np.float32)


def deep_stream(layers: int = LAYERS) -> Lowered:
    """Its record: caches that grow, with 8 slots each."""
    states = tuple(State(f"cache_{i}", f"next_cache_{i}", 1, "cache") for i in range(layers))
    return Lowered(
        "net", deep_model(layers), None, states, (CacheAxis("cache", WINDOW, STEP, "length", None),), "batch"
    )


def steps_of(lowered: Lowered, count: int = 6, seed: int = 3) -> list[OriginalCall]:
    """What a graph answers on random chunks, as the original's calls."""
    runner = runner_of(lowered)
    chunks = np.random.default_rng(seed).standard_normal((count, 1, STEP, WIDTH)).astype(np.float32)

    def run(feeds: Sequence[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        for feed in feeds:
            outputs = runner.step(feed)
            yield outputs, dict(runner.states)

    return chained_steps(run, [{"x_0": chunk} for chunk in chunks], count)  # type: ignore[arg-type]


# Defects; each spoils the graph in place


def change_weight(model: ir.Model, name: str, factor: float = 1.02) -> None:
    """Every number of a weight is off by a factor."""
    value = model.graph.initializers[name]
    array = graphs.array_of(value)
    assert array is not None
    value.const_value = ir.tensor((array * np.float32(factor)).astype(array.dtype), name=name)


def change_axis(model: ir.Model, output: str, axis: int) -> None:
    """A softmax over the wrong axis."""
    node_named(model, output).attributes["axis"] = ir.AttrInt64("axis", axis)


def behind(model: ir.Model, output: str, op: str, operand: Array, name: str) -> ir.Value:
    """Put `op(value, operand)` in the place of a value, under a new name."""
    node = node_named(model, output)
    value = node.outputs[0]
    uses = list(value.uses())
    insert = graphs.Inserter(model, "test", after=node)
    changed = insert.op(op, [value, insert.constant(operand, "operand")], name=name, shape=value.shape)
    for use in uses:
        use.node.replace_input_with(use.idx, changed)
    return changed


def round_to_bits(model: ir.Model, output: str, bits: int, *, low: float = -4.0, high: float = 4.0) -> None:
    """Quantise a value to `bits` bits of a range, and clip it to the range; its readers read the result."""
    node = node_named(model, output)
    value = node.outputs[0]
    uses = list(value.uses())
    insert = graphs.Inserter(model, "test", after=node)
    step = np.array((high - low) / (2**bits - 1), np.float32)
    scale, shift = insert.constant(step, "step"), insert.constant(np.array(low, np.float32), "low")
    ends = [insert.constant(np.array(end, np.float32), "end") for end in (low, high)]
    shape, kind = value.shape, value.dtype
    clipped = insert.op("Clip", [value, *ends], name=f"{output}_clipped", shape=shape, dtype=kind)
    shifted = insert.op("Sub", [clipped, shift], name=f"{output}_shifted", shape=shape)
    counted = insert.op("Div", [shifted, scale], name=f"{output}_counted", shape=shape)
    rounded = insert.op("Round", [counted], name=f"{output}_rounded", shape=shape)
    back = insert.op("Mul", [rounded, scale], name=f"{output}_back", shape=shape)
    moved = insert.op("Add", [back, shift], name=f"{output}_moved", shape=shape)
    for use in uses:
        use.node.replace_input_with(use.idx, moved)


def in_int8(model: ir.Model, ranges: dict[str, float]) -> None:
    """Both operands of every product with a weight in int8; `ranges` has the largest value of each left operand."""
    for node in list(model.graph):
        if node.op_type != "MatMul" or graphs.array_of(node.inputs[1]) is None:
            continue
        for index, value in enumerate(node.inputs):
            assert value is not None
            array = graphs.array_of(value)
            high = ranges[str(value.name)] if array is None else float(np.max(np.abs(array)))
            insert = graphs.Inserter(model, "test", before=node)
            scale = insert.constant(np.array(high / 127, np.float32), f"{value.name}_scale")
            zero = insert.constant(np.array(0, np.int8), "zero")
            stem = f"{value.name}_for_{node.name}"
            small = insert.op("QuantizeLinear", [value, scale, zero], name=f"{stem}_int8", dtype=ir.DataType.INT8)
            back = insert.op("DequantizeLinear", [small, scale, zero], name=f"{stem}_back", dtype=ir.DataType.FLOAT)
            node.replace_input_with(index, back)


def largest_values(lowered: Lowered, steps: Sequence[OriginalCall]) -> dict[str, float]:
    """The largest absolute value of everything that the graph computes or is fed, over some calls."""
    names = [str(output.name) for node in lowered.model.graph for output in node.outputs]
    bench = Bench(exposed(lowered, names))
    found: dict[str, float] = {}
    for step in steps:
        for name, array in {**step.feed, **bench.call(step.feed)}.items():
            found[name] = max(found.get(name, 0.0), float(np.max(np.abs(array), initial=0.0)))
    return found


def in_half(model: ir.Model) -> None:
    """All of the graph in float16, but for what goes in and comes out."""
    graph = model.graph
    for name, value in graph.initializers.items():
        array = graphs.array_of(value)
        if array is not None and array.dtype == np.float32:
            with np.errstate(over="ignore"):  # what masks fill with is infinite then
                value.const_value = ir.tensor(array.astype(np.float16), name=name)
            value.dtype = ir.DataType.FLOAT16
    for node in graph:
        for output in node.outputs:
            if output.dtype == ir.DataType.FLOAT:
                output.dtype = ir.DataType.FLOAT16
    first = next(iter(graph))
    insert = graphs.Inserter(model, "test", before=first)
    for value in list(graph.inputs):
        if value.dtype == ir.DataType.FLOAT:
            uses = list(value.uses())
            half = insert.op(
                "Cast", [value], {"to": 10}, name=f"{value.name}_half", shape=value.shape, dtype=ir.DataType.FLOAT16
            )
            for use in uses:
                use.node.replace_input_with(use.idx, half)
    insert = graphs.Inserter(model, "test")
    for value in list(graph.outputs):
        wide = insert.op(
            "Cast", [value], {"to": 1}, name=f"{value.name}_wide", shape=value.shape, dtype=ir.DataType.FLOAT
        )
        graphs.take_over(model, value, wide, except_in=[use.node for use in value.uses()])


def round_weights(model: ir.Model) -> None:
    """Every weight keeps eleven bits: each product is off by a little."""
    for name, value in model.graph.initializers.items():
        array = graphs.array_of(value)
        if array is not None and array.ndim == 2:
            value.const_value = ir.tensor(array.astype(np.float16).astype(np.float32), name=name)
