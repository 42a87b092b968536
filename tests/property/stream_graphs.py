"""Random step graphs: layers over a stream, each with states of its own make, and chunks of one size or of any.

A graph takes features [batch, chunk, width] and the states of its layers, and gives scores and the next states. Every
layer takes and gives [batch, frames, width]; what it keeps from call to call is drawn with it.
"""

import numpy as np

from compiler.graph.stages import Array
from tests.property.stream_forms import FORMS
from tests.property.stream_grower import WIDTH, Grower, Grown
from tests.property.stream_layers import LAYERS, STATELESS, held_frames
from tests.property.stream_positions import POSITIONED
from tests.property.stream_wrong import WRONG

ALL = {**LAYERS, **POSITIONED, **FORMS, **WRONG}

SOUND = (*LAYERS, *POSITIONED, *FORMS)

WITH_STATES = tuple(
    name for name in SOUND if name not in (*STATELESS, "every_second", "stacked_frames", "pieces_of_chunk")
)

MOST_WRONG = 0.2
"""Graphs with a layer that is wrong."""

HELD = 0.1
"""Graphs with a state along the chunk, where as many frames come out of their layers as go in."""

SHARES = {"rolled_buffer": 0.6, "recurrence": 3.0, "both_directions": 2.0, "mean_of_chunk": 2.0}
"""How often a layer is drawn, against 1.0 of the others.

Less where many graphs with it are refused; more where only chunks of several lengths show what is made of it.
"""


def grow(seed: int) -> Grown:
    """The graph of a seed; at least one layer has states."""
    grower, names = begin(seed)
    for name in names:
        ALL[name](grower)
    if not grower.states:
        LAYERS["running_sum"](grower)
    if grower.begun.random() < HELD and all(grower.frames_of(size) == size for size in range(1, grower.chunk + 1)):
        held_frames(grower)
        names.append("held_frames")
    return grower.finish(names)


def begin(seed: int) -> tuple[Grower, list[str]]:
    """The graph of a seed without its layers, and their names; the first goes round, so that few seeds have all."""
    rng = np.random.default_rng(seed)
    grower = Grower(rng)
    names = [WITH_STATES[seed % len(WITH_STATES)], *(_drawn(rng, SOUND) for _ in range(int(rng.integers(0, 3))))]
    if rng.random() < MOST_WRONG:
        names.insert(int(rng.integers(0, len(names) + 1)), str(rng.choice(list(WRONG))))
    return grower, names


def _drawn(rng: np.random.Generator, names: tuple[str, ...]) -> str:
    shares = np.array([SHARES.get(name, 1.0) for name in names])
    return str(rng.choice(names, p=shares / shares.sum()))


def feeds_of(grown: Grown, rng: np.random.Generator, calls: int) -> list[dict[str, Array]]:
    """A stream of one row, batch in front, or as callers give it whole: some chunks are whole, some of any length.

    Where states lie along the chunk, all chunks have one length.
    """
    heard, feeds = 0, []
    held = int(rng.integers(grown.shortest, grown.chunk + 1)) if grown.spec.held else None
    for _ in range(calls):
        is_short = grown.is_ragged and rng.random() < 0.6
        length = int(rng.integers(grown.shortest, grown.chunk + 1)) if is_short else grown.chunk
        length = length if held is None else held
        feed: dict[str, Array] = {"features": rng.standard_normal((1, length, WIDTH)).astype(np.float32)}
        for name, kind in grown.positions.items():
            feed[name] = np.array([heard if kind == "so far" else rng.integers(0, 60)], np.int64)
        feeds.append(dict(grown.fed(feed)))
        heard += length
    return feeds
