"""Random graphs of the kinds of layers that forms rewrite: with all forms they must give what they gave without.

`python -m tests.property.forms --graphs 2000` draws many; the tests draw a few.
"""

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.graph.stages import Array, Lowered
from compiler.passes.fold_factors import FoldFactors
from compiler.passes.split_hidden_channels import BLOCK
from compiler.targets.formed_graphs import apply_variants
from compiler.targets.forms import Variant
from compiler.targets.onnx_static import OnnxStatic
from runtime_lite.format.cache_axis import CacheAxis

FRAMES, WIDTH, SLOTS = 6, 16, 4
LIMIT = 2e-5
"""Of a difference, relative where values are large."""


class Net:
    """A graph on its way: values [batch, frames, width], and the same with the last two axes swapped.

    Args:
        seed: of everything that is drawn.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        x = ir.Value(name="x", shape=ir.Shape(["batch", FRAMES, WIDTH]), type=ir.TensorType(ir.DataType.FLOAT))
        at = ir.Value(name="at", shape=ir.Shape(["batch", FRAMES]), type=ir.TensorType(ir.DataType.INT64))
        past = ir.Value(name="past", shape=ir.Shape(["batch", SLOTS, WIDTH]), type=ir.TensorType(ir.DataType.FLOAT))
        length = ir.Value(name="length", shape=ir.Shape(["batch"]), type=ir.TensorType(ir.DataType.INT64))
        self.graph = ir.Graph([x, at, past, length], [], nodes=[], opset_imports={"": 20}, name="net")
        self.model = ir.Model(self.graph, ir_version=10)
        self.insert = graphs.Inserter(self.model, "net")
        self.values, self.at, self.past, self.length = [x], at, past, length

    def weights(self, *shape: int) -> ir.Value:
        """Drawn once and for all."""
        return self.insert.constant((self.rng.standard_normal(shape) / 4).astype(np.float32), "weights")

    def op(self, op: str, *inputs: ir.Value | None, **attributes: int | tuple[int, ...]) -> ir.Value:
        """One node."""
        return self.insert.op(op, inputs, attributes, name=op.lower(), dtype=ir.DataType.FLOAT)

    def pick(self) -> ir.Value:
        """A value, recent ones more often."""
        return self.values[-1 - int(self.rng.integers(min(3, len(self.values))))]

    def turned(self, value: ir.Value) -> ir.Value:
        """Frames and channels swapped."""
        return self.op("Transpose", value, perm=(0, 2, 1))

    def dense(self, value: ir.Value) -> ir.Value:
        """A product, often with a bias and a factor."""
        wide = int(self.rng.choice([WIDTH, 2 * WIDTH]))
        found = self.op("MatMul", value, self.weights(WIDTH, wide))
        if self.rng.random() < 0.7:
            found = self.op("Add", found, self.weights(*[(wide,), (1, wide)][self.rng.integers(2)]))
        if self.rng.random() < 0.6:
            found = self.scaled(found)
        return found if wide == WIDTH else self.gate(found, 2)

    def wide(self, value: ir.Value) -> ir.Value:
        """Two blocks of hidden channels between two products."""
        hidden = 2 * BLOCK
        found = self.op("MatMul", value, self.insert.constant(self.small(WIDTH, hidden), "weights"))
        found = self.op("Relu", self.op("Add", found, self.weights(hidden)))
        return self.op("MatMul", found, self.insert.constant(self.small(hidden, WIDTH), "weights"))

    def small(self, *shape: int) -> Array:
        """Weights of many channels."""
        return (self.rng.standard_normal(shape) / 32).astype(np.float32)

    def image(self, value: ir.Value) -> ir.Value:
        """A convolution over frames and channels, flattened for a product."""
        found = self.op("Unsqueeze", value, self.insert.int64s(1))
        found = self.op("Conv", found, self.weights(3, 1, 3, 4), self.weights(3), pads=(1, 0, 1, 0), strides=(1, 4))
        found = self.op("Transpose", self.op("Relu", found), perm=(0, 2, 1, 3))
        flat = self.op("Reshape", found, self.insert.int64s(0, FRAMES, 3 * WIDTH // 4))
        return self.op("MatMul", flat, self.weights(3 * WIDTH // 4, WIDTH))

    def scaled(self, value: ir.Value) -> ir.Value:
        """Times a number."""
        number = self.insert.constant(np.array(self.rng.choice([0.5, 4.0, 0.3, -2.0]), np.float32), "number")
        return self.op(str(self.rng.choice(["Mul", "Div"])), value, number)

    def gate(self, value: ir.Value, axis: int) -> ir.Value:
        """Half of the channels times a sigmoid of the others."""
        halves = [ir.Value(name=graphs.fresh_name(self.graph, "half"), type=value.type) for _ in range(2)]
        self.insert.place(ir.node("Split", [value], {"axis": axis, "num_outputs": 2}, outputs=halves))
        return self.op("Mul", halves[0], self.op("Sigmoid", halves[1]))

    def pointwise(self, value: ir.Value) -> ir.Value:
        """A convolution over one place, with a gate."""
        found = self.op("Conv", self.turned(value), self.weights(2 * WIDTH, WIDTH, 1), self.weights(2 * WIDTH))
        return self.turned(self.gate(found, 1))

    def depthwise(self, value: ir.Value) -> ir.Value:
        """A causal depthwise convolution behind a context that is joined in front."""
        context = self.op("Slice", self.turned(self.pick()), *(self.insert.int64s(at) for at in (1, 3, 2)))
        joined = self.op("Concat", context, self.turned(value), axis=2)
        found = self.op("Conv", joined, self.weights(WIDTH, 1, 3), self.weights(WIDTH), group=WIDTH)
        if self.rng.random() < 0.5:
            kept = self.op("Slice", joined, *(self.insert.int64s(at) for at in (-FRAMES, graphs.END, 2)))
            found = self.op("Add", found, kept)
        return self.turned(found)

    def attention(self, value: ir.Value) -> ir.Value:
        """Two heads, scores by content and by positions that every row looks up, divided by a number."""
        split, order = self.insert.int64s(0, FRAMES, 2, WIDTH // 2), (0, 2, 1, 3)
        query = self.op("Add", self.op("MatMul", value, self.weights(WIDTH, WIDTH)), self.weights(WIDTH))
        query = self.op(
            "Transpose", self.op("Add", self.op("Reshape", query, split), self.weights(2, WIDTH // 2)), perm=order
        )
        keys = self.op("Transpose", self.op("Reshape", self.pick(), split), perm=(0, 2, 3, 1))
        rows = self.op("Gather", self.weights(FRAMES, WIDTH), self.at, axis=0)
        places = self.op("Transpose", self.op("Reshape", rows, split), perm=(0, 2, 3, 1))
        scores = self.op("Add", self.op("MatMul", query, keys), self.op("MatMul", query, places))
        scores = self.op("Softmax", self.scaled(scores), axis=-1)
        heard = self.op("MatMul", scores, self.op("Transpose", keys, perm=(0, 1, 3, 2)))
        return self.op("Reshape", self.op("Transpose", heard, perm=order), self.insert.int64s(0, FRAMES, WIDTH))

    def remembering(self, value: ir.Value) -> ir.Value:
        """Scores of cached frames and of new ones, whose free slots are filled and hidden; some sum cached frames."""
        first = self.insert.op("Sub", [self.insert.int64s(SLOTS), self._wide(self.length, 1)], name="first")
        seen, valid = (self._since(first, count) for count in (SLOTS + FRAMES, SLOTS))
        nought, lowest = (self.insert.constant(np.array(each, np.float32), "number") for each in (0.0, -np.inf))
        clean = self.op("Where", self._wide(valid, 2), self.past, nought)
        keys = self.op("Concat", clean, value, axis=1)
        scores = self.op("MatMul", self.op("Tanh", value), self.turned(keys))
        scores = self.op("Where", self._wide(seen, 1), scores, lowest)
        shares = self.op("Softmax", scores, axis=-1)
        if self.rng.random() < 0.3:
            return self.op("MatMul", shares, keys)
        newest = self.op("Slice", shares, *(self.insert.int64s(at) for at in (SLOTS, graphs.END, 2)))
        return self.op("MatMul", newest, value)

    def _wide(self, value: ir.Value, axis: int) -> ir.Value:
        """A value of any type with one more axis."""
        return self.insert.op("Unsqueeze", [value, self.insert.int64s(axis)], name="wide")

    def _since(self, first: ir.Value, count: int) -> ir.Value:
        """Return which of `count` positions are at or after `first`, bool [batch, count]."""
        places = self.insert.constant(np.arange(count).reshape(1, count), "places")
        return self.insert.op("GreaterOrEqual", [places, first], name="seen", dtype=ir.DataType.BOOL)

    def entrywise(self, value: ir.Value) -> ir.Value:
        """A sum, an activation or a normalisation."""
        kind = self.rng.integers(4)
        if kind == 0:
            return self.op("Add", value, self.pick())
        if kind == 1:
            return self.op("LayerNormalization", value, self.weights(WIDTH), self.weights(WIDTH), axis=-1)
        if kind == 2:
            return self.turned(self.op("Add", self.turned(value), self.weights(WIDTH, 1)))
        return self.op(str(self.rng.choice(["Tanh", "Neg", "Relu"])), value)

    def grow(self) -> None:
        """One more layer."""
        layers: list[Callable[[ir.Value], ir.Value]] = [
            self.dense, self.pointwise, self.depthwise, self.attention, self.wide, self.image,
            self.remembering, self.entrywise, self.entrywise,
        ]  # fmt: skip
        found = layers[int(self.rng.integers(len(layers)))](self.pick())
        self.values.append(self.op("Tanh", found) if self.rng.random() < 0.3 else found)


def grown(seed: int) -> ir.Model:
    """A graph of 2 to 7 layers; the last value and one other are outputs."""
    net = Net(seed)
    for _ in range(int(net.rng.integers(2, 8))):
        net.grow()
    for at, value in enumerate(dict.fromkeys((net.values[-1], net.pick()))):
        net.graph.outputs.append(net.op("Identity", value))
        net.graph.outputs[at].name = f"y{at}"
    graphs.infer_shapes(net.model)
    return net.model


REWRITES = (Variant(FoldFactors()), *OnnxStatic.offers)
"""Forms, and the pass in front of them that a recipe runs."""


def lowered(model: ir.Model) -> Lowered:
    """The record of a graph."""
    cache = CacheAxis("cache", SLOTS, FRAMES, "length", None)
    return Lowered("net", model, caches=(cache,), batch_axis="batch", is_padded=True)


def drawn_plan(seed: int) -> tuple[Variant, ...]:
    """Every other time all forms, else some of them."""
    rng = np.random.default_rng(seed)
    return tuple(form for form in REWRITES if seed % 2 == 0 or rng.random() < 0.6)


def changes(seed: int) -> dict[str, int]:
    """How many places each form of the drawn plan changes in one graph."""
    outcomes = apply_variants(drawn_plan(seed), lowered(grown(seed))).outcomes
    return {outcome.variant: outcome.rewritten for outcome in outcomes}


def differences(seed: int) -> tuple[list[str], int]:
    """The outputs of one graph that differ, and how many places forms have changed."""
    model = grown(seed)
    found = apply_variants(drawn_plan(seed), lowered(graphs.clone(model)))
    rng, wrong = np.random.default_rng(seed), []
    for rows, is_full in ((1, False), (3, False), (2, True)):
        x = rng.standard_normal((rows, FRAMES, WIDTH)).astype(np.float32)
        x[rng.random(x.shape) < 0.02] = rng.choice(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32))
        length = np.full(rows, SLOTS) if is_full else rng.integers(0, SLOTS + 1, rows)
        past = rng.standard_normal((rows, SLOTS, WIDTH)).astype(np.float32)
        past[np.arange(SLOTS) < SLOTS - length[:, None]] = rng.choice([np.nan, np.inf, 1e30])
        feeds: dict[str, Array] = {
            "x": x, "at": rng.integers(0, FRAMES, (rows, FRAMES)), "past": past, "length": length,
        }  # fmt: skip
        before = run_model(model, _read(model, feeds))
        after = run_model(found.lowered.model, _read(found.lowered.model, feeds))
        wrong += [name for name in before if not _alike(before[name], after[name])]
    return wrong, sum(outcome.rewritten for outcome in found.outcomes)


def _read(model: ir.Model, feeds: dict[str, Array]) -> dict[str, Array]:
    return {name: feeds[name] for name in graphs.inputs_named(model)}


def _alike(a: Array, b: Array) -> bool:
    """NaN in the same places, infinities of one sign, and numbers that are near."""
    return bool(np.allclose(a, b, rtol=LIMIT, atol=LIMIT, equal_nan=True))


def main(arguments: list[str] | None = None) -> int:
    """Draw graphs and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(arguments)
    started, wrong, changed = time.monotonic(), 0, 0
    for seed in range(options.first, options.first + options.graphs):
        found, rewritten = differences(seed)
        changed += rewritten
        if found:
            wrong += 1
            print(f"seed {seed}: {', '.join(found)} differ")
    print(f"{options.graphs} graphs, {changed} places, {wrong} different, {time.monotonic() - started:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
