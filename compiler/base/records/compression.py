"""Defines records of pruned channels: which MatMuls read fewer of them, what that saves, and what it costs.

A pass returns one in `Outcome.compression`; it explains, it proves nothing, and no checker reads it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Cut:
    """Channels that one product reads.

    Attributes:
        node: name of the product.
        source: the model's source line, or an empty string.
        before: number of channels that there were.
        after: number that there are; equal to `before` where all of them stay.
        saved_ms: of one call, by the part that makes and reads them.
        alone_db: signal to error of the product's results by this cut alone, predicted, in dB.
        fitted_db: the same measured in the graph with all cuts, weights fitted anew.
        noise_db: signal to noise of the graph's results by this cut alone, predicted, in dB. All three are None where
            nothing is cut.
    """

    node: str
    source: str
    before: int
    after: int
    saved_ms: float = 0.0
    alone_db: float | None = None
    fitted_db: float | None = None
    noise_db: float | None = None


@dataclasses.dataclass(frozen=True)
class Point:
    """A choice of channels.

    Attributes:
        time: of a call, as a share of that of the graph before.
        noise_db: signal to noise of the graph's results, in dB.
    """

    time: float
    noise_db: float


@dataclasses.dataclass(frozen=True)
class Training:
    """Weights that were trained behind the cut.

    Attributes:
        curve: updates made, and the distance of the answers from the original's on streams that nothing was trained on.
        unit: of the distance, as in `nats`.
        seconds: that it took.
    """

    curve: tuple[tuple[int, float], ...]
    unit: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Compression:
    """Everything that was taken out of one graph.

    Attributes:
        cuts: one for each product whose channels could be taken out, in the order of the graph.
        predicted: the way to the choice, each step smaller and faster than the one in front; the last is the choice.
        measured: the choice.
        training: of the weights that are left; None where nothing was trained.
    """

    cuts: tuple[Cut, ...]
    predicted: tuple[Point, ...]
    measured: Point
    training: Training | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return dataclasses.asdict(self)


def compression_of(content: Mapping[str, Any]) -> Compression:
    """Return the record that `Compression.to_json` wrote."""
    return Compression(
        tuple(Cut(**cut) for cut in content["cuts"]),
        tuple(Point(**point) for point in content["predicted"]),
        Point(**content["measured"]),
        None if content["training"] is None else _training_of(content["training"]),
    )


def _training_of(content: Mapping[str, Any]) -> Training:
    curve = tuple((int(update), float(distance)) for update, distance in content["curve"])
    return Training(curve, content["unit"], content["seconds"])
