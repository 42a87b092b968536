"""Runs a graph over calibration streams, yields the values of every call, and measures the noise between two graphs.

Streams are chained calls that begin with empty caches. Padded cache slots hold NaN: valid results never depend on what
lies there, so whatever is NaN inside the graph is padding, and no measurement takes it in.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from compiler.calib.deciding_numbers import measured_on, with_deciding
from compiler.calib.noise import Noise
from compiler.errors import Refused
from compiler.graph.runners.ahead import ahead
from compiler.graph.runners.choose import runner_on
from compiler.graph.runners.coded_states import outputs_in_numbers
from compiler.graph.runners.session import Session, session_of
from compiler.graph.runners.stream import poisoned
from compiler.graph.stages import Array, Calibration, Feed, Lowered


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a stream.

    Attributes:
        stream: its number.
        feed: everything the graph takes, states, lengths and NaN in padded slots included.
        outputs: everything it gives.
    """

    stream: int
    feed: Mapping[str, Array]
    outputs: Mapping[str, Array]


def calibration_of(lowered: Lowered, otherwise: str = "") -> Calibration:
    """Return the data on which a pass may measure a graph.

    Args:
        lowered: the graph.
        otherwise: alternative for a recipe without calibration data.

    Raises:
        Refused: there are no calibration data, or the first call has a separate graph.
    """
    if lowered.calibration is None:
        cure = "name a generator of streams under data.calibration"
        raise Refused(
            "expected data.calibration to measure on, got none", cure=f"{cure}, or {otherwise}" if otherwise else cure
        )
    if lowered.first_call is not None:
        raise Refused("expected one graph, got one for the first call besides", cure="list merge_first_call before")
    return lowered.calibration


def run_streams(lowered: Lowered, streams: Sequence[Sequence[Feed]]) -> Iterator[Call]:
    """Yield every call of every stream, in order, run ahead of the caller; half precision is rounded.

    Args:
        lowered: the graph; all its outputs are part of `Call.outputs`.
        streams: feeds of one row.
    """
    yield from ahead(_calls(lowered, streams))


def _calls(lowered: Lowered, streams: Sequence[Sequence[Feed]]) -> Iterator[Call]:
    session = _Watched(lowered, session_of(lowered.model))
    runner = runner_on(session, lowered, fill=np.nan)
    for number, stream in enumerate(streams):
        runner.reset()
        for feed in stream:
            outputs = runner.step(feed)
            yield Call(number, session.feed, outputs)


class _Watched:
    """A session that puts NaN into padded cache slots, and records its feeds."""

    def __init__(self, lowered: Lowered, session: Session) -> None:
        self.lowered, self.session = lowered, session
        self.feed: dict[str, Array] = {}

    def run(self, names: Sequence[str] | None, feeds: dict[str, Array]) -> list[Array]:
        self.feed = feeds
        if self.lowered.caches and self.lowered.is_padded:
            self.feed = poisoned(self.lowered, feeds, np.ones(1, np.bool_), [np.nan])
        return self.session.run(names, self.feed)


def noise_between(exact: Lowered, rounded: Lowered, streams: Sequence[Sequence[Feed]]) -> dict[str, float]:
    """Return, by output and state, the noise share of one graph's results relative to another's.

    For classes it is the noise in the floats that decide them, and 0 without such floats.

    Args:
        exact: the graph of the signal.
        rounded: the graph with noise, with outputs and values of the same names.
        streams: feeds of one row; each graph carries its own states.
    """
    noises: dict[str, Noise] = {}
    measured = measured_on(exact.model)
    exact, rounded = with_deciding(exact, rounded)
    for a, b in zip(run_streams(exact, streams), run_streams(rounded, streams), strict=True):
        right, got = outputs_in_numbers(exact, a.outputs), outputs_in_numbers(rounded, b.outputs)
        for name, array in right.items():
            noises.setdefault(name, Noise()).add(got[name], array)
    shares = {name: noise.share for name, noise in noises.items()}
    return {
        name: max((shares.get(measured_name, 0.0) for measured_name in names), default=0.0)
        for name, names in measured.items()
    }
