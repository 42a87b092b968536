"""project_positions: what follows the lookup of a constant table is computed in the table."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.passes.pad_axes import PadAxes
from compiler.passes.project_positions import ProjectPositions
from tests.kit.contract import check_meaning, content_of, verify_pass, verify_untouched
from tests.kit.graphs import copy_of, ops_of, parse, random_weights, streaming


def lookup(body: str) -> Lowered:
    """Rows looked up by `index` [batch, 3], and a body that makes `y` of them."""
    text = f"""(float[batch,3,4] x, float[8,4] table, float[4,2] w, float[4] g)
    => (float[batch,a,b] y)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[3] shape = {{0, 3, 4}}, int64[3] merged = {{-1, 1, 4}}>
    {{
        index = ArgMax<axis = 2, keepdims = 0>(x)
        rows = Gather(table, index)
        {body}
    }}"""
    model = parse(text, random_weights({"table": (9, 4), "w": (4, 2), "g": (4,)}))
    return Lowered("tiny", model, batch_axis="batch")


def test_the_projection_of_positions_moves_into_the_table() -> None:
    origin = streaming(lookup="projected")
    padded = PadAxes().apply(copy_of(origin)).lowered
    outcome = verify_pass(ProjectPositions(), padded, tolerance=1e-5, origin=origin)
    assert ops_of(outcome.lowered.model).count("MatMul") == ops_of(padded.model).count("MatMul") - 1


@pytest.mark.parametrize(
    "body",
    [
        "y = MatMul(rows, w)",
        "a = Mul(rows, g)  b = Tanh(a)  c = LayerNormalization<axis = -1>(b, g)  y = MatMul(c, w)",
        "a = MatMul(rows, w)  y = Softmax<axis = -1>(a)",
        "a = Tanh(rows)  b = MatMul(a, w)  c = MatMul(rows, w)  y = Sub(b, c)",
    ],
)
def test_row_wise_chains_are_folded(body: str) -> None:
    outcome = verify_pass(ProjectPositions(), lookup(body), tolerance=1e-6)
    assert outcome.rewritten


@pytest.mark.parametrize(
    "body",
    [
        "y = Softmax<axis = 1>(rows)",
        "y = Softmax<axis = 0>(rows)",
        "y = Slice(rows, zero, one, zero)",
        "y = Reshape(rows, shape)",
        "y = Reshape(rows, merged)",
        "y = Transpose<perm = [1, 0, 2]>(rows)",
        "y = Add(rows, x)",
        "y = ReduceMax<keepdims = 1>(rows, zero)",
    ],
)
def test_what_mixes_rows_or_streams_or_reads_more_stays(body: str) -> None:
    # regression: a Softmax or Slice over the batch axis was folded as if every stream were alone
    outcome = verify_untouched(ProjectPositions(), lookup(body))
    assert outcome.matched == 1


def test_a_lookup_of_a_computed_table_stays() -> None:
    text = "(float[8,4] x, int64[batch,3] index) => (float[batch,3,4] y) { r = Gather(x, index)  y = Tanh(r) }"
    assert verify_untouched(ProjectPositions(), Lowered("tiny", parse(text))).matched == 0


def test_a_folded_result_keeps_its_name() -> None:
    lowered = lookup("y = MatMul(rows, w)")
    done = ProjectPositions().apply(copy_of(lowered)).lowered
    assert list(graphs.outputs_named(done.model)) == ["y"]
    check_meaning(lowered, done, 1e-6, 3, 2)
    assert content_of(done) != content_of(lowered)
    tables = [
        array for value in done.model.graph.initializers.values() if (array := graphs.array_of(value)) is not None
    ]
    assert all(np.isfinite(array).all() for array in tables)
