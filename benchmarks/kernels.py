"""Counts the kernels of a recipe's graph in each of its forms, after the fusions of the runtime that runs it.

    python -m benchmarks.kernels --recipe gpu.yaml
    python -m benchmarks.kernels --recipe gpu.yaml --engine 8.6

The graph goes through the recipe's passes, without those that round unless `--rounded` is given, and is written for
ONNX Runtime on a CUDA device: states packed and apart, without forms, with each form alone and with all. A row is the
graph of one number of rows: its nodes, its nodes as ONNX Runtime optimizes them, and of these the ones that a device
computes, which changes of a shape alone are not. The provider is that for CPUs, which fuses float32 graphs as that for
CUDA does, but for the operators that CUDA alone has. With `--engine` TensorRT-RTX builds the graph besides, and the
layers of its engine are counted. No device is needed.
"""

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import onnx
import onnxruntime
from rich.console import Console
from rich.table import Table

from benchmarks import command
from compiler.base.cache.store import StageCache, default_folder
from compiler.base.pieces import write_files
from compiler.build.capture.original import original_of
from compiler.build.lowering.lowering import lower
from compiler.build.lowering.plan import plan_lowering
from compiler.build.report.progress import Progress
from compiler.errors import Refused, ToolchainAbsent
from compiler.graph.stages import Lowered
from compiler.passes import pass_kinds
from compiler.passes.eliminate_fills import EliminateFills
from compiler.passes.flatten_channels_last import FlattenChannelsLast
from compiler.passes.fold_table_product import FoldTableProduct
from compiler.passes.fuse_attention import FuseAttention
from compiler.passes.lower_pointwise_convolutions import LowerPointwiseConvolutions
from compiler.passes.merge_rows import MergeRows
from compiler.passes.sink_transposes import SinkTransposes
from compiler.recipe.load import load_recipe
from compiler.targets.base import Emitted, Target
from compiler.targets.forms import Variant
from compiler.targets.onnx_cuda import OnnxCuda
from compiler.targets.static_graphs import prepare_static, write_prepared
from compiler.targets.tensorrt.parts import trial_part
from compiler.targets.tensorrt.rtx_target import TensorrtRtx
from compiler.targets.tensorrt.target import engine_plan
from compiler.targets.tensorrt.trial import built_trial
from runtime_lite.format.manifest import bucket_name

VIEWS = frozenset({"Constant", "Flatten", "Identity", "Reshape", "Shape", "Squeeze", "Unsqueeze"})
"""Operators that change the shape of a value alone: the provider for CUDA launches nothing for them."""


@dataclasses.dataclass(frozen=True)
class Formed(OnnxCuda):
    """The target with every form that a CUDA graph can hold."""

    offers: ClassVar[tuple[Variant, ...]] = tuple(
        Variant(form)
        for form in (
            LowerPointwiseConvolutions(),
            SinkTransposes(turns_states=False),
            FlattenChannelsLast(),
            FoldTableProduct(),
            FuseAttention(),
            EliminateFills(),
            MergeRows(),
        )
    )


def optimized(file: Path) -> onnx.ModelProto:
    """Return a graph file as ONNX Runtime's provider for CPUs runs it."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "optimized.onnx"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        return onnx.load(path, load_external_data=False)


def kernels(model: onnx.ModelProto) -> int:
    """Return the number of nodes that a device computes."""
    return sum(node.op_type not in VIEWS for node in model.graph.node)


def rows_of(recipe: str, capability: str, *, is_rounded: bool) -> Iterator[list[str]]:
    """Yield the rows of the table of a recipe's first graph."""
    for is_packed in (True, False):
        lowered, target, buckets = _lowered(recipe, is_packed=is_packed, is_rounded=is_rounded)
        prepared = prepare_static(target, lowered, buckets)
        names = [form.name for form in target.offers]
        plans = {"without forms": (), **{name: (name,) for name in names}, "all forms": tuple(names)}
        for label, plan in plans.items():
            built = write_prepared(target.with_plan(plan), prepared)
            if label in names and not any(outcome.rewritten for outcome in built.forms):
                continue
            with tempfile.TemporaryDirectory() as folder:
                write_files(Path(folder), built.files)
                for emitted in built.artifacts:
                    cells = _counted(Path(folder), emitted, capability)
                    yield ["packed" if is_packed else "apart", label, bucket_name(emitted.sizes), *cells]


def _lowered(
    recipe: str, *, is_packed: bool, is_rounded: bool
) -> tuple[Lowered, Target, Mapping[str, tuple[int, ...]]]:
    """Return the first graph of a recipe behind its passes, the target, and the ends of its buckets by axis."""
    changes = ["targets.0={kind: onnx_cuda}"]
    loaded = load_recipe(recipe, changes)
    name = next(iter(loaded.recipe.graphs))
    passes = [
        {spec.name: {"most": 0 if is_packed else None} if spec.name == "pack_states" else dict(spec.options)}
        for spec in original_of(loaded, name, loaded.recipe.graphs[name], _cache(), Progress()).passes
        if is_rounded or not pass_kinds()[spec.name].lossy
    ]
    loaded = load_recipe(recipe, [*changes, f"graphs.{name}.passes={json.dumps(passes)}"])
    original = original_of(loaded, name, loaded.recipe.graphs[name], _cache(), Progress())
    plan = plan_lowering(original, Formed(), original.gate)
    ends = {axis: tuple(dict.fromkeys((sizes[0], sizes[-1]))) for axis, sizes in plan.buckets.items()}
    return lower(plan).graph.final, plan.target, ends


def _cache() -> StageCache:
    return StageCache(default_folder())


def _counted(folder: Path, emitted: Emitted, capability: str) -> list[str]:
    """Return the numbers of a graph's nodes, of these after fusion, of kernels, and of the layers of an engine."""
    fused = optimized(folder / emitted.file)
    cells = [str(len(emitted.lowered.model.graph)), str(len(fused.graph.node)), str(kernels(fused))]
    return [*cells, layers(folder, emitted, capability)] if capability else cells


def layers(folder: Path, emitted: Emitted, capability: str) -> str:
    """Return the number of layers of the engine that TensorRT-RTX builds of a graph, or why it builds none."""
    try:
        engine, _ = built_trial(folder, TensorrtRtx().builder_plan(), engine_plan([emitted]), [capability])
    except Refused as refused:
        return f"refused: {refused.message}"
    return "not read" if engine.layers is None else str(len(engine.layers))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="gpu.yaml")
    parser.add_argument("--rounded", action="store_true", help="with the passes that round")
    parser.add_argument("--engine", default="", metavar="CAPABILITY", help="count layers of engines for it, too")
    options = parser.parse_args(arguments)
    part = trial_part(is_needed=True)
    if options.engine and part.cure:
        raise ToolchainAbsent(f"{part.name}: {part.found}", cure=part.cure)
    table = Table(
        "states", "form", "bucket", "nodes", "after fusion", "kernels", *(["layers"] if options.engine else [])
    )
    for row in rows_of(options.recipe, options.engine, is_rounded=options.rounded):
        table.add_row(*row)
    Console(width=160).print(table)


if __name__ == "__main__":
    command.run(main)
