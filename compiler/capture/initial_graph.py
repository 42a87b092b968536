"""The states that a recipe declares for a graph, as passes and runners know them."""

from compiler.recipe.graph import Graph
from compiler.stages import State


def states_of(spec: Graph) -> tuple[State, ...]:
    """The states that a recipe declares, each along its cache axis if it has one."""
    found = []
    for name, given in spec.inputs.items():
        if given.state is not None:
            caches = ((at, dim) for at, dim in enumerate(given.shape) if isinstance(dim, str) and dim in spec.caches)
            found.append(State(name, given.state, *next(caches, (None, None))))
    return tuple(found)
