"""Chooses the layers that stay in float: those that the recipe pins, and those that the task metric requires."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from compiler.base.records.precision import Pin
from compiler.calib.noise import decibels
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.numerics.precision.pin_patterns import pinned_by
from compiler.numerics.quantization.placement import Placement
from compiler.numerics.quantization.weighted_layers import WeightedLayer, kinds_of

SHARES = (0.5, 0.75, 0.9, 0.97)
"""Shares of the predicted loss that the evaluations after the first take away, in this order, until the task agrees."""

REASONS = {
    "front": "a convolution at the front",
    "depthwise": "a depthwise convolution",
    "output": "the last product before an output",
}


def pinned_layers(
    layers: Sequence[WeightedLayer],
    data_outputs: tuple[str, ...],
    placement: Placement,
    pins: Sequence[str],
    keep_float: Sequence[str],
) -> dict[str, Pin]:
    """Return the layers that stay in float regardless of measurements, by name.

    Args:
        layers: all layers.
        data_outputs: the caller's outputs.
        placement: the target's rules.
        pins: kinds of layers, of `compiler.numerics.quantization.weighted_layers.PINS`.
        keep_float: patterns of pins, see `compiler.numerics.precision.pin_patterns`.
    """
    kinds = kinds_of(list(layers), data_outputs)
    named = pinned_by([layer.node for layer in layers], keep_float, "keep_float")
    by_name = {}
    for layer in layers:
        kind = kinds.get(layer.name)
        if layer.name in named:
            by_name[layer.name] = _pin(layer, f"asked for by {named[layer.name]!r}")
        elif kind in pins and kind is not None:
            by_name[layer.name] = _pin(layer, REASONS[kind])
        elif layer.is_convolution and layer.weights.shape[0] < placement.least_channels:
            by_name[layer.name] = _pin(layer, f"fewer than {placement.least_channels} channels")
    return by_name


def _pin(layer: WeightedLayer, reason: str, cost: float | None = None) -> Pin:
    source = graphs.source_of(layer.node)
    unit = "dB of noise under the signal" if cost is not None else ""
    return Pin(layer.name, layer.node.op_type, reason, str(layer.data.name), source=source, cost=cost, cost_unit=unit)


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The choice.

    Attributes:
        quantised: names of the layers to quantise.
        pins: why the others stay in float.
        distance: the task's distance from the original's, or None without a task.
        evaluations: how often the task was asked.
        losses: noise over signal of each layer alone; empty where nothing hung on it.
    """

    quantised: frozenset[str]
    pins: tuple[Pin, ...]
    distance: float | None
    evaluations: int
    losses: Mapping[str, float] = dataclasses.field(default_factory=dict)


def choose(
    layers: Sequence[WeightedLayer],
    losses_of: Callable[[], Mapping[str, float]],
    distance_of: Callable[[frozenset[str]], float | None],
    most: float,
) -> Chosen:
    """Quantize all layers, or all but those that lose most for the work they save, until the task's metric is met.

    Args:
        layers: the layers that are not pinned.
        losses_of: returns the noise share of each alone; called once, if quantizing all fails the task.
        distance_of: returns the task's distance with these layers quantized; None without a task.
        most: largest distance to accept.

    Raises:
        Refused: no share of the predicted loss was enough.
    """
    everything = frozenset(layer.name for layer in layers)
    nearest = distance_of(everything)
    if nearest is None or nearest <= most:
        return Chosen(everything, (), nearest, 1)
    losses, tried = losses_of(), {everything}
    total = sum(losses.values())
    ranked = sorted(layers, key=lambda layer: losses[layer.name] / layer.weights.size, reverse=True)
    for share in SHARES:
        float_layers = _first(ranked, losses, share * total)
        quantised = everything - {layer.name for layer in float_layers}
        if quantised in tried:
            continue
        tried.add(quantised)
        distance = distance_of(quantised)
        if distance is None or distance <= most:
            reason = f"loses most for the work it saves, and the task allows {most:g}"
            pins = tuple(_pin(layer, reason, decibels(losses[layer.name])) for layer in float_layers)
            return Chosen(quantised, pins, distance, len(tried), losses)
        nearest = min(nearest, distance)
    raise Refused(
        f"expected a choice of layers that changes the task by at most {most:g} on the data to choose on, got "
        f"{nearest:g} at best, with {100 * SHARES[-1]:.0f} % of the predicted loss left in float",
        cure="raise max_task_increase, calibrate on more recordings, or pin what the report shows as sensitive",
    )


def _first(ranked: Sequence[WeightedLayer], losses: Mapping[str, float], wanted: float) -> list[WeightedLayer]:
    """Return the first layers whose losses add up to a wanted reduction."""
    found: list[WeightedLayer] = []
    gone = 0.0
    for layer in ranked:
        if gone >= wanted:
            break
        found.append(layer)
        gone += losses[layer.name]
    return found
