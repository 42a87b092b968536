"""The cut is the optimum: compared with all choices there are, on small random networks."""

import itertools
import random
from collections.abc import Iterator

import pytest

from compiler.states.streaming.carrying_cut import Carrying, Choice, Network, Operator, choose, cost_of


def every_choice(network: Network) -> Iterator[Choice]:
    """All sets of operators that run again, each with the values that must then be carried."""
    makers = {name: index for index, operator in enumerate(network.operators) for name in operator.makes}
    indices = range(len(network.operators))
    for chosen in itertools.chain.from_iterable(
        itertools.combinations(indices, count) for count in range(len(indices) + 1)
    ):
        again = frozenset(chosen)
        needed = network.demanded | {name for index in again for name in network.operators[index].reads}
        carried = frozenset(name for name in needed if makers.get(name) not in again)
        if all(network.values[name].cost is not None for name in carried):
            held = sum(network.values[name].held for name in carried)
            yield Choice(carried, again, cost_of(network, carried, again), held)


def random_network(seed: int) -> Network:
    """Up to nine operators over one to three sources; ties, free operators and values that cannot be carried."""
    draw = random.Random(seed)
    values = {f"s{i}": Carrying(draw.randint(0, 9), draw.randint(1, 9)) for i in range(draw.randint(1, 3))}
    operators = []
    for index in range(draw.randint(1, 9)):
        reads = tuple(draw.sample(sorted(values), min(len(values), draw.randint(1, 3))))
        makes = tuple(f"v{index}_{part}" for part in range(draw.choice((1, 1, 1, 2))))
        values |= {name: Carrying(draw.choice((None, *range(10))), draw.randint(1, 9)) for name in makes}
        operators.append(Operator(reads, makes, draw.randint(0, 9)))
    demanded = frozenset(name for name in values if draw.random() < 0.4)
    return Network(values, tuple(operators), demanded)


@pytest.mark.parametrize("seed", range(120))
def test_no_choice_costs_less(seed: int) -> None:
    network = random_network(seed)
    assert choose(network).cost == min(choice.cost for choice in every_choice(network))


@pytest.mark.parametrize("seed", range(60))
def test_what_is_chosen_is_a_choice(seed: int) -> None:
    network = random_network(seed)
    chosen = choose(network)
    assert chosen.carried in {choice.carried for choice in every_choice(network) if choice.again == chosen.again}


@pytest.mark.parametrize("seed", range(60))
def test_within_a_budget_no_choice_of_as_few_bytes_costs_less(seed: int) -> None:
    network = random_network(seed)
    choices = list(every_choice(network))
    free = choose(network)
    least = min(choice.held for choice in choices)
    for budget in range(least, free.held + 1):
        chosen = choose(network, budget)
        assert chosen.held <= budget
        assert chosen.cost == min(choice.cost for choice in choices if choice.held <= chosen.held)
        # best at some price per byte: on the lower hull of all choices
        assert not any(
            (chosen.cost - a.cost) * (b.held - a.held) > (b.cost - a.cost) * (chosen.held - a.held)
            for a in choices
            for b in choices
            if a.held < chosen.held < b.held
        )


def test_among_choices_on_the_hull_the_cheapest_that_fits_is_taken() -> None:
    # one source of 1 byte; three values behind it, each 1 byte more and much less work
    values = {"s": Carrying(0, 1), "a": Carrying(0, 2), "b": Carrying(0, 3), "c": Carrying(0, 4)}
    operators = (Operator(("s",), ("a",), 50), Operator(("a",), ("b",), 30), Operator(("b",), ("c",), 20))
    network = Network(values, operators, frozenset("c"))
    carried = [sorted(choose(network, budget).carried) for budget in (None, 4, 3, 2, 1)]
    assert carried == [["c"], ["c"], ["b"], ["a"], ["s"]]


def test_when_nothing_fits_the_fewest_bytes_come_back() -> None:
    network = Network({"s": Carrying(5, 7), "a": Carrying(0, 9)}, (Operator(("s",), ("a",), 3),), frozenset("a"))
    assert choose(network, 6) == Choice(frozenset("s"), frozenset({0}), 8, 7)


def test_a_shared_value_is_paid_once() -> None:
    values = {"s": Carrying(9, 1), "a": Carrying(4, 1), "b": Carrying(3, 1), "c": Carrying(3, 1)}
    operators = (Operator(("s",), ("a",), 9), Operator(("a",), ("b",), 0), Operator(("a",), ("c",), 0))
    assert choose(Network(values, operators, frozenset("bc"))).carried == {"a"}


def test_a_wide_value_is_computed_again_although_more_is_carried_behind_it() -> None:
    # the set of operators that run on new entries alone is not closed: closed sets would cost 2 + 50 or 100 + 1
    values = {"s": Carrying(1, 1), "wide": Carrying(100, 8), "narrow": Carrying(1, 1)}
    operators = (Operator(("s",), ("wide",), 1), Operator(("wide",), ("narrow",), 50))
    chosen = choose(Network(values, operators, frozenset({"wide", "narrow"})))
    assert chosen == Choice(frozenset({"s", "narrow"}), frozenset({0}), 3, 2)


def test_of_equal_cuts_the_deepest_is_taken() -> None:
    values = {"s": Carrying(4, 1), "a": Carrying(4, 1), "b": Carrying(4, 1)}
    operators = (Operator(("s",), ("a",), 0), Operator(("a",), ("b",), 0))
    assert choose(Network(values, operators, frozenset("b"))).carried == {"b"}


def test_without_demand_nothing_is_carried() -> None:
    network = Network({"s": Carrying(4, 1), "a": Carrying(4, 1)}, (Operator(("s",), ("a",), 2),), frozenset())
    assert choose(network) == Choice(frozenset(), frozenset(), 0, 0)
