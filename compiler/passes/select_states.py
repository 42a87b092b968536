"""Chooses which values a stream carries as states so that a step costs least, by a minimum cut over the graph.

Before:
    joined = Concat(cache, x); keys = MatMul(LayerNorm(joined), Wk)      # 128 old frames projected again in every call
After:
    keys = Concat(carried_keys, MatMul(LayerNorm(x), Wk))                # of LayerNorm(cache)

Every value that is computed from caches frame by frame can be carried instead of them: its operators then run on the
new frames alone, but its frames are read, joined, cut and written in every call. Values that are not carried are
computed again for all frames from the carried values before them. Both are priced in time, by shapes and two rates of a
machine (compiler/states/streaming/state_network.py), and the cheapest way to have every value that mixes frames is a
minimum cut (compiler/states/streaming/carrying_cut.py): the optimum at these prices. With `memory_mb` the states must
fit: bytes get a price beside their time, the lowest at which they do, and the choice is the optimum at that price: no
choice of as few bytes costs less, though one of more bytes that still fits may.

Requires: symbolic shapes; each cache is joined once, in front of the new frames, and fed back whole.
Ensures: the work and transfers of a step, as priced, are the least; caches that nothing needs are gone.
Keeps: caches that are the best thing to carry, and everything that is not computed from caches frame by frame.
Numerics: exact up to the order of summation in a matrix product of other height: a row-wise f commutes with
    concatenation.
Source: f(Concat(a, b)) = Concat(f(a), f(b)) for row-wise f, as judged by the rule table; cached frames never change.
"""

import dataclasses
import math
from typing import ClassVar

from compiler.errors import RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.operator_costs import Rates, bytes_of
from compiler.graph.stages import Lowered, Outcome, require_lowered
from compiler.states.state_rewriting.projected import Projected
from compiler.states.state_rewriting.split import Split
from compiler.states.streaming.carrying_cut import choose
from compiler.states.streaming.stable import Cache, Frames, Stable, find_caches
from compiler.states.streaming.state_network import MEGA, figures, network_of
from runtime_lite.format.cache_axis import CacheAxis


@dataclasses.dataclass(frozen=True)
class SelectStates:
    """Carry what makes the step cheapest.

    Attributes:
        memory_mb: the most that the states of one stream may hold, in units of 1e6 bytes, or None.
        multiply_adds_per_s: multiply-adds per second of the target.
        bytes_per_s: bytes that it reads or writes per second.

    Raises:
        RecipeError: an option is not a number above 0.
    """

    name: ClassVar[str] = "select_states"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("add_batch_axis", "merge_first_call", "unstack_states", "carry_contexts")
    expensive: ClassVar[bool] = False
    memory_mb: float | None = None
    multiply_adds_per_s: float = Rates.multiply_adds
    bytes_per_s: float = Rates.bytes

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and not 0 < value < math.inf:
                raise RecipeError(f"{field.name}: expected a number above 0, got {value!r}", cure="change the value")

    def apply(self, lowered: Lowered) -> Outcome:
        """Replace caches by values that are cheaper to carry.

        Raises:
            Refused: a cache axis is of an unsupported kind, or not even the smallest
                states fit the memory.
        """
        if len(lowered.caches) > 1 and self.memory_mb is not None:
            axes = ", ".join(cache.axis for cache in lowered.caches)
            cure = "drop memory_mb, or name the axis of all caches alike"
            raise Refused(f"memory_mb is not shared out between several cache axes yet ({axes})", cure=cure)
        if not lowered.caches:
            fixed = _fixed_bytes(lowered, ())
            self._require_room(fixed, fixed)
        outcome = Outcome(lowered)
        for along in lowered.caches:
            require_lowered(along)
            outcome = _together(outcome, self._choose(outcome.lowered, along))
        return outcome

    def _choose(self, lowered: Lowered, along: CacheAxis) -> Outcome:
        """Choose states for the caches along one axis; other caches are left as they are."""
        graphs.infer_shapes(lowered.model)
        caches, refused = find_caches(lowered, along)
        fixed = _fixed_bytes(lowered, caches)
        if not caches:
            self._require_room(fixed, fixed)
            return Outcome(lowered, refused=refused)
        stable = Stable(lowered.model, caches, Frames.along(along))
        network = network_of(stable, Rates(self.multiply_adds_per_s, self.bytes_per_s))
        choice = choose(network, None if self.memory_mb is None else self._room - fixed)
        self._require_room(choice.held + fixed, fixed)
        kept_caches = [cache for cache in caches if cache.joined.name in choice.carried]
        if not choice.carried or len(kept_caches) == len(caches) == len(
            choice.carried
        ):  # somebody must know the length
            return Outcome(lowered, matched=len(caches), refused=refused)
        detail = figures(stable, choice, fixed)
        split = Split(lowered.model, stable, choice, self.name)
        changed = split.write()
        gone = tuple(sorted(cache.state.input for cache in caches if cache not in kept_caches))
        new = dataclasses.replace(
            lowered,
            states=(*split.states, *(state for state in lowered.states if state.input not in gone)),
            state_maps=(*lowered.state_maps, Projected(split.map, gone)),
        )
        return Outcome(new, matched=len(caches), rewritten=changed, refused=refused, detail=detail)

    @property
    def _room(self) -> int:
        """Return the number of bytes that the states of one stream may occupy."""
        assert self.memory_mb is not None
        return round(MEGA * self.memory_mb)

    def _require_room(self, held: int, fixed: int) -> None:
        if self.memory_mb is not None and held > self._room:
            raise Refused(
                f"expected states of at most {self.memory_mb:g} MB for one stream, got {held / MEGA:g} MB at least, "
                f"of which {fixed / MEGA:g} MB are states without a choice",
                cure=f"allow memory_mb: {held / MEGA:g}, or give the cache fewer slots",
            )


def _together(one: Outcome, other: Outcome) -> Outcome:
    """Return the combined outcome of two axes."""
    return Outcome(
        other.lowered,
        one.matched + other.matched,
        one.rewritten + other.rewritten,
        (*one.refused, *other.refused),
        detail="; ".join(detail for detail in (one.detail, other.detail) if detail),
    )


def _fixed_bytes(lowered: Lowered, caches: tuple[Cache, ...]) -> int:
    """Return the bytes of the states of one stream that are not chosen by the pass."""
    chosen = {cache.state.input for cache in caches}
    sizes = {cache.axis: cache.slots for cache in lowered.caches}
    inputs = graphs.inputs_named(lowered.model)
    return bytes_of([inputs[state.input] for state in lowered.states if state.input not in chosen], sizes)
