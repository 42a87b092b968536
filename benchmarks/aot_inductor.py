"""Compares AOTInductor with ONNX Runtime on the graph of a recipe behind all its passes.

    .venv/bin/python -m benchmarks.aot_inductor --recipe cpu.yaml
    .venv/bin/python -m benchmarks.aot_inductor --recipe cpu.yaml --rows 1 16 --rounds 30

The rewritten graph is computed by operators of torch (compiler/graph/torch_graphs), exported, compiled ahead of time
into a library, and loaded from it. Beside it stand the same graph in ONNX Runtime, with the variants of the target, and
the operators of torch one by one. All run one call on full windows, one thread, in one process, in turns; ratios are to
ONNX Runtime on the plain graph, per round: median (10th..90th percentile). The compiler needs a C++ compiler.
"""

import argparse
import functools
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import command
from compiler.base.cache.store import StageCache, default_folder
from compiler.base.pieces import write_files
from compiler.build.capture.original import original_of
from compiler.build.lowering.plan import LoweringPlan, plan_lowering
from compiler.build.lowering.run_passes import apply_passes
from compiler.build.report.progress import Progress
from compiler.build.verify.speed import full_feeds
from compiler.graph.runners.paired_rounds import Rounds
from compiler.graph.stages import Array, Lowered
from compiler.graph.torch_graphs.module import GraphModule
from compiler.recipe.load import load_recipe
from compiler.targets.base import Emitted
from compiler.targets.onnx_static import OnnxStatic
from compiler.targets.static_graphs import prepare_static

PLAIN = "ONNX Runtime"

Answer = Callable[[], Sequence[Array]]
"""Runs one call, and returns its outputs in the order of the graph's."""


def main() -> None:
    """Run the comparison and print a table."""
    options = _parse()
    console = Console(width=None if sys.stdout.isatty() else 160)
    loaded = load_recipe(options.recipe)
    name, spec = next(iter(loaded.recipe.graphs.items()))
    cache = StageCache(options.cache or default_folder())
    original = original_of(loaded, name, spec, cache, Progress(), with_data=False)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        plan = plan_lowering(original, OnnxStatic(), original.gate)
        final = apply_passes(plan).final
        for rows in options.rows:
            console.print(_measured(plan, final, rows, options.rounds, Path(scratch)))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="AOTInductor beside ONNX Runtime.")
    parser.add_argument("--recipe", default="cpu.yaml", help="one without calibration")
    parser.add_argument("--rows", type=int, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cache", type=Path, help="of builds")
    return parser.parse_args()


def _measured(plan: LoweringPlan, final: Lowered, rows: int, rounds: int, scratch: Path) -> Table:
    """Return the table of one number of rows."""
    axis = str(final.batch_axis)
    buckets = {name: (rows,) if name == axis else sizes[-1:] for name, sizes in plan.buckets.items()}
    sizes = {name: size for name, (size,) in buckets.items()}
    feeds = full_feeds(Emitted(sizes, "", (), final))
    ((*_, plain),) = prepare_static(plan.target, final, buckets).graphs
    answers: dict[str, Answer] = {
        PLAIN: _in_onnx_runtime(plan, (), final, buckets, feeds, scratch / f"plain{rows}"),
        "with its variants": _in_onnx_runtime(
            plan, [variant.name for variant in plan.target.plan], final, buckets, feeds, scratch / f"variants{rows}"
        ),
    }
    module = GraphModule(plain.model, plain.graph)
    inputs = tuple(torch.from_numpy(np.ascontiguousarray(feeds[str(v.name)])) for v in plain.model.graph.inputs)
    answers["torch, operator by operator"] = functools.partial(_in_torch, module, inputs)
    began = time.perf_counter()
    with command.contender("AOTInductor"):
        library = _compiled(module, inputs, scratch / f"aot{rows}.pt2")
        answers["AOTInductor"] = functools.partial(_in_torch, library, inputs)
    compiled_s = time.perf_counter() - began
    return _table(f"{plain.graph}, {rows} rows", answers, rounds, compiled_s, plain.model)


def _in_onnx_runtime(
    plan: LoweringPlan,
    names: Sequence[str],
    final: Lowered,
    buckets: Mapping[str, tuple[int, ...]],
    feeds: Mapping[str, Array],
    folder: Path,
) -> Answer:
    """Return a call of the graph as the target writes it, with these variants."""
    built = plan.target.with_plan(names).emit(final, buckets)
    write_files(folder, built.files)
    session, order = plan.target.open(folder / built.artifacts[0].file), final.model.graph.outputs
    return lambda: session.run([str(value.name) for value in order], dict(feeds))


def _in_torch(function: Any, inputs: tuple[torch.Tensor, ...]) -> Sequence[Array]:
    with torch.no_grad():
        return [output.numpy() for output in function(*inputs)]


def _compiled(module: GraphModule, inputs: tuple[torch.Tensor, ...], file: Path) -> Any:
    """Return the module as a library that AOTInductor has made of it, loaded again from its file."""
    with torch.no_grad(), warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):  # of torch about itself
            warnings.simplefilter("ignore", category)
        from torch._inductor import aoti_compile_and_package, aoti_load_package

        exported = torch.export.export(module, inputs)
        return aoti_load_package(aoti_compile_and_package(exported, package_path=str(file)))


def _table(title: str, answers: Mapping[str, Answer], rounds: int, compiled_s: float, model: ir.Model) -> Table:
    expected = answers[PLAIN]()
    differences = [_difference(expected, answer()) for answer in answers.values()]
    turns = Rounds(list(answers.values()))
    turns.more(rounds)
    table = Table(title=f"{title}: {len(model.graph)} nodes, compiled in {compiled_s:.0f} s, one thread")
    for column in ("contender", "largest difference", f"times {PLAIN}"):
        table.add_column(column)
    for place, (label, difference) in enumerate(zip(answers, differences, strict=True)):
        table.add_row(label, f"{difference:.1e}", str(turns.ratio(pair=(place, 0))).strip())
    return table


def _difference(expected: Sequence[Array], got: Sequence[Array]) -> float:
    pairs = zip(expected, got, strict=True)
    return max(
        float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max(initial=0.0)) for one, other in pairs
    )


if __name__ == "__main__":
    command.run(main)
