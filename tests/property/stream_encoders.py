"""Random encoders: attention over frames that are not kept, layers at half the rate, layers with states of one kind."""

import itertools

import numpy as np

from tests.property.stream_graphs import ALL, SOUND
from tests.property.stream_grower import BATCH, WIDTH, Grower, Grown
from tests.property.stream_layers import LAYERS, Layer, attend, attention

INNER = ("attention", "convolution", "running_sum", "decayed_sum", "last_frame")
"""Layers that are drawn at half the rate, or several times."""


def look_ahead(g: Grower) -> None:
    """Attention over all frames of a call, of which the newest are not kept: the next call is given them again."""
    x, frames, ahead = g.value, g.frames_of(g.chunk), int(g.rng.integers(1, 3))
    if frames <= ahead:
        attention(g)
        return
    g.least = max(g.least, next(entries for entries in range(1, g.chunk + 1) if g.frames_of(entries) > ahead))
    kept = tuple(max(g.frames_of(entries) - ahead, 0) for entries in range(1, g.chunk + 1))
    window = g.window(kept)
    joined = []
    for _ in range(2):
        new, state = g.linear(x), g.state([BATCH, window.axis, WIDTH])
        whole = g.op("Concat", [state.before, new], axis=1)
        if g.chance(0.3):
            cut = g.cut(whole, 0, -ahead, 1)
        else:
            cut = g.op("Concat", [state.before, g.cut(new, 0, -ahead, 1)], axis=1)
        state.after = g.kept(window, cut, 1)
        joined.append(whole)
    attend(g, g.op("MatMul", [g.linear(x), g.channels_first(joined[0])]), joined[1])


def two_rates(g: Grower) -> None:
    """Layers on pairs of frames, whose answers are repeated for both."""
    x, before = g.value, g.frames_of
    if g.is_ragged or before(g.chunk) % 2:
        repeated(g)
        return
    if g.chance(0.5):
        pairs = g.op("Reshape", [x, g.integers(0, -1, 2 * WIDTH)])
        g.value = g.op("MatMul", [pairs, g.weights(2 * WIDTH, WIDTH)])
    else:
        pairs = g.op("Reshape", [x, g.integers(0, -1, 2, WIDTH)])
        g.value = g.op("ReduceMean", [pairs, g.integers(2)], keepdims=0)
    g.frames_of = lambda entries: before(entries) // 2
    repeated(g)
    twice = g.op("Unsqueeze", [g.value, g.integers(2)])
    twice = g.op("Concat", [twice, twice], axis=2)
    g.value = g.op("Add", [x, g.op("Reshape", [twice, g.integers(0, -1, WIDTH)])])
    g.frames_of = before


def repeated(g: Grower) -> None:
    """One layer several times, so that its states lie in one tensor, or in several."""
    layer = {**LAYERS, "look_ahead": look_ahead}[str(g.rng.choice([*INNER, "look_ahead"]))]
    for _ in range(int(g.rng.integers(2, 4))):
        layer(g)


ENCODERS: dict[str, Layer] = {layer.__name__: layer for layer in (look_ahead, two_rates, repeated)}


def grow_encoder(seed: int) -> Grown:
    """The graph of a seed: one of these layers, and perhaps another one; chunks are even, and most of one size."""
    drawn = (Grower(np.random.default_rng((seed, attempt))) for attempt in itertools.count())
    grower = next(each for each in drawn if each.chunk % 2 == 0 and (not each.is_ragged or each.chance(0.4)))
    names = [str(grower.rng.choice(list(ENCODERS)))]
    if grower.chance(0.4):
        names.insert(int(grower.rng.integers(0, 2)), str(grower.rng.choice([*SOUND, *ENCODERS])))
    layers = {**ALL, **ENCODERS}
    for name in names:
        layers[name](grower)
    if not grower.states:
        LAYERS["running_sum"](grower)
    return grower.finish(names)
