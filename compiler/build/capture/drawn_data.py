"""Draws a graph's feeds for each role (verification, calibration, ...), hashes them, and refuses feeds with two roles.

Drawing is a stage of its own: its result is kept with a record of all that the user's code has read, so that this code
is not imported while nothing has changed.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence

from compiler.base.cache.dependencies import hash_path
from compiler.base.cache.read_tracer import READ_TRACER
from compiler.base.cache.results import StageResults
from compiler.base.records.build_report import StageReport
from compiler.build.capture.calibration_data import RecipeCalibration, check_disjoint
from compiler.build.report.progress import Progress
from compiler.errors import DataError
from compiler.graph.runners.stream import Run
from compiler.graph.stages import Feed
from compiler.recipe.gates import TaskGate
from compiler.recipe.graph import Graph
from compiler.recipe.load import RecipeLocation
from compiler.recipe.record import Feeds
from compiler.recipe.stage_inputs import DataInputs, Surroundings, key_of
from compiler.recipe.tree.keys import Key
from compiler.recipe.user_code.streams import Streams, check_streams, digest_of, draw_streams, locate_files

CHOOSING = ("calibration", "development")
"""Roles of data that passes look at: none of them may serve a gate."""


class DrawnData:
    """The data of one graph.

    Args:
        location: paths and keys of the recipe.
        graph: its name.
        spec: its record as far as feeds must fit it.
        results: of earlier builds.

    Attributes:
        digests: SHA-256 of the feeds by their purpose.
    """

    def __init__(self, location: RecipeLocation, graph: str, spec: Graph, results: StageResults) -> None:
        self.location, self.graph, self.spec, self.results = location, graph, spec, results
        self.inputs: dict[str, DataInputs] = {}
        self.digests: dict[str, str] = {}
        self._files: list[str] = []
        self._streams: dict[str, Streams] = {}

    def draw(self, purpose: str, feeds: Feeds, shortest: int, surroundings: Surroundings, progress: Progress) -> None:
        """Draw feeds of a purpose and store their digest; skipped while their files and code are unchanged."""
        files = locate_files(self.location, feeds.files, "data", purpose)
        self._files.extend(str(file.absolute()) for file in files)
        hashes = tuple(map(hash_path, files))
        inputs = DataInputs(surroundings, self.graph, purpose, feeds, shortest, self.spec, hashes)
        self.inputs[purpose] = inputs
        label, key = "data" if purpose == "verification" else f"{purpose} data", key_of(inputs)
        with progress.stage(self.graph, label) as handle:
            started, why = time.perf_counter(), ""
            entry = self.results.find(key) if feeds.files else None
            if entry is not None:
                self.digests[purpose] = (entry / "digest").read_text()
            else:
                self.drawn(purpose)
                if feeds.files:
                    digest = self.digests[purpose].encode()
                    why = self.results.keep(key, {"digest": digest}, {feeds.for_graph(self.graph): True})
                READ_TRACER.answer_for()
            handle.finish(
                StageReport(self.graph, label, time.perf_counter() - started, cached=entry is not None, detail=why)
            )

    def drawn(self, purpose: str) -> Streams:
        """Return streams of a purpose, drawn once.

        Raises:
            DataError: they differ from those that the build started with.
        """
        if purpose not in self._streams:
            inputs = self.inputs[purpose]
            streams = draw_streams(self.location, purpose, inputs.feeds, self.graph, inputs.spec)
            if self.spec.has_utterances:
                streams = [[feed] for stream in streams for feed in stream]  # utterances stand alone
            if purpose == "verification":
                check_streams(streams, inputs.shortest, self.graph)
                streams.sort(key=len, reverse=True)
            if self.digests.setdefault(purpose, digest := digest_of(streams)) != digest:
                raise DataError(
                    f"{self.location.where('data', purpose, 'feeds')}: expected {inputs.feeds.for_graph(self.graph)} "
                    "to yield what it yielded before, as nothing that it reads has changed, got other feeds",
                    cure="seed its random numbers, or drop the key files, so that it is drawn in every build",
                )
            self._streams[purpose] = streams
        return self._streams[purpose]

    def check_apart(self, streams: Iterable[Sequence[Feed]], *keys: Key) -> None:
        """Refuse streams of a gate that passes are calibrated or chosen on.

        Args:
            streams: streams that the gate runs.
            keys: the key at which the recipe names them.

        Raises:
            DataError: a feed is in both sets.
        """
        roles = {
            self.location.where("data", purpose): self.drawn(purpose) for purpose in CHOOSING if purpose in self.inputs
        }
        check_disjoint({**roles, self.location.where(*keys): streams})

    def is_data(self, path: str) -> bool:
        """Whether a file is named as a source of feeds, whose digest then stands for it."""
        return any(path == file or path.startswith(os.path.join(file, "")) for file in self._files)

    def calibration(self, task: TaskGate | None, reference: Callable[[], Run]) -> RecipeCalibration | None:
        """Return the data that passes may measure on; None without calibration data.

        Args:
            task: how the recipe measures its task, if it has one.
            reference: returns a runner of the original.

        Raises:
            DataError: a feed has two roles.
        """
        if "calibration" not in self.inputs:
            return None
        self.check_apart(self.drawn("verification"), "data", "verification")
        calibration = self.drawn("calibration")
        development = self.drawn("development") if "development" in self.inputs else calibration
        return RecipeCalibration(self.location, task, calibration, development, reference)
