"""The cut is the best choice: compared with all choices of small random graphs."""

import itertools

import numpy as np
import pytest

from compiler.numerics.precision.cut import Carried, Choosable, choose_float32


def cost_of(nodes: dict[str, Choosable], values: list[Carried], weight: float, float32: frozenset[str]) -> float | None:
    """The cost of a choice, or None where it breaks a pin."""
    if any(node.pinned and name not in float32 for name, node in nodes.items()):
        return None
    cost = 0.0
    for name, node in nodes.items():
        cost += node.gain if name in float32 else round(weight * node.noise)
    for value in values:
        others = [reader for reader in value.readers if (reader in float32) != (value.maker in float32)]
        cost += value.cast if others else 0
    return cost


def random_case(seed: int) -> tuple[dict[str, Choosable], list[Carried], float]:
    rng = np.random.default_rng(seed)
    names = [f"n{i}" for i in range(rng.integers(3, 10))]
    nodes = {
        name: Choosable(
            int(rng.integers(0, 50)),
            float(rng.random()) * float(rng.integers(0, 2)),
            pinned=bool(rng.random() < 0.2),
        )
        for name in names
    }
    values = [
        Carried(
            maker, tuple(str(r) for r in rng.choice(names, rng.integers(1, 4), replace=False)), int(rng.integers(0, 30))
        )
        for maker in names
    ]
    return nodes, values, float(rng.integers(0, 80))


@pytest.mark.parametrize("seed", range(60))
def test_no_choice_costs_less(seed: int) -> None:
    nodes, values, weight = random_case(seed)
    best = min(
        cost
        for size in range(len(nodes) + 1)
        for chosen in itertools.combinations(nodes, size)
        if (cost := cost_of(nodes, values, weight, frozenset(chosen))) is not None
    )
    assert cost_of(nodes, values, weight, choose_float32(nodes, values, weight)) == best


def test_pins_need_not_be_contiguous_and_a_cast_is_paid_once() -> None:
    nodes = {name: Choosable(100, pinned=name in ("b", "d")) for name in "abcde"}
    chain = [Carried(a, (b,), 5) for a, b in itertools.pairwise("abcde")]
    assert choose_float32(nodes, chain, 0.0) == {"b", "d"}
    narrow = [dict(nodes) | {"c": Choosable(9)}, [*chain]]
    assert choose_float32(narrow[0], chain, 0.0) == {"b", "c", "d"}  # type: ignore[arg-type]
    fan = [Carried("a", ("b", "c", "d"), 150)]
    three = {"a": Choosable(0, pinned=True)} | {name: Choosable(100) for name in "bcd"}
    assert choose_float32(three, fan, 0.0) == {"a"}, "one cast of 150 is less than 300"


def test_noise_is_bought_back_at_its_price() -> None:
    nodes = {"a": Choosable(10, noise=1e-3), "b": Choosable(10, noise=1e-6)}
    assert choose_float32(nodes, [], 0.0) == frozenset()
    assert choose_float32(nodes, [], 2e4) == {"a"}
    assert choose_float32(nodes, [], 2e7) == {"a", "b"}
