"""Checks the graphs that are one model at several latencies: different names, the same inputs and outputs."""

from collections.abc import Mapping, Sequence

from compiler.recipe.field_types import disagree
from compiler.recipe.graph import Graph
from compiler.recipe.wiring import Wire


def check_latencies(graphs: Mapping[str, Graph], wiring: Sequence[Wire]) -> None:
    """Check the graphs that have a latency against each other and against the wires.

    Raises:
        PydanticCustomError: two have the same latency, a model has the name of a graph, the callers of one latency
            would feed or get something else than those of another, or a graph is wired or has its heads shared.
    """
    models: dict[str, dict[str, str]] = {}
    for name, graph in graphs.items():
        if graph.latency is None:
            continue
        of, latency, keys = graph.latency.of, graph.latency.name, ("graphs", name, "latency")
        if of in graphs:
            raise disagree(f"expected a name that no graph has, got {of!r}", "rename the graph or the model", *keys)
        known = models.setdefault(of, {})
        if latency in known:
            message = f"expected another latency of {of} than that of {known[latency]}, got {latency!r} again"
            raise disagree(message, "rename one of the two", *keys)
        known[latency] = name
        _check_alone(name, graph, wiring)
        _check_alike(graphs, next(iter(known.values())), name)


def _check_alone(name: str, graph: Graph, wiring: Sequence[Wire]) -> None:
    if graph.share_heads is not None:
        message = "expected a model with one latency for share_heads, got several"
        raise disagree(message, "train the heads in a recipe without latencies", "graphs", name, "share_heads")
    for number, wire in enumerate(wiring):
        if name in (wire.from_graph, wire.to_graph):
            message = f"expected graphs with one latency in a wire, got {name!r}, which is one of several"
            raise disagree(message, "leave the wire out: callers hand on what they choose", "wiring", number)


def _check_alike(graphs: Mapping[str, Graph], first: str, name: str) -> None:
    """Require that callers see the same inputs and outputs at every latency; sizes may differ."""
    expected, got = (_interface(graphs[each]) for each in (first, name))
    if expected != got:
        message = f"expected what callers of {first} feed and get, {_listed(expected)}, got {_listed(got)}"
        raise disagree(message, "give all latencies the same inputs and outputs; shapes may differ", "graphs", name)


def _interface(graph: Graph) -> tuple[dict[str, str], tuple[str, ...]]:
    carried = {given.state for given in graph.inputs.values()}
    fed = {name: str(given.dtype) for name, given in graph.inputs.items() if given.is_data}
    return fed, tuple(name for name in graph.outputs if name not in carried)


def _listed(interface: tuple[dict[str, str], tuple[str, ...]]) -> str:
    fed, outputs = interface
    return f"{', '.join(f'{name} {dtype}' for name, dtype in fed.items())} -> {', '.join(outputs)}"
