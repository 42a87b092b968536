"""simplify on random graphs of edge constants."""

from tests.property.same_bits import differences


def test_simplified_graphs_give_the_same_bits() -> None:
    assert [seed for seed in range(60) if differences(seed)] == []
