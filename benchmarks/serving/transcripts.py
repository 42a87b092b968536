"""Compares transcripts of many streams served together with those of each stream alone.

A seeded plan sets the lengths, starts and priorities of all streams. Some cancel chunks and continue from a snapshot,
some are closed in the middle, some are fed NaN. The text of each must equal that of the same chunks through a stream
alone.
"""

import asyncio
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from examples.streaming_asr.data import recordings
from examples.streaming_asr.decode import decode_outputs
from runtime_lite import BadInput, Model, Runtime, Stream
from runtime_lite.format.arrays import Array

Kind = Literal["plain", "takes back", "leaves", "NaN"]
KINDS: tuple[Kind, ...] = ("plain", "plain", "takes back", "leaves", "plain", "NaN")

LONGEST = 24
"""Chunks of a stream at most."""

Feed = Mapping[str, Array]


class Planned(NamedTuple):
    """One stream of the plan.

    Attributes:
        kind: kind of behaviour.
        recording: number of its recording.
        chunks: number of chunks of the recording that it sends.
        after: number of answered chunks of all streams after which it starts.
        priority: priority of its chunks.
        ahead: number of chunks that it keeps in flight.
    """

    kind: Kind
    recording: int
    chunks: int
    after: int
    priority: int
    ahead: int


class Heard(NamedTuple):
    """The results of a stream.

    Attributes:
        planned: its plan.
        alone: its text if it is served alone.
        together: its text if it is served with others.
        deviation: of its logits from those alone, at most, to the largest of them; 0 for what is full of NaN.
    """

    planned: Planned
    alone: str
    together: str
    deviation: float


def measure_transcripts(path: Path, lanes: int, streams: int) -> list[dict[str, Any]]:
    """Return how many transcripts equal those of each stream alone, one row per kind.

    Args:
        path: bundle of the trained recogniser.
        lanes: runs at once.
        streams: how many there are.
    """
    heard = heard_in_company(path, lanes, streams, seed=0)
    rows = []
    for kind in dict.fromkeys(KINDS):
        of_kind = [each for each in heard if each.planned.kind == kind]
        rows.append(
            {
                "streams that": {"plain": "speak to the end", "NaN": "are fed NaN"}.get(kind, kind),
                "count": len(of_kind),
                "chunks": sum(each.planned.chunks for each in of_kind),
                "priorities": " ".join(map(str, sorted({each.planned.priority for each in of_kind}))),
                "transcripts as alone": sum(each.alone == each.together for each in of_kind),
                "largest deviation of logits": f"{max((each.deviation for each in of_kind), default=0.0):.1e}",
            }
        )
    return rows


def plan_of(streams: int, lengths: Sequence[int], seed: int) -> list[Planned]:
    """Return the plan; equal seeds give equal plans.

    Args:
        streams: number of streams.
        lengths: number of chunks of every recording.
        seed: seed of all random numbers.
    """
    drawn = random.Random(seed)
    found = []
    for number in range(streams):
        kind, recording = KINDS[number % len(KINDS)], drawn.randrange(len(lengths))
        most = min(lengths[recording], LONGEST)
        chunks = drawn.randint(1, most) if kind in ("leaves", "NaN") else most
        found.append(Planned(kind, recording, chunks, 3 * number, drawn.randint(-2, 2), drawn.randint(1, 4)))
    return found


def heard_in_company(path: Path, lanes: int, streams: int, seed: int) -> list[Heard]:
    """Run the plan, then every stream of it alone.

    Args:
        path: bundle of the trained recogniser.
        lanes: runs at once.
        streams: how many there are.
        seed: seed of the plan.
    """
    spoken = [recording.chunks for recording in itertools.islice(recordings(), streams)]
    plan = plan_of(streams, [len(chunks) for chunks in spoken], seed)
    with Runtime(workers=lanes, check_finite=False) as runtime:
        model = runtime.load(path, warm_up=True)
        together = asyncio.run(_all_of(model, plan, spoken, seed))
        assert runtime.request_counts.balanced and runtime.request_counts.live == 0
    with Runtime() as runtime:
        model = runtime.load(path)
        return [
            _compared(each, got, _alone(model, _chunks_of(each, spoken)))
            for each, got in zip(plan, together, strict=True)
        ]


def _chunks_of(planned: Planned, spoken: Sequence[Sequence[Feed]]) -> Sequence[Feed]:
    return spoken[planned.recording][: planned.chunks]


def _alone(model: Model, chunks: Sequence[Feed]) -> list[Feed]:
    with model.open_stream() as stream:
        return [stream.push(chunk) for chunk in chunks]


def _compared(planned: Planned, got: Sequence[Feed], alone: Sequence[Feed]) -> Heard:
    if planned.kind == "NaN":
        silent = all(np.isnan(outputs["logits"]).all() for outputs in got)
        return Heard(planned, "", "" if silent else "not NaN", 0.0)
    together, expected = (np.concatenate([outputs["logits"] for outputs in each], 1) for each in (got, alone))
    deviation = float(np.max(np.abs(together - expected)) / np.max(np.abs(expected)))
    return Heard(planned, decode_outputs(alone), decode_outputs(got), deviation)


class _Progress:
    """Counts the answers of all streams, and wakes those that wait for a number of them."""

    def __init__(self) -> None:
        self._answers = 0
        self._waiting: list[tuple[int, asyncio.Event]] = []

    def answered(self) -> None:
        self._answers += 1
        self._ring()

    async def reached(self, answers: int) -> None:
        event = asyncio.Event()
        self._waiting.append((answers, event))
        self._ring()
        await event.wait()

    def over(self) -> None:
        """Let all waiting streams start, as no more answers come."""
        self._answers = 2**62
        self._ring()

    def _ring(self) -> None:
        for answers, event in self._waiting:
            if self._answers >= answers:
                event.set()


async def _all_of(
    model: Model, plan: Sequence[Planned], spoken: Sequence[Sequence[Feed]], seed: int
) -> list[list[Feed]]:
    progress, running = _Progress(), 0

    async def one(number: int, planned: Planned) -> list[Feed]:
        nonlocal running
        await progress.reached(planned.after)
        running += 1
        with model.open_stream(priority=planned.priority) as stream:
            heard = await _speak(stream, planned, _chunks_of(planned, spoken), progress, random.Random(seed + number))
        running -= 1
        if not running:
            progress.over()
        return heard

    return await asyncio.gather(*(one(number, planned) for number, planned in enumerate(plan)))


async def _speak(
    stream: Stream, planned: Planned, chunks: Sequence[Feed], progress: _Progress, drawn: random.Random
) -> list[Feed]:
    """Run one stream, with as many chunks in flight as it keeps ahead."""
    heard: list[Feed] = []
    for some in _in_groups(chunks, planned.ahead):
        if planned.kind == "takes back" and drawn.random() < 0.5:
            await _take_back(stream, some)
        feeds = [_full_of_nan(feed) for feed in some] if planned.kind == "NaN" else some
        for ticket in [stream.submit(feed) for feed in feeds]:
            heard.append(await ticket)
            progress.answered()
    if planned.kind == "leaves":  # in the middle of what it says, with a chunk on its way
        stream.submit(chunks[-1])
    return heard


def _in_groups(chunks: Sequence[Feed], size: int) -> Iterator[Sequence[Feed]]:
    return (chunks[start : start + size] for start in range(0, len(chunks), size))


def _full_of_nan(feed: Feed) -> Feed:
    return {name: np.full_like(array, np.nan) for name, array in feed.items()}


async def _take_back(stream: Stream, chunks: Sequence[Feed]) -> None:
    """Let one chunk run, cancel those behind it, and restore the stream's state from before."""
    before = stream.snapshot()
    first, *others = [stream.submit(chunk) for chunk in chunks]
    await first
    for ticket in others[::-1]:
        ticket.cancel()
    while True:
        try:
            return stream.restore(before)
        except BadInput:  # the chunk that runs is not taken back before its run has ended
            await asyncio.sleep(0.001)
