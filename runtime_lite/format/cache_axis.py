"""Defines the record of a cache axis, along which states keep frames from call to call.

Recipes, passes, manifests and the runtime share this record. A call joins the cached frames and its new ones into
`slots + step` frames. The number of valid cached frames is counted per row, because rows of one call may be streams of
different ages: a stream starts with 0, and every call adds `step`. If chunks may be shorter, a call adds the value of a
formula for its true length.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime_lite.errors import BadInput
from runtime_lite.format.formula import parse_formula
from runtime_lite.states import CACHES
from runtime_lite.states.kind import StateKind


@dataclass(frozen=True)
class CacheAxis:
    """A cache axis, and the inputs by which the graph gets its lengths.

    Attributes:
        axis: name of the axis.
        slots: number of frames that the cache has room for.
        step: frames that one call adds; 1, the smallest number, if `added` is given.
        length_input: graph input that takes the true length per row, int32 or int64 [rows].
        mask_input: graph input float32 [rows, slots + step], 1 at valid and at new frames; None if the graph computes
            the mask from the length.
        side: position of the valid frames: `right`, the newest in the last slot, or `left`, from the first slot on.
        update: how the next state is made: `replace`, by the graph's output, which is a whole cache; `append` and
            `ring`, by writing the graph's output, which is the new frames alone, behind the valid ones, and for `ring`
            over the oldest ones once all slots are valid. With `append` and `ring`, free slots hold the initial value
            of the state. Side and update together determine the kind of the states.
        added: the number of frames that a call adds to a row, as a formula over the axes with a length per row, e.g.
            `chunk` or `(frames - 1) // 2 + 1`; None if every call adds `step`.
        is_whole: whether a call reads every frame of its stream, so that no frame may be overwritten: a stream ends
            when its slots are full.
        chunk: number of frames that are processed together: every call starts at a multiple of it, so that a call that
            adds another number of frames is the last of its stream.
    """

    axis: str
    slots: int
    step: int
    length_input: str
    mask_input: str | None
    side: str = "right"
    update: str = "replace"
    added: str | None = None
    is_whole: bool = False
    chunk: int = 1

    @cached_property
    def kind(self) -> StateKind:
        """The kind of the states along the axis, given by side and update."""
        return CACHES[self.side, self.update]

    def as_kind(self, kind: StateKind) -> "CacheAxis":
        """Return the same axis with states of another kind."""
        return replace(self, side=kind.side, update=kind.update)

    @property
    def calls_to_fill(self) -> int:
        """Number of calls after which all slots of a stream are valid, however short its chunks are."""
        return -(-self.slots // self.step)

    def frames_of(self, sizes: Mapping[str, int]) -> int:
        """Return the number of frames that a call adds to a row, given the true lengths of its axes.

        Raises:
            BundleRefused: the formula has no value for these lengths.
        """
        return self.step if self.added is None else max(parse_formula(self.added).value(sizes), 0)

    def after_call(self, lengths: NDArray[Any], added: NDArray[Any] | int) -> NDArray[Any]:
        """Return the lengths [rows] after a call that added `added` frames; the oldest frames make room.

        Raises:
            BadInput: no frame may be overwritten and there are too few slots; or an earlier call with a shorter chunk
                was the last one.
        """
        if self.chunk > 1 and (parted := lengths[(lengths % self.chunk != 0) & (np.asarray(added) > 0)].tolist()):
            raise BadInput(
                f"a stream: expected calls of whole chunks of {self.chunk} frames before this one, got {parted[0]} "
                f"frames along {self.axis!r}; a shorter chunk ends a stream: reset it, or open another"
            )
        if self.is_whole and np.any(lengths + added > self.slots):
            raise BadInput(
                f"a stream: expected at most {self.slots} frames along {self.axis!r} in all of its calls, got "
                f"{int(np.max(lengths + added))}; end it here, or build the bundle with a larger window"
            )
        return self.kind.after(self.slots, lengths, added)

    def valid(self, lengths: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers of valid frames [rows] of rows of some lengths, which graphs get as inputs."""
        return self.kind.valid(self.slots, lengths)

    def mask(self, lengths: NDArray[Any]) -> NDArray[np.bool_]:
        """Return the boolean mask [rows, slots + step] of right-aligned caches with these true lengths [rows]."""
        places = np.arange(self.slots + self.step)
        valid: NDArray[np.bool_] = places >= self.slots - lengths[:, None]
        return valid
