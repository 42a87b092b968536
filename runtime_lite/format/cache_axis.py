"""An axis along which states keep frames from call to call: one record for recipes, passes, manifests and the runtime.

A call joins the cached frames and its new ones, `slots + step` places. How many cached frames are valid is counted per
row, for rows of one call may be streams of different ages: a stream starts with 0, and every call adds `step`. Where
chunks may be shorter, a call adds what a formula gives for its true length.
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
    """A cache axis, and how the true length of every row reaches the graph.

    Attributes:
        axis: its name.
        slots: cached frames that there is room for.
        step: frames that one call adds; 1, the fewest, where `added` says how many.
        length_input: graph input that takes the true length per row, int32 or int64 [rows].
        mask_input: graph input float32 [rows, slots + step], 1 at valid places and at new frames; None where the graph
            computes it from the length.
        side: where valid frames lie: `right`, the newest in the last slot, or `left`, from the first slot on.
        update: how a state along it becomes the next one: `replace`, by the graph's output, which is a whole cache;
            `append` and `ring`, by writing the new frames, all that the graph gives, behind the valid ones, and in a
            ring where the oldest ones lie once all slots are valid. Slots without a frame hold the initial value of the
            state then. Side and update together name the kind of the states.
        added: the frames that a call adds to a row as a formula over the axes with a length per row, e.g. `chunk` or
            `(frames - 1) // 2 + 1`; None where every call adds `step`.
        is_whole: whether a call reads every frame of its stream, so that none may make room for another: a stream ends
            when its slots are full.
        chunk: frames that read each other: every call begins behind a multiple of it, so that one that adds another
            number of frames is the last of its stream.
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
        """What the states along it are; side and update are those of a kind."""
        return CACHES[self.side, self.update]

    def as_kind(self, kind: StateKind) -> "CacheAxis":
        """The same axis with states of another kind along it."""
        return replace(self, side=kind.side, update=kind.update)

    @property
    def calls_to_fill(self) -> int:
        """Calls after which all slots of a stream are valid, however short its chunks are."""
        return -(-self.slots // self.step)

    def frames_of(self, sizes: Mapping[str, int]) -> int:
        """The frames that a call adds to a row, by the true lengths of its axes.

        Raises:
            BundleRefused: the formula has no value there.
        """
        return self.step if self.added is None else max(parse_formula(self.added).value(sizes), 0)

    def after_call(self, lengths: NDArray[Any], added: NDArray[Any] | int) -> NDArray[Any]:
        """The lengths [rows] of the next call, after one that added so many frames: the oldest ones make room.

        Raises:
            BadInput: none may make room, and they have no slots; or a call before was the last one.
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
        """The valid frames [rows] that a graph is fed, of rows of some lengths."""
        return self.kind.valid(self.slots, lengths)

    def mask(self, lengths: NDArray[Any]) -> NDArray[np.bool_]:
        """The mask [rows, slots + step] as booleans of right-aligned caches with these true lengths [rows]."""
        places = np.arange(self.slots + self.step)
        valid: NDArray[np.bool_] = places >= self.slots - lengths[:, None]
        return valid
