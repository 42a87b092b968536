"""grouping: the partition of least cost, and the numbers of groups of least cost."""

import itertools

import numpy as np
import pytest

from compiler.rewriting.attention.grouping import Group, best_partition, spread_groups


def pairwise(heads: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).random((heads, heads))
    return drawn + drawn.T


def cost_of(table: np.ndarray, group: Group) -> float:
    return float(sum(table[a, b] for a, b in itertools.combinations(group, 2)))


@pytest.mark.parametrize(("heads", "groups"), [(6, 3), (6, 2), (8, 4), (4, 1), (4, 4)])
def test_no_partition_costs_less(heads: int, groups: int) -> None:
    table = pairwise(heads, heads + groups)
    found = best_partition(heads, groups, lambda group: cost_of(table, group))
    size = heads // groups
    assert sorted(itertools.chain(*found)) == list(range(heads)) and {len(each) for each in found} == {size}
    least = min(
        sum(cost_of(table, tuple(order[at : at + size])) for at in range(0, heads, size))
        for order in itertools.permutations(range(heads))
    )
    assert sum(cost_of(table, each) for each in found) == pytest.approx(least)


def test_many_heads_are_swapped_into_their_groups() -> None:
    families = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 2))
    found = best_partition(20, 10, lambda group: float(families[group[0]] != families[group[1]]))
    assert all(families[a] == families[b] for a, b in found)


def test_sixteen_heads_in_fours_ask_for_1820_costs() -> None:
    asked: list[Group] = []

    def cost(group: Group) -> float:
        asked.append(group)
        return float(max(group) - min(group))

    assert best_partition(16, 4, cost) == tuple(tuple(range(at, at + 4)) for at in range(0, 16, 4))
    assert len(asked) == len(set(asked)) <= 1820


def test_layers_that_lose_more_get_more_groups() -> None:
    steep, flat = {1: 9.0, 2: 5.0, 4: 1.0, 8: 0.0}, {1: 1.0, 2: 0.5, 4: 0.2, 8: 0.0}
    assert spread_groups([steep, flat], 8) == [4, 4]
    assert spread_groups([steep, flat], 6) == [4, 2]
    assert spread_groups([steep, steep], 4) == [2, 2]
    assert spread_groups([flat], 16) == [8]
