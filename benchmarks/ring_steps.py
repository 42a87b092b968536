"""Times a push of a stream whose window every call replaces, and of the same model with a ring.

    python -m benchmarks.ring_steps

Layers of attention over keys and values of the newest frames, as a bundle in the runtime: a push computes four frames.
Pushes of both streams alternate, with full caches, on one thread; times are CPU time of the process.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
from rich.console import Console
from rich.table import Table

from benchmarks import command
from compiler.graph import model as graphs
from compiler.graph.stages import Array, Lowered, State
from compiler.passes import make_pass
from runtime_lite import Runtime, Stream
from runtime_lite.format.cache_axis import CacheAxis
from tests.property.ring_steps import write_step

STEP, HEADS, ROUNDS = 4, 4, 60

LAYER = """
    n_{i} = LayerNormalization<axis = -1>(x_{i}, gain)  q_{i} = MatMul(n_{i}, wq_{i})
    k_{i} = MatMul(n_{i}, wk_{i})  v_{i} = MatMul(n_{i}, wv_{i})
    next_keys_{i} = Concat<axis = 1>(keys_{i}, k_{i})  next_values_{i} = Concat<axis = 1>(values_{i}, v_{i})
    qs_{i} = Reshape(q_{i}, apart)  qh_{i} = Transpose<perm = [0, 2, 1, 3]>(qs_{i})
    ks_{i} = Reshape(next_keys_{i}, apart)  kt_{i} = Transpose<perm = [0, 2, 3, 1]>(ks_{i})
    vs_{i} = Reshape(next_values_{i}, apart)  vh_{i} = Transpose<perm = [0, 2, 1, 3]>(vs_{i})
    raw_{i} = MatMul(qh_{i}, kt_{i})  scaled_{i} = Mul(raw_{i}, scale)  p_{i} = Softmax<axis = -1>(scaled_{i})
    m_{i} = MatMul(p_{i}, vh_{i})  mt_{i} = Transpose<perm = [0, 2, 1, 3]>(m_{i})  mj_{i} = Reshape(mt_{i}, together)
    y_{i} = Add(x_{i}, mj_{i})  u_{i} = MatMul(y_{i}, wu_{i})  r_{i} = Relu(u_{i})  d_{i} = MatMul(r_{i}, wd_{i})
    x_{next} = Add(y_{i}, d_{i})"""


def model_of(slots: int, layers: int, width: int) -> Lowered:
    """Return the step in the form after capture."""
    random = np.random.default_rng(0)
    shapes = {f"w{which}_{i}": (width, width) for i in range(layers) for which in "qkv"}
    shapes |= {f"wu_{i}": (width, 2 * width) for i in range(layers)}
    shapes |= {f"wd_{i}": (2 * width, width) for i in range(layers)}
    weights = {name: random.standard_normal(each).astype(np.float32) / width**0.5 for name, each in shapes.items()}
    weights |= {"gain": np.ones(width, np.float32), "scale": np.array((width / HEADS) ** -0.5, np.float32)}
    names = [f"{kind}_{i}" for i in range(layers) for kind in ("keys", "values")]
    given = "".join(f", float[batch,cache,{width}] {name}" for name in names)
    results = "".join(f", float[batch,all,{width}] next_{name}" for name in names)
    nodes = "".join(LAYER.format(i=i, next=i + 1) for i in range(layers))
    model = ir.from_onnx_text(
        f"""<ir_version: 10, opset_import: ["" : 20]>
        step (float[batch,{STEP},{width}] x_0{given}) => (float[batch,{STEP},{width}] y{results})
        <int64[4] apart = {{0, 0, {HEADS}, {width // HEADS}}}, int64[3] together = {{0, 0, {width}}}>
        {{ {nodes} y = Identity(x_{layers}) }}""".replace("step (", f"step ({_weights(weights)}, ")
    )
    inputs = graphs.inputs_named(model)
    for name, array in weights.items():
        inputs[name].const_value = ir.tensor(array, name=name)
        model.graph.initializers[name] = inputs[name]
    model.graph.inputs[:] = [value for value in model.graph.inputs if value.name not in weights]
    graphs.infer_shapes(model)
    states = tuple(State(name, f"next_{name}", 1, "cache") for name in names)
    cache = CacheAxis("cache", slots, STEP, "length", None)
    return Lowered("net", model, states=states, caches=(cache,), batch_axis="batch", data_outputs=("y",))


def _weights(weights: Mapping[str, Array]) -> str:
    return ", ".join(f"float[{','.join(map(str, array.shape))}] {name}" for name, array in weights.items())


def times_of(
    streams: Mapping[str, Stream], feed: Mapping[str, Array], fill: int, rounds: int
) -> dict[str, list[float]]:
    """Return CPU milliseconds of each push by stream, in turn, after pushes that fill the caches."""
    found: dict[str, list[float]] = {name: [] for name in streams}
    for number in range(fill + rounds):
        for name, stream in streams.items():
            started = time.process_time()
            stream.push(feed)
            if number >= fill:
                found[name].append(1e3 * (time.process_time() - started))
    return found


def measured(slots: int, layers: int, width: int, rows: int, rounds: int) -> dict[str, list[float]]:
    """Return milliseconds of each push with a window and with a ring, equally many of both."""
    kinds: dict[str, Sequence[str]] = {"window": ("simplify",), "ring": ("overwrite_states", "simplify")}
    feed = {"x_0": np.random.default_rng(1).standard_normal((rows, STEP, width)).astype(np.float32)}
    with tempfile.TemporaryDirectory() as folder, Runtime() as runtime:
        streams = {}
        for kind, passes in kinds.items():
            lowered = model_of(slots, layers, width)
            for name in ("simplify", "pad_axes", "window_states", *passes):
                lowered = make_pass(name, {}).apply(lowered).lowered
            path = write_step(Path(folder) / kind, lowered, {"batch": (rows,)})
            streams[kind] = runtime.load(str(path)).open_stream(rows=rows)
        return times_of(streams, feed, slots // STEP + 5, rounds)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description="A push with a window, and with a ring.")
    parser.add_argument("--slots", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    table = Table("slots", "rows", "window, ms", "ring, ms", "ring / window")
    for slots in options.slots:
        for rows in options.rows:
            with command.contender(f"{slots} slots"):
                found = measured(slots, options.layers, options.width, rows, options.rounds)
            ratios = np.divide(found["ring"], found["window"])
            low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
            times = (f"{np.median(found[kind]):.2f}" for kind in ("window", "ring"))
            table.add_row(str(slots), str(rows), *times, f"{middle:.2f} ({low:.2f}..{high:.2f})")
    Console(width=100).print(table)


if __name__ == "__main__":
    command.run(main)
