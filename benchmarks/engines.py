"""Builds the engines of recipes with TensorRT-RTX, which needs no device, and shows the types of their layers.

    python -m benchmarks.engines --recipe t4.yaml pc.yaml
    python -m benchmarks.engines --recipe pc.yaml --capabilities 7.5 8.6 8.9 12.0

Graphs go through the passes of their recipe and are written as they ship. A row is one engine, built as a build does:
for which devices, how long the builder computes on one core or several, its size, its layers, and of the nodes that
the graph plans in a type how many compute in it, as the layers say; behind these the nodes inside a kernel that does
not show its types.
With `--capabilities` a row is one graph: the size of an engine for each device alone, and of one for all of them, which
is built twice.
"""

import argparse
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import command
from compiler.base.cache.store import StageCache, default_folder
from compiler.base.pieces import write_files
from compiler.build.capture.original import original_of
from compiler.build.lowering.emission import emit
from compiler.build.lowering.lowering import lower
from compiler.build.lowering.plan import plan_lowering
from compiler.build.pipeline import check
from compiler.build.report.progress import Progress
from compiler.build.verify.precision_plan import Kept, audit, counts, planned_nodes
from compiler.errors import DataError, Refused, ToolchainAbsent
from compiler.recipe.load import load_recipe
from compiler.targets.base import Emitted, Target, TrialEngine
from compiler.targets.tensorrt.parts import trial_part
from compiler.targets.tensorrt.rtx_target import TensorrtRtx
from compiler.targets.tensorrt.target import Tensorrt
from runtime_lite.format.manifest import bucket_name

TYPES = ("int8", "float16", "float32")

MB = 1e6


@dataclasses.dataclass(frozen=True)
class Graph:
    """A graph as a bundle contains it.

    Attributes:
        title: table cells with its recipe, name and sizes.
        target: target of the recipe.
        folder: folder of its file.
        emitted: the graph as the target wrote it.
    """

    title: tuple[str, str]
    target: Target
    folder: Path
    emitted: Emitted


def graphs_of(recipes: Sequence[str]) -> Iterator[Graph]:
    """Yield the graphs of recipes, one after the other.

    Raises:
        DataError: a recipe has no target of TensorRT's.
    """
    for recipe in recipes:
        loaded, cache = load_recipe(recipe), StageCache(default_folder())
        listed = next((each for each in check(loaded) if isinstance(each.target, Tensorrt | TensorrtRtx)), None)
        if listed is None:
            raise DataError(f"{recipe}: expected a target of TensorRT's, got none", cure="correct --recipe")
        loaded = loaded.for_target(listed.index)
        for name, spec in loaded.recipe.graphs.items():
            original = original_of(loaded, name, spec, cache, Progress())
            lowering = lower(plan_lowering(original, listed.target, original.gate))
            built = emit(lowering)
            with tempfile.TemporaryDirectory() as folder:
                write_files(Path(folder), built.files)
                for each in built.artifacts:
                    title = Path(recipe).stem, f"{name}, {bucket_name(each.sizes)}"
                    yield Graph(title, listed.target, Path(folder), each)


def engine_of(graph: Graph, target: Target) -> TrialEngine | str:
    """Return the engine that a target's builder makes of a graph, or the reason why it makes none."""
    with tempfile.TemporaryDirectory() as out:
        build = target.trial_builder(Path(out))
        assert build is not None
        try:
            return build(graph.folder, [graph.emitted])
        except Refused as refused:
            return f"refused: {refused.message}"


def audit_row(graph: Graph) -> tuple[list[str], bool]:
    """Return the cells of a graph's engine, and whether it computes as planned."""
    before = _seconds_of_children()
    engine = engine_of(graph, graph.target)
    if isinstance(engine, str):
        return [engine], False
    figures = [engine.device, f"{_seconds_of_children() - before:.1f}", f"{engine.size_bytes / MB:.1f}"]
    if engine.layers is None:
        return [*figures, "not read"], False
    nodes = audit(planned_nodes(graph.emitted.lowered.model), engine.layers)
    found = counts(nodes)
    cells = [*figures, str(len(engine.layers)), *(shown(found.get(kind)) for kind in TYPES)]
    return cells, all(each.kept in (Kept.YES, Kept.INSIDE) for each in nodes)


def _seconds_of_children() -> float:
    """Return the computing time of ended child processes, in which builders run."""
    times = os.times()
    return times.children_user + times.children_system


def shown(kept: Mapping[Kept, int] | None) -> str:
    """Return, for one type, the number of nodes that compute in it and of those planned in it, as text."""
    if kept is None:
        return "-"
    inside = f" + {kept[Kept.INSIDE]} inside" if kept[Kept.INSIDE] else ""
    return f"{kept[Kept.YES]} of {sum(kept.values()) - kept[Kept.INSIDE]}{inside}"


def size_row(graph: Graph, capabilities: Sequence[str]) -> tuple[list[str], bool]:
    """Return the cells of a graph's engines for each device and for all, and whether two of these are equal."""
    sets = [*((one,) for one in capabilities), tuple(capabilities), tuple(capabilities)]
    engines = [engine_of(graph, TensorrtRtx(compute_capabilities=each)) for each in sets]
    sizes = [each.size_bytes / MB for each in engines if not isinstance(each, str)]
    if len(sizes) < len(sets):
        return [next(each for each in engines if isinstance(each, str))], False
    *alone, together, _ = sizes
    is_same = engines[-1] == engines[-2]  # a record of it holds the hash
    cells = [f"{size:.2f}" for size in sizes[:-1]]
    return [*cells, f"{together / max(alone):.3f}", "same bytes" if is_same else "other bytes"], is_same


def main(arguments: list[str] | None = None) -> int:
    """Build the engines and print them; return the number of graphs that are refused or differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", nargs="+", required=True)
    parser.add_argument("--capabilities", nargs="+", help="compute capabilities to build for alone and together")
    options = parser.parse_args(arguments)
    part = trial_part(is_needed=True)
    if part.cure:
        raise ToolchainAbsent(f"{part.name}: {part.found}", cure=part.cure)
    of_each = options.capabilities
    columns = (
        [*of_each, "all", "to the largest", "built twice"]
        if of_each
        else ["for", "computing, s", "MB", "layers", *TYPES]
    )
    table, failed = Table("recipe", "graph", *columns), 0
    for graph in graphs_of(options.recipe):
        cells, holds = size_row(graph, of_each) if of_each else audit_row(graph)
        table.add_row(*graph.title, *cells)
        failed += not holds
    Console(width=200).print(table)
    return failed


if __name__ == "__main__":
    command.run(main)
