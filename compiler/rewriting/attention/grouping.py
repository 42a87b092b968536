"""Chooses the attention heads that share: the cheapest partition into equal groups, and the group count per layer."""

import functools
import itertools
from collections.abc import Callable, Sequence

LARGEST_EXACT = 16
"""Heads up to which all partitions are searched: 16 heads in fours have 1820 groups and 2 627 625 partitions."""

Group = tuple[int, ...]


def best_partition(heads: int, groups: int, cost: Callable[[Group], float]) -> tuple[Group, ...]:
    """Return the cheapest groups of equal size, heads ascending in each, groups by their lowest head.

    Up to 16 heads it is the optimum: f(S) = min over groups g of S with its lowest head of cost(g) + f(S without g).
    Beyond, neighbours are grouped and heads swapped as long as that gains, which finds a local optimum.

    Args:
        heads: number of heads.
        groups: number of groups; divides `heads`.
        cost: the cost of one group; called at most once per group.
    """
    size = heads // groups
    known = functools.cache(cost)
    if heads <= LARGEST_EXACT:
        return _exact(heads, size, known)
    return _by_swaps([tuple(range(first, first + size)) for first in range(0, heads, size)], known)


def _exact(heads: int, size: int, cost: Callable[[Group], float]) -> tuple[Group, ...]:
    @functools.cache
    def best(left: frozenset[int]) -> tuple[float, tuple[Group, ...]]:
        if not left:
            return 0.0, ()
        lowest = min(left)
        cheapest: tuple[float, tuple[Group, ...]] | None = None
        for others in itertools.combinations(sorted(left - {lowest}), size - 1):
            group = (lowest, *others)
            rest, partition = best(left - set(group))
            total = cost(group) + rest
            if cheapest is None or total < cheapest[0]:
                cheapest = total, (group, *partition)
        assert cheapest is not None
        return cheapest

    return best(frozenset(range(heads)))[1]


def _by_swaps(partition: list[Group], cost: Callable[[Group], float]) -> tuple[Group, ...]:
    while (better := _one_swap(partition, cost)) is not None:  # the cost falls, and partitions are finite
        partition = better
    return tuple(sorted(partition))


def _one_swap(partition: list[Group], cost: Callable[[Group], float]) -> list[Group] | None:
    """Return the partition after the most gainful swap of two heads of different groups; None where none gains."""
    gain, swap = 0.0, None
    for a, b in itertools.combinations(range(len(partition)), 2):
        now = cost(partition[a]) + cost(partition[b])
        for x, y in itertools.product(partition[a], partition[b]):
            first = tuple(sorted({*partition[a], y} - {x}))
            second = tuple(sorted({*partition[b], x} - {y}))
            gained = now - cost(first) - cost(second)
            if gained > gain + 1e-12 * abs(now):
                gain, swap = gained, (a, first, b, second)
    if swap is None:
        return None
    a, first, b, second = swap
    return [first if number == a else second if number == b else group for number, group in enumerate(partition)]


def spread_groups(costs: Sequence[dict[int, float]], total: int) -> list[int]:
    """Return the number of groups of each layer that minimizes the summed cost with at most `total` groups.

    Args:
        costs: per layer, the cost of each number of groups it may have.
        total: groups of all layers together; at least the sum of the smallest numbers.
    """
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for layer in costs:
        following: dict[int, tuple[float, list[int]]] = {}
        for used, (sum_, chosen) in best.items():
            for groups, cost in sorted(layer.items()):
                key, value = used + groups, sum_ + cost
                if key <= total and (key not in following or value < following[key][0]):
                    following[key] = value, [*chosen, groups]
        best = following
    return min(best.values(), key=lambda candidate: (candidate[0], sum(candidate[1])))[1]
