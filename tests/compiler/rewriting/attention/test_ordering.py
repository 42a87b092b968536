"""ordering: heads of a bias in another order."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.session import session_of
from compiler.rewriting.attention.ordering import in_order
from tests.kit.graphs import node_named, ops_of, parse

ORDER = (2, 0, 3, 1)

MADE = {
    "slopes": "f = Cast<to = 1>(x) bias = Mul(f, slopes)",
    "turned": """t = Transpose<perm = [1, 0, 2]>(slopes) f = Cast<to = 1>(x) u = Unsqueeze(f, middle)
        m = Mul(t, u) bias = Transpose<perm = [1, 0, 2]>(m)""",
    "added axis": "f = Cast<to = 1>(x) flat = Unsqueeze(line, ends) bias = Add(f, flat)",
    "buckets": "rows = Gather<axis = 0>(table, x) bias = Transpose<perm = [2, 0, 1]>(rows)",
    "anything": "f = Cast<to = 1>(x) m = Mul(f, slopes) bias = CumSum(m, nothing)",
}


@pytest.mark.parametrize("made", MADE)
def test_heads_come_in_the_order_of_constants_where_nothing_mixes_them(made: str) -> None:
    rng = np.random.default_rng(0)
    shapes = {"slopes": (4, 1, 1), "line": (4,), "table": (8, 4)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    model = parse(
        f"""(int64[3,5] x, float[4,1,1] slopes, float[4] line, float[8,4] table) => (float[4,3,5] y)
        <int64[2] ends = {{1, 2}}, int64[1] middle = {{1}}, int64 nothing = {{0}}> {{ {MADE[made]} y = Neg(bias) }}""",
        weights,
    )
    feed = {"x": rng.integers(0, 8, (3, 5))}
    before = session_of(model).run(["y"], feed)[0]
    reader = node_named(model, "y")
    assert reader.inputs[0] is not None
    reader.replace_input_with(0, in_order(model, reader, reader.inputs[0], 0, ORDER, "test"))
    graphs.prune(model)
    np.testing.assert_array_equal(session_of(model).run(["y"], feed)[0][[1, 3, 0, 2]], before)
    of_data = [node for node in model.graph if node.op_type == "Gather" and graphs.array_of(node.inputs[0]) is None]
    assert len(of_data) == (made == "anything")


def test_heads_that_are_in_order_stay_as_they_are() -> None:
    model = parse("(float[4,3] x) => (float[4,3] y) { y = Neg(x) }")
    reader = node_named(model, "y")
    assert reader.inputs[0] is not None
    assert in_order(model, reader, reader.inputs[0], 0, range(4), "test") is reader.inputs[0]
    assert ops_of(model) == ["Neg"]
