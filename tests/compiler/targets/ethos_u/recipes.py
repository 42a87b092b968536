"""Recipes of tests, for the NPU."""

from tests.kit.models.project import Project

CALIBRATION = """

def calibration() -> Iterator[list[Feed]]:
    for seed in range(1000, 1004):
        yield one_stream(seed)
"""


def for_the_npu(project: Project, options: str = "", limits: str = "max_abs: 0.05, sqnr_db: 30.0") -> Project:
    """Write the target and calibration data into a recipe."""
    project.replace("tiny.yaml", "  - kind: onnx_static", f"  - {{kind: ethos_u, accelerator: ethos-u85-256{options}}}")
    project.replace("tiny.yaml", "buckets: [1, 2]", "buckets: [1]")
    lossy = f"{{max_abs: 1.0e-5, chained_steps: 8, lossy: {{{limits}}}}}"
    project.replace("tiny.yaml", "{max_abs: 1.0e-5, chained_steps: 8}", lossy)
    project.write("tiny_data.py", (project.folder / "tiny_data.py").read_text(encoding="utf-8") + CALIBRATION)
    project.replace("tiny.yaml", "data:\n", 'data:\n  calibration: {feeds: "tiny_data:calibration", count: 4}\n')
    return project
