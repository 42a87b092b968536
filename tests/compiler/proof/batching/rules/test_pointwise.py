"""Broadcasting operators and products: each row as if alone, wherever the batch lies."""

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.graph.stages import Array
from compiler.passes.add_batch_axis import AddBatchAxis
from tests.kit.graphs import ops_of, random_weights
from tests.kit.one_row import check_rows, one_row

WEIGHTS = random_weights({"w": (4, 5), "h": (3, 4, 5), "v": (4,), "u": (5,), "k": (3, 4), "r": (1, 5), "s": (2, 1, 4)})

JOINS = [
    pytest.param("float[1,t,4] x, float[1,t,4] z", "Add(x, z)", {"x": 0, "z": 0, "y": 0}, ["Add"], id="places"),
    pytest.param("float[1,t,4] x, float[4] v", "Mul(x, v)", {"x": 0, "y": 0}, ["Mul"], id="shared"),
    pytest.param("float[t,4] x, float[4] v", "Mul(x, v)", {"x": None, "y": None}, ["Mul"], id="none"),
    pytest.param(
        "float[1,4] x, float[3,4] k", "Mul(x, k)", {"x": 0, "y": None}, ["Unsqueeze", "Mul"], id="place-repeated"
    ),
    pytest.param(
        "float[t,4] x, float[4] z", "Sub(x, z)", {"x": None, "z": None, "y": None}, ["Unsqueeze", "Sub"], id="aligned"
    ),
    pytest.param("float[1,t,4] x, float[t,4] z", "Sub(x, z)", {"x": 0, "z": None, "y": 0}, None, id="place-and-none"),
    pytest.param("float[1,1,4] x, float[1,1,4] z", "Sub(x, z)", {"x": 0, "z": 1, "y": 0}, None, id="two-places"),
    pytest.param("float[4] x, float[2,1,4] s", "Max(x, s)", {"x": None, "y": None}, None, id="higher-shared"),
    pytest.param("float x, float[4] v", "Add(x, v)", {"x": None, "y": None}, None, id="a-number-per-row"),
    pytest.param("float[1,4] x, float[1] z", "Add(x, z)", {"x": 0, "z": 0, "y": 0}, None, id="lengths-in-place"),
    pytest.param(
        "bool[1,4] c, float[4] x, float[4] v", "Where(c, x, v)", {"c": 0, "x": None, "y": 0}, None, id="Where"
    ),
    pytest.param("float[t,1,4] x, float[4] v", "Add(x, v)", {"x": 1, "y": None}, None, id="time-first"),
]


@pytest.mark.parametrize(("inputs", "op", "places", "ops"), JOINS)
def test_joins(inputs: str, op: str, places: dict[str, int | None], ops: list[str] | None) -> None:
    outcome = check_rows(one_row(f"({inputs}) => (float[o] y) {{ y = {op} }}", places, WEIGHTS))
    assert ops is None or ops_of(outcome.lowered.model) == ops


PRODUCTS = [
    ("float[1,t,4] x, float[4,5] w", {"x": 0, "y": 0}, ["MatMul"]),
    ("float[t,4] x, float[4,5] w", {"x": None, "y": None}, ["MatMul"]),
    ("float[1,4] x, float[4,5] w", {"x": 0, "y": 0}, ["MatMul"]),
    ("float[1,t,4] x, float[4] w", {"x": 0, "y": 0}, None),
    ("float[t,1,4] x, float[4,5] w", {"x": 1, "y": None}, None),
    ("float[4] x, float[4,5] w", {"x": None, "y": None}, None),
    ("float[4] x, float[4] w", {"x": None, "y": None}, None),
    ("float[4] x, float[3,4,5] w", {"x": None, "y": None}, None),
    ("float[t,4] x, float[3,4,5] w", {"x": None, "y": None}, None),
    ("float[1,4] x, float[3,4,5] w", {"x": 0, "y": None}, None),
    ("float[3,t,4] x, float[3,4,5] w", {"x": None, "y": None}, ["MatMul"]),
    ("float[2,3,t,4] x, float[3,4,5] w", {"x": None, "y": None}, None),
    ("float[1,3,t,4] x, float[3,4,5] w", {"x": 0, "y": 0}, ["MatMul"]),
]


@pytest.mark.parametrize(("inputs", "places", "ops"), PRODUCTS)
def test_products_with_weights(inputs: str, places: dict[str, int | None], ops: list[str] | None) -> None:
    shape = tuple(int(n) for n in inputs.rpartition("[")[2].partition("]")[0].split(","))
    text = f"({inputs}) => (float[o] y) {{ y = MatMul(x, w) }}"
    outcome = check_rows(one_row(text, places, random_weights({"w": shape})))
    assert ops is None or ops_of(outcome.lowered.model) == ops


@pytest.mark.parametrize(
    ("inputs", "places"),
    [
        ("float[3,4] w, float[4,t] x", {"x": None, "y": None}),
        ("float[3,4] w, float[4,1] x", {"x": 1, "y": None}),
        ("float[3,4] w, float[1,4,t] x", {"x": 0, "y": 0}),
        ("float[4] w, float[4,t] x", {"x": None, "y": None}),
        ("float[4] w, float[1,4,t] x", {"x": 0, "y": 0}),
        ("float[4] w, float[4] x", {"x": None, "y": None}),
        ("float[2,3,4] w, float[4] x", {"x": None, "y": None}),
        ("float[1,1] w, float[1,5] x", {"x": 0, "y": None}),
    ],
)
def test_products_with_weights_on_the_left(inputs: str, places: dict[str, int | None]) -> None:
    shape = tuple(int(n) for n in inputs.partition("[")[2].partition("]")[0].split(","))
    text = f"({inputs}) => (float[o] y) {{ y = MatMul(w, x) }}"
    check_rows(one_row(text, places, random_weights({"w": shape})))


@pytest.mark.parametrize(
    ("left", "right", "places"),
    [
        ("1,t,4", "1,4,u", {"x": 0, "z": 0, "y": 0}),
        ("1,t,4", "4,u", {"x": 0, "z": None, "y": 0}),
        ("t,4", "4,u", {"x": None, "z": None, "y": None}),
        ("4", "4,u", {"x": None, "z": None, "y": None}),
        ("t,4", "4", {"x": None, "z": None, "y": None}),
        ("4", "4", {"x": None, "z": None, "y": None}),
        ("1,4", "4,1", {"x": 0, "z": 1, "y": None}),
        ("1,3,t,4", "3,4,u", {"x": 0, "z": None, "y": 0}),
    ],
)
def test_products_of_two_values_with_rows(left: str, right: str, places: dict[str, int | None]) -> None:
    check_rows(one_row(f"(float[{left}] x, float[{right}] z) => (float[o] y) {{ y = MatMul(x, z) }}", places))


@pytest.mark.parametrize("attributes", ["", "<transB = 1>", "<transA = 1>", "<alpha = 0.5, beta = 2.0>"])
@pytest.mark.parametrize(("dims", "place"), [("1,4", 0), ("4,1", 1), ("4,4", None), ("4,4", "sum")])
@pytest.mark.parametrize("with_sum", ["", ", b"])
def test_gemm(attributes: str, dims: str, place: int | str | None, with_sum: str) -> None:
    if ("transA" in attributes) != (dims == "4,1") and dims != "4,4":
        dims = "4,1" if "transA" in attributes else "1,4"
    rows_in_sum = place == "sum" and bool(with_sum)
    x_place = None if place == "sum" else {"1,4": 0, "4,1": 1}.get(dims)
    weights = random_weights({"w": (4, 4), **({} if rows_in_sum else {"b": (4,)})})
    text = f"(float[{dims}] x, float[4,4] w, float[4] b) => (float[o] y) {{ y = Gemm{attributes}(x, w{with_sum}) }}"
    places = {"x": x_place, "y": None, **({"b": None} if rows_in_sum else {})}
    check_rows(one_row(text, places, weights))


def test_gemm_of_one_row_stays_as_it_is() -> None:
    text = "(float[1,4] x, float[5,4] w, float[5] b) => (float[1,5] y) { y = Gemm<transB = 1>(x, w, b) }"
    outcome = check_rows(one_row(text, {"x": 0, "y": 0}, random_weights({"w": (5, 4), "b": (5,)})))
    assert ops_of(outcome.lowered.model) == ["Gemm"]


@pytest.mark.parametrize(
    ("equation", "dims", "place"), [("thd,hde->the", "t,3,4", None), ("b...d,hde->b...he", "1,t,4", 0)]
)
def test_einsum(equation: str, dims: str, place: int | None) -> None:
    text = f'(float[{dims}] x, float[3,4,5] h) => (float[o] y) {{ y = Einsum<equation = "{equation}">(x, h) }}'
    check_rows(one_row(text, {"x": place, "y": place}, WEIGHTS))


def test_einsum_without_a_result_is_refused() -> None:
    text = '(float[t,4] x, float[4,5] w) => (float[o] y) { y = Einsum<equation = "td,de">(x, w) }'
    with pytest.raises(Refused, match="Einsum without a result"):
        AddBatchAxis().apply(one_row(text, {"x": None, "y": None}, WEIGHTS))


def test_settings_are_shared() -> None:
    check_rows(
        one_row(
            "(float[t,4] x, float lowest) => (float[o] y) { y = Clip(x, lowest) }",
            {"x": None, "y": None},
            {"lowest": np.array(0.1, np.float32)},
        )
    )


BOUNDS = {
    "a least of each row": "y = Clip(x, z)",
    "a largest of each row": "y = Clip(x, , z)",
    "both": "u = Add(z, one)  y = Clip(x, z, u)",
    "a least above the largest": "y = Clip(x, one, z)",
    "of what all rows share": "y = Clip(shared, , z)",
}


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize(("dims", "place"), [("1,t", 0), ("t,2", None)])
def test_bounds_of_each_row(name: str, dims: str, place: int | None) -> None:
    text = f"""(float[{dims}] x, float z) => (float[o] y) <float one = {{1.0}}, float[3] shared = {{-1.0, 0.0, 5.0}}>
    {{ {BOUNDS[name]} }}"""
    places = {"x": place, "z": None, "y": None if "shared" in BOUNDS[name] else place}
    for seed in range(4):
        check_rows(one_row(text, places), seed=seed)


@pytest.mark.parametrize(("dims", "place", "axis"), [("1,4,t", 0, 1), ("4,t", None, 0), ("4,t", None, -2)])
def test_scales_per_channel(dims: str, place: int | None, axis: int) -> None:
    text = f"""(float[{dims}] x, float[4] scale, int8[4] zero) => (float[o] y)
    {{
        q = QuantizeLinear<axis = {axis}>(x, scale, zero)
        y = DequantizeLinear<axis = {axis}>(q, scale, zero)
    }}"""
    weights: dict[str, Array] = {"scale": np.array([0.1, 0.2, 0.3, 0.4], np.float32), "zero": np.zeros(4, np.int8)}
    check_rows(one_row(text, {"x": place, "y": place}, weights))


def test_one_scale_for_all() -> None:
    text = """(float[t,4] x, float scale, int8 zero) => (float[o] y)
    { q = QuantizeLinear(x, scale, zero) y = DequantizeLinear(q, scale, zero) }"""
    weights: dict[str, Array] = {"scale": np.array(0.1, np.float32), "zero": np.array(3, np.int8)}
    check_rows(one_row(text, {"x": None, "y": None}, weights))
