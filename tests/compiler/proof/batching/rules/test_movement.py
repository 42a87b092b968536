"""Moves of entries: a 1 that stands for the batch goes where the original takes it."""

import itertools

import pytest

from compiler.errors import Refused
from compiler.passes.add_batch_axis import AddBatchAxis
from tests.kit.graphs import ops_of, random_weights
from tests.kit.one_row import check_rows, one_row

SHAPES = [("1,t,4", 0), ("t,1,4", 1), ("3,t,4", None)]


def check(dims: str, place: int | None, op: str, constants: str = "", ops: list[str] | None = None) -> None:
    """One op on one input; the output is compared with the batch in front of it all."""
    text = f"(float[{dims}] x) => (float[o] y){f' <{constants}>' if constants else ''} {{ y = {op} }}"
    outcome = check_rows(one_row(text, {"x": place, "y": None}))
    assert ops is None or ops_of(outcome.lowered.model) == ops


@pytest.mark.parametrize(("dims", "place"), SHAPES)
@pytest.mark.parametrize("order", [list(order) for order in itertools.permutations(range(3))])
def test_transposes(order: list[int], dims: str, place: int | None) -> None:
    check(dims, place, f"Transpose<perm = {order}>(x)")


@pytest.mark.parametrize(("dims", "place"), SHAPES)
def test_a_transpose_without_an_order_reverses(dims: str, place: int | None) -> None:
    check(dims, place, "Transpose(x)")


@pytest.mark.parametrize(
    ("dims", "place", "axes"),
    [("1,t,1,4", 0, "0"), ("1,t,1,4", 0, "2"), ("1,t,1,4", 0, "0, 2"), ("1,t,1,4", 2, "0"), ("1,t,1,4", 2, "2"),
     ("1,t,1,4", 2, "-4, -2"), ("1,t,1,4", None, "0, 2"), ("t,1,4", None, "1")],
)  # fmt: skip
def test_squeezes(dims: str, place: int | None, axes: str) -> None:
    check(dims, place, "Squeeze(x, a)", f"int64[{len(axes.split(','))}] a = {{{axes}}}")


def test_a_squeeze_of_every_one() -> None:
    check("1,3,1,4", 2, "Squeeze(x)")


@pytest.mark.parametrize(("dims", "place"), SHAPES)
@pytest.mark.parametrize("axes", ["0", "1", "-1", "0, 1", "1, 3", "0, 4"])
def test_unsqueezes(axes: str, dims: str, place: int | None) -> None:
    check(dims, place, "Unsqueeze(x, a)", f"int64[{len(axes.split(','))}] a = {{{axes}}}")


def test_the_axis_in_front_comes_and_goes_without_a_node() -> None:
    text = "(float[t,4] x) => (float[o] y) <int64[1] a = {0}> { u = Unsqueeze(x, a) r = Relu(u) y = Squeeze(r, a) }"
    assert ops_of(check_rows(one_row(text, {"x": None, "y": None})).lowered.model) == ["Relu"]
    text = "(float[1,t,4] x) => (float[o] y) <int64[1] a = {0}> { u = Squeeze(x, a) r = Relu(u) y = Unsqueeze(r, a) }"
    assert ops_of(check_rows(one_row(text, {"x": 0, "y": 0})).lowered.model) == ["Relu"]


@pytest.mark.parametrize(
    ("dims", "place", "target"),
    [
        ("1,t,4", 0, "1, -1, 2, 2"),
        ("1,t,4", 0, "0, 0, 2, 2"),
        ("1,t,4", 0, "-1, 4"),
        ("1,t,4", 0, "1, -1"),
        ("1,t,4", 0, "-1, 1, 4"),
        ("1,3,4", 0, "-1, 3, 4"),
        ("1,3,4", 0, "3, 4"),
        ("t,1,4", 1, "0, 1, 2, 2"),
        ("t,1,4", 1, "-1, 2, 2"),
        ("t,1,4", 1, "1, -1, 4"),
        ("4,1,3", 1, "2, 1, 6"),
        ("3,t,4", None, "3, -1"),
        ("3,t,4", None, "0, 0, 2, 2"),
        ("t,4", None, "1, -1, 4"),
        ("t,4", None, "-1"),
    ],
)
def test_reshapes(dims: str, place: int | None, target: str) -> None:
    check(dims, place, "Reshape(x, s)", f"int64[{len(target.split(','))}] s = {{{target}}}")


def test_a_target_that_splits_an_axis_behind_the_batch_keeps_its_place() -> None:
    check("1,t,4", 0, "Reshape(x, s)", "int64[4] s = {1, -1, 2, 2}", ["Reshape", "Unsqueeze"])


def test_targets_that_are_computed_from_shapes() -> None:
    text = """(float[1,t,4] x) => (float[1,t,2,2] y) <int64[2] tail = {2, 2}>
    { front = Shape<start = 0, end = 2>(x)  s = Concat<axis = 0>(front, tail)  y = Reshape(x, s) }"""
    check_rows(one_row(text, {"x": 0, "y": 0}))


@pytest.mark.parametrize("zero", [0, 1])
def test_zeros_that_mean_empty(zero: int) -> None:
    check("1,3,4", 0, f"Reshape<allowzero = {zero}>(x, s)", "int64[2] s = {1, -1}")
    check("3,4", None, f"Reshape<allowzero = {zero}>(x, s)", "int64[1] s = {-1}")


@pytest.mark.parametrize(
    ("dims", "place", "axis"),
    [("1,t,4", 0, 1), ("1,t,4", 0, 2), ("3,t,4", None, -1), ("1,t,4", 0, 0), ("1,t,4", 0, -3), ("1,t,4", 0, -2),
     ("1,t,4", 0, 3), ("3,t,4", None, 3)],
)  # fmt: skip
def test_flattens(dims: str, place: int | None, axis: int) -> None:
    check(dims, place, f"Flatten<axis = {axis}>(x)")


def test_a_flatten_to_two_unknown_sizes_is_refused() -> None:
    text = "(float[t,u,4] x) => (float[o] y) { y = Flatten<axis = 1>(x) }"
    with pytest.raises(Refused, match="Flatten to two unknown sizes"):
        AddBatchAxis().apply(one_row(text, {"x": None, "y": None}))


@pytest.mark.parametrize(
    ("dims", "place", "sizes"),
    [("1,3,4", 0, "1, 3, 4"), ("1,3,4", 0, "2, 1, 1"), ("1,1,4", 0, "1, 3, 1"), ("1,4", 0, "3, 1, 4"),
     ("4", None, "3, 4"), ("3,1,4", 1, "5, 1"), ("3,4", None, "1"), ("3,1", None, "3, 2")],
)  # fmt: skip
def test_expands(dims: str, place: int | None, sizes: str) -> None:
    check(dims, place, "Expand(x, s)", f"int64[{len(sizes.split(','))}] s = {{{sizes}}}")


@pytest.mark.parametrize(("dims", "place"), SHAPES)
@pytest.mark.parametrize("repeats", ["1, 1, 2", "2, 1, 1", "1, 2, 1"])
def test_tiles(dims: str, place: int | None, repeats: str) -> None:
    check_rows(one_row(
        f"(float[{dims}] x) => (float[o] y) <int64[3] s = {{{repeats}}}> {{ y = Tile(x, s) }}",
        {"x": place, "y": None},
    ))  # fmt: skip


@pytest.mark.parametrize(("dims", "place"), SHAPES)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_joins_with_what_all_rows_share(axis: int, dims: str, place: int | None) -> None:
    weight = tuple({"t": 4}.get(n) or int(n) for n in dims.split(","))
    shown = ",".join(map(str, weight))
    dims = dims.replace("t", "4")
    text = f"(float[{dims}] x, float[{shown}] w) => (float[o] y) {{ y = Concat<axis = {axis}>(w, x, w) }}"
    check_rows(one_row(text, {"x": place, "y": None}, random_weights({"w": weight})))


def test_joins_of_different_forms() -> None:
    text = "(float[1,t,4] x, float[1,t,4] z) => (float[o] y) { y = Concat<axis = 1>(x, z) }"
    check_rows(one_row(text, {"x": 0, "z": None, "y": 0}))
    text = "(float[1,1,4] x, float[1,1,4] z) => (float[o] y) { y = Concat<axis = 1>(x, z) }"
    check_rows(one_row(text, {"x": 0, "z": 1, "y": 0}))


@pytest.mark.parametrize(("dims", "place"), [("1,t,4", 0), ("t,1,4", 1), ("2,t,4", None)])
@pytest.mark.parametrize("axis", [0, 2, -1])
def test_splits(axis: int, dims: str, place: int | None) -> None:
    size = {"1": 1, "t": 4, "2": 2, "4": 4}[dims.split(",")[axis]]
    dims = dims.replace("t", "4")
    parts = "1" if size == 1 else f"1, {size - 1}"
    names = "y" if size == 1 else "y, z"
    text = f"""(float[{dims}] x) => ({", ".join(f"float[o] {n}" for n in names.split(", "))})
    <int64[{len(parts.split(","))}] s = {{{parts}}}> {{ {names} = Split<axis = {axis}>(x, s) }}"""
    check_rows(one_row(text, {"x": place, **dict.fromkeys(names.split(", "))}))


@pytest.mark.parametrize(("dims", "place"), SHAPES)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_cuts(axis: int, dims: str, place: int | None) -> None:
    check(
        dims.replace("t", "4"), place, "Slice(x, f, e, a)", f"int64[1] f={{0}}, int64[1] e={{1}}, int64[1] a={{{axis}}}"
    )


def test_a_cut_that_names_no_axes() -> None:
    check("3,4", None, "Slice(x, f, e)", "int64[2] f = {1, 0}, int64[2] e = {3, 2}")
    check("1,3,4", 0, "Slice(x, f, e)", "int64[2] f = {0, 1}, int64[2] e = {1, 3}")


@pytest.mark.parametrize("end", ["Add(at, at)", "Sub(at, count)", "Add(other, count)"])
def test_a_run_of_another_length_in_every_row_is_refused(end: str) -> None:
    text = f"""(int64 at, int64 other, float[9,4] table) => (float[o] y)
    <int64 count = {{3}}, int64[1] zero = {{0}}, int64[1] one = {{1}}> {{
        end = {end}
        front = Reshape(at, one)
        back = Reshape(end, one)
        y = Slice(table, front, back, zero)
    }}"""
    lowered = one_row(text, {"at": None, "other": None, "y": None}, random_weights({"table": (9, 4)}))
    with pytest.raises(Refused, match="Slice takes its bounds from"):
        AddBatchAxis().apply(lowered)


@pytest.mark.parametrize(("dims", "place"), SHAPES)
@pytest.mark.parametrize("pads", ["0, 1, 0, 0, 0, 2", "1, 0, 0, 0, 0, 0", "0, 0, 0, 0, 1, 0"])
def test_paddings(pads: str, dims: str, place: int | None) -> None:
    check(dims, place, "Pad(x, p)", f"int64[6] p = {{{pads}}}")


@pytest.mark.parametrize(("dims", "place"), SHAPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_paddings_of_some_axes(axis: int, dims: str, place: int | None) -> None:
    check(dims, place, "Pad(x, p, , a)", f"int64[2] p = {{1, 2}}, int64[1] a = {{{axis}}}")


@pytest.mark.parametrize(
    ("op", "what"),
    [("Reshape(x, z)", "its target"), ("Expand(x, z)", "its sizes"), ("Tile(x, z)", "its repeats"),
     ("Slice(x, z, z)", "its bounds"), ("Pad(x, z)", "its pads")],
)  # fmt: skip
def test_sizes_that_differ_from_row_to_row_are_refused(op: str, what: str) -> None:
    text = f"(float[3,4] x, int64[2] z) => (float[o] y) {{ y = {op} }}"
    with pytest.raises(Refused, match=f"takes {what} from 'z', which differs from row to row"):
        AddBatchAxis().apply(one_row(text, {"x": None, "z": None, "y": None}))
