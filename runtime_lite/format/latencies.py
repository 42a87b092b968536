"""Finds the graph of a bundle by the names of a model and of one of its latencies."""

from collections.abc import Mapping

from runtime_lite.errors import BadInput, show
from runtime_lite.format.manifest import Manifest


def latencies_of(manifest: Manifest) -> dict[str, dict[str, str]]:
    """Return the graph names by model and by latency, in the order of the bundle."""
    found: dict[str, dict[str, str]] = {}
    for name, graph in manifest.graphs.items():
        if graph.latency is not None:
            found.setdefault(graph.latency.of, {})[graph.latency.name] = name
    return found


def graph_at(where: str, manifest: Manifest, graph: str | None, latency: str | None) -> str | None:
    """Return the name of the graph for a caller's graph and latency; None if both are None and one graph is meant.

    Args:
        where: start of the message.
        manifest: manifest of the bundle.
        graph: name of a graph, or common name of the graphs of one model; None for the only one.
        latency: name of a latency of that model.

    Raises:
        BadInput: the model has no such latency, or has several and none was named.
    """
    models = latencies_of(manifest)
    if graph is None and len(models) == 1 and (latency is not None or _is_all(models, manifest)):
        graph = next(iter(models))
    if latency is None and (not isinstance(graph, str) or graph not in models):
        return graph
    if not isinstance(graph, str) or graph not in models:
        names = ", ".join(repr(name) for name in models) or "none"
        expected, got = f"a model with several latencies ({names})", f"graph {show(graph)}"
        raise BadInput(f"{where}: expected {expected} for latency={show(latency)}, got {got}; leave latency out")
    known = models[graph]
    if not isinstance(latency, str) or latency not in known:
        expected = f"latency of {graph!r} as one of {', '.join(repr(name) for name in known)}"
        got = "none" if latency is None else show(latency)
        raise BadInput(f"{where}: expected {expected}, got {got}; pass latency=...")
    return known[latency]


def _is_all(models: Mapping[str, Mapping[str, str]], manifest: Manifest) -> bool:
    """Return whether all graphs of the bundle are latencies of the models."""
    return sum(len(graphs) for graphs in models.values()) == len(manifest.graphs)
