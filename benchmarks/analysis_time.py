"""Times the proof of padding and batching against the size of the graph, and draws the picture in the docs.

    python -m benchmarks.analysis_time --write docs/analysis_time.svg

Graphs are stacks of one block with random weights: attention under a mask of the model, feed-forward, convolution over
time, layer normalisation; batch and time are dynamic. The time is that of `pad_axes` whole: facts of every value, masks
and forms written, certificate. `--recipe` adds a recipe's graph, such as the 12-layer Conformer.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
from rich.console import Console
from rich.table import Table

from benchmarks import command
from compiler.base.cache.store import StageCache
from compiler.build.capture.original import original_of
from compiler.build.report.progress import Progress
from compiler.checker.check import check
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, PaddedAxis
from compiler.passes import make_pass
from compiler.passes.pad_axes import PadAxes
from compiler.recipe.load import load_recipe
from compiler.targets import placements

SIZES = (250, 500, 1000, 2000, 5000, 10_000, 20_000)
"""Nodes of the stacks, about."""

CHANNELS = 8

BLOCK = """
q{n} = MatMul(x{n}, w)  k{n} = MatMul(x{n}, w)  v{n} = MatMul(x{n}, w)  t{n} = Transpose<perm = [0, 2, 1]>(k{n})
s{n} = MatMul(q{n}, t{n})  h{n} = Where(seen, s{n}, low)  p{n} = Softmax<axis = -1>(h{n})  c{n} = MatMul(p{n}, v{n})
o{n} = MatMul(c{n}, w)  a{n} = Add(x{n}, o{n})  l{n} = LayerNormalization<axis = -1>(a{n}, gain, bias)
f{n} = MatMul(l{n}, w)  g{n} = Sigmoid(f{n})  e{n} = Mul(f{n}, g{n})  d{n} = MatMul(e{n}, w)  b{n} = Add(l{n}, d{n})
i{n} = Transpose<perm = [0, 2, 1]>(b{n})  j{n} = Conv<pads = [1, 1]>(i{n}, kernel)  r{n} = Relu(j{n})
u{n} = Transpose<perm = [0, 2, 1]>(r{n})  m{n} = Add(b{n}, u{n})
x{m} = LayerNormalization<axis = -1>(m{n}, gain, bias)
"""


def stack(nodes: int) -> Lowered:
    """Return a graph of about this many nodes."""
    blocks = max(round(nodes / BLOCK.count("} = ")), 1)
    body = "".join(BLOCK.replace("{n}", str(n)).replace("{m}", str(n + 1)) for n in range(blocks))
    weights = f"float[{CHANNELS},{CHANNELS}] w, float[{CHANNELS},{CHANNELS},3] kernel, "
    weights += f"float[{CHANNELS}] gain, float[{CHANNELS}] bias"
    text = f"""<ir_version: 10, opset_import: ["" : 20]> stack (float[batch,time,{CHANNELS}] x0, {weights})
    => (float[batch,time,{CHANNELS}] x{blocks}) <float low = {{-1e30}}, int64 first = {{0}}, int64 step = {{1}},
    int64[1] one = {{1}}> {{ n = Shape<start = 1, end = 2>(x0)  count = Squeeze(n)  at = Range(first, count, step)
    rows = Unsqueeze(at, one)  seen = GreaterOrEqual(rows, at) {body} }}"""
    model = ir.from_onnx_text(text)
    rng = np.random.default_rng(0)
    for value in [each for each in model.graph.inputs if each.name != "x0"]:
        model.graph.inputs.remove(value)
        shape = [int(str(dim)) for dim in value.shape or ()]
        value.const_value = ir.tensor(rng.standard_normal(shape).astype(np.float32) / CHANNELS, name=value.name)
        model.graph.register_initializer(value)
    graphs.infer_shapes(model)
    return Lowered("stack", model, batch_axis="batch", padded_axes=(PaddedAxis("time", "real_length"),))


def recipe_graph(recipe: str, kept: Path | None = None) -> Lowered:
    """Return a recipe's first graph as the input of `pad_axes`; captured graphs are kept in the folder `kept`."""
    loaded = load_recipe(recipe)
    name, spec = next(iter(loaded.recipe.graphs.items()))
    with tempfile.TemporaryDirectory() as scratch:
        cache, progress = StageCache(kept or Path(scratch)), Progress(Console(quiet=True))
        lowered = original_of(loaded, name, spec, cache, progress, with_data=False).start()
        for each in spec.passes:
            if each.name == PadAxes.name:
                return lowered
            lowered = make_pass(each.name, each.options, placements()).apply(lowered).lowered
    raise SystemExit(f"{recipe}: expected {PadAxes.name} among the passes, got none")


def measure(lowered: Lowered, *, replay: bool = False) -> tuple[int, float, float | None]:
    """Return the number of nodes, the seconds of the proof, and, if asked for, the seconds of the checker."""
    before = ir.serde.serialize_model(graphs.clone(lowered.model)) if replay else None
    nodes = len(list(lowered.model.graph))
    started = time.perf_counter()
    outcome = PadAxes().apply(lowered)
    proved = time.perf_counter() - started
    if before is None:
        return nodes, proved, None
    after = ir.serde.serialize_model(outcome.lowered.model)
    started = time.perf_counter()
    check(before, after, outcome.records[0])
    return nodes, proved, time.perf_counter() - started


def main() -> None:
    """Measure, print a table, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="nodes of the stacks, about")
    parser.add_argument("--cache", type=Path, help="captured graphs of earlier builds")
    parser.add_argument("--write", type=Path, help="the picture, an SVG file")
    options = parser.parse_args()
    table = Table(title="proof of padding and batching")
    for column in ("graph", "nodes", "proof, s", "per 1000 nodes, s", "checker, s"):
        table.add_column(column)
    measure(stack(options.sizes[0]))  # warms caches up
    points, named = [], []
    for recipe in options.recipe:
        nodes, proved, checked = measure(recipe_graph(recipe, options.cache), replay=True)
        named.append((recipe, nodes, proved))
        table.add_row(recipe, str(nodes), f"{proved:.2f}", f"{1e3 * proved / nodes:.2f}", f"{checked:.2f}")
    for size in options.sizes:
        runs = [measure(stack(size)) for _ in range(options.rounds)]
        nodes, proved = runs[0][0], statistics.median(each[1] for each in runs)
        points.append((nodes, proved))
        table.add_row("stack", str(nodes), f"{proved:.2f}", f"{1e3 * proved / nodes:.2f}", "")
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    if options.write is not None:
        options.write.write_text(picture(points, named), encoding="utf-8")


WIDTH, HEIGHT, MARGIN = 640, 400, 60


def picture(points: Sequence[tuple[int, float]], named: Sequence[tuple[str, int, float]]) -> str:
    """Return an SVG of seconds over nodes on logarithmic axes, with the line of proportional growth."""
    every = [*points, *((nodes, seconds) for _, nodes, seconds in named)]
    low, high = min(n for n, _ in every), max(n for n, _ in every)
    least, most = min(s for _, s in every) / 1.5, max(s for _, s in every) * 1.5

    def at(nodes: float, seconds: float) -> tuple[float, float]:
        x = MARGIN + (WIDTH - 2 * MARGIN) * np.log(nodes / low) / np.log(high / low)
        y = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * np.log(seconds / least) / np.log(most / least)
        return round(float(x), 1), round(float(y), 1)

    first = points[0]
    (x1, y1), (x2, y2) = at(*first), at(high, first[1] * high / first[0])
    shapes = [
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#999" stroke-dasharray="4"/>',
        f'<text x="{x2 - 4}" y="{y2 - 8}" text-anchor="end" fill="#666">proportional</text>',
    ]
    line = " ".join(f"{x},{y}" for x, y in (at(*each) for each in points))
    shapes.append(f'<polyline points="{line}" fill="none" stroke="#1f77b4" stroke-width="2"/>')
    for nodes, seconds in points:
        x, y = at(nodes, seconds)
        shapes.append(f'<circle cx="{x}" cy="{y}" r="4" fill="#1f77b4"/>')
        shapes.append(f'<text x="{x}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{nodes}</text>')
        shapes.append(f'<text x="{x}" y="{y - 9}" text-anchor="middle">{seconds:.2f} s</text>')
    for label, nodes, seconds in named:
        x, y = at(nodes, seconds)
        shapes.append(f'<circle cx="{x}" cy="{y}" r="5" fill="#d62728"/>')
        shapes.append(f'<text x="{x + 9}" y="{y + 14}" fill="#d62728">{label}: {seconds:.2f} s</text>')
    frame = f'<path d="M{MARGIN} {MARGIN / 2}V{HEIGHT - MARGIN}H{WIDTH - MARGIN / 2}" fill="none" stroke="#333"/>'
    labels = (
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">nodes</text>'
        f'<text x="16" y="{HEIGHT / 2}" transform="rotate(-90 16 {HEIGHT / 2})" text-anchor="middle">seconds</text>'
    )
    style = 'font-family="sans-serif" font-size="12"'
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    background = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{background}{frame}{labels}{"".join(shapes)}</svg>\n'
    )


if __name__ == "__main__":
    command.run(main)
