"""Whatever is done with cached frames gives the same when they lie in the order in which they came, or is refused."""

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import session_of
from compiler.graph.stages import Array
from compiler.states.appending.order import Cached, write_apart
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.graphs import ops_of, parse

SLOTS, ROWS, NEW = 6, 4, 2
CACHE = CacheAxis("past", SLOTS, 1, "length", None, added="time", is_whole=True)
LENGTHS = np.array([0, 1, 4, 6])

TEXT = """
(float[batch,6,2] keys, int64[batch] length, float[batch,time,2] new, float[batch,time,2] query,
 float[batch,1,all] bias, float[batch,6] slots, float[batch,all,1] column) => (float[a,b,c] y)
<int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] three = {{3}}, float nothing = {{0}},
 int64[0] nowhere = {{}},
 int64[4] heads = {{0, 1, -1, 2}}, int64[4] copies = {{1, 3, 1, 1}}, int64[2] flat = {{0, -1}},
 float[1,6,1] alike = {{1, 2, 3, 4, 5, 6}}, float[6,1] lower = {{6, 5, 4, 3, 2, 1}}>
{{
    joined = Concat<axis = 1>(keys, new)
    {nodes}
}}
"""

ATTENTION = """turned = Transpose<perm = [0, 2, 1]>(joined)  raw = MatMul(query, turned)  scores = Add(raw, bias)
    weights = Softmax<axis = -1>(scores)  y = MatMul(weights, joined)"""

BEHIND = """sums = ReduceSum(query, two)  in_row = Transpose<perm = [0, 2, 1]>(sums)
    beside = Concat<axis = 2>(in_row, bias)  both = Concat<axis = 1>(query, joined)"""
"""Frames behind others, and a bias for all of them."""

SAME = {
    "attention to others in front of them": BEHIND + ATTENTION.replace("joined", "both").replace("bias", "beside"),
    "gates on others in front of them, too": f"""{BEHIND}  gates = Transpose<perm = [0, 2, 1]>(beside)
        gated = Mul(both, gates)  y = MatMul(beside, gated)""",
    "as many as there are with others in front": f"""{BEHIND}  count = Shape<start = 1, end = 2>(both)
        many = Cast<to = 1>(count)  y = Mul(query, many)""",
    "attention": ATTENTION,
    "gates on values": f"gated = Mul(joined, column)  {ATTENTION.replace('weights, joined', 'weights, gated')}",
    "a sum of cached frames": "y = ReduceSum(keys, one)",
    "the largest of all frames": "y = ReduceMax(joined, one)",
    "the largest of all entries": "y = ReduceMax(joined)",
    "the largest of all entries, no axes named": "y = ReduceMax(joined, nowhere)",
    "the largest of all entries as a scalar": "y = ReduceMax<keepdims = 0>(joined, nowhere)",
    "sums over channels, then over frames": "s = ReduceSum(joined, two)  y = ReduceMean(s, one)",
    "channels dropped": "s = ReduceSum<keepdims = 0>(joined, two)  u = Unsqueeze(s, one)  y = MatMul(u, joined)",
    "cached frames with one number for each": "w = Unsqueeze(slots, two)  m = Mul(keys, w)  y = ReduceSum(m, one)",
    "the same number in all rows": "m = Mul(keys, alike)  y = ReduceSum(m, one)",
    "the same number in all rows, fewer axes": "m = Mul(lower, keys)  y = ReduceSum(m, one)",
    "weights that no frame made": "w = Unsqueeze(slots, one)  y = MatMul(w, keys)",
    "a softmax over channels": "p = Softmax<axis = 2>(joined)  y = ReduceSum(p, one)",
    "frames as rows of a product": """t = Transpose<perm = [0, 2, 1]>(query)  p = MatMul(joined, t)
        y = ReduceSum(p, one)""",
    "another shape and copies": """h = Reshape(joined, heads)  e = Expand(h, copies)
        s = ReduceSum<keepdims = 0>(e, one)  y = ReduceMax(s, one)""",
    "an axis more and less": "u = Unsqueeze(joined, three)  s = Squeeze(u, three)  y = ReduceMax(s, one)",
    "sizes": """n = Shape<start = 1, end = 2>(joined)  f = Cast<to = 1>(n)
        t = ReduceMax(joined, one)  y = Mul(t, f)""",
    "two caches of one kind": "both = Mul(keys, keys)  y = ReduceSum(both, one)",
}

REFUSED = {
    "a slot by its number": ("y = Slice(keys, zero, one, one)", "Slice"),
    "a running sum": ("c = CumSum(keys, three)  y = ReduceSum(c, one)", "CumSum"),
    "new frames in front": ("j = Concat<axis = 1>(new, keys)  y = ReduceMax(j, one)", "another way"),
    "frames beside others of their kind": ("j = Concat<axis = 1>(keys, keys)  y = ReduceMax(j, one)", "of their kind"),
    "frames given in their order": ("y = Neg(joined)", "order of slots"),
    "frames put together with channels": ("y = Reshape(keys, flat)", "together with others"),
    "frames by frames": ("t = Transpose<perm = [0, 2, 1]>(keys)  p = MatMul(keys, t)  y = ReduceMax(p, one)", "two of"),
    "rows behind": ("t = Transpose<perm = [1, 0, 2]>(keys)  y = ReduceMax(t, zero)", "rows do not lie in front"),
}


def feeds() -> dict[str, Array]:
    random, every = np.random.default_rng(0), SLOTS + NEW
    shapes = {"keys": (SLOTS, 2), "new": (NEW, 2), "query": (NEW, 2), "bias": (1, every), "slots": (SLOTS,)}
    found = {name: random.standard_normal((ROWS, *shape)).astype(np.float32) for name, shape in shapes.items()}
    found |= {"length": LENGTHS, "column": random.standard_normal((ROWS, every, 1)).astype(np.float32)}
    for row, length in enumerate(LENGTHS):
        found["keys"][row, : SLOTS - length] = 0
    return found


def first_in_front(keys: Array) -> Array:
    """What a right-aligned cache holds, its first frame in the first slot."""
    return np.stack([np.roll(row, int(length) - SLOTS, 0) for row, length in zip(keys, LENGTHS, strict=True)])


def answer(model: object, fed: dict[str, Array]) -> Array:
    names = {str(value.name) for value in model.graph.inputs}  # type: ignore[attr-defined]
    (found,) = session_of(model).run(["y"], {name: each for name, each in fed.items() if name in names})  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("name", SAME)
def test_the_order_of_cached_frames_is_not_seen(name: str) -> None:
    model = parse(TEXT.format(nodes=SAME[name]))
    expected = answer(model, feeds())
    keys, new = (graphs.inputs_named(model)[each] for each in ("keys", "new"))
    write_apart(model, CACHE, [Cached(keys, new, 1)], lambda condition, axis, is_behind: False, "test")
    graphs.prune(model)
    fed = feeds()
    np.testing.assert_allclose(answer(model, {**fed, "keys": first_in_front(fed["keys"])}), expected, atol=1e-5)


def test_keys_and_values_are_not_joined() -> None:
    model = parse(TEXT.format(nodes=ATTENTION))
    keys, new = (graphs.inputs_named(model)[each] for each in ("keys", "new"))
    write_apart(model, CACHE, [Cached(keys, new, 1)], lambda condition, axis, is_behind: False, "test")
    graphs.prune(model)
    assert ops_of(model).count("MatMul") == 4
    assert {node.op_type for node in graphs.consumers_of(keys)} == {"Transpose", "MatMul"}


@pytest.mark.parametrize("lies", [True, False])
def test_a_selection_of_zeros_where_there_are_some_is_dropped_where_it_is_shown(lies: bool) -> None:
    nodes = """valid = Greater(column, nothing)  clean = Where(valid, joined, nothing)
        w = Transpose<perm = [0, 2, 1]>(column)  y = MatMul(w, clean)"""
    model = parse(TEXT.format(nodes=nodes))
    keys, new = (graphs.inputs_named(model)[each] for each in ("keys", "new"))
    asked = []

    def told(condition: object, axis: int, is_behind: bool) -> bool:
        asked.append((condition.name, axis, is_behind))  # type: ignore[attr-defined]
        return lies

    write_apart(model, CACHE, [Cached(keys, new, 1)], told, "test")
    graphs.prune(model)
    assert asked == [("valid", 1, False)]
    assert ops_of(model).count("Where") == (1 if lies else 2)
    assert ("Where" in {node.op_type for node in graphs.consumers_of(keys)}) == (not lies)


@pytest.mark.parametrize("name", REFUSED)
def test_what_sees_their_order_is_refused(name: str) -> None:
    nodes, message = REFUSED[name]
    model = parse(TEXT.format(nodes=nodes))
    keys, new = (graphs.inputs_named(model)[each] for each in ("keys", "new"))
    with pytest.raises(Refused, match=message):
        write_apart(model, CACHE, [Cached(keys, new, 1)], lambda condition, axis, is_behind: False, "test")
