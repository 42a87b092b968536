"""Records the calls of calibration streams for Arm's quantiser, and measures the largest attention scores.

States are not recorded: who calibrates carries them from call to call, as they are 40 times larger than features.
"""

import dataclasses
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.calib.watched_streams import calibration_of
from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_on
from compiler.graph.runners.session import Session, session_of
from compiler.graph.stages import Array, Feed, Lowered
from compiler.targets.ethos_u.masks import Limits, hidden_scores

CALLS = 64
"""Calls that are recorded at most; the quantiser takes about a second for each on a graph of 400 nodes."""

BEHIND_THE_WINDOW = 4
"""Chunks of a stream that are recorded when every cache is full."""

LEAST_OF_A_STREAM = 8


@dataclasses.dataclass(frozen=True)
class Recorded:
    """Calls of some streams, in order.

    Attributes:
        content: a file of arrays (npz): `starts` [calls], whether a call is the first of its stream; `feed <input>`
            [calls, ...] for inputs that are no states; `initial <state>` [...] at the start of a stream.
        limits: of hidden scores, by node.
    """

    content: bytes
    limits: dict[str, Limits]


class _Recording:
    """A session that keeps its feeds."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.feeds: list[Feed] = []

    def run(self, names: Sequence[str] | None, feeds: dict[str, Array]) -> list[Array]:
        self.feeds.append(feeds)
        return self.session.run(names, feeds)


def record(lowered: Lowered) -> Recorded:
    """Run a static graph on calibration streams, and return what a quantiser needs of it.

    Args:
        lowered: the graph, of one row.

    Raises:
        Refused: there are no calibration data, or a mask hides every score of a row in all of them.
    """
    calibration = calibration_of(lowered)
    scores = [str(node.outputs[0].name) for node in hidden_scores(lowered.model)]
    watched = graphs.clone(lowered.model)
    values = {str(value.name): value for node in watched.graph for value in node.outputs}
    watched.graph.outputs.extend(values[name] for name in scores)
    session = _Recording(session_of(watched))
    runner = runner_on(session, dataclasses.replace(lowered, model=watched))
    starts: list[bool] = []
    largest: dict[str, list[Array]] = {name: [] for name in scores}
    for stream in calibration.streams:
        runner.reset()
        for position, feed in enumerate(stream[: min(_chunks(lowered), CALLS - len(starts))]):
            outputs = runner.call(feed)
            starts.append(position == 0)
            for name in scores:
                largest[name].append(outputs[name].max(-1).reshape(-1))
    states = [state.input for state in lowered.states]
    names = [name for name in session.feeds[0] if name not in states]
    arrays: dict[str, Any] = {f"feed {name}": np.stack([feed[name] for feed in session.feeds]) for name in names}
    initial: dict[str, Any] = {f"initial {name}": session.feeds[0][name] for name in states}
    file = io.BytesIO()
    np.savez_compressed(file, starts=np.array(starts), **arrays, **initial)
    return Recorded(file.getvalue(), _limits_of(lowered, largest))


def _chunks(lowered: Lowered) -> int:
    full = max((cache.calls_to_fill for cache in lowered.caches), default=0)
    return max(full + BEHIND_THE_WINDOW, LEAST_OF_A_STREAM)


def _limits_of(lowered: Lowered, largest: dict[str, list[Array]]) -> dict[str, Limits]:
    limits = {}
    for node in hidden_scores(lowered.model):
        rows = np.concatenate(largest[str(node.outputs[0].name)])
        if not np.isfinite(rows).any():
            raise Refused(
                "expected a score that a mask shows in the calibration data, got none",
                cure="give data.calibration recordings that the model can answer",
                place=Location(node=str(node.name), op=node.op_type, source=graphs.source_of(node)),
            )
        limits[str(node.name)] = Limits.of(rows)
    return limits
