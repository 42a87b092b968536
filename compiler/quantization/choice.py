"""Chooses which sites stay in float: what the recipe pins, and then what the task asks for, in a few evaluations."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from compiler import ir as house
from compiler.calib.noise import decibels
from compiler.errors import Refused
from compiler.precision.pin_patterns import pinned_by
from compiler.quantization.placement import Placement
from compiler.quantization.weighted_operators import Site, kinds_of
from compiler.records.precision import Pin

SHARES = (0.0, 0.5, 0.75, 0.9, 0.97)
"""Shares of the predicted loss that the evaluations take away, in this order, until the task agrees."""

REASONS = {
    "front": "a convolution at the front",
    "depthwise": "a depthwise convolution",
    "output": "the last product before an output",
}


def pinned_sites(
    sites: Sequence[Site],
    data_outputs: tuple[str, ...],
    placement: Placement,
    pins: Sequence[str],
    keep_float: Sequence[str],
) -> dict[str, Pin]:
    """Sites that stay in float whatever is measured, by name.

    Args:
        sites: all sites.
        data_outputs: the caller's outputs.
        placement: the target's rules.
        pins: kinds of sites, of `compiler.quantization.weighted_operators.PINS`.
        keep_float: patterns of pins, see `compiler.precision.pin_patterns`.
    """
    kinds = kinds_of(list(sites), data_outputs)
    named = pinned_by([site.node for site in sites], keep_float, "keep_float")
    found = {}
    for site in sites:
        kind = kinds.get(site.name)
        if site.name in named:
            found[site.name] = _pin(site, f"asked for by {named[site.name]!r}")
        elif kind in pins and kind is not None:
            found[site.name] = _pin(site, REASONS[kind])
        elif site.is_convolution and site.weights.shape[0] < placement.least_channels:
            found[site.name] = _pin(site, f"fewer than {placement.least_channels} channels")
    return found


def _pin(site: Site, reason: str, cost: float | None = None) -> Pin:
    source = house.source_of(site.node)
    unit = "dB of noise under the signal" if cost is not None else ""
    return Pin(site.name, site.node.op_type, reason, str(site.data.name), source=source, cost=cost, cost_unit=unit)


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The choice.

    Attributes:
        quantised: names of the sites to quantise.
        pins: why the others stay in float.
        distance: the task's distance from the original's, or None without a task.
        evaluations: how often the task was asked.
    """

    quantised: frozenset[str]
    pins: tuple[Pin, ...]
    distance: float | None
    evaluations: int


def choose(
    sites: Sequence[Site],
    losses: Mapping[str, float],
    distance_of: Callable[[frozenset[str]], float | None],
    most: float,
) -> Chosen:
    """Quantise all sites, or all but those that lose most for the work they save, until the task agrees.

    Args:
        sites: those that are free.
        losses: noise over signal of each alone.
        distance_of: the task's distance with these sites quantised; None where there is no task.
        most: largest distance to accept.

    Raises:
        Refused: no share of the predicted loss was enough.
    """
    total = sum(losses.values())
    ranked = sorted(sites, key=lambda site: losses[site.name] / site.weights.size, reverse=True)
    tried: set[frozenset[str]] = set()
    nearest = math.inf
    for share in SHARES:
        kept = _first(ranked, losses, share * total)
        quantised = frozenset(site.name for site in sites) - {site.name for site in kept}
        if quantised in tried:
            continue
        tried.add(quantised)
        distance = distance_of(quantised)
        if distance is None or distance <= most:
            pins = tuple(
                _pin(
                    site, f"loses most for the work it saves, and the task allows {most:g}", decibels(losses[site.name])
                )
                for site in kept
            )
            return Chosen(quantised, pins, distance, len(tried))
        nearest = min(nearest, distance)
    raise Refused(
        f"expected a choice of sites that changes the task by at most {most:g} on the data to choose on, got "
        f"{nearest:g} at best, with {100 * SHARES[-1]:.0f} % of the predicted loss left in float",
        cure="raise max_task_increase, calibrate on more recordings, or pin what the report shows as sensitive",
    )


def _first(ranked: Sequence[Site], losses: Mapping[str, float], wanted: float) -> list[Site]:
    """The first sites whose losses add up to what is to be taken away."""
    found: list[Site] = []
    gone = 0.0
    for site in ranked:
        if gone >= wanted:
            break
        found.append(site)
        gone += losses[site.name]
    return found
