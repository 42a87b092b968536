"""Checks that a state keeps at least as many of the newest frames as the next call reads.

A certificate names, for every state along a cache, its input, its output, and the frames that a call adds. After a call
min(cached + added, slots) frames are counted as valid. So many must leave in the last slots, zeros in front of them.
Every other state has one size, whatever the lengths of a call. Looked at is what the record of the output says, at
every length, and what the original gives when it runs, of which a record could speak otherwise than it is at lengths
that no step was replayed with.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence, Set

from compiler.checker.graph import DoesNotRun, Graph, Record, Rejected
from compiler.checker.slots import names_in, ones_of, size_of

Row = Mapping[str, int]
"""Length per axis."""

Said = tuple[Record, Sequence[str | int]]
"""A fact, and the shape that goes with it."""

LONGER = (0, 1, 2, 3, 4, 5, 7, 12)
"""By how much a call is longer than the shortest that is certified."""

SHARES = (0, 4, 2, 3)
"""Quarters of a cache that hold frames."""

ALL_CACHED = 48
"""Slots up to which every number of cached frames is tried; of more, those at both ends."""

_NOT_PADDED: Record = {"axes": {}, "contents": []}


def require_counted(before: Graph, after: Graph, certificate: Record, said: Mapping[str, Said], shortest: Row) -> None:
    """Require that every state along a cache holds the counted frames, and that other states have one size.

    Args:
        before: the graph before padding.
        after: the padded graph.
        certificate: the certificate, whose header names states and axes.
        said: facts and shapes of values, from the records.
        shortest: the shortest lengths of one row that are certified.

    Raises:
        Rejected: a state is not named, is no state, holds another number of frames, or changes its size; with the
            lengths.
    """
    states: Sequence[Record] = certificate["states"]
    replaced: Sequence[Record] = certificate["replaced"]
    sides: Mapping[str, str] = certificate["sides"]
    caches = {axis for axis, side in sides.items() if side == "right"}
    _require_named(before, [*states, *replaced], states, caches)
    if not (states or replaced):
        return
    for state in states:
        _require_fed(before, after, state, caches)
    lengths = _Lengths(shortest, {state["cache"]: state["slots"] for state in states}, sides.keys() - caches)
    for state in replaced:
        _require_one_size(before, after, state, said, sides)
    for state in states:
        output = state["output"]  # where no record speaks of it, nothing padded was read to make it
        _require_told(state, said.get(output, (_NOT_PADDED, before.dims(output))), lengths)
    _require_given(before, states, replaced, lengths, certificate.get("ranges", {}))


@dataclasses.dataclass(frozen=True)
class _Lengths:
    """Lengths at which states are counted.

    Attributes:
        shortest: of all axes.
        slots: of every cache.
        calls: axes that may be longer than the shortest.
    """

    shortest: Row
    slots: Row
    calls: Set[str]

    def _row(self, more: int, cached: Row) -> Row:
        longer = {axis: self.shortest[axis] + more for axis in self.calls}
        return {**self.shortest, **longer, **{axis: min(cached[axis], most) for axis, most in self.slots.items()}}

    def every(self) -> Iterator[Row]:
        """Yield lengths with every number of cached frames, the same in all caches, for several lengths of a call."""
        most = max(self.slots.values())
        numbers: Sequence[int] = range(most + 1)
        if most > ALL_CACHED:
            numbers = [*range(ALL_CACHED // 2), *range(most - ALL_CACHED // 2, most + 1)]
        for more, cached in itertools.product(LONGER if self.calls else LONGER[:1], numbers):
            yield self._row(more, dict.fromkeys(self.slots, cached))

    def some(self) -> Iterator[Row]:
        """Yield some lengths: no, some and all cached frames, first the same in all caches, then different ones."""
        for draw, more in enumerate(LONGER if self.calls or self.slots else LONGER[:1]):
            shift = draw // len(SHARES)
            shares = [SHARES[(draw + at * shift) % len(SHARES)] for at in range(len(self.slots))]
            cached = {
                axis: most * share // 4 for share, (axis, most) in zip(shares, sorted(self.slots.items()), strict=True)
            }
            yield self._row(more, cached)


def _require_named(before: Graph, all_states: Sequence[Record], states: Sequence[Record], caches: Set[str]) -> None:
    """Require that no state is named twice, and that every input along a cache is a state."""
    along = {
        name
        for name in before.inputs
        if any(isinstance(dim, str) and names_in(dim) & caches for dim in before.dims(name))
    }
    for end in ("input", "output"):
        if len({state[end] for state in all_states}) != len(all_states):
            raise Rejected(f"two states have one {end}")
    if missing := along - {state["input"] for state in states}:
        raise Rejected(f"input {min(missing)!r} lies along a cache, and no state is named that feeds it")
    counts: dict[str, tuple[int, str]] = {}
    for state in states:
        counts_of_state = (state["slots"], state["adds"])
        if counts.setdefault(state["cache"], counts_of_state) != counts_of_state:
            raise Rejected(
                f"cache {state['cache']!r} has slots and new frames {counts[state['cache']]}, and {counts_of_state}"
            )


def _require_fed(before: Graph, after: Graph, state: Record, caches: Set[str]) -> None:
    """Require that a state's input has the cache as its axis, with the stated number of slots."""
    name, at, cache = state["input"], state["axis"], state["cache"]
    if cache not in caches:
        raise Rejected(f"state {name!r}: {cache!r} is no cache")
    if state["output"] not in before.outputs or state["output"] not in after.outputs:
        raise Rejected(f"state {name!r}: {state['output']!r} is no output")
    own, padded = (graph.dims(name) if name in graph.inputs else [] for graph in (before, after))
    if not 0 <= at < len(own) == len(padded) or own[at] != cache:
        raise Rejected(f"state {name!r}: {cache!r} is not its axis {at}")
    if padded[at] != state["slots"]:
        raise Rejected(f"state {name!r}: has {padded[at]} slots, not {state['slots']}")


def _require_one_size(
    before: Graph, after: Graph, state: Record, said: Mapping[str, Said], sides: Mapping[str, str]
) -> None:
    """Require that a state has no axis whose length may change between calls, in its input or output."""
    name, output = state["input"], state["output"]
    if name not in before.inputs or output not in before.outputs or output not in after.outputs:
        raise Rejected(f"state {name!r}: it or {output!r} is not there")
    along = {
        axis_name for dim in before.dims(name) if isinstance(dim, str) for axis_name in names_in(dim)
    } & sides.keys()
    if along:
        raise Rejected(f"state {name!r}: lies along {min(along)!r}, of which the next call may have another length")
    fact = said[output][0] if output in said else _NOT_PADDED
    if any("frames" in factor for factors in fact["axes"].values() for factor in factors):
        raise Rejected(f"state {output!r}: is said to have an axis that is padded")


def _require_told(state: Record, said: Said, lengths: _Lengths) -> None:
    """Require that an output's fact has its newest frames in its last slots, as many as are counted."""
    where, axis = f"state {state['output']!r}", state["axis"]
    fact, shape = said
    if len(shape) <= axis:
        raise Rejected(f"{where}: has no axis {axis}")
    size = shape[axis]
    if str(axis) in fact["axes"]:
        padded = [axis for axis, factors in fact["axes"].items() if any("frames" in factor for factor in factors)]
        (told,) = fact["axes"][str(axis)][0].get("frames", [[size, "left"]])
        zeros = [(float(low), float(high), nan) for region, low, high, nan in fact["contents"] if region == [axis]]
        if padded != [str(axis)] or told[1] != "right":
            raise Rejected(f"{where}: its newest frames are not said to lie in its last slots")
        if zeros != [(0.0, 0.0, False)]:
            raise Rejected(f"{where}: what lies in front of its frames is not said to be zero")
        size = told[0]
    for row in lengths.every():
        _require_kept(state, size_of(size, row), row, where)


def _require_given(
    before: Graph,
    states: Sequence[Record],
    replaced: Sequence[Record],
    lengths: _Lengths,
    ranges: Mapping[str, Sequence[int]],
) -> None:
    """Run the original and require its sizes of states; lengths at which it does not run are skipped."""
    part = before.part([state["output"] for state in (*states, *replaced)], {})
    ran = 0
    for row in lengths.some():
        feeds = {name: ones_of(before.dims(name), kind, row, ranges.get(name)) for name, kind in part.sources.items()}
        try:
            results = part.run(feeds)
        except DoesNotRun:  # a table may end there
            continue
        ran += 1
        for state, result in zip(states, results, strict=False):
            where = f"state {state['output']!r} of the original at work"
            if result.ndim <= state["axis"]:
                raise Rejected(f"{where}: has no axis {state['axis']}")
            _require_kept(state, result.shape[state["axis"]], row, where)
        for state, result in zip(replaced, results[len(states) :], strict=True):
            fed = tuple(size_of(dim, row) for dim in before.dims(state["input"]))
            if result.shape != fed:
                where = f"state {state['output']!r} of the original at work"
                raise Rejected(f"{where}: is of shape {result.shape} at lengths {dict(row)}, {fed} is fed")
    if not ran:
        raise Rejected("the original runs at none of the lengths at which its states were to be counted")


def _require_kept(state: Record, kept: int, row: Row, where: str) -> None:
    slots = state["slots"]
    counted = min(row[state["cache"]] + max(size_of(state["adds"], row), 0), slots)
    if min(kept, slots) != counted:
        raise Rejected(f"{where}: {min(kept, slots)} frames are kept at lengths {dict(row)}, {counted} are counted")
