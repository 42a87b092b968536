"""Provides the data that passes measure on: calibration streams for ranges, development streams for the task.

Calibration, development and verification data have nothing in common: what a choice was made on cannot show that it was
right, and what ranges were taken from cannot show that they are wide enough.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from compiler.build.verify.gates.task import decoded, measured, task_functions
from compiler.errors import DataError
from compiler.graph.runners.ahead import on_all_cores
from compiler.graph.runners.choose import runners_of
from compiler.graph.runners.stream import Run
from compiler.graph.stages import Feed, Lowered
from compiler.recipe.gates import TaskGate
from compiler.recipe.load import RecipeLocation
from compiler.recipe.user_code.callables import importable
from compiler.recipe.user_code.streams import Streams


class RecipeCalibration:
    """The calibration of one graph.

    Args:
        location: paths and keys of the recipe.
        task: how a recipe's task is measured, if it has one.
        streams: its calibration streams.
        development: streams that the task is measured on.
        reference: makes the original's runner.
    """

    def __init__(
        self,
        location: RecipeLocation,
        task: TaskGate | None,
        streams: Streams,
        development: Streams,
        reference: Callable[[], Run],
    ) -> None:
        self.location, self.task, self.reference = location, task, reference
        self.streams, self.development = streams, development
        self._texts: list[str] | None = None

    def task_distance(self, lowered: Lowered) -> float | None:
        """Return the recipe's metric of the graph's results, with the original's results as references.

        Raises:
            RecipeError: a function of the task gate does not exist.
            DataError: it raises, or returns a value of a wrong type.
        """
        if self.task is None:
            return None
        where = self.location.where("gates", "task")
        functions = task_functions(self.location, self.task)
        with importable(self.location.search_path()):
            if self._texts is None:
                run = self.reference()
                outputs = ([outputs for outputs, _ in run(stream)] for stream in self.development)
                self._texts = [decoded(functions["decode"], recording_outputs, where) for recording_outputs in outputs]
            texts = [
                decoded(functions["decode"], recording_outputs, where) for recording_outputs in self._answers(lowered)
            ]
            return measured(functions["metric"], self._texts, texts, where)

    def _answers(self, lowered: Lowered) -> Iterator[list[dict[str, Any]]]:
        make_runner = runners_of(lowered)

        def answer(stream: Sequence[Feed]) -> list[dict[str, Any]]:
            runner = make_runner()
            return [runner.step(feed) for feed in stream]

        return on_all_cores(answer, self.development)


def check_disjoint(roles: Mapping[str, Iterable[Sequence[Feed]]]) -> None:
    """Refuse feeds that have two roles.

    Feeds of one repeated value, such as silence, may have several roles.

    Args:
        roles: streams of each role, by the key that the recipe gives them.

    Raises:
        DataError: a feed has two roles; the message names both keys.
    """
    known: dict[str, tuple[str, int, int]] = {}
    for where, streams in roles.items():
        for number, stream in enumerate(streams):
            for index, feed in enumerate(stream):
                first, *place = known.setdefault(_digest(feed), (where, number, index))
                if first == where or all(np.ptp(array) == 0 for array in feed.values() if array.size):
                    continue
                raise DataError(
                    f"{where}: expected data that no other role has, got feed {place[1]} of stream {place[0]} of "
                    f"{first} again as feed {index} of stream {number}",
                    cure="calibrate, choose and verify with recordings of their own each",
                )


def _digest(feed: Feed) -> str:
    digest = hashlib.sha256()
    for name in sorted(feed):
        digest.update(f"{name} {feed[name].dtype} {feed[name].shape}".encode())
        digest.update(np.ascontiguousarray(feed[name]).tobytes())
    return digest.hexdigest()
