"""Prunes the channels and attention heads that outputs depend on least, until a call is as fast as the recipe asks.

Before:
    h = MatMul(x [batch, 16, 256], W [256, 1024]) + b;  y = MatMul(h * Sigmoid(h), V [1024, 256]) + c
After:
    h = MatMul(x, W' [256, 608]) + b';  y = MatMul(h * Sigmoid(h), V' [608, 256]) + c'
    of 8 heads of 32 channels 6: 192 columns of queries, keys and values, 192 channels of their caches

Requires: calibration data; symbolic shapes; one graph.
Ensures: a call of one row takes at most `time` of what it took, measured on this machine as the graph would ship; the
    rows of a batch are independent, proved anew on the graph as it is afterwards.
Keeps: what a normalisation, a softmax, an input or an output that is no state has a part in, what several products or a
    convolution sum over, and what the recipe keeps. A number of channels that makes nothing faster is not offered.
Numerics: loses what the channels carried. Which go is decided by the exact error of the product's results with the
    other weights fitted anew, by how much of that error the graph's results show, and by the time that it saves. The
    weights and the bias behind are fitted to the original's results, one product after the other, each to what the cut
    graph feeds it.
Source: least squares with a variable left out, as in optimal brain surgeon (Hassibi and Stork 1993); errors beside
    time saved as in structured pruning for latency (HALP, Shen et al. 2022).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from compiler.base.interruption import shielded
from compiler.base.records.compression import Compression, Cut, Point, Training
from compiler.calib.noise import decibels
from compiler.calib.watched_streams import calibration_of, noise_between, run_streams
from compiler.errors import Location, RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.instrumented import exposed
from compiler.graph.runners.stream import mapped
from compiler.graph.stages import Array as Numbers
from compiler.graph.stages import Feed, Lowered, Outcome, Refusal
from compiler.numerics.precision.pin_patterns import pinned_by
from compiler.passes.freeze_axes import FreezeAxes
from compiler.proof.propagation.rows_alone import prove_rows
from compiler.rewriting.least_squares import Array, output_moments, refitted
from compiler.rewriting.pruning.channel_moments import channel_moments
from compiler.rewriting.pruning.channel_times import ChannelTimes, call_of, counts_of, seconds_of
from compiler.rewriting.pruning.choice import Choice, Option, choose
from compiler.rewriting.pruning.cutting import affine_weights, cut, set_weights, stamped
from compiler.rewriting.pruning.inner_axes import InnerAxis, inner_axes
from compiler.rewriting.pruning.kept_entries import KeptAlong, KeptEntries
from compiler.rewriting.pruning.removals import Left, fitted, removed

PROBE_CALLS = 16
"""Calls, from the start of the longest stream, on which it is measured how much of an error the results show."""

ATTEMPTS = 3
"""Choices, each by as much smaller or larger as the measured time was off: parts do not add up to the whole exactly."""

SLACK = 0.01
"""By which the measured time may lie above the wanted one: two equal graphs differ by that much."""

NEAR = 0.03
"""By which it may lie below without another choice that takes less out."""

UNITS = {"classes": "nats", "numbers": "of the power"}
"""Of the distance that a training makes smaller, by what the outputs are."""

SHOWN_REASONS = 6
"""Products of which a refusal says why nothing can be taken out; the others are like them."""


@dataclasses.dataclass(frozen=True)
class Compress:
    """Fewer channels and heads.

    Attributes:
        time: of one call of one row, as a share of what it takes before, above 0 and below 1.
        tile: numbers of channels that stay are multiples of it.
        keep: products whose channels all stay: names with wildcards, `op:MatMul`, `scope:layers.0`.
        train_minutes: most minutes for which the weights that are left are trained, by the clock; 0 trains nothing.
        updates: most updates of that training.
        answers: what the outputs are: `classes`, scores along the last axis; or `numbers`.
        rate: highest learning rate.
        seed: of the order of the streams.
    """

    time: float = 0.8
    tile: int = 16
    keep: tuple[str, ...] = ()
    train_minutes: float = 0.0
    updates: int = 100_000
    answers: str = "numbers"
    rate: float = 1e-4
    seed: int = 1

    name: ClassVar[str] = "compress"
    lossy: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("merge_first_call",)
    expensive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the options."""
        if not 0 < self.time < 1:
            raise RecipeError(f"time: expected a share above 0 and below 1, got {self.time}", cure="change the value")
        if self.tile < 1:
            raise RecipeError(f"tile: expected 1 or more, got {self.tile}", cure="change the value")
        if self.answers not in UNITS:
            got = f"expected one of {sorted(UNITS)}, got {self.answers!r}"
            raise RecipeError(f"answers: {got}", cure="change the value")
        for option, least in (("train_minutes", self.train_minutes), ("updates", self.updates), ("rate", self.rate)):
            if least < 0 or (option != "train_minutes" and least == 0):
                raise RecipeError(f"{option}: expected more than 0, got {least}", cure="change the value")

    def apply(self, lowered: Lowered) -> Outcome:
        """Take channels out until a call is as fast as wanted; see the module docstring.

        Raises:
            Refused: there are no calibration data, no channels can be taken out, or too few for the time; or the graph
                is to be trained and cannot be.
            RecipeError: `keep` names no product.
        """
        graphs.infer_shapes(lowered.model)
        if stamped(lowered.model, self.name):
            return Outcome(lowered)
        if self.train_minutes > 0 and lowered.padded_axes:
            raise Refused(
                "expected calls of one size to train on, got rows or chunks with lengths of their own",
                cure="train nothing: leave train_minutes out",
            )
        axes, refused = self._axes(lowered)
        streams = calibration_of(lowered, otherwise=f"leave {self.name} out").streams
        cutting = _Cutting(self, lowered, axes, streams)
        choice, after, cuts, ratio = cutting.within_time()
        training = self._train(lowered, after, streams) if self.train_minutes > 0 else None
        noises = noise_between(lowered, after, streams)
        noise = max(noises[name] for name in lowered.data_outputs)
        proof = () if after.batch_axis is None else (prove_rows(after),)
        predicted = tuple(Point(point.time, decibels(point.loss)) for point in choice.points)
        measured, last = Point(ratio, decibels(noise)), predicted[-1]
        channels = [sum(each.before for each in cuts), sum(each.after for each in cuts)]
        return Outcome(
            after,
            matched=len(axes),
            rewritten=len(choice.options),
            refused=tuple(refused),
            records=proof,
            detail=(
                f"{measured.time:.2f} of the time, {last.time:.2f} predicted, {self.time:g} wanted; results "
                f"{measured.noise_db:.1f} dB, {last.noise_db:.1f} dB predicted; channels {channels[0]} -> {channels[1]}"
                f"{_words(training)}"
            ),
            compression=Compression(tuple(cuts), predicted, measured, training),
        )

    def _train(self, lowered: Lowered, after: Lowered, streams: Sequence[Sequence[Feed]]) -> Training:
        """Train the weights that are left to answer what the graph before answers; in place."""
        with shielded():  # a signal in the middle of importing the framework would end the process without a word
            from compiler.rewriting.pruning.distillation import Schedule, distill

        schedule = Schedule(
            60 * self.train_minutes, self.updates, self.rate, self.seed, classes=self.answers == "classes"
        )
        distilled = distill(lowered, after, _frozen, streams, schedule)
        insert = graphs.Inserter(after.model, self.name)
        for name, array in distilled.weights.items():
            old = after.model.graph.initializers[name]
            graphs.take_over(after.model, old, insert.constant(array, f"{name}_trained"))
        graphs.prune(after.model)
        return Training(distilled.curve, UNITS[self.answers], distilled.seconds)

    def _axes(self, lowered: Lowered) -> tuple[list[InnerAxis], list[Refusal]]:
        """Return the axes that may lose channels, and why those of other products may not.

        Raises:
            Refused: there are none.
        """
        axes, obstacles = inner_axes(lowered.model, lowered.states)
        products = [axis.product for axis in axes] + [obstacle.product for obstacle in obstacles]
        pinned = pinned_by(products, self.keep, "keep")
        reasons = {obstacle.product: obstacle.reason for obstacle in obstacles}
        for axis in axes:
            if axis.name in pinned:
                reasons[axis.product] = f"the recipe keeps {pinned[axis.name]}"
            elif not counts_of(axis.count, axis.block, self.tile):
                few = f"no more than a tile of {self.tile}" if axis.count > 1 else "all of one entry"
                reasons[axis.product] = f"it reads {len(axis.weights)} channels, {few}"
        refused = [
            Refusal(reason, Location(node=str(node.name), op=node.op_type, source=graphs.source_of(node)))
            for node, reason in reasons.items()
        ]
        free = [axis for axis in axes if axis.product not in reasons]
        if not free:
            shown = "; ".join(map(str, refused[:SHOWN_REASONS])) or "no product has constant weights"
            raise Refused(
                f"expected a product whose channels can be taken out, got none: {shown}",
                cure=f"leave {self.name} out, or choose a smaller tile or less under keep",
            )
        return free, refused


def _frozen(lowered: Lowered, rows: int) -> Lowered:
    """Return a copy of a graph for a number of rows."""
    copy = dataclasses.replace(lowered, model=graphs.clone(lowered.model))
    return FreezeAxes(() if copy.batch_axis is None else ((copy.batch_axis, rows),)).apply(copy).lowered


def _words(training: Training | None) -> str:
    """Return what a training has come to as text; empty without one."""
    if training is None:
        return ""
    first, nearest = training.curve[0][1], min(distance for _, distance in training.curve)
    return f"; trained {training.curve[-1][0]} updates: {first:.3g} -> {nearest:.3g} {training.unit}, on streams apart"


@dataclasses.dataclass(frozen=True, eq=False)
class _Axis:
    """What is known of the channels of one product.

    Attributes:
        axis: the channels.
        moments: C^T C over the calibration data.
        weights: of the product, and a row for the bias.
        left: what is left at each number of entries that is offered.
        options: these numbers.
    """

    axis: InnerAxis
    moments: Array
    weights: Array
    left: Mapping[int, Left]
    options: Sequence[Option]


class _Cutting:
    """The compression of one graph."""

    def __init__(
        self, options: Compress, lowered: Lowered, axes: Sequence[InnerAxis], streams: Sequence[Sequence[Feed]]
    ) -> None:
        self.options, self.lowered, self.streams = options, lowered, streams
        self.values = self._values(axes)
        self.whole = call_of(lowered.model, self.values)
        moments = channel_moments(lowered, axes, streams)
        times = ChannelTimes(lowered, self.values, options.tile, options.name)
        self.axes = [self._measured(axis, moments[axis.name], times) for axis in axes]

    def within_time(self) -> tuple[Choice, Lowered, list[Cut], float]:
        """Return a choice that is fast enough, the graph with it, its cuts, and its time as a share of that before.

        Of several choices that are, the one whose time is longest: it has lost least.

        Raises:
            Refused: there is none; the message says what the nearest one takes, and what it costs.
        """
        offered, seconds = self._offered()
        wanted = aim = self.options.time
        enough: tuple[Choice, Lowered, list[Cut], float] | None = None
        nearest = ""
        for _ in range(ATTEMPTS):
            choice = choose(offered, seconds, aim)
            last = choice.points[-1]
            if last.time > aim:
                nearest = nearest or f"{last.time:.2f} at {decibels(last.loss):.1f} dB, both predicted, with everything"
                break
            after, cuts = self._cut(choice.options)
            ratio, _ = self._timed(after)
            if ratio <= wanted + SLACK and (enough is None or ratio > enough[3]):
                enough = choice, after, cuts, ratio
            if wanted - NEAR <= ratio <= wanted + SLACK:
                break
            nearest = f"{ratio:.2f}, measured, at {decibels(last.loss):.1f} dB, predicted,"
            aim = min(aim + wanted - ratio, (1 + wanted) / 2)
        if enough is None:
            raise Refused(
                f"expected channels to take out until a call takes {wanted:g} of its time, got {nearest} that may be "
                "taken out",
                cure="allow more time, keep less, choose a smaller tile, or list passes that save time in another way",
            )
        return enough

    def _offered(self) -> tuple[Mapping[str, Sequence[Option]], float]:
        """Return what every axis offers, and the seconds of a call before.

        Times of parts are scaled so that all of them together save what the graph saves: a part that is run alone finds
        its weights in the caches of the processor, which in the graph it does not.
        """
        smallest = {known.axis.name: known.options[-1] for known in self.axes if known.options}
        trial, _ = self._cut(smallest, refits=False)
        ratio, seconds = self._timed(trial)
        parts = sum(option.seconds for option in smallest.values())
        scale = max(1.0 - ratio, 0.0) * seconds / max(parts, 1e-12)
        offered = {
            known.axis.name: [dataclasses.replace(each, seconds=scale * each.seconds) for each in known.options]
            for known in self.axes
        }
        return offered, seconds

    def _timed(self, after: Lowered) -> tuple[float, float]:
        """Return the time of a call as a share of that of the graph before, and that in seconds; run in turns."""
        fed = mapped(after.state_maps[len(self.lowered.state_maps) :], self.values)
        took, before = seconds_of([call_of(after.model, fed), self.whole])
        return took / before, before

    def _values(self, axes: Sequence[InnerAxis]) -> dict[str, Numbers]:
        """Return what all inputs, and all values that channels are computed from, are in the last probed call."""
        names = [str(value.name) for axis in axes for value in axis.sources if value.producer() is not None]
        *_, last = run_streams(exposed(self.lowered, names), [self._probe])
        return {**last.outputs, **last.feed}

    @property
    def _probe(self) -> Sequence[Feed]:
        return max(self.streams, key=len)[:PROBE_CALLS]

    def _measured(self, axis: InnerAxis, moments: Array, times: ChannelTimes) -> _Axis:
        """Return what an axis may lose, what that saves, and how much of the loss the graph's results show."""
        offered, weights = times.offered(axis), affine_weights(axis)
        left = removed(moments, weights, axis.count, axis.block, [each.entries for each in offered])
        known = _Axis(axis, moments, weights, left, ())
        if not offered:
            return known
        shown = self._shown(known, offered[len(offered) // 2].entries)
        options = [Option(each.entries, each.seconds, shown * left[each.entries].share) for each in offered]
        return dataclasses.replace(known, options=options)

    def _shown(self, known: _Axis, entries: int) -> float:
        """Return the noise of the graph's results beside the error of one product's, both shares of power."""
        share = known.left[entries].share
        trial = dataclasses.replace(self.lowered, model=graphs.clone(self.lowered.model))
        self._write(trial, known, entries)
        noises = noise_between(self.lowered, trial, [self._probe])
        noise = float(np.mean([noises[name] for name in self.lowered.data_outputs]))
        return noise / share if share > 0 else 0.0

    def _write(self, lowered: Lowered, known: _Axis, entries: int) -> tuple[InnerAxis, Array]:
        """Take entries out of a graph, weights fitted in closed form; return the axis in it, and these weights."""
        axes, _ = inner_axes(lowered.model, lowered.states)
        (axis,) = [other for other in axes if other.name == known.axis.name]
        kept = known.left[entries].kept
        cut(lowered.model, axis, kept, self.options.name)
        channels = len(known.axis.weights)
        weights = fitted(known.moments, known.weights, channels, known.axis.indices(kept, channels))
        set_weights(lowered.model, axis.product, weights, self.options.name)
        graphs.infer_shapes(lowered.model)
        return axis, weights

    def _cut(self, options: Mapping[str, Option], *, refits: bool = True) -> tuple[Lowered, list[Cut]]:
        """Return the graph with some numbers of entries, each product fitted to what the cuts in front of it feed it.

        Args:
            options: by axis; the others stay as they are.
            refits: whether products are fitted; else the time of the graph alone is of use.
        """
        lowered = dataclasses.replace(self.lowered, model=graphs.clone(self.lowered.model))
        cuts, states = list[Cut](), dict[str, list[KeptAlong]]()
        for known in self.axes:
            option, source = options.get(known.axis.name), graphs.source_of(known.axis.product)
            before = len(known.axis.weights)
            if option is None:
                cuts.append(Cut(known.axis.name, source, before, before))
                continue
            left = known.left[option.entries]
            for value, along in known.axis.carried:
                kept = known.axis.indices(left.kept, self.values[str(value.name)].shape[along])
                states.setdefault(str(value.name), []).append((along, kept))
            axis, weights = self._write(lowered, known, option.entries)
            error = self._refit(lowered, axis, weights) if refits else 0.0
            figures = [decibels(share) for share in (left.share, error**2, option.loss)]
            after = option.entries * known.axis.block
            cuts.append(Cut(known.axis.name, source, before, after, 1e3 * option.seconds, *figures))
        if states:
            lowered = dataclasses.replace(lowered, state_maps=(*lowered.state_maps, KeptEntries(states)))
        return lowered, cuts

    def _refit(self, lowered: Lowered, axis: InnerAxis, weights: Array) -> float:
        """Fit a product to the original's results, and return its relative error |Y - C O| / |Y|."""
        behind = graphs.bias_behind(axis.product)
        result = str((axis.product if behind is None else behind[0]).outputs[0].name)
        none = np.zeros(weights.shape[1])
        read, has_bias = str(axis.read.name), behind is not None
        parts = output_moments(self.lowered, result, none, lowered, read, self.streams, with_ones=has_bias)
        chosen = refitted(*parts, weights)
        if chosen is not weights:
            set_weights(lowered.model, axis.product, chosen, self.options.name)
        return (parts[0] + parts[1]).error(chosen)
