"""every_length: what depends on lengths alone, at every length."""

import pytest

from compiler.graph.lengths.every_length import EveryLength
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.graphs import BATCH, node_named, parse

TEXT = f"""(float[{BATCH},2] x, int64[{BATCH}] length, float[{BATCH},5] mask, int64[{BATCH}] chunk)
=> (float[{BATCH},2] y, bool[{BATCH},5] seen, int64[{BATCH}] sum, float[{BATCH},1] top)
<float half = {{0.5}}, int64[1] one = {{1}}>
{{
    y = Neg(x)
    seen = Greater(mask, half)
    sum = Add(length, chunk)
    top = ReduceMax(x, one)
}}"""

CACHE = CacheAxis("cache", 3, 2, "length", "mask")


@pytest.mark.parametrize("rows", [BATCH, "2"])
def test_lengths_masks_and_settled_numbers(rows: str) -> None:
    model = parse(TEXT.replace(BATCH, rows))
    found = EveryLength(model, CACHE, {"chunk": 4})
    assert found.count == 4
    seen, total = (found.of(node_named(model, name).outputs[0]) for name in ("seen", "sum"))
    assert seen is not None and total is not None
    assert seen.tolist() == [[place >= 3 - length for place in range(5)] for length in range(4)]
    assert total.tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize(("value", "settled"), [("y", {"chunk": 4}), ("top", {}), ("sum", {})])
def test_what_reads_something_else_is_not_known(value: str, settled: dict[str, int]) -> None:
    model = parse(TEXT)
    assert EveryLength(model, CACHE, settled).of(node_named(model, value).outputs[0]) is None


def test_what_differs_along_its_first_axis_is_no_value_of_rows() -> None:
    layers = (
        f"(float[{BATCH},2] x, int64[1] length) => (int64[2] y) <int64[2] more = {{0, 1}}> {{ y = Add(length, more) }}"
    )
    cache = CacheAxis("cache", 3, 2, "length", None)
    model = parse(layers)
    assert EveryLength(model, cache, {}).of(node_named(model, "y").outputs[0]) is None


def test_a_number_is_none_of_a_row() -> None:
    model = parse(
        f"(int64[{BATCH}] length) => (int64 y) <int64[1] zero = {{0}}> {{ y = ReduceSum<keepdims = 0>(length, zero) }}"
    )
    assert EveryLength(model, CACHE, {}).of(node_named(model, "y").outputs[0]) is None


def test_inputs_themselves() -> None:
    model = parse(TEXT)
    x, length, mask, _ = model.graph.inputs
    known = EveryLength(model, CACHE, {})
    found, masks = known.of(length), known.of(mask)
    assert found is not None and found.tolist() == [0, 1, 2, 3]
    assert masks is not None and masks.shape == (4, 5)
    assert known.of(x) is None
