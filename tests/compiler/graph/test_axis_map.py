"""axis_map: where the axes of operands lie in results, held against which entries change with which."""

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
import sympy

from compiler.graph.axis_map import NotMapped, axis_map_of, dims, reshaped_groups
from tests.kit.graphs import parse
from tests.kit.whole_sequences import session


def node(op_type: str, *shapes: list[str | int], out: list[str | int], **attributes: int | str) -> ir.Node:
    values = [
        ir.Value(name=f"x{at}", shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
        for at, shape in enumerate(shapes)
    ]
    return ir.node(op_type, values, attributes, outputs=[ir.Value(name="y", shape=ir.Shape(out))])


def test_a_product_mixes_what_it_sums_over() -> None:
    found = axis_map_of(node("MatMul", ["batch", 2, "time", 4], [4, 8], out=["batch", 2, "time", 8]))
    assert found.axes == {0: {0: 0}, 1: {0: 1}, 2: {0: 2}, 3: {1: 1}}
    assert found.mixed == ({0: 3, 1: 0},)


def test_an_einsum_is_read_by_its_letters() -> None:
    equation = "bhid,bhjd->bhij"
    found = axis_map_of(node("Einsum", [1, 2, 3, 4], [1, 2, 5, 4], out=[1, 2, 3, 5], equation=equation))
    assert found.axes[2] == {0: 2}
    assert found.axes[3] == {1: 2}
    assert found.mixed == ({0: 3, 1: 3},)
    with pytest.raises(NotMapped, match="Einsum"):
        axis_map_of(node("Einsum", [3, 3], out=[3], equation="ii->i"))


def test_a_normalisation_with_known_statistics_scales_every_frame_alone() -> None:
    shapes: list[list[str | int]] = [["batch", 8, "time"], [8], [8], [8], [8]]
    found = axis_map_of(node("BatchNormalization", *shapes, out=["batch", 8, "time"]))
    assert (found.data, found.mixed) == ((0,), ())
    assert found.axes == {0: {0: 0}, 1: {0: 1}, 2: {0: 2}}
    with pytest.raises(NotMapped, match="measures what it is given"):
        axis_map_of(node("BatchNormalization", *shapes, out=["batch", 8, "time"], training_mode=1))


def test_an_operator_without_a_rule_is_named() -> None:
    with pytest.raises(NotMapped, match="NonZero"):
        axis_map_of(node("NonZero", ["time"], out=["n"]))


def test_axes_are_followed_forward_and_backward() -> None:
    product = axis_map_of(node("MatMul", ["batch", 2, "time", 4], [4, 8], out=["batch", 2, "time", 8]))
    assert [product.after(0, axis) for axis in range(4)] == [0, 1, 2, None]
    assert [product.after(1, axis) for axis in range(2)] == [None, 3]
    assert product.mixes(0, 3) and product.mixes(1, 0) and not product.mixes(0, 2)
    assert [product.sources(axis) for axis in range(4)] == [{0: 0}, {0: 1}, {0: 2}, {1: 1}]


def test_an_axis_that_is_kept_and_mixed_is_followed_nowhere() -> None:
    running = parse("(float[2,3] x) => (float[2,3] y) <int64 a = {1}> { y = CumSum(x, a) }")
    found = axis_map_of(next(iter(running.graph)))
    assert found.axes[1] == {0: 1} and found.after(0, 1) is None and found.sources(1) == {} and found.after(0, 0) == 0


@pytest.mark.parametrize(
    ("before", "after", "axes", "mixed"),
    [
        (["batch", "time", 8], ["batch", "time", 2, 4], {0: 0, 1: 1}, {2}),
        (["batch", 2, "time", 4], ["batch", "time", 8], {0: 0}, {1, 2, 3}),
        ([1, "time", 8], [1, 1, "time", 8], {0: 0, 2: 1, 3: 2}, set()),
        ([2, 2], [4], {}, {0, 1}),
        ([2, 6, 2], [2, 3, 4], {0: 0}, {1, 2}),
        ([2, 6, 2], [4, 3, 2], {2: 2}, {0, 1}),
    ],
)
def test_axes_stay_whole_where_as_many_entries_lie_in_front_of_them(
    before: list[str | int], after: list[str | int], axes: dict[int, int], mixed: set[int]
) -> None:
    found = axis_map_of(node("Reshape", before, [len(after)], out=after))
    assert {at: pairs[0] for at, pairs in found.axes.items() if pairs} == axes
    assert {group[0] for group in found.mixed} == mixed


OPERATORS = """
(float[2,3,4] x, float[4,5] w) => (float[2,3,5] y) { y = MatMul(x, w) }
(float[3,4] x, float[2,4,5] w) => (float[2,3,5] y) { y = MatMul(x, w) }
(float[3,4] x, float[4,5] w, float[5] b) => (float[3,5] y) { y = Gemm(x, w, b) }
(float[4,3] x, float[4,5] w, float[3,1] b) => (float[3,5] y) { y = Gemm<transA = 1>(x, w, b) }
(float[3,4] x, float[5,4] w) => (float[3,5] y) { y = Gemm<transB = 1>(x, w) }
(float[2,3,4] x, float[2,5,4] w) => (float[2,3,5] y) { y = Einsum<equation = "bid,bjd->bij">(x, w) }
(float[2,3,4] x, float[3,1] w) => (float[2,3,4] y) { y = Add(x, w) }
(float[2,1,4] x) => (float[2,3,4] y) <int64[3] s = {1, 3, 1}> { y = Expand(x, s) }
(float[2,3,4] x) => (float[4,3,2] y) { y = Transpose(x) }
(float[2,3,4] x) => (float[3,4,2] y) { y = Transpose<perm = [1, 2, 0]>(x) }
(float[2,3,4] x) => (float[2,1,4] y) <int64[1] a = {1}> { y = ReduceSum(x, a) }
(float[2,3,4] x) => (float[2,4] y) <int64[1] a = {-2}> { y = ReduceMean<keepdims = 0>(x, a) }
(float[2,3,4] x) => (float[4] y) <int64[2] a = {0, 1}> { y = ReduceMax<keepdims = 0>(x, a) }
(float[2,3,4] x) => (float[1,1,1] y) { y = ReduceSum(x) }
(float[2,3,4] x) => (float[2,3,4] y) { y = ReduceSum<noop_with_empty_axes = 1>(x) }
(float[2,3,4] x) => (int64[2,1,4] y) { y = ArgMax<axis = 1>(x) }
(float[2,3,4] x) => (int64[2,3] y) { y = ArgMin<axis = -1, keepdims = 0>(x) }
(float[2,3,4] x) => (float[2,3,4] y) { y = Softmax<axis = 1>(x) }
(float[2,3,4] x) => (float[2,3,4] y) { y = LogSoftmax(x) }
(float[2,3,4] x, float[3,4] w) => (float[2,3,4] y) { y = LayerNormalization<axis = 1>(x, w) }
(float[2,3,4] x, float[4] w) => (float[2,3,4] y) { y = LayerNormalization(x, w) }
(float[2,3,4] x) => (float[2,3,4] y) { y = LpNormalization<axis = 0>(x) }
(float[2,3,4] x, float[3] s, float[3] b) => (float[2,3,4] y) { y = InstanceNormalization(x, s, b) }
(float[2,3,4] x) => (float[2,3,4] y) <int64 a = {1}> { y = CumSum(x, a) }
(float[5,4] x) => (float[2,3,4] y) <int64[2,3] i = {0, 3, 1, 2, 4, 4}> { y = Gather(x, i) }
(float[2,5,4] x) => (float[2,4] y) <int64 i = {3}> { y = Gather<axis = -2>(x, i) }
(float[5,3] x) => (float[2,3] y) <int64[2,3] i = {0, 3, 1, 2, 4, 4}> { y = GatherElements(x, i) }
(float[3,4,5] x) => (float[2,5] y) <int64[2,2] i = {0, 3, 2, 1}> { y = GatherND(x, i) }
(float[3,4,5] x) => (float[2,6,4,5] y) <int64[2,6,1] i = {0, 1, 2, 0, 1, 2, 2, 1, 0, 0, 1, 2}> { y = GatherND(x, i) }
(float[2,3,4] x, float[2,5,4] w) => (float[2,8,4] y) { y = Concat<axis = 1>(x, w) }
(float[2,6,4] x) => (float[2,2,4] y, float[2,4,4] z) <int64[2] s = {2, 4}> { y, z = Split<axis = 1>(x, s) }
(float[2,6,4] x) => (float[2,3,4] y) <int64[1] s = {1}, int64[1] e = {4}, int64[1] a = {1}> { y = Slice(x, s, e, a) }
(float[2,6,4] x) => (float[2,6,4] y) <int64[1] s = {5}, int64[1] e = {-9}, int64[1] a = {1}, int64[1] d = {-1}>
    { y = Slice(x, s, e, a, d) }
(float[2,6,4] x) => (float[2,6,3] y)
    <int64[2] s = {-1, 0}, int64[2] e = {-9, 3}, int64[2] a = {1, -1}, int64[2] d = {-1, 1}>
    { y = Slice(x, s, e, a, d) }
(float[2,6,4] x) => (float[1,6,4] y) <int64[3] s = {1, 0, 0}, int64[3] e = {2, 6, 4}> { y = Slice(x, s, e) }
(float[2,6,4] x) => (float[2,6,7] y) <int64[6] p = {0, 0, 1, 0, 0, 2}> { y = Pad(x, p) }
(float[2,6,4] x) => (float[2,6,4] y) <int64[6] p = {0, 1, 0, 0, -1, 0}> { y = Pad(x, p) }
(float[2,6,4] x) => (float[2,6,4] y) <int64[2] p = {-2, 2}, float v = {0.0}, int64[1] a = {-2}> { y = Pad(x, p, v, a) }
(float[2,6,4] x) => (float[2,6,5] y) <int64[4] p = {0, 0, 0, 1}, float v = {0.0}, int64[2] a = {1, 2}>
    { y = Pad(x, p, v, a) }
(float[2,3,4] x) => (float[2,6,4] y) <int64[3] t = {1, 2, 1}> { y = Tile(x, t) }
(float[2,3,4] x) => (float[2,3,4] y) { y = Trilu(x) }
(float[2,3,4] x) => (float[2,12] y) <int64[2] s = {0, -1}> { y = Reshape(x, s) }
(float[2,3,4] x) => (float[6,4] y) { y = Flatten<axis = 2>(x) }
(float[2,3,4] x) => (float[2,3,2,2] y) <int64[4] s = {2, 3, 2, 2}> { y = Reshape(x, s) }
(float[6,4] x) => (float[2,3,4] y) <int64[3] s = {2, 3, 4}> { y = Reshape(x, s) }
(float[2,1,4] x) => (float[2,4] y) <int64[1] a = {-2}> { y = Squeeze(x, a) }
(float[2,3] x) => (float[1,2,3,1] y) <int64[2] a = {0, -1}> { y = Unsqueeze(x, a) }
(float[2,3,6] x, float[5,3,3] w) => (float[2,5,4] y) { y = Conv(x, w) }
(float[2,3,6] x, float[5,3,1] w) => (float[2,5,6] y) { y = Conv(x, w) }
(float[2,3,5] x, float[4,3,1] w) => (float[2,4,5] y) { y = Conv<strides = [2], pads = [2, 2]>(x, w) }
(float[2,3,6,4] x, float[5,3,1,3] w) => (float[2,5,6,4] y) { y = Conv<pads = [0, 1, 0, 1]>(x, w) }
(float[2,3,6,4] x, float[5,3,1,1] w) => (float[2,5,3,4] y) { y = Conv<strides = [2, 1]>(x, w) }
(float[2,3,6] x) => (float[2,3,5] y) { y = MaxPool<kernel_shape = [2]>(x) }
"""
"""Operators with operands of constant sizes; the float ones are changed, an entry at a time."""


COARSE = {"InstanceNormalization", "MaxPool"}
"""Of which less is said than holds: channels are taken to be mixed, as GroupNormalization and Conv mix them."""


def texts(of: str) -> list[str]:
    """The graphs of a text, each of which begins with its inputs at the start of a line."""
    return [f"({each.strip()}" for each in of.strip().removeprefix("(").split("\n(")]


def entries_read(model: ir.Model) -> dict[str, npt.NDArray[np.bool_]]:
    """By input, which entries of the first result change with which entry: [entries of the input, entries of it]."""
    draw, runs = np.random.default_rng(0), session(model)
    found = {}
    for value in model.graph.inputs:
        shape = tuple(int(str(dim)) for dim in value.shape or ())
        found[str(value.name)] = read = np.zeros((int(np.prod(shape)), 0), np.bool_)
        for _ in range(3):
            feeds = {str(each.name): draw.standard_normal([int(str(d)) for d in each.shape or ()]).astype(np.float32)
                     for each in model.graph.inputs}  # fmt: skip
            plain = runs.run(None, feeds)[0].reshape(-1)
            read = np.zeros((len(read), plain.size), np.bool_) if read.shape[1] == 0 else read
            for at in range(len(read)):
                changed = feeds[str(value.name)].copy()
                changed.reshape(-1)[at] += 40 * (-1) ** at
                read[at] |= plain != runs.run(None, {**feeds, str(value.name): changed})[0].reshape(-1)
        found[str(value.name)] = read
    return found


@pytest.mark.parametrize("text", texts(OPERATORS))
def test_axes_are_linked_where_entries_are_computed_of_those_at_the_same_place_and_nowhere_else(text: str) -> None:
    model = parse(text)
    (node,) = model.graph
    axis_map, read, after = axis_map_of(node), entries_read(model), [int(str(dim)) for dim in dims(node.outputs[0])]
    for operand in axis_map.data:
        value = node.inputs[operand]
        if value is None or value.is_initializer():
            continue
        before = [int(str(dim)) for dim in dims(value)]
        pairs = np.argwhere(read[str(value.name)])
        of, to = np.unravel_index(pairs[:, 0], before), np.unravel_index(pairs[:, 1], after)
        same = {
            (axis, at)
            for axis, size in enumerate(before)
            for at, other in enumerate(after)
            if size == other > 1 and (of[axis] == to[at]).all()
        }
        mixed = {each[operand] for each in axis_map.mixed if operand in each}
        told = {
            (axes[operand], at) for at, axes in axis_map.axes.items() if operand in axes and axes[operand] not in mixed
        }
        assert told == same or (told < same and node.op_type in COARSE)
        assert {axis for axis, size in enumerate(before) if size > 1} <= mixed | {axis for axis, _ in told}


@pytest.mark.parametrize(
    ("before", "after", "groups"),
    [
        ((2, 3, 4), (2, 12), [((0,), (0,)), ((1, 2), (1,))]),
        ((2, 12), (2, 3, 4), [((0,), (0,)), ((1,), (1, 2))]),
        ((2, 1, 4), (2, 4), [((0,), (0,)), ((1,), ()), ((2,), (1,))]),
        ((2, 4), (2, 1, 4), [((0,), (0,)), ((1,), (1, 2))]),
        ((6, 4), (4, 6), [((0, 1), (0, 1))]),
        ((), (1, 1), [((), (0, 1))]),
    ],
)
def test_axes_of_a_reshape_that_hold_the_same_entries_are_grouped(
    before: tuple[int, ...], after: tuple[int, ...], groups: list[tuple[tuple[int, ...], tuple[int, ...]]]
) -> None:
    found = [(tuple(old), tuple(new)) for old, new in reshaped_groups(before, after)]
    assert [pair for pair in found if pair != ((), ())] == groups


def test_named_axes_are_grouped_by_what_they_are_and_others_stay_together() -> None:
    batch, time = sympy.Symbol("batch"), sympy.Symbol("time")
    found = reshaped_groups((batch, time, 12), (batch, time, 3, 4))
    assert [(tuple(old), tuple(new)) for old, new in found][:3] == [((0,), (0,)), ((1,), (1,)), ((2,), (2, 3))]
    mixed = reshaped_groups((batch, time, 12), (batch * time, 12))
    assert [(tuple(old), tuple(new)) for old, new in mixed][:2] == [((0, 1), (0,)), ((2,), (1,))]
