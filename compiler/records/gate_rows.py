"""A gate of a build with its bound and what was measured; reports list them, whether the build ended well or not."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class GateRow:
    """One promise about one thing.

    Attributes:
        gate: key of the recipe below `gates` without the graph's name, e.g. `parity.max_abs`; `buckets` and
            `invariance` are in force without being named.
        graph: of the recipe; empty for what concerns the whole bundle.
        subject: what was measured: a tensor, a bucket; empty for the whole.
        bound: what the recipe asks for; None where the promise has no number.
        value: what was measured; None where it has no number, or was not reached.
        holds: None where the build ended before.
    """

    gate: str
    graph: str = ""
    subject: str = ""
    bound: float | None = None
    value: float | None = None
    holds: bool | None = None


def at_most(gate: str, graph: str, subject: str, bound: float, value: float) -> GateRow:
    """A gate with an upper bound; NaN does not hold it."""
    return GateRow(gate, graph, subject, bound, value, value <= bound)
