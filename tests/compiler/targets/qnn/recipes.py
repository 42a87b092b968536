"""Recipes of tests, for the NPU."""

from collections.abc import Iterator

import numpy as np
import pytest

from compiler.calib.watched_streams import Call, run_streams
from compiler.graph.runners.session import session_of
from compiler.graph.stages import Feed, Lowered
from tests.kit.models.project import Project


def for_the_npu(project: Project) -> Project:
    """Write the target into a recipe."""
    project.replace("tiny.yaml", "  - kind: onnx_static", "  - {kind: qnn, soc: 57}")
    lossy = "{max_abs: 1.0e-5, chained_steps: 8, lossy: {max_abs: 0.01, sqnr_db: 40.0}}"
    project.replace("tiny.yaml", "{max_abs: 1.0e-5, chained_steps: 8}", lossy)
    return project


CALIBRATION = """

def calibration():
    for seed in (107, 108):
        numbers = np.random.default_rng(seed).standard_normal((9, 1, 4, 8)).astype(np.float32)
        yield [{"features": chunk} for chunk in numbers]
"""


def on_integers(project: Project, precision: str, sqnr_db: float, soc: int = 57) -> Project:
    """Write the target on integers, and data to calibrate it with, into a recipe."""
    project.replace("tiny.yaml", "  - kind: onnx_static", f"  - {{kind: qnn, soc: {soc}, precision: {precision}}}")
    lossy = f"{{max_abs: 1.0e-5, chained_steps: 8, lossy: {{max_abs: 0.5, sqnr_db: {sqnr_db}}}}}"
    project.replace("tiny.yaml", "{max_abs: 1.0e-5, chained_steps: 8}", lossy)
    project.replace("tiny.yaml", "data:\n", 'data:\n  calibration: {feeds: "tiny_data:calibration", count: 2}\n')
    project.replace("tiny.yaml", "    max_increase: 0.0\n    identical: true", "    max_increase: 1.0")
    project.write("tiny_data.py", (project.folder / "tiny_data.py").read_text() + CALIBRATION)
    return project


def calibrate_on_random_caches(patch: pytest.MonkeyPatch) -> None:
    """Let calibration see numbers drawn for caches in place of what calls hand on."""

    def drawn(lowered: Lowered, streams: list[list[Feed]]) -> Iterator[Call]:
        random, session = np.random.default_rng(0), session_of(lowered.model)
        states = {state.input for state in lowered.states}
        names = [str(value.name) for value in lowered.model.graph.outputs]
        for call in run_streams(lowered, streams):
            feed = {
                name: random.uniform(0, 0.1, array.shape).astype(np.float32) if name in states else array
                for name, array in call.feed.items()
            }
            yield Call(call.stream, feed, dict(zip(names, session.run(names, dict(feed)), strict=True)))

    patch.setattr("compiler.numerics.quantization.value_grids.run_streams", drawn)
