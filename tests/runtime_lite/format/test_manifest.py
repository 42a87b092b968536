"""The small arithmetic of the records."""

from dataclasses import replace

import numpy as np
import pytest

from runtime_lite.format.manifest import DTYPES, Artifact, Axis, Engine, Graph, bucket_name, static_shape, tensor_bytes
from tests.runtime_lite.bundles import plain_graph, streaming_graph


def graph_of(*buckets: int, shared: bool = True) -> Graph:
    artifacts = [Artifact({"batch": rows}, "rows.onnx" if shared else f"{rows}.onnx", ()) for rows in buckets]
    return replace(streaming_graph(), axes={"batch": Axis(buckets)}, artifacts=tuple(artifacts))


def test_a_file_that_leaves_rows_open_runs_any_number_of_them_or_nearly() -> None:
    assert graph_of(1, 4, 9).row_steps == (1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert graph_of(4, 6).row_steps == (4, 5, 6), "none below the smallest that was built"
    steps = graph_of(1, 3, 200).row_steps
    assert {1, 3, 200} < set(steps) and len(steps) < 48
    assert all(9 * (step - rows) <= step for rows in range(1, 201) for step in [min(s for s in steps if s >= rows)])
    runnable = graph_of(1, 4).runnable
    assert {bucket_name(each.sizes): each.file for each in runnable} == {
        f"batch={rows}": "rows.onnx" for rows in (1, 2, 3, 4)
    }


def test_a_file_for_its_own_rows_runs_no_others() -> None:
    engine = Engine("built", None, "plan", {"rows.onnx": "rows.engine"}, {})
    for graph in (graph_of(1, 4, shared=False), replace(graph_of(1, 4), engine=engine), graph_of(4), plain_graph()):
        assert (graph.row_steps, graph.runnable) == (graph.row_buckets, graph.artifacts)


def test_a_bucket_has_one_name_whatever_the_order_of_its_axes() -> None:
    assert bucket_name({"frames": 3, "batch": 4}) == "batch=4,frames=3"
    assert bucket_name({}) == "static"


def test_axis_names_and_formulas_become_sizes() -> None:
    assert static_shape(("batch", 3), {"batch": 2}) == (2, 3)
    assert static_shape(("batch", "(time - 1) // 2 + 1"), {"batch": 2, "time": 8}) == (2, 4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_in_bytes_are_numpys(dtype: str) -> None:
    assert tensor_bytes((2, 3), dtype) == np.zeros((2, 3), dtype).nbytes
