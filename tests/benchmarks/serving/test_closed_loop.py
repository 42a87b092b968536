"""The closed loop in its shortest form: all contenders, and streams that send no chunk before the last is answered."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.serving.closed_loop import figures_of, measure_closed_loop
from benchmarks.serving.contenders import LOOP, MOSEC, OURS, QUEUE, Contender, Server
from benchmarks.serving.plain_queue import Number
from runtime_lite.format.arrays import Array
from runtime_lite.load_test.drive import Ends, Source
from runtime_lite.serving.events import Outcome, Request
from tests.runtime_lite.bundles import write_open_bundle


def test_a_number_of_streams_has_a_row_of_each_contender(tmp_path: Path) -> None:
    rows = measure_closed_loop(write_open_bundle(tmp_path / "bundle"), "streaming", 2, 1, 0.1, (1, 3))
    named = [(row["streams"], row["contender"]) for row in rows if MOSEC not in row["contender"]]
    assert named == [(streams, each) for streams in (1, 3) for each in (OURS, QUEUE, LOOP)]


class Echo:
    """Answers every chunk when it comes, one for each stream at a time."""

    def __init__(self, ends: Ends, outcome: Outcome) -> None:
        self.ends, self.outcome, self.opened, self.chunks = ends, outcome, 0, 0

    def open_stream(self) -> "Echo":
        self.opened += 1
        return self

    def submit(self, feeds: object) -> Number:
        self.chunks += 1
        request = Request(self.chunks, "", "", "", 1, None, None, 0, 0, None, 0.0)
        self.ends.ended(request, self.outcome, "", 0)
        return Number(self.chunks)

    def close(self) -> None: ...


def contender(made: list[Echo], outcome: Outcome = "done") -> Contender:
    @contextlib.contextmanager
    def start(ends: Ends) -> Iterator[Server]:
        echo = Echo(ends, outcome)
        made.append(echo)
        feeds: list[dict[str, Array]] = [{"x": np.zeros(1, np.float32)}]
        yield Server(Source(feeds, echo.submit, echo.open_stream), lambda: None)

    return Contender(start)


def test_a_stream_begins_anew_behind_its_last_chunk() -> None:
    made: list[Echo] = []
    figures = figures_of(contender(made), 2, 0.05)
    (echo,) = made
    assert echo.chunks > 200 and abs(echo.opened - echo.chunks / 50) <= 2
    assert figures.rows_per_s > 0 and figures.p50_ms <= figures.p99_ms


def test_what_is_not_answered_makes_no_figures() -> None:
    with pytest.raises(RuntimeError, match="expected an answer to each chunk, got 'failed'"):
        figures_of(contender([], "failed"), 1, 0.05)
