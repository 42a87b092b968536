"""Merges the keys and values of several attention heads, so that projections and caches become smaller.

Before:
    q, k, v = x Wq, x Wk, x Wv                # 16 heads each
    y = MatMul(softmax(q k^T + mask) v, Wo)
After:
    q, k, v = x Wq', x Wk', x Wv'             # 16 heads of queries, 4 of keys and values
    y = MatMul(softmax(q k^T + mask) v, Wo')  # products broadcast over the heads of a group, nothing is repeated

Which heads share is the partition that loses least; the shared key and value of a group are the optimum in closed form
(`compiler.rewriting.attention.shared_maps`), and the maps back to each head go into Wq' and Wo'. Where positions turn
the keys, only maps that commute with turning are used. One attention after the other, on the results of those in front,
Wo' is fitted anew to the results of the original.

Frames of earlier calls that are joined to keys or values (derived, or exported by the model) are those of the groups:
caches have fewer heads, and the original's cached frames are mixed as the projections are.

Requires: calibration data; keys and values of their own for every head; caches joined where heads are apart; rows
    of projections batch first, time first, or merged into one axis; nothing padded.
Ensures: `groups` heads of keys and values in every attention that was merged, and in its caches.
Keeps: attention of another form, by name, with the missing condition.
Numerics: lossy; the build reports the loss of each step.
Source: see `compiler.rewriting.attention.shared_maps`; reduction to groups as in GQA (Ainslie et al. 2023).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from compiler.calib.watched_streams import calibration_of, run_streams
from compiler.errors import Location, RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Feed, Lowered, Outcome, Refusal
from compiler.passes.canonicalize_attention import CanonicalizeAttention
from compiler.passes.canonicalize_reshapes import CanonicalizeReshapes
from compiler.passes.canonicalize_transposes import CanonicalizeTransposes
from compiler.passes.simplify import Simplify
from compiler.proof.facts.lengths import infer_settled
from compiler.rewriting.attention.attention import Attention, find_attentions
from compiler.rewriting.attention.grouping import Group, best_partition, spread_groups
from compiler.rewriting.attention.layout import axes_of_cache
from compiler.rewriting.attention.moments import HeadMoments, head_moments
from compiler.rewriting.attention.probing import Affine
from compiler.rewriting.attention.rewriting import Rewriter, Weights, merged_weights, require_rewritable
from compiler.rewriting.attention.shared_maps import METHODS, Maps, energy, lost, of_group
from compiler.rewriting.attention.shared_states import SharedState, SharedStates, in_channels_of
from compiler.rewriting.attention.site import Site, site_of
from compiler.rewriting.least_squares import output_moments, refitted

IN_FRONT = (Simplify(), CanonicalizeAttention(), CanonicalizeTransposes(), CanonicalizeReshapes())
"""What gives attention the form in which it is found: constant weights, products, heads apart from rows."""

LOOKED_FOR = "a softmax between two products of data, each operand from one product with constant weights"


def in_plain_form(lowered: Lowered) -> Lowered:
    """Rewrite a graph so that attention can be found in it, and return it."""
    for each in IN_FRONT:
        lowered = each.apply(lowered).lowered
    infer_settled(lowered.model)
    return lowered


@dataclasses.dataclass(frozen=True)
class MergeKvHeads:
    """Shared keys and values.

    Attributes:
        groups: heads of keys and values that stay, 1 or more.
        method: how the shared ones are made: "optimal", or for comparison "mean" and "rotated_mean".
        refit: whether the projection behind is fitted anew to the original's results.
        spread: whether layers that lose more get more heads, `groups` being the mean over all layers.
    """

    groups: int = 4
    method: str = "optimal"
    refit: bool = True
    spread: bool = False

    name: ClassVar[str] = "merge_kv_heads"
    lossy: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the options."""
        if self.groups < 1:
            raise RecipeError(f"groups: expected 1 or more, got {self.groups}", cure="change the value")
        if self.method not in METHODS:
            raise RecipeError(
                f"method: expected one of {sorted(METHODS)}, got {self.method!r}", cure="change the value"
            )

    def apply(self, lowered: Lowered) -> Outcome:
        """Merge heads of keys and values into groups; see the module docstring.

        Raises:
            Refused: there are no calibration data, the graph is padded, or it has no attention that can be merged.
        """
        plain = in_plain_form(dataclasses.replace(lowered, model=graphs.clone(lowered.model), first_call=None))
        merges = self.merges(plain)
        if not merges.merges:
            return Outcome(lowered, merges.matched, 0, tuple(merges.refused))
        lowered = dataclasses.replace(lowered, model=plain.model)
        caches = {name: state for merge in merges.merges for name, state in merge.caches.items()}
        if caches:
            lowered = dataclasses.replace(lowered, state_maps=(*lowered.state_maps, SharedStates(caches)))
        detail = _summary([merge.losses for merge in merges.merges])
        return Outcome(lowered, merges.matched, len(merges.merges), tuple(merges.refused), detail=detail)

    def merges(self, lowered: Lowered) -> "Merges":
        """Merge heads of every attention, one attention after the other.

        Args:
            lowered: the graph in plain form; changed.

        Raises:
            Refused: as `apply` raises it.
        """
        if lowered.is_padded or lowered.parts:
            raise Refused(
                f"expected a graph as it is captured for {self.name}, got one that is padded or has packed states",
                cure=f"list {self.name} before pad_axes and what comes behind it",
            )
        streams = calibration_of(lowered, otherwise=f"leave {self.name} out").streams
        infer_settled(lowered.model)
        sites, shared, refused = self._sites(lowered, streams)
        if not sites and not shared:
            seen = f": {refused[0]}" if refused else ", got no such softmax"
            raise Refused(f"expected attention to merge, {LOOKED_FOR}{seen}", cure=f"leave {self.name} out")
        if not sites:
            return Merges((), 0, tuple(refused))
        budgets = self._budgets(lowered, sites, streams)
        original = dataclasses.replace(lowered, model=graphs.clone(lowered.model))
        merges = tuple(
            _Merging(self, lowered, original, site, groups, streams).merge()
            for site, groups in zip(sites, budgets, strict=True)
            if groups < site.attention.heads
        )
        return Merges(merges, len(sites), tuple(refused))

    def _sites(self, lowered: Lowered, streams: Sequence[Sequence[Feed]]) -> tuple[list[Site], int, list[Refusal]]:
        """Return the attentions to merge, the number that share heads already, and why others are refused."""
        search = find_attentions(lowered.model, lowered.states)
        refused = list(search.refused)
        sites = []
        feed = next(iter(run_streams(lowered, [streams[0][:1]]))).feed if search.attentions else {}
        for attention in search.attentions:
            try:
                require_rewritable(attention)
                if attention.heads % self.groups and not self.spread:
                    raise Refused(f"expected a divisor of {attention.heads} heads, got {self.groups} groups")
                sites.append(site_of(lowered.model, attention, feed))
            except Refused as error:
                node = attention.softmax
                place = Location(node=attention.name, op="Softmax", source=graphs.source_of(node))
                refused.append(Refusal(str(error.args[0]) if error.args else str(error), place))
        return sites, search.shared, refused

    def _budgets(self, lowered: Lowered, sites: Sequence[Site], streams: Sequence[Sequence[Feed]]) -> list[int]:
        """Return how many heads of keys and values each attention keeps."""
        if not self.spread:
            return [min(self.groups, site.attention.heads) for site in sites]
        moments = head_moments(lowered, [site.attention for site in sites], streams)
        costs = []
        for site, each in zip(sites, moments, strict=True):
            heads = site.attention.heads
            divisors = [groups for groups in range(1, heads + 1) if heads % groups == 0]
            costs.append({groups: self._cost(site, each, self._partition(site, each, groups)) for groups in divisors})
        return spread_groups(costs, self.groups * len(sites))

    def _partition(self, site: Site, moments: HeadMoments, groups: int) -> tuple[Group, ...]:
        return best_partition(site.attention.heads, groups, lambda group: self._cost(site, moments, [group]))

    def _cost(self, site: Site, moments: HeadMoments, partition: Sequence[Group]) -> float:
        """Return the summed loss of keys and values by sharing, relative to the energy of each."""
        keys, values = losses_of(site, moments, partition, self.method)
        return keys + values


def losses_of(site: Site, moments: HeadMoments, partition: Sequence[Group], method: str) -> tuple[float, float]:
    """Return the relative losses of keys, as queries read them, and of values, as the output projection reads them."""
    relative_losses = []
    readers = (moments.queries, site.value_metrics)
    for of_all, metrics, channels in zip(
        (moments.keys, moments.values), readers, (site.keys, site.values), strict=True
    ):
        missing = 0.0
        for group in partition:
            part = of_group(of_all, metrics, group)
            missing += lost(*part, METHODS[method](*part, channels))
        relative_losses.append(missing / max(energy(of_all, metrics), np.finfo(float).tiny))
    return relative_losses[0], relative_losses[1]


@dataclasses.dataclass(frozen=True)
class Losses:
    """What one attention lost, as shares of power, and the relative error of its result.

    Attributes:
        heads: before.
        groups: after.
        keys: by method.
        values: by method.
        output: |y - y'| / |y| with the maps folded in.
        refit: the same after the fit.
    """

    heads: int
    groups: int
    keys: dict[str, float]
    values: dict[str, float]
    output: float
    refit: float


@dataclasses.dataclass(frozen=True, eq=False)
class Merge:
    """One attention whose heads share.

    Attributes:
        site: the attention as it was.
        partition: heads of every group.
        weights: its current projection weights.
        losses: what that loses.
        caches: the new content of its caches, by input.
    """

    site: Site
    partition: tuple[Group, ...]
    weights: Weights
    losses: Losses
    caches: Mapping[str, SharedState]


@dataclasses.dataclass(frozen=True, eq=False)
class Merges:
    """The attentions of a graph.

    Attributes:
        merges: those whose heads share now.
        matched: how many could.
        refused: why others could not.
    """

    merges: tuple[Merge, ...]
    matched: int
    refused: tuple[Refusal, ...]


@dataclasses.dataclass(frozen=True)
class _Merging:
    """The merging of one attention."""

    options: MergeKvHeads
    lowered: Lowered
    original: Lowered
    site: Site
    groups: int
    streams: Sequence[Sequence[Feed]]

    def merge(self) -> Merge:
        """Merge the heads of one attention."""
        site, method = self.site, METHODS[self.options.method]
        attention: Attention = site.attention
        output = str(attention.output.outputs[0].name)
        (moments,) = head_moments(self.lowered, [attention], self.streams)
        partition = self.options._partition(site, moments, self.groups)
        keys = [method(*of_group(moments.keys, moments.queries, group), site.keys) for group in partition]
        values = [method(*of_group(moments.values, site.value_metrics, group), site.values) for group in partition]
        weights = merged_weights(site, partition, keys, values)
        caches = self._caches(partition, keys, values)
        model = self.lowered.model
        written = Rewriter(model, attention, partition, weights, self.options.name).write()
        graphs.prune(model)
        infer_settled(model)
        folded, bias = weights.output.weights, weights.output.bias
        context = str(written.context.name)
        fitted, held_out = output_moments(self.original, output, bias, self.lowered, context, self.streams)
        every = fitted + held_out
        chosen = refitted(fitted, held_out, folded) if self.options.refit else folded
        if chosen is not folded:
            insert = graphs.Inserter(model, self.options.name, before=written.output)
            name = f"{written.output.name}_refit"
            written.output.replace_input_with(1, insert.constant(chosen.astype(np.float32), name))
            graphs.prune(model)
        lost_by = {name: losses_of(site, moments, partition, name) for name in METHODS}
        losses = Losses(
            attention.heads,
            self.groups,
            {name: loss_pair[0] for name, loss_pair in lost_by.items()},
            {name: loss_pair[1] for name, loss_pair in lost_by.items()},
            every.error(folded),
            every.error(chosen),
        )
        return Merge(site, partition, dataclasses.replace(weights, output=Affine(chosen, bias)), losses, caches)

    def _caches(
        self, partition: Sequence[Group], keys: Sequence[Maps], values: Sequence[Maps]
    ) -> dict[str, SharedState]:
        """Return the maps of the caches' states, by input."""
        attention, shared_states = self.site.attention, {}
        order = np.array([head for group in partition for head in group], np.int64)
        sides = ((attention.key, self.site.key_cache, keys), (attention.value, self.site.value_cache, values))
        for heads, table, maps in sides:
            if heads.cache is None or table is None:
                continue
            name = heads.cache.state.input
            heads_axis, _, channels_axis = axes_of_cache(heads)
            cached = np.stack([in_channels_of(table, head_map.to_shared, name) for head_map in maps]).astype(np.float32)
            shared_states[name] = SharedState(heads_axis, channels_axis, order, cached)
        return shared_states


def _summary(losses: Sequence[Losses]) -> str:
    """Return one line for the report: means over the layers, and the worst one."""
    if not losses:
        return ""
    worst = max(losses, key=lambda layer: layer.refit)

    def mean(shares: Sequence[float]) -> str:
        return f"{np.mean(shares):.3g}"

    keys, values = (
        ", ".join(f"{name} {mean([getattr(layer, part)[name] for layer in losses])}" for name in METHODS)
        for part in ("keys", "values")
    )
    return (
        f"{losses[0].heads} -> {', '.join(sorted({str(layer.groups) for layer in losses}, key=int))} heads; of keys is "
        f"lost {keys}; of values {values}; error of the results {mean([layer.output for layer in losses])}, refit "
        f"{mean([layer.refit for layer in losses])}, worst {worst.refit:.3g}"
    )
