"""Runs a graph's artefact of one bucket call by call; a longer chunk runs in the next larger bucket.

buckets 4 and 8: a chunk of 3 runs in the graph of 4 slots, one of 6 in that of 8, with the same states
"""

from collections.abc import Callable, Sequence

from compiler.graph.runners.callers_view import caller_dims
from compiler.graph.runners.padded_chunks import SessionOfBuckets
from compiler.graph.runners.session import Session
from compiler.graph.runners.stream import Runner
from compiler.graph.stages import Lowered
from compiler.targets.base import Emitted


class BucketRunners:
    """Makes runners of artefacts.

    Args:
        lowered: the graph before its axes were frozen.
        artifacts: one per combination of buckets, ascending.
        open_file: opens what stands for an artefact, by the name of its main file.
    """

    def __init__(self, lowered: Lowered, artifacts: Sequence[Emitted], open_file: Callable[[str], Session]) -> None:
        self.lowered, self.artifacts, self.open_file = lowered, artifacts, open_file
        self.axes = [each.axis for each in lowered.padded_axes]

    def rows(self, emitted: Emitted) -> int:
        """Return the number of rows of every call of an artefact."""
        return emitted.sizes.get(self.lowered.batch_axis or "", 1)

    def record(self, emitted: Emitted) -> Lowered:
        """Return the record with an artefact's shapes as callers see them, as formulas where chunks may be shorter."""
        return self.lowered if self.axes else emitted.lowered

    def session(self, emitted: Emitted) -> Session:
        """Return the session that runs an artefact, and other artefacts for chunks that do not fit it."""
        if not self.axes:
            return self.open_file(emitted.file)
        by_slots = {
            tuple(each.sizes[axis] for axis in self.axes): self.open_file(each.file) for each in self._holding(emitted)
        }
        return SessionOfBuckets(by_slots, caller_dims(self.lowered), self.axes)

    def runner(self, emitted: Emitted, session: Session | None = None) -> Runner:
        """Return a runner at the start of a stream, on an open session of the artefact, or a new one."""
        slots = [{axis: each.sizes[axis] for axis in self.axes} for each in self._holding(emitted)] if self.axes else ()
        return Runner(self.record(emitted), session or self.session(emitted), self.rows(emitted), buckets=slots)

    def _holding(self, emitted: Emitted) -> list[Emitted]:
        """Return the artefacts of equally many rows with buckets that are no smaller, this one first."""
        return [
            each
            for each in self.artifacts
            if self.rows(each) == self.rows(emitted)
            and all(each.sizes[axis] >= emitted.sizes[axis] for axis in self.axes)
        ]
