"""Defines the records handed from stage to stage: a graph, the states that it carries, and a pass's changes.

A cache axis is the record of the bundle format, `runtime_lite.format.cache_axis.CacheAxis`.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler.base.records.compression import Compression
from compiler.base.records.precision import PrecisionRecord
from compiler.errors import InternalError, Location, Refused
from compiler.graph.sizes.expressions import Dim
from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.format.initial_value import Initial
from runtime_lite.states import FIXED
from runtime_lite.states.kind import StateKind

Array = npt.NDArray[Any]
Feed = Mapping[str, Array]


@dataclasses.dataclass(frozen=True)
class State:
    """One tensor that a graph hands to its own next call.

    Attributes:
        input: graph input that receives it.
        output: graph output that feeds it back.
        frames_axis: the axis along which frames are cached, or None for a state of fixed meaning such as a convolution
            context, which every call replaces.
        cache: name of the cache axis that lies there; given together with `frames_axis`.
        initial: the value at the start of a stream: a number, or numbers that differ along its axes, the batch in
            front.
    """

    input: str
    output: str
    frames_axis: int | None
    cache: str | None = None
    initial: Initial = 0

    def __post_init__(self) -> None:
        if (self.frames_axis is None) != (self.cache is None):
            got = f"{self.frames_axis} and {self.cache}"
            raise InternalError(f"state {self.input!r}: expected a frames axis and its cache or neither, got {got}")


@dataclasses.dataclass(frozen=True)
class RowAxis:
    """Where a graph has the batch in an input or output, or a 1 or nothing for it; callers have it in front.

    Attributes:
        tensor: the graph input or output.
        axis: the axis of the batch, or with a 1 in its place; None where there is no such axis.
    """

    tensor: str
    axis: int | None

    def axis_of(self, axis: int) -> int:
        """Return the graph's axis for a caller's axis; callers have the batch in front."""
        return axis - 1 if self.axis is None or axis - 1 < self.axis else axis

    def dims(self, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Return the shape seen by callers for a shape of the graph's tensor."""
        rows = 1 if self.axis is None or not dims else dims[self.axis]
        return (rows, *(size for axis, size in enumerate(dims) if axis != self.axis))

    def to_graph(self, array: Array) -> Array:
        """Return a caller's array [1, ...] with the axes of the graph's tensor."""
        return array.reshape(array.shape[1:]) if self.axis is None else np.moveaxis(array, 0, self.axis)

    def to_caller(self, array: Array) -> Array:
        """Return an array of the graph with the axes of the caller: batch in front."""
        return array[np.newaxis] if self.axis is None else np.moveaxis(array, self.axis, 0)


@dataclasses.dataclass(frozen=True)
class PaddedAxis:
    """An axis padded behind its valid entries, with one true length per row of the batch.

    Attributes:
        axis: name in the recipe; after pad_axes it counts slots wherever a shape mentions it.
        length_input: name of the input with the true lengths, int64 [batch].
        mask_inputs: inputs that are 1 at valid places; made from the length, so callers do not feed them.
        pad_mask_inputs: the same of those that are 0 at valid places.
        length_inputs: inputs of the model that hold the true length.
        minimum: the smallest true length for which the graph has a meaning.
        maximum: the largest number of slots that the model's tables and types have room for, or None.
        limited_by: the node that has no room for more, for people to read; empty without a maximum.
        is_held: whether states lie along it, so that all calls of a stream have one length.
    """

    axis: str
    length_input: str
    mask_inputs: tuple[str, ...] = ()
    pad_mask_inputs: tuple[str, ...] = ()
    length_inputs: tuple[str, ...] = ()
    minimum: int = 1
    maximum: int | None = None
    limited_by: str = ""
    is_held: bool = False

    @property
    def masks(self) -> dict[str, int]:
        """The value of each mask at valid positions, by input name: 1 for masks, 0 for padding masks."""
        return dict.fromkeys(self.mask_inputs, 1) | dict.fromkeys(self.pad_mask_inputs, 0)


def require_lowered(cache: CacheAxis) -> None:
    """Refuse caches whose kind no pass lowers.

    Raises:
        Refused: the states along the axis are of a kind that is not lowered; the message names it.
    """
    if not cache.kind.is_given_whole:
        raise Refused(f"{cache.kind.name} are not lowered yet", cure=CACHE_CURE, place=Location(axis=cache.axis))


CACHE_CURE = "join each cache in front of the new frames, and feed the whole back"


class StateMap(abc.ABC):
    """How the states of one stage follow from those of the stage before; the reference is carried through it."""

    @abc.abstractmethod
    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        """Map state values by input name to the values expected after the pass."""

    @property
    def packed(self) -> Mapping[str, tuple[str, ...]]:
        """The states packed into each packed state, in order, by its name."""
        return {}


class Calibration(Protocol):
    """What passes may measure on: data that the recipe sets apart for it, none of which serves the gates."""

    @property
    def streams(self) -> Sequence[Sequence[Feed]]:
        """Calibration streams of feeds, one row each; the caller carries the caches, which are empty at first."""
        ...

    def task_distance(self, lowered: "Lowered") -> float | None:
        """Return the task metric of a graph's results measured against those of the original.

        Measured on the development data of the recipe, else on its calibration data; None without a task gate.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Lowered:
    """One graph on its way to a target.

    Attributes:
        graph: name in the recipe.
        model: the ONNX graph. Passes own the copy they are given.
        first_call: the graph of the call that starts a stream, until it is merged; it has the same outputs in order.
        states: the states the graph carries now.
        caches: the cache axes that the recipe declares.
        batch_axis: name of the batch axis, or None.
        data_outputs: outputs that are the caller's, under names that no pass may change.
        padded_axes: axes padded behind, as declared; pad_axes fills in their minimum.
        is_padded: whether pad_axes has run; cache axes have as many entries as slots from then on.
        rows_independent: whether rows of one batch are proved independent; without it the runtime does not batch.
        row_axes: for a graph that is written for one row, every input and output that is to have a batch axis; else
            those that have it elsewhere than in front. add_batch_axis empties it.
        ranges: the smallest and the largest of the whole numbers that inputs hold, as far as they are known.
        calibration: the recipe's own data, for passes that measure; None where the recipe has no calibration data.
        state_maps: from the original's states (cut to the slots of their caches) to the present ones, in order.
    """

    graph: str
    model: ir.Model
    first_call: ir.Model | None = None
    states: tuple[State, ...] = ()
    caches: tuple[CacheAxis, ...] = ()
    batch_axis: str | None = None
    data_outputs: tuple[str, ...] = ()
    state_maps: tuple[StateMap, ...] = ()
    padded_axes: tuple[PaddedAxis, ...] = ()
    is_padded: bool = False
    rows_independent: bool = False
    row_axes: tuple[RowAxis, ...] = ()
    ranges: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    calibration: "Calibration | None" = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def has_utterances(self) -> bool:
        """Whether rows are whole utterances with lengths of their own: axes are padded and there are no states."""
        return bool(self.padded_axes) and not self.states

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """The names of the states in each packed state."""
        return {name: members for each in self.state_maps for name, members in each.packed.items()}

    @property
    def models(self) -> tuple[ir.Model, ...]:
        """The graph, and that of the first call until it is merged."""
        return (self.model,) if self.first_call is None else (self.model, self.first_call)

    def cache_of(self, state: State) -> CacheAxis | None:
        """Return the cache axis of a state; None for a state of fixed meaning, or along an axis that is left as is."""
        return next((cache for cache in self.caches if cache.axis == state.cache), None)

    def kind_of(self, state: State) -> StateKind:
        """Return the kind of a state for those who run the graph."""
        cache = self.cache_of(state)
        return FIXED if cache is None else cache.kind


@dataclasses.dataclass(frozen=True)
class Refusal:
    """One place that a pass left alone, and why."""

    reason: str
    place: Location = dataclasses.field(default_factory=Location)

    def __str__(self) -> str:
        where = str(self.place)
        return f"{self.reason} ({where})" if where else self.reason


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a pass.

    Attributes:
        lowered: the graph after the pass.
        matched: places that fit the pass.
        rewritten: places that it changed; zero exactly when the graph is as before.
        refused: places it left alone although they fit in kind, with reasons.
        records: certificate records, one per node the pass reasoned about.
        detail: figures for the report, in one phrase.
        precision: for a pass that rounds, which nodes it left precise and what ranges it chose.
        compression: for a pass that takes channels out, of which products, and what that saves and costs.
    """

    lowered: Lowered
    matched: int = 0
    rewritten: int = 0
    refused: tuple[Refusal, ...] = ()
    records: tuple[dict[str, Any], ...] = ()
    detail: str = ""
    precision: tuple[PrecisionRecord, ...] = ()
    compression: Compression | None = None


class Pass(Protocol):
    """A named frozen record with one job. Options are its fields.

    Attributes:
        name: as recipes write it.
        lossy: whether it rounds on purpose; the graph is held to the lossy limits of its parity gate from then on.
        after: passes that must have run when it comes, where they have anything to do; checked before anything runs.
        expensive: whether it runs the model on data. It changes nothing but the graph and how many heads states have,
            which is kept, so that it is never applied again to look at what it made.
    """

    name: ClassVar[str]
    lossy: ClassVar[bool]
    after: ClassVar[tuple[str, ...]]
    expensive: ClassVar[bool]

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite the graph in place and return what was done.

        Raises:
            Refused: the pass cannot preserve the graph's results.
        """
        ...


def newest(array: Array, axis: int, frames: int) -> Array:
    """Return the last `frames` entries along an axis, fewer if the array has fewer."""
    start = max(array.shape[axis] - frames, 0)
    index = [slice(None)] * array.ndim
    index[axis] = slice(start, None)
    return array[tuple(index)]


def right_aligned(array: Array, axis: int, frames: int) -> Array:
    """Return the last `frames` entries along an axis, with zeros in front if the array has fewer."""
    kept = newest(array, axis, frames)
    padding = [(0, 0)] * array.ndim
    padding[axis] = (frames - kept.shape[axis], 0)
    return np.pad(kept, padding)
