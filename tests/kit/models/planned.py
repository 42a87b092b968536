"""The plan of the graph of one screen: the first step of a build, from Python."""

import io
from pathlib import Path

from rich.console import Console

from compiler.base.cache.store import StageCache
from compiler.build.capture.original import original_of
from compiler.build.lowering.plan import LoweringPlan, plan_lowering
from compiler.build.report.progress import Progress
from compiler.recipe.load import load_recipe
from compiler.targets.base import Target
from compiler.targets.onnx_static import OnnxStatic
from tests.kit.models.project import stream_project

CALIBRATION = """

def calibration() -> Iterator[list[Feed]]:
    for seed in range(1000, 1004):
        yield one_stream(seed)
"""


def planned_stream(folder: Path, target: Target | None = None, *, rounds: bool = False) -> LoweringPlan:
    """The plan of `stream.yaml`; a second call in the same folder finds what the first has kept.

    Args:
        folder: a folder for the project and its cache.
        target: what the graph is lowered to; static ONNX by default.
        rounds: whether a last pass rounds to half precision.
    """
    project = stream_project(folder, folder / "cache")
    project.forget_modules()
    if rounds:
        project.write("tiny_data.py", (folder / "tiny_data.py").read_text() + CALIBRATION)
        project.replace(
            "stream.yaml", "window_states, simplify]", "window_states, simplify, {lower_precision: {sqnr_db: 30.0}}]"
        )
        project.replace("stream.yaml", "data:\n", 'data:\n  calibration: {feeds: "tiny_data:calibration", count: 2}\n')
        project.replace("stream.yaml", "chained_steps: 6}", "chained_steps: 6, lossy: {max_abs: 0.5, sqnr_db: 25.0}}")
    loaded, progress = load_recipe(str(folder / "stream.yaml")), Progress(Console(file=io.StringIO()))
    original = original_of(loaded, "net", loaded.recipe.graphs["net"], StageCache(project.cache), progress)
    return plan_lowering(original, OnnxStatic() if target is None else target, original.gate)
