"""Chooses which intermediate results to keep from call to call, with an exact minimum cut over integer costs.

A network of operators leads from sources to values that are demanded whole. Whole is a value that is carried (its
cost is paid once, however many read it), or whose operator runs again on everything (then its operands are demanded
whole in turn). Everything else runs on new entries alone, which costs the same in every choice and is left out.

    minimise  sum of cost(value) over carried values  +  sum of cost(operator) over operators that run again

As a cut: an operator is a vertex, behind which it runs again, and a value is a vertex, behind which it is demanded.

    source --cost(operator)--> operator     cut: the operator runs again
    operator --cost(value)--> value         cut: the value is carried
    value --infinite--> its readers         a reader that runs again demands its operands
    value --infinite--> sink                demanded from outside

The sets of operators that run again need not be closed: a value may be computed again from what is carried before it
although something behind it is carried, too. Of equal cuts the one nearest to the sink is taken, so the choice is
unique. Least cost within a budget of bytes is a knapsack; what is found instead is the best choice at the lowest price
per byte that meets the budget (Lagrange): no choice of as few bytes costs less.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import networkx

SOURCE, SINK = "source", "sink"


@dataclasses.dataclass(frozen=True)
class Carrying:
    """The cost of carrying a value.

    Attributes:
        cost: in each call; None when the value cannot be carried.
        held: bytes between calls.
    """

    cost: int | None
    held: int


@dataclasses.dataclass(frozen=True)
class Operator:
    """One operator of the network.

    Attributes:
        reads: values that it needs whole to run again.
        makes: its results.
        cost: of running again, beside running on new entries.
    """

    reads: tuple[str, ...]
    makes: tuple[str, ...]
    cost: int


@dataclasses.dataclass(frozen=True)
class Network:
    """What there is to choose from.

    Attributes:
        values: by name; one that no operator makes is a source, and can be carried.
        operators: in an order in which they can run.
        demanded: values that are read whole from outside.
    """

    values: Mapping[str, Carrying]
    operators: Sequence[Operator]
    demanded: frozenset[str]


@dataclasses.dataclass(frozen=True)
class Choice:
    """One way to have everything that is demanded.

    Attributes:
        carried: values.
        again: operators that run again, by index.
        cost: of both.
        held: bytes of the carried values.
    """

    carried: frozenset[str]
    again: frozenset[int]
    cost: int
    held: int


def choose(network: Network, budget: int | None = None) -> Choice:
    """Return the choice of least cost, or that of the lowest price per byte within the budget.

    Args:
        network: the values and operators to choose from.
        budget: the largest number of bytes to hold, or None.

    Returns:
        The choice; when none meets the budget, the one of the fewest bytes.
    """
    over = _cut(network, 1, 0)
    if budget is None or over.held <= budget:
        return over
    everything = sum(value.cost or 0 for value in network.values.values()) + sum(
        operator.cost for operator in network.operators
    )
    within = _cut(network, 1, everything + 1)  # bytes first, then cost
    if within.held > budget:
        return within
    while True:
        # The price at which both cost the same; anything below that line is a corner of the hull between them, whose
        # bytes, whole numbers, lie between theirs: so the distance of the two falls.
        weight, price = over.held - within.held, within.cost - over.cost
        middle = _cut(network, weight, price)
        if weight * middle.cost + price * middle.held == weight * within.cost + price * within.held:
            return within
        if middle.held <= budget:
            within = middle
        else:
            over = middle


def _cut(network: Network, weight: int, price: int) -> Choice:
    """Return the choice that minimizes weight * cost + price * bytes, as a minimum cut."""
    graph = networkx.DiGraph()
    graph.add_nodes_from((SOURCE, SINK))
    makers = {name: index for index, operator in enumerate(network.operators) for name in operator.makes}
    for name, value in network.values.items():
        assert value.cost is not None or name in makers, f"the source {name} cannot be carried"
        maker = makers.get(name, SOURCE)
        _edge(graph, maker, ("value", name), None if value.cost is None else weight * value.cost + price * value.held)
    for index, operator in enumerate(network.operators):
        _edge(graph, SOURCE, index, weight * operator.cost)
        for name in operator.reads:
            _edge(graph, ("value", name), index, None)
    for name in network.demanded:
        _edge(graph, ("value", name), SINK, None)
    _, (_, behind) = networkx.minimum_cut(graph, SOURCE, SINK)
    again = frozenset(index for index in range(len(network.operators)) if index in behind)
    carried = frozenset(
        name for name in network.values if ("value", name) in behind and makers.get(name, SOURCE) not in again
    )
    return Choice(carried, again, cost_of(network, carried, again), sum(network.values[name].held for name in carried))


def cost_of(network: Network, carried: frozenset[str], again: frozenset[int]) -> int:
    """Return the cost of a choice.

    Args:
        network: the values and operators to choose from.
        carried: values that are carried.
        again: operators that run again.
    """
    costs = [network.values[name].cost for name in carried]
    return sum(cost for cost in costs if cost is not None) + sum(network.operators[index].cost for index in again)


def _edge(graph: "networkx.DiGraph", start: object, end: object, capacity: int | None) -> None:
    """Add an edge; without a capacity it is infinite."""
    graph.add_edge(start, end, **({} if capacity is None else {"capacity": capacity}))
