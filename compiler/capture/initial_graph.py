"""The states that a recipe declares for a graph, as passes and runners know them."""

from compiler.recipe.graph import Graph
from compiler.stages import State


def states_of(spec: Graph) -> tuple[State, ...]:
    """The states that a recipe declares; the frames axis is the one with a window."""
    return tuple(
        State(
            name,
            given.state,
            next((i for i, dim in enumerate(given.shape) if isinstance(dim, str) and spec.axes[dim].window), None),
        )
        for name, given in spec.inputs.items()
        if given.state is not None
    )
