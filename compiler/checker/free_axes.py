"""Finds the smallest size of the axes that are not padded at which the original graph runs.

    z[:, other, 4], 5-tap convolution over other      runs from other = 5 on, however long the padded inputs are

For smaller sizes nothing is claimed, so steps are not compared there. Where longer padded inputs make the original run,
the free size is accepted: the claimed shortest padded length is too small then, and is checked as it stands.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from types import MappingProxyType

from compiler.checker.graph import Graph
from compiler.checker.meaning import Row, require_meaning
from compiler.checker.slots import names_in, ones_of, size_of

SHORTEST = 2
"""The size that is tried first: one entry is what stays where axes meet that do not belong together."""

TRIED: tuple[int, ...] = (*range(SHORTEST, 17), 24, 32, 48, 64, 128, 256)
"""Sizes that are tried, one after the other."""

MORE = (0, 1, 3, 8)
"""How much longer than the shortest the padded axes are, each tried at every size."""

RowOf = Callable[[int, int], Row]
"""The lengths of one row: by how much longer the padded axes are than the shortest, and the size of free ones."""


_NONE: Mapping[str, Sequence[int]] = MappingProxyType({})


def free_size(graph: Graph, free: Set[str], row_of: RowOf, ranges: Mapping[str, Sequence[int]] = _NONE) -> int:
    """Return the first size of all free axes at which the original runs, with padded axes of some length.

    Args:
        graph: the graph before padding.
        free: names of the axes that have the same size in both programs.
        row_of: returns the lengths of one row.
        ranges: the smallest and the largest number of inputs.
    """
    known = free | set(row_of(0, SHORTEST))
    own_sizes = [size for size in sorted(graph.sizes) if names_in(size) & free and names_in(size) <= known]
    for size in TRIED if free else ():
        if any(_runs(graph, own_sizes, row_of(more, size), row_of(more + 1, size), ranges) for more in MORE):
            return size
    return SHORTEST


def _runs(graph: Graph, sizes: Sequence[str], row: Row, longer: Row, ranges: Mapping[str, Sequence[int]]) -> bool:
    """Whether sizes of free axes are positive, values computed from lengths are finite, and the original runs.

    Checked in this order, as some kernels end the process on empty inputs.
    """
    try:
        if not all(size_of(size, row) > 0 and size_of(size, longer) > 0 for size in sizes):
            return False
        require_meaning(graph, row, longer)
        part = graph.part(graph.outputs, {})
        part.run({n: ones_of(graph.dims(n), kind, row, ranges.get(n)) for n, kind in part.sources.items()})
    except Exception:  # noqa: BLE001 - whatever stops the original
        return False
    return True
