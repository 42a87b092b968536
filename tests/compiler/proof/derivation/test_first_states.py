"""first_states: one row of constants that is spread over all rows is told, and rows that differ are not."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.proof.derivation.first_states import first_state
from tests.kit.graphs import parse

LEARNT = np.arange(6, dtype=np.float32).reshape(2, 1, 3)
HEAD = "(float[batch,4] x) => (float[layers,batch,3] h) <float[2,1,3] w = {0, 1, 2, 3, 4, 5}, int64[1] one = {1}, "
SIZES = "float[1,2,3] v = {0, 1, 2, 3, 4, 5}, int64[1] two = {2}, int64[1] three = {3}, int64[1] zero = {0}> {"
ROWS = " rows = Shape<start = 0, end = 1>(x) "
STACK = "sizes = Concat<axis = 0>(two, rows, three)  "

ALIKE = {
    "expanded": (f"{STACK} h = Expand(w, sizes)", LEARNT),
    "repeated": ("times = Concat<axis = 0>(one, rows, one)  h = Tile(w, times)", LEARNT),
    "cut": (f"{STACK} all = Expand(w, sizes)  h = Slice(all, one, two, zero)", LEARNT[1:]),
    "picked": (f"{STACK} all = Expand(w, sizes)  h = Gather<axis = 0>(all, one)", LEARNT[1:]),
    "joined": (f"{STACK} all = Expand(w, sizes)  h = Concat<axis = 0>(all, all)", np.concatenate([LEARNT, LEARNT])),
    "cast": (f"{STACK} all = Expand(w, sizes)  h = Cast<to = 1>(all)", LEARNT),
    "of one number": (f"{STACK} h = ConstantOfShape<value = float[1] {{0.5}}>(sizes)", np.full((2, 1, 3), 0.5)),
    "turned": (
        "sizes = Concat<axis = 0>(rows, two, three)  all = Expand(v, sizes)  "
        "h = Transpose<perm = [1, 0, 2]>(all)",
        LEARNT,
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", ALIKE)
def test_one_row_is_followed_to_the_state(how: str) -> None:
    text, expected = ALIKE[how]
    model = parse(f"{HEAD}{SIZES}{ROWS}{text} }}", {})
    graphs.infer_shapes(model)
    found = first_state(model.graph.outputs[0], graphs.symbol("batch"))
    assert found is not None and found.dtype == np.float32
    assert np.array_equal(found, expected)


APART = {
    "another row of a table for each": "h = Slice(w, zero, rows, one)",
    "layers and rows in turns": (
        f"{STACK} turned = Concat<axis = 0>(rows, two, three)  all = Expand(v, turned)  h = Reshape(all, sizes)"
    ),
    "rows one behind the other": f"{STACK} all = Expand(w, sizes)  h = Concat<axis = 1>(all, all)",
    "one row alone": f"{STACK} all = Expand(w, sizes)  h = Slice(all, zero, one, one)",
    "computed": f"{STACK} all = Expand(w, sizes)  h = Tanh(all)",
}


@pytest.mark.parametrize("how", APART)
def test_what_is_not_one_row_for_all_is_not_known(how: str) -> None:
    model = parse(f"{HEAD}{SIZES}{ROWS}{APART[how]} }}", {})
    graphs.infer_shapes(model)
    found = first_state(model.graph.outputs[0], graphs.symbol("batch"))
    assert found is None


def test_a_constant_of_known_sizes_is_what_it_is() -> None:
    model = parse(f"{HEAD}{SIZES}{ROWS} h = Identity(w) }}", {})
    found = first_state(model.graph.node(-1).inputs[0], 1)
    assert found is not None and np.array_equal(found, LEARNT)
