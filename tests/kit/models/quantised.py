"""A stream with one product on integers, built."""

from tests.kit.models.project import Ended, Project
from tests.kit.models.tiny_graph import write_stream
from tests.kit.quantization import one_product


def quantised(project: Project, how: str, budget: str = "", rows: str = "[1, 2]") -> Ended:
    """Build a stream with one product on integers, for some numbers of rows."""
    write_stream(project.folder, one_product())
    project.replace("stream.yaml", "buckets: [1, 2]", f"buckets: {rows}")
    project.write("tiny_more.py", "import tiny_data\n\ndef streams():\n    yield tiny_data.one_stream(99)\n")
    project.replace("stream.yaml", "chained_steps: 6}", "chained_steps: 6, lossy: {max_abs: 0.5}}")
    project.replace("stream.yaml", "window_states, simplify]", f"window_states, simplify, {how}]")
    project.replace("stream.yaml", "data:\n", 'data:\n  calibration: {feeds: "tiny_more:streams", count: 1}\n')
    project.replace("stream.yaml", "gates: {", f"gates: {{budget: {{size_mb: 1{budget}}}, ")
    return project.build(recipe="stream.yaml")
