"""The gate on integer kernels, in whole builds."""

from tests.kit.models.project import Project
from tests.kit.models.quantised import quantised


def test_integers_that_the_runtime_does_not_see_fail_the_build(project: Project) -> None:
    ended = quantised(project, "quantize_static: {placement: tensorrt, pins: []}")
    assert ended.code == 4, ended.out
    assert "stage integer kernels, graph net, node " in ended.message and "in float stay" in ended.message
    assert not (project.folder / "bundle").exists()
