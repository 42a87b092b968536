"""What passes measure on: the recipe's calibration streams, and the task's own measure of a graph on them.

Calibration and verification data have nothing in common: what a choice was made on cannot show that it was right.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from compiler.ahead import on_all_cores
from compiler.data import Streams
from compiler.errors import DataError
from compiler.gates import Reference, decoded, measured, task_functions
from compiler.recipe import RecipePlaces, TaskGate
from compiler.references import importable
from compiler.stages import Feed, Lowered
from compiler.verify import runners_of


class CalibrationEvidence:
    """The evidence of one graph.

    Args:
        places: of the recipe.
        task: how a recipe's task is measured, if it has one.
        streams: its calibration streams.
        reference: makes the original's runner.
    """

    def __init__(
        self, places: RecipePlaces, task: TaskGate | None, streams: Streams, reference: Callable[[], Reference]
    ) -> None:
        self.places, self.task, self.streams, self.reference = places, task, streams, reference
        self._texts: list[str] | None = None

    def task_distance(self, lowered: Lowered) -> float | None:
        """The recipe's metric of the graph's results, with the original's results for references.

        Raises:
            RecipeError: a function of the task gate does not exist.
            DataError: it raises, or returns the wrong kind of thing.
        """
        if self.task is None:
            return None
        where = self.places.where("gates", "task")
        functions = task_functions(self.places, self.task)
        with importable(self.places.search_path()):
            if self._texts is None:
                run = self.reference()
                outputs = ([outputs for outputs, _ in run(stream)] for stream in self.streams)
                self._texts = [decoded(functions["decode"], each, where) for each in outputs]
            texts = [decoded(functions["decode"], each, where) for each in self._answers(lowered)]
            return measured(functions["metric"], self._texts, texts, where)

    def _answers(self, lowered: Lowered) -> Iterator[list[dict[str, Any]]]:
        make_runner = runners_of(lowered)

        def answer(stream: Sequence[Feed]) -> list[dict[str, Any]]:
            runner = make_runner()
            return [runner.step(feed) for feed in stream]

        return on_all_cores(answer, self.streams)


def check_disjoint(calibration: Streams, others: Iterable[Sequence[Feed]], where: str, what: str) -> None:
    """Refuse calibration data that serve a gate as well.

    Feeds that hold one value only, such as silence, tell nothing and may be in both.

    Args:
        calibration: the streams that passes measure on.
        others: streams that a gate runs.
        where: start of the message.
        what: name of the others, for the message.

    Raises:
        DataError: a feed is in both.
    """
    known = {_digest(feed): (i, j) for i, stream in enumerate(calibration) for j, feed in enumerate(stream)}
    for number, stream in enumerate(others):
        for index, feed in enumerate(stream):
            place = known.get(_digest(feed))
            if place is None or all(np.ptp(array) == 0 for array in feed.values() if array.size):
                continue
            raise DataError(
                f"{where}: expected data that no gate uses, got feed {place[1]} of stream {place[0]} again as feed "
                f"{index} of stream {number} of {what}",
                cure="calibrate with recordings of their own",
            )


def _digest(feed: Feed) -> str:
    digest = hashlib.sha256()
    for name in sorted(feed):
        digest.update(f"{name} {feed[name].dtype} {feed[name].shape}".encode())
        digest.update(np.ascontiguousarray(feed[name]).tobytes())
    return digest.hexdigest()
