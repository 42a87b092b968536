"""rows: batch first, time first, merged, and what is none of these."""

import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.rewriting.attention.attention import find_attentions
from compiler.rewriting.attention.rows import rows_behind, rows_of, rows_projected
from tests.kit.attention import ROWS, WIDTH, attention
from tests.kit.graphs import parse


@pytest.mark.parametrize("rows", ["batch first", *ROWS])
def test_rows_of_all_projections_are_found(rows: str) -> None:
    graph = attention(rows=rows)
    graphs.infer_shapes(graph.model)
    (attended,) = find_attentions(graph.model).attentions
    behind = rows_behind(attended)
    assert (behind.time_first, behind.merged) == ("time first" in rows, "merged" in rows)
    for heads in (attended.query, attended.key, attended.value):
        projected = rows_projected(heads)
        assert (projected.time_first, projected.merged) == (behind.time_first, behind.merged)
        axes = ("time", "batch") if behind.time_first else ("batch", "time")
        assert [str(dim) for dim in graphs.dims_of(projected.value) or ()] == [*axes, str(WIDTH)]


@pytest.mark.parametrize(
    ("nodes", "got"),
    [
        ("y = Relu(x)", r"\[batch,time,4,6\]"),  # heads apart are no width
        ("z = Reshape(x, pairs)  y = Relu(z)", r"\[.*,24\]"),  # merged in front of something else
        ("z = Reshape(x, halves)  y = Reshape(z, narrow)", r"\[.*,12\]"),  # a frame is two rows
    ],
)
def test_other_layouts_are_refused_by_name(nodes: str, got: str) -> None:
    model = parse(
        f"""(float[batch,time,4,6] x) => (float[a,b] y)
        <int64[2] pairs = {{-1, 24}}, int64[4] halves = {{0, 0, 2, 12}}, int64[2] narrow = {{-1, 12}}> {{ {nodes} }}"""
    )
    graphs.infer_shapes(model)
    (x,), (y,) = model.graph.inputs, model.graph.outputs
    batch, time = (graphs.dims_of(x) or ())[:2]
    with pytest.raises(Refused, match=rf"expected y to be \[batch, time, width\] or .*, got {got}"):
        rows_of(y, batch, time)
