"""Recipes of tests, for the NPU."""

from tests.kit.models.project import Project


def for_the_npu(project: Project) -> Project:
    """Write the target into a recipe."""
    project.replace("tiny.yaml", "  - kind: onnx_static", "  - {kind: qnn, soc: 57}")
    lossy = "{max_abs: 1.0e-5, chained_steps: 8, lossy: {max_abs: 0.01, sqnr_db: 40.0}}"
    project.replace("tiny.yaml", "{max_abs: 1.0e-5, chained_steps: 8}", lossy)
    return project
