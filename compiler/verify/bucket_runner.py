"""Runs the artefact of one bucket call after call; a chunk that it does not hold runs in the next larger one.

buckets 4 and 8: a chunk of 3 runs in the graph of 4 slots, one of 6 in that of 8, with the same states
"""

from collections.abc import Callable, Sequence

from compiler.runners.callers_view import caller_dims
from compiler.runners.padded_chunks import SessionOfBuckets
from compiler.runners.session import Session
from compiler.runners.stream import Runner
from compiler.stages import Lowered
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
        """Rows of every call of an artefact."""
        return emitted.sizes.get(self.lowered.batch_axis or "", 1)

    def record(self, emitted: Emitted) -> Lowered:
        """What knows the shapes of an artefact as callers see them: of chunks that may be shorter, as formulas."""
        return self.lowered if self.axes else emitted.lowered

    def session(self, emitted: Emitted) -> Session:
        """What runs an artefact, and what runs chunks that it does not hold."""
        if not self.axes:
            return self.open_file(emitted.file)
        by_slots = {
            tuple(each.sizes[axis] for axis in self.axes): self.open_file(each.file) for each in self._holding(emitted)
        }
        return SessionOfBuckets(by_slots, caller_dims(self.lowered), self.axes)

    def runner(self, emitted: Emitted, session: Session | None = None) -> Runner:
        """A runner at the start of a stream; on a session of the artefact that is open already, or a new one."""
        slots = [{axis: each.sizes[axis] for axis in self.axes} for each in self._holding(emitted)] if self.axes else ()
        return Runner(self.record(emitted), session or self.session(emitted), self.rows(emitted), buckets=slots)

    def _holding(self, emitted: Emitted) -> list[Emitted]:
        """The artefacts of as many rows that hold what this one holds, itself first."""
        return [
            each
            for each in self.artifacts
            if self.rows(each) == self.rows(emitted)
            and all(each.sizes[axis] >= emitted.sizes[axis] for axis in self.axes)
        ]
