"""Grids of the operands of products with what states hold."""

from compiler.numerics.quantization.cached_products import cached_products
from compiler.numerics.quantization.operand_grids import grids_of, operands_of
from tests.kit.quantization import speech, streams


def test_data_are_unsigned_and_what_is_held_is_signed_on_one_grid_however_it_lies() -> None:
    graph = speech()
    products = cached_products(graph)
    assert operands_of(products) == ["query", "keys", "weights", "next_past_whole"]
    grids, ranges = grids_of(graph, products, streams(graph))
    assert {name: grid.type for name, grid in grids.items()} == {
        "query": "uint8", "keys": "int8", "weights": "uint8", "next_past_whole": "int8",
    }  # fmt: skip
    assert grids["keys"] == grids["next_past_whole"] != grids["query"]
    assert (grids["weights"].zero_point, grids["keys"].zero_point) == (0, 0)
    assert grids["weights"].high <= 1.0
    assert {name: each.type for name, each in ranges.items()} == {name: grid.type for name, grid in grids.items()}
