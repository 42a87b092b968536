"""Measures how quantising one layer alone changes a graph's outputs, over a few calls from the middle of a stream.

One graph holds every layer in both forms with a switch between them, so a layer costs a few calls and no new session;
layers are asked about side by side.
The losses of layers add up when their errors are small and not correlated, which is what ranking them takes for
granted; how much a set of layers costs together is measured, not added.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from compiler.calib.deciding_numbers import measured_on, with_deciding
from compiler.calib.noise import Noise
from compiler.graph import model as graphs
from compiler.graph.runners.ahead import on_all_cores
from compiler.graph.runners.choose import runner_on
from compiler.graph.runners.session import open_model
from compiler.graph.stages import Array, Feed, Lowered
from compiler.numerics.quantization.placement import Placement
from compiler.numerics.quantization.plans import Plan
from compiler.numerics.quantization.weighted_layers import find_layers
from compiler.numerics.quantization.writer import Writer

PROBE_CALLS = 4


def sensitivities(
    lowered: Lowered,
    plans: Mapping[str, Plan],
    placement: Placement,
    streams: Sequence[Sequence[Feed]],
    *,
    calls: int = PROBE_CALLS,
) -> dict[str, float]:
    """Return, by layer, the noise share of the data outputs when that layer alone is quantized.

    For classes it is the noise in the floats that decide them.

    Args:
        lowered: the graph in floats.
        plans: plans of the layers to probe.
        placement: the target's rules.
        streams: the calibration streams; the longest is used, its caches filled by real calls.
        calls: number of calls to compare.
    """
    measured = measured_on(lowered.model)
    names = tuple(dict.fromkeys(measured_name for name in lowered.data_outputs for measured_name in measured[name]))
    (lowered,) = with_deciding(lowered)
    model = graphs.clone(lowered.model)
    layers = [layer for layer in find_layers(model) if layer.name in plans]
    switches = Writer(model, "probe", placement, plans).write_switched(layers)
    session = open_model(model, optimize=True)
    mixed = dataclasses.replace(lowered, model=model)
    off = {name: np.array(False) for name in switches.values()}
    stream = max(streams, key=len)
    start = max((len(stream) - calls) // 2, 0)
    probe = stream[start : start + calls]
    runner = runner_on(session, mixed)
    for feed in stream[:start] if runner.states else ():
        runner.step(feed, off)
    states, lengths = dict(runner.states), dict(runner.lengths)

    def answers(switched: Feed) -> list[dict[str, Array]]:
        probing = runner_on(session, mixed)
        probing.reset(states, lengths)
        return [probing.step(feed, {**off, **switched}) for feed in probe]

    exact = answers({})
    losses = on_all_cores(lambda switch: _noise(exact, answers({switch: np.array(True)}), names), switches.values())
    return dict(zip(switches, losses, strict=True))


def _noise(exact: Sequence[Mapping[str, Array]], rounded: Sequence[Mapping[str, Array]], names: Sequence[str]) -> float:
    """Return the mean noise share of several outputs; one without a signal counts by its noise alone."""
    shares = []
    for name in names:
        found = Noise()
        for right, got in zip(exact, rounded, strict=True):
            found.add(got[name], right[name])
        shares.append(found.share if found.signal else found.noise)
    return float(np.mean(shares)) if shares else 0.0
