"""Retrains a recipe's checkpoints before capture, so that attention heads share keys and values as the recipe asks.

    checkpoint -> captured once -> heads merged -> the module's own parameters, tied -> trained -> checkpoint

Everything behind knows the new checkpoint alone: it is what the graph is captured from and compared with. How far its
answers are from the original's is measured on streams that were kept apart, and is a gate.
"""

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from compiler.base.cache.results import StageResults
from compiler.base.cache.store import StageCache
from compiler.base.interruption import shielded
from compiler.base.records.build_report import StageReport
from compiler.build.capture.captured_graphs import hashes_of, source_files
from compiler.build.capture.drawn_data import DrawnData
from compiler.build.capture.equal_heads import STAGE
from compiler.build.capture.original import original_of
from compiler.build.report.progress import Progress, StageHandle
from compiler.compression.batches import Batches, joined
from compiler.compression.tied_weights import tied_weights
from compiler.errors import GateFailed, Location, Refused, SlipwayError
from compiler.graph import model as graphs
from compiler.graph.runners.session import session_of
from compiler.graph.stages import Feed, Lowered
from compiler.passes.merge_kv_heads import MergeKvHeads, Merges, in_plain_form
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import ShareHeads
from compiler.recipe.load import LoadedRecipe
from compiler.recipe.stage_inputs import DistillationInputs, for_capture, for_data, key_of, surroundings_of

MEASURED = 200
"""Number of streams on which heads are measured before they are merged; more change little."""

APART = 10
"""One stream in this many is not trained on: answers are measured on it."""

CLOSE = 1e-2
"""Largest difference, beside the largest answer, between the tied module and the merged graph, both float32."""

WRITTEN = "distilled.safetensors"


@contextlib.contextmanager
def distilled_recipe(loaded: LoadedRecipe, cache: StageCache | None, progress: Progress) -> Iterator[LoadedRecipe]:
    """Yield the recipe with changed checkpoints, or unchanged where no heads are shared.

    Raises:
        Refused: heads cannot be found, or their weights are not among the module's parameters.
        GateFailed: results differ from the original's by more than the recipe allows.
    """
    graphs = loaded.recipe.graphs
    if all(spec.share_heads is None for spec in graphs.values()):
        yield loaded
        return
    with tempfile.TemporaryDirectory() as scratch:
        changed = {
            name: _Distillation(loaded, name, spec, spec.share_heads, cache, progress, Path(scratch) / name).spec()
            for name, spec in graphs.items()
            if spec.share_heads is not None
        }
        recipe = loaded.recipe.model_copy(update={"graphs": {**graphs, **changed}})
        yield dataclasses.replace(loaded, recipe=recipe)


class _Distillation:
    """One graph.

    Args:
        loaded: the recipe.
        name: of the graph.
        given: its record.
        options: its `share_heads`.
        cache: results of earlier builds, or None.
        progress: shows the stages.
        scratch: folder for files that the cache does not keep.
    """

    def __init__(
        self,
        loaded: LoadedRecipe,
        name: str,
        given: Graph,
        options: ShareHeads,
        cache: StageCache | None,
        progress: Progress,
        scratch: Path,
    ) -> None:
        self.loaded, self.location, self.name, self.given, self.options = loaded, loaded.location, name, given, options
        self.cache, self.progress, self.scratch = cache, progress, scratch
        self.results = StageResults(cache, loaded.path.parent)
        self.data = DrawnData(self.location, name, for_data(given), self.results)

    def spec(self) -> Graph:
        """Return the graph's record with the changed checkpoint."""
        feeds, surroundings = self.loaded.recipe.data.distillation, surroundings_of(self.loaded)
        assert feeds is not None  # the recipe says so
        self.data.draw("distillation", feeds, 0, surroundings, self.progress)
        files = hashes_of(source_files(self.location, self.name, self.given))
        digest = self.data.digests["distillation"]
        key = key_of(DistillationInputs(surroundings, self.name, for_capture(self.given), files, digest))
        with self.progress.stage(self.name, STAGE) as handle:
            started, why = time.perf_counter(), ""
            entry = self.results.find(key)
            if entry is None:
                checkpoint, told = self._made(key, handle)
                entry = self.scratch
                entry.mkdir(parents=True, exist_ok=True)
                (entry / WRITTEN).write_bytes(checkpoint)
                entry_files = {WRITTEN: checkpoint, "told": told.encode()}
                why = self.results.keep(
                    key, entry_files, {str(self.given.source.factory): bool(self.given.source.files)}
                )
                is_cached = False
            else:
                told, is_cached = (entry / "told").read_text(), True
            told = "; ".join(note for note in (told, why) if note)
            seconds = time.perf_counter() - started
            handle.finish(StageReport(self.name, STAGE, seconds, cached=is_cached, detail=told))
        source = self.given.source.model_copy(update={"checkpoint": str((entry / WRITTEN).absolute())})
        return self.given.model_copy(update={"source": source})

    def _made(self, key: str, handle: StageHandle) -> tuple[bytes, str]:
        """Return the changed checkpoint, and a report text."""
        with shielded():  # a signal in the middle of importing the framework would end the process without a word
            from compiler.build.capture import torch_module
            from compiler.compression import training

        whole = self.given.model_copy(update={"derive_steps": None, "share_heads": None})
        captured = original_of(self.loaded, self.name, whole, self.cache, self.progress, with_data=False).start()
        lowered = in_plain_form(dataclasses.replace(captured, model=graphs.clone(captured.model)))
        along = _axes_of_time(captured, self._time())
        sequences = [joined(stream, along) for stream in self.data.drawn("distillation")]
        apart = [feed for number, feed in enumerate(sequences) if number % APART == APART - 1]
        rest = [feed for number, feed in enumerate(sequences) if number % APART != APART - 1]
        if not apart:
            raise Refused(
                f"expected at least {APART} streams in data.distillation, got {len(sequences)}", cure="count more"
            )
        merges = self._merges(lowered, rest[:MEASURED])
        teacher, student = (
            training.Answers(
                torch_module.load_module(self.location, self.name, self.given.source, "source"),
                _answers(captured, self._time()),
            )
            for _ in range(2)
        )
        tied = tied_weights(training.parameters_of(student.module), merges.merges)
        training.write_parameters(student.module, tied.parameters)
        self._require_same(student.answered(rest[0]), lowered, rest[0])
        options = training.Training(
            self.options.updates,
            60 * self.options.minutes,
            self.options.rate,
            self.options.seed,
            self.options.answers == "classes",
            self.options.skip,
        )
        judge = Batches(apart, along, self.options.rows)
        before = training.mean_distance(student, teacher, judge, options)
        folder = self.scratch if self.cache is None else self.cache.folder / "distillation"
        batches, state = Batches(rest, along, self.options.rows), folder / f"{key}.state"
        ended = training.distill(student, teacher, tied.ties, batches, options, state, handle.advance)
        after = training.mean_distance(student, teacher, judge, options)
        unit = "nats" if options.classes else "of the power"
        told = f"answers {before:.3g} {unit} from the original's, {after:.3g} after {ended.update} updates in "
        told += f"{ended.spent_s / 60:.1f} min"
        if after > self.options.limit:
            raise GateFailed(
                f"expected answers at most {self.options.limit:g} {unit} from the original's, got {after:.3g}: {told}",
                cure="train longer or on more data, keep more groups, or allow more",
                place=Location(stage=STAGE, graph=self.name),
            )
        checkpoint = training.checkpoint_of(student.module)
        state.unlink(missing_ok=True)
        return checkpoint, f"{merges.merges[0].site.attention.heads} -> {self.options.groups} heads, {told}"

    def _time(self) -> str | None:
        """Return the axis along which no frame reads later ones; None without derived steps."""
        return None if self.given.derive_steps is None else self.given.derive_steps.along

    def _merges(self, lowered: Lowered, measured: list[Feed]) -> Merges:
        calibrated = dataclasses.replace(lowered, calibration=_Streams(tuple((feed,) for feed in measured)))
        try:
            merges = MergeKvHeads(self.options.groups).merges(calibrated)
            if merges.refused or not merges.merges:
                reason = str(merges.refused[0]) if merges.refused else "heads share already"
                raise Refused(f"expected every attention to be merged: {reason}", cure="leave share_heads out")
        except SlipwayError as error:
            raise error.at(stage=STAGE, graph=self.name) from None
        return merges

    def _require_same(self, got: list[Any], lowered: Lowered, feed: Feed) -> None:
        """Require that the module with tied weights gives the results of the merged graph.

        Raises:
            Refused: results differ, as a parameter serves more than one projection.
        """
        names = [str(value.name) for value in lowered.model.graph.outputs]
        for name, ours, theirs in zip(names, got, session_of(lowered.model).run(names, dict(feed)), strict=True):
            apart = float(np.abs(ours - theirs).max(initial=0.0))
            if not apart <= CLOSE * float(np.abs(theirs).max(initial=0.0)):
                raise Refused(
                    f"expected the module with shared heads to answer as its graph, got {name} {apart:.3g} apart",
                    cure="give every projection parameters of its own, or list the pass merge_kv_heads instead",
                    place=Location(stage=STAGE, graph=self.name),
                )


@dataclasses.dataclass(frozen=True)
class _Streams:
    """Streams to measure on."""

    streams: tuple[tuple[Feed, ...], ...]

    def task_distance(self, lowered: Lowered) -> float | None:
        del lowered
        return None


def _axes_of_time(lowered: Lowered, time_axis: str | None) -> Mapping[str, int]:
    """Return the axis of time of each input that has one."""
    if time_axis is None:
        return MappingProxyType({})
    dims = {str(value.name): [str(dim) for dim in value.shape or ()] for value in lowered.model.graph.inputs}
    return {name: each.index(time_axis) for name, each in dims.items() if time_axis in each}


def _answers(lowered: Lowered, time_axis: str | None) -> list[int | None]:
    """Return the axis of time of each output, or None."""
    dims = [[str(dim) for dim in value.shape or ()] for value in lowered.model.graph.outputs]
    return [each.index(time_axis) if time_axis in each else None for each in dims]
