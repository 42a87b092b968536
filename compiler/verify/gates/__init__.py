"""The gates, in the order in which they run: one file each, and one line here."""

from compiler.recipe.record import Recipe
from compiler.records.findings import Finding
from compiler.verify.gate import Gate
from compiler.verify.gates.against_float import AGAINST_FLOAT
from compiler.verify.gates.buckets import BUCKETS
from compiler.verify.gates.budget import BUDGET
from compiler.verify.gates.drift import DRIFT
from compiler.verify.gates.edges import EDGES
from compiler.verify.gates.integer_kernels import INTEGER_KERNELS
from compiler.verify.gates.invariance import INVARIANCE
from compiler.verify.gates.parity import PARITY
from compiler.verify.gates.replay import REPLAY
from compiler.verify.gates.task import TASK

GATES: tuple[Gate, ...] = (
    PARITY,
    EDGES,
    BUCKETS,
    DRIFT,
    INVARIANCE,
    REPLAY,
    TASK,
    INTEGER_KERNELS,
    AGAINST_FLOAT,
    BUDGET,
)


def promises(recipe: Recipe) -> list[Finding]:
    """All that a recipe asks of a build, graph by graph and then of the whole bundle, with nothing measured yet."""
    asked = [
        finding
        for graph in (*recipe.graphs, "")
        for gate in GATES
        if gate.each_graph == bool(graph)
        for finding in gate.promises(recipe, graph)
    ]
    return list({finding.thing: finding for finding in asked}.values())
