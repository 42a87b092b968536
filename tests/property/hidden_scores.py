"""Random trees of masks in front of a softmax: where `legalize_scores` bounds them, no bit changes at any length.

`python -m tests.property.hidden_scores --graphs 5000` draws many; the tests draw a few.
"""

import argparse
import sys
import time

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.runners.session import session_of
from compiler.graph.stages import Array, Lowered
from compiler.passes.legalize_scores import LegalizeScores
from runtime_lite.format.cache_axis import CacheAxis

QUERIES, SLOTS, NEW = 2, 3, 2
KEYS = SLOTS + NEW
FILLS = (-np.inf, -np.inf, -np.inf, -65504.0, -1e4, -3e4, 0.0, 5.0)


class Masked:
    """One random graph: scores [batch, queries, keys] of data, hidden by what follows from lengths, tables and data.

    Args:
        seed: of everything that is drawn.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.kind = ir.DataType.FLOAT16 if self.rng.random() < 0.7 else ir.DataType.FLOAT
        shape = ir.Shape(["batch", QUERIES, KEYS])
        self.data = ir.Value(name="data", shape=shape, type=ir.TensorType(self.kind))
        self.length = ir.Value(name="length", shape=ir.Shape(["batch"]), type=ir.TensorType(ir.DataType.INT64))
        graph = ir.Graph([self.data, self.length], [], nodes=[], opset_imports={"": 20}, name="masked")
        self.model = ir.Model(graph, ir_version=10)
        self.insert = graphs.Inserter(self.model, "masked")
        scores = self.tree(int(self.rng.integers(1, 5)))
        self.insert.op("Softmax", [scores], {"axis": -1}, name="y", dtype=self.kind)
        graph.outputs.append(graph[-1].outputs[0])
        graphs.infer_shapes(self.model)

    def lowered(self) -> Lowered:
        """The graph with its record."""
        cache = CacheAxis("cache", SLOTS, NEW, "length", None)
        return Lowered("masked", self.model, caches=(cache,), batch_axis="batch", is_padded=True)

    def op(self, op: str, *inputs: ir.Value) -> ir.Value:
        """One node that gives scores."""
        return self.insert.op(op, inputs, name=op.lower(), dtype=self.kind)

    def number(self, *shape: int) -> ir.Value:
        """Numbers that scores are hidden by, and others."""
        return self.insert.constant(self.rng.choice(FILLS, size=shape).astype(self.kind.numpy()), "fill")

    def table(self) -> ir.Value:
        """Numbers of places."""
        return self.number(*[(KEYS,), (QUERIES, KEYS), (1, QUERIES, 1)][int(self.rng.integers(3))])

    def tree(self, depth: int) -> ir.Value:
        """Return scores that are masked `depth` times."""
        if not depth:
            return self.data
        inner, draw = self.tree(depth - 1), self.rng.random()
        if draw < 0.4:
            return self.op("Where", self.condition(), *self.either(inner, self.number()))
        if draw < 0.6:
            zero = self.insert.constant(np.zeros((), self.kind.numpy()), "zero")
            return self.op("Add", inner, self.op("Where", self.condition(), *self.either(zero, self.number())))
        if draw < 0.75:
            return self.op("Add", inner, self.table())
        if draw < 0.85:
            return self.op("Mul", inner, self.insert.constant(np.array(0.5, self.kind.numpy()), "half"))
        return self.op("Min" if self.rng.random() < 0.7 else "Max", inner, self.table())

    def either(self, one: ir.Value, other: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Both, in some order, mostly this one."""
        return (one, other) if self.rng.random() < 0.7 else (other, one)

    def condition(self) -> ir.Value:
        """Places that are valid, or in a table, or loud, or two of these."""
        draw = self.rng.random()
        if draw < 0.45:
            return self.valid()
        if draw < 0.8:
            drawn = self.rng.random([(KEYS,), (QUERIES, KEYS)][int(self.rng.integers(2))]) < 0.7
            return self.insert.constant(drawn, "table")
        if draw < 0.85:
            zero = self.insert.constant(np.zeros((), self.kind.numpy()), "zero")
            return self.boolean("Greater", self.data, zero)
        return self.boolean("And" if self.rng.random() < 0.5 else "Or", self.condition(), self.condition())

    def valid(self) -> ir.Value:
        """Slots that hold a frame, and new places."""
        column = self.insert.op("Reshape", [self.length, self.insert.int64s(-1, 1, 1)], name="ages")
        slots = self.insert.constant(np.array(SLOTS), "slots")
        first = self.insert.op("Sub", [slots, column], name="first")
        places = self.insert.constant(np.arange(KEYS)[np.newaxis, np.newaxis], "places")
        return self.boolean("GreaterOrEqual", places, first)

    def boolean(self, op: str, *inputs: ir.Value) -> ir.Value:
        """One node that gives a condition."""
        return self.insert.op(op, inputs, name=op.lower(), dtype=ir.DataType.BOOL)

    def feeds(self) -> dict[str, Array]:
        """A row of every age, loud or not."""
        scale = float(self.rng.choice([1.0, 30.0, 1e4]))
        drawn = self.rng.standard_normal((SLOTS + 1, QUERIES, KEYS)).clip(-3, 3) * scale
        return {"data": drawn.astype(self.kind.numpy()), "length": np.arange(SLOTS + 1)}


def changed(seed: int) -> tuple[bool, str]:
    """Whether a graph was rewritten, and what is wrong with what came of it; empty where no bit changed."""
    masked = Masked(seed)
    lowered = masked.lowered()
    before = session_of(graphs.clone(masked.model))
    outcome = LegalizeScores((("batch", SLOTS + 1),)).apply(lowered)
    after = session_of(outcome.lowered.model)
    for _ in range(3):
        fed = masked.feeds()
        one, other = (session.run(None, fed)[0] for session in (before, after))
        if one.tobytes() != other.tobytes():
            return bool(outcome.rewritten), f"seed {seed}: expected {one.tolist()}, got {other.tolist()} for {fed}"
    return bool(outcome.rewritten), ""


def main(arguments: list[str]) -> int:
    """Draw graphs; the number of those with other bits."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.hidden_scores", description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    started, failed, rewritten = time.perf_counter(), 0, 0
    for seed in range(options.seed, options.seed + options.graphs):
        is_rewritten, wrong = changed(seed)
        rewritten += is_rewritten
        failed += bool(wrong)
        if wrong:
            print(wrong, flush=True)
    took = time.perf_counter() - started
    print(f"{options.graphs} graphs, {rewritten} rewritten, {failed} with other bits, {took:.0f} s")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
