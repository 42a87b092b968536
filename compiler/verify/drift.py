"""Does the error of a stream grow? The artefact beside the original over many chained calls, error by error.

The feeds are all verification streams, the longest first, one behind the other, and from the start again until there
are enough; states are handed on throughout, also from one stream to the next. Until the caches are full errors grow by
nature; of the calls after that the second half must be no worse than the first, but for a factor.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from compiler.calib.noise import rms
from compiler.records.drift_curves import DriftCurve
from compiler.runners.ahead import ahead
from compiler.runners.stream import Run, Stepper, expected_states
from compiler.stages import Array, Feed, Lowered

POINTS = 200
"""Points of a kept curve; each is the largest of its calls."""


def chained_feeds(streams: Sequence[Sequence[Feed]], steps: int) -> Iterator[Feed]:
    """So many feeds: stream after stream, and from the start again."""
    return itertools.islice(itertools.cycle(feed for stream in streams for feed in stream), steps)


def measure_drift(
    lowered: Lowered,
    runner: Stepper,
    reference: Run,
    feeds: Iterable[Feed],
    rows: int = 1,
    advance: Callable[[int], None] = lambda done: None,
) -> list[DriftCurve]:
    """Run artefact and original side by side.

    Args:
        lowered: what the artefact was written from.
        runner: runs it; must be fresh.
        reference: runs the original on one row.
        feeds: of one row, in order.
        rows: of the artefact; all get the same.
        advance: called with the number of calls that are done.
    """
    states = {state.output for state in lowered.states}
    tallies: dict[str, _Tally] = {}
    kept, sent = itertools.tee(feeds)
    for done, (feed, (outputs, new_states)) in enumerate(ahead(zip(kept, reference(sent), strict=True)), start=1):
        got = runner.step({name: np.repeat(array, rows, axis=0) for name, array in feed.items()})
        expected = {name: array for name, array in outputs.items() if name in got and name not in states}
        for name, array in expected.items():
            tallies.setdefault(name, _Tally(is_state=False)).add(got[name][: len(array)], array)
        for name, array in expected_states(lowered, new_states).items():
            tallies.setdefault(name, _Tally(is_state=True)).add(runner.states[name][: len(array)], array)
        advance(done)
    warm = max((cache.calls_to_fill for cache in lowered.caches), default=0)
    return [tally.curve(name, warm) for name, tally in tallies.items()]


class _Tally:
    def __init__(self, *, is_state: bool) -> None:
        self.is_state = is_state
        self.errors: list[float] = []
        self.squares, self.elements = 0.0, 0

    def add(self, got: Array, expected: Array) -> None:
        exact = expected.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            size = rms(got.astype(np.float64) - exact)
        self.errors.append(size if np.isfinite(size) else float("inf"))
        self.squares += float(np.sum(exact**2))
        self.elements += exact.size

    def curve(self, tensor: str, warm: int) -> DriftCurve:
        judged = np.array(self.errors[warm:] or self.errors)
        half = max(len(judged) // 2, 1)
        early, late = judged[:half], judged[half:] if len(judged) > 1 else judged
        bins = np.array_split(np.array(self.errors), min(POINTS, len(self.errors)))
        return DriftCurve(
            tensor,
            self.is_state,
            len(self.errors),
            warm,
            float(np.sqrt(self.squares / self.elements)) if self.elements else 0.0,
            rms(early),
            rms(late),
            tuple(float(each.max()) for each in bins),
        )
