"""Presents a graph for one row with the shapes that callers use: the batch is the first axis of inputs and outputs."""

from collections.abc import Sequence

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.runners.session import Session
from compiler.graph.stages import Array, Lowered


class OneRowSession:
    """A session of a graph that is written for one row, as callers see it: with the batch in front everywhere.

    Args:
        session: runs the graph.
        lowered: its record.
    """

    def __init__(self, session: Session, lowered: Lowered) -> None:
        self.session = session
        self.places = {each.tensor: each for each in lowered.row_axes}
        self.outputs = list(graphs.outputs_named(lowered.model))

    def run(self, names: Sequence[str] | None, feeds: dict[str, Array]) -> list[Array]:
        """Return outputs in the order of `names`, or of the graph."""
        given = {
            name: self.places[name].to_graph(array) if name in self.places else array for name, array in feeds.items()
        }
        results = zip(self.outputs if names is None else names, self.session.run(names, given), strict=True)
        return [self.places[name].to_caller(array) if name in self.places else array for name, array in results]


def for_callers(session: Session, lowered: Lowered) -> Session:
    """Return a session of a graph for one row as callers see it, with the batch as first axis."""
    return OneRowSession(session, lowered) if lowered.row_axes else session


def caller_dims(lowered: Lowered) -> dict[str, tuple[Dim, ...]]:
    """Return the shapes of all inputs and outputs as callers see them; of unknown rank, empty."""
    places = {each.tensor: each for each in lowered.row_axes}
    found = {}
    for value in (*lowered.model.graph.inputs, *lowered.model.graph.outputs):
        name, dims = str(value.name), graphs.dims_of(value) or ()
        found[name] = places[name].dims(dims) if name in places else dims
    return found
