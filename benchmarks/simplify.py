"""Compares `simplify` with onnxsim and onnxscript's optimizer: nodes, time, source lines, bits on edge inputs.

    .venv/bin/python -m pip install onnxsim==0.8.1        # left out of the comparison where it is missing
    .venv/bin/python -m benchmarks.simplify

Graphs are those of the zoo; edge cases those of the rules' tests; times are of computing, and include reading back.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import onnxscript.optimizer
from rich.console import Console
from rich.table import Table

from benchmarks import command
from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.graph.stages import Array
from compiler.passes.simplify import simplify_model
from tests.compiler.rewriting.simplification.test_rules import CASES, EDGES
from tests.kit.graphs import parse
from tests.kit.same_bits import same_bits
from tests.zoo.store import GRAPHS, load

Contender = Callable[[ir.Model], ir.Model]


def ours(model: ir.Model) -> ir.Model:
    """Apply `simplify`."""
    simplify_model(model)
    return model


def optimizer(model: ir.Model) -> ir.Model:
    """Apply the optimizer of onnxscript."""
    onnxscript.optimizer.optimize(model)
    return model


def onnxsim(model: ir.Model) -> ir.Model:
    """Apply the package onnxsim, without its own comparison on random inputs."""
    module = importlib.import_module("onnxsim")
    simple, _ = module.simplify(onnx.load_model_from_string(graphs.serialized(_shaped(model))), check_n=0)
    restored: ir.Model = ir.from_proto(simple)
    return restored


def _shaped(model: ir.Model) -> ir.Model:
    """Add the shapes that onnxsim requires of every output."""
    graphs.infer_shapes(model)
    return model


def edge_cases(contender: Contender) -> tuple[int, int]:
    """Return the numbers of edge cases with other bits, and of those that do not run."""
    wrong = failed = 0
    for text in CASES.values():
        model = parse(text)
        expected = run_model(model, {"x": EDGES})
        try:
            got = run_model(contender(graphs.clone(model)), {"x": EDGES})
        except Exception:  # noqa: BLE001 - what a contender raises is its result
            failed += 1
            continue
        try:
            for name, array in expected.items():
                same_bits(got[name], array, name)
        except AssertionError:
            wrong += 1
    return wrong, failed


def stack(nodes: int) -> ir.Model:
    """Return a chain of this many nodes."""
    body = "".join(
        f"a{at} = MatMul(x{at}, w)  b{at} = Add(a{at}, c)  d{at} = Identity(b{at})  e{at} = Mul(d{at}, k)"
        f"  x{at + 1} = Relu(e{at})\n"
        for at in range(nodes // 5)
    )
    weights: dict[str, Array] = {
        "w": np.eye(4, dtype=np.float32) / 2,
        "c": np.ones(4, np.float32),
        "k": np.array(1.5, np.float32),
    }
    text = f"(float[n,4] x0, float[4,4] w, float[4] c, float k) => (float[n,4] x{nodes // 5}) {{ {body} }}"
    return parse(text, weights)


def main(arguments: list[str] | None = None) -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=1000, help="of the zoo, in order of their names")
    parser.add_argument("--nodes", type=int, default=10_000, help="of the chain")
    parser.add_argument("--only", action="append", help="one contender")
    options = parser.parse_args(arguments)
    contenders: dict[str, Contender] = {"simplify": ours, "onnxscript": optimizer}
    if importlib.util.find_spec("onnxsim") is not None:
        contenders["onnxsim"] = onnxsim
    if unknown := [title for title in options.only or () if title not in contenders]:
        parser.error(f"--only: expected of {', '.join(contenders)}, got {', '.join(map(repr, unknown))}")
    names = sorted(path.name.split(".")[0] for path in GRAPHS.glob("*.xz"))[: options.graphs]
    chosen = {title: contenders[title] for title in options.only or contenders}
    table = Table("contender", "nodes before", "nodes left", "s", "source lines", "failed", "edge cases: other bits",
                  "edge cases: fail", f"{options.nodes} nodes, s")  # fmt: skip
    for title, contender in chosen.items():
        before = left = sourced = failed = 0
        spent = 0.0
        for name in names:
            model = load(name)
            before += len(model.graph)
            started = time.process_time()
            try:
                simple = contender(model)
            except Exception:
                if contender is ours:
                    raise
                failed += 1  # what another contender raises is its result
                continue
            spent += time.process_time() - started
            left += len(simple.graph)
            sourced += sum(bool(graphs.source_of(node)) for node in simple.graph)
        wrong, broken = edge_cases(contender)
        large = stack(options.nodes)
        started = time.process_time()
        with command.contender(title):
            contender(large)
        row = [before, left, f"{spent:.1f}", f"{sourced / max(left, 1):.1%}", failed, f"{wrong} of {len(CASES)}",
               broken,
               f"{time.process_time() - started:.1f}"]  # fmt: skip
        table.add_row(title, *map(str, row))
    Console(width=160).print(table)
    return 0


if __name__ == "__main__":
    command.run(main)
