"""The model as it was handed over: captured once, run as the reference, with the streams to verify on.

Capture and data are stages of their own: their results are kept with a record of all that the user's code has read, so
that neither the framework nor that code is imported while nothing has changed.
"""

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx
import onnx_ir as ir

from compiler import ir as house
from compiler.cache.dependencies import ABSENT, hash_path
from compiler.cache.results import Code, StageResults
from compiler.cache.store import StageCache, stage_key
from compiler.cache.witness import WITNESS
from compiler.capture.calibration_evidence import RecipeEvidence, check_disjoint
from compiler.capture.initial_graph import states_of
from compiler.errors import DataError, Place, RecipeError, Refused
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Source
from compiler.recipe.load import LoadedRecipe, RecipePlaces
from compiler.recipe.record import Feeds
from compiler.recipe.streams import Streams, check_streams, digest_of, draw_streams, locate_files
from compiler.recipe.tree import Key
from compiler.records.build_report import StageReport
from compiler.report.progress import Progress
from compiler.runners.choose import runner_of
from compiler.runners.stream import Step, chained_steps
from compiler.stage_inputs import (
    CaptureInputs,
    DataInputs,
    LoweringInputs,
    for_capture,
    for_data,
    for_lowering,
    key_of,
    surroundings_of,
    task_for_lowering,
)
from compiler.stages import Array, Feed, Lowered, PaddedAxis, RowPlace, State
from compiler.verify.edge_feeds import CALLS, ranges_of
from compiler.verify.edges import EdgeCase, edge_cases
from runtime_lite.format.cache_axis import CacheAxis

CHOOSING = ("calibration", "development")
"""Roles of data that passes look at: none of them may serve a gate."""

SPREAD = 12
"""So many utterances stand for all lengths; edge feeds have the shapes of the shortest of them."""


class Reference(Protocol):
    """The original, ready to run."""

    def run(self, feeds: Iterable[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        """Per chunk: all outputs by name, and the states (cut to their slots) that the next call takes."""
        ...


class Original:
    """One graph's source.

    Args:
        loaded: the recipe.
        name: graph name.
        spec: its record.
        cache: results of earlier builds, or None.
        progress: shows the stages.
        with_data: whether the verification streams are drawn; without them nothing can be compared.
    """

    def __init__(
        self,
        loaded: LoadedRecipe,
        name: str,
        spec: Graph,
        cache: StageCache | None,
        progress: Progress,
        *,
        with_data: bool = True,
    ) -> None:
        recipe = loaded.recipe
        self.places, self.name, self.passes = loaded.places, name, spec.passes
        self.spec, self.task = for_lowering(spec), task_for_lowering(recipe.task_of(name))
        self.cache, self.progress = cache, progress
        self.results = StageResults(cache, loaded.path.parent)
        self.gate = recipe.gates.parity[name]
        self.buckets = {n: axis.buckets for n, axis in spec.axes.items() if axis.buckets is not None}
        self._data_files: list[str] = []
        self._captured: Callable[[], tuple[ir.Model, ir.Model | None]]
        self._streams: dict[str, Streams] = {}
        self._steps: list[Step] | None = None
        self._edges: list[EdgeCase] | None = None
        self._reference: Reference | None = None
        self.surroundings = surroundings_of(loaded)
        self.data: dict[str, DataInputs] = {}
        self.digests: dict[str, str] = {}
        shortest = 1 if spec.padded else self.gate.chained_steps
        for purpose, feeds in recipe.data:
            if with_data and feeds is not None:
                self._draw(self._data_inputs(purpose, feeds, shortest if purpose == "verification" else 0, spec))
        self.capture_inputs = CaptureInputs(self.surroundings, name, for_capture(spec), self._source_hashes())
        self.digest = self._capture()

    def _data_inputs(self, purpose: str, feeds: Feeds, shortest: int, spec: Graph) -> DataInputs:
        files = locate_files(self.places, feeds.files, "data", purpose)
        self._data_files.extend(str(file.absolute()) for file in files)
        hashes = tuple(map(hash_path, files))
        return DataInputs(self.surroundings, self.name, purpose, feeds, shortest, for_data(spec), hashes)

    def _draw(self, inputs: DataInputs) -> None:
        """Digest of the feeds; drawing them is skipped while their files and code are unchanged."""
        self.data[inputs.purpose] = inputs
        label = "data" if inputs.purpose == "verification" else f"{inputs.purpose} data"
        key, feeds = key_of(inputs), inputs.feeds
        with self.progress.stage(self.name, label) as handle:
            started, why = time.perf_counter(), ""
            entry = self.results.find(key) if feeds.files else None
            if entry is not None:
                self.digests[inputs.purpose] = (entry / "digest").read_text()
            else:
                self._drawn(inputs.purpose)
                if feeds.files:
                    digest = self.digests[inputs.purpose].encode()
                    why = self.results.keep(key, {"digest": digest}, {feeds.for_graph(self.name): True})
                WITNESS.answer_for()
            handle.finish(
                StageReport(self.name, label, time.perf_counter() - started, cached=entry is not None, detail=why)
            )

    def data_digests(self) -> dict[str, str]:
        """SHA-256 of the feeds by what they serve."""
        return dict(self.digests)

    def streams(self) -> Streams:
        """The verification streams, the longest first."""
        return self._drawn("verification")

    def calibration_streams(self) -> Streams:
        """The calibration streams; none where the recipe names none."""
        return self._drawn("calibration") if "calibration" in self.data else []

    def _drawn(self, purpose: str) -> Streams:
        """Streams, drawn once.

        Raises:
            DataError: they are not those that the build began with.
        """
        if purpose not in self._streams:
            inputs = self.data[purpose]
            streams = draw_streams(self.places, purpose, inputs.feeds, self.name, inputs.spec)
            if self.spec.padded:
                streams = [[feed] for stream in streams for feed in stream]  # utterances stand alone
            if purpose == "verification":
                check_streams(streams, inputs.shortest, self.name)
                streams.sort(key=len, reverse=True)
            if self.digests.setdefault(purpose, digest := digest_of(streams)) != digest:
                raise DataError(
                    f"{self.places.where('data', purpose, 'feeds')}: expected {inputs.feeds.for_graph(self.name)} to "
                    "yield what it yielded before, as nothing that it reads has changed, got other feeds",
                    cure="seed its random numbers, or drop the key files, so that it is drawn in every build",
                )
            self._streams[purpose] = streams
        return self._streams[purpose]

    def check_apart(self, streams: Iterable[Sequence[Feed]], *keys: Key) -> None:
        """Refuse streams of a gate that passes are calibrated with or choose on.

        Args:
            streams: what the gate runs.
            keys: where the recipe names them.

        Raises:
            DataError: a feed is in both.
        """
        roles = {
            self.places.where("data", purpose): self._drawn(purpose) for purpose in CHOOSING if purpose in self.data
        }
        check_disjoint({**roles, self.places.where(*keys): streams})

    def evidence(self) -> RecipeEvidence | None:
        """What passes may measure on, if the recipe has calibration data.

        Raises:
            DataError: a feed has two roles.
        """
        if "calibration" not in self.data:
            return None
        self.check_apart(self.streams(), "data", "verification")
        calibration = self.calibration_streams()
        development = self._drawn("development") if "development" in self.data else calibration
        return RecipeEvidence(self.places, self.task, calibration, development, lambda: self.reference().run)

    def lowering_inputs(self) -> LoweringInputs:
        """What all passes are made from."""
        return LoweringInputs(
            self.surroundings,
            self.name,
            self.spec,
            self.gate.model_copy(update={"drift": None}),
            self.task if "calibration" in self.data else None,
            self.digest,
            self.capture_inputs.files,
            self.digests.get("verification", ""),
            self.digests.get("calibration", ""),
            self.digests.get("development", ""),
        )

    def code(self) -> Code:
        """The factories, and whether the recipe names the files that they read."""
        sources = (self.capture_inputs.spec.source, self.capture_inputs.spec.first_call)
        return {each.factory: bool(each.files) for each in sources if each is not None and each.factory is not None}

    def is_data(self, path: str) -> bool:
        """Whether a file is named as one that feeds are made from: their digest stands for it."""
        return any(path == file or path.startswith(os.path.join(file, "")) for file in self._data_files)

    def _source_hashes(self) -> tuple[str, ...]:
        return tuple(hash_path(path) if path.exists() else ABSENT for path in self.source_files())

    def _capture(self) -> str:
        """Digest of the captured graphs, and of what the factories made."""
        key = key_of(self.capture_inputs)
        with self.progress.stage(self.name, "capture") as handle:
            started, why = time.perf_counter(), ""
            entry = self.results.find(key)
            if entry is not None:
                digest = (entry / "digest").read_text()
                self._captured = lambda: self._load_captured(entry)
            else:
                models, made = self._capture_now()
                content = [house.serialized(model) if model is not None else b"" for model in models]
                digest = stage_key(*content, made)
                self._captured = lambda: models
                kept = {"later.onnx": content[0], "first.onnx": content[1], "digest": digest.encode()}
                why = self.results.keep(key, kept, self.code(), self.is_data)
            handle.finish(
                StageReport(self.name, "capture", time.perf_counter() - started, cached=entry is not None, detail=why)
            )
        return digest

    def source_files(self) -> list[Path]:
        """Checkpoints, ONNX files with the files that hold their weights, and files that the recipe names."""
        found: list[Path] = []
        for key in ("source", "first_call"):
            source: Source | None = getattr(self.spec, key)
            if source is None:
                continue
            found += [] if source.checkpoint is None else [self.places.locate(source.checkpoint)]
            found += [] if source.onnx is None else _with_weights(self.places.locate(source.onnx))
            found += locate_files(self.places, source.files, "graphs", self.name, key)
        return found

    def _capture_now(self) -> tuple[tuple[ir.Model, ir.Model | None], str]:
        """The graphs of both calls, and a digest of the modules they were captured from."""
        from compiler.capture import torch_module  # the framework is imported only when it must capture or compare

        spec = self.capture_inputs.spec
        source, first = spec.source, spec.first_call
        if first is not None and (first.onnx is None) != (source.onnx is None):
            where = self.places.where("graphs", self.name, "first_call")
            kinds = ("an ONNX file", "a factory") if source.onnx is None else ("a factory", "an ONNX file")
            raise RecipeError(
                f"{where}: expected {kinds[1]} as in source, got {kinds[0]}", cure="give both calls in the same form"
            )
        if source.onnx is not None:
            model = torch_module.capture_onnx(self.places.locate(source.onnx), self.name, spec)
            return (model, None if first is None or first.onnx is None else self._first_onnx(first.onnx)), ""
        module = torch_module.load_module(self.places, self.name, source, "source")
        made = torch_module.digest_of_module(module)
        model = torch_module.capture_module(module, self.name, spec, list(spec.inputs))
        if first is None:
            return (model, None), made
        first_module = torch_module.load_module(self.places, self.name, first, "first_call")
        made = stage_key(made, torch_module.digest_of_module(first_module))
        first_model = torch_module.capture_module(first_module, self.name, spec, torch_module.first_call_inputs(spec))
        return (model, first_model), made

    def _first_onnx(self, path: str) -> ir.Model:
        from compiler.capture import torch_module

        spec = self.capture_inputs.spec
        inputs = {name: given for name, given in spec.inputs.items() if given.state is None}
        return torch_module.capture_onnx(
            self.places.locate(path), self.name, spec.model_copy(update={"inputs": inputs})
        )

    def _load_captured(self, entry: Path) -> tuple[ir.Model, ir.Model | None]:
        first = (entry / "first.onnx").read_bytes()
        later = ir.load(entry / "later.onnx")
        return later, house.deserialized(first) if first else None

    def start(self) -> Lowered:
        """The captured graph with the recipe's states and axes, as a copy: passes change what they are given."""
        started = self._started
        first = None if started.first_call is None else house.clone(started.first_call)
        return dataclasses.replace(started, model=house.clone(started.model), first_call=first)

    @functools.cached_property
    def _started(self) -> Lowered:
        model, first = self._captured()
        for each in (model, first):
            if each is not None:
                house.infer_shapes(each)
        states = states_of(self.spec)
        places = _row_places(self.spec, model)
        caches = _caches(self.spec, self.name, model, states, places)
        for cache in caches:
            _check_overflow(self.places, self.name, cache, self.gate.chained_steps)
        _check_state_sizes(model, states, places, self.name)
        batch = self.spec.batch
        if batch is not None and not places:
            _check_rows_first(model, batch, self.name)
        fed_back = {state.output for state in states}
        data_outputs = tuple(name for name in self.spec.outputs if name not in fed_back)
        padded = tuple(_padded_axis(self.spec, name) for name in self.spec.padded)
        return Lowered(
            self.name, model, first, states, caches, batch, data_outputs, padded_axes=padded, row_places=places
        )

    def reference(self) -> Reference:
        """The original model, ready to run; its caches are cut to their slots."""
        if self._reference is None:
            from compiler.capture import torch_module

            if self.spec.source.onnx is not None:
                self._reference = _OnnxReference(self.start())
            else:
                first_source = self.spec.first_call
                self._reference = torch_module.TorchReference(
                    torch_module.load_module(self.places, self.name, self.spec.source, "source"),
                    torch_module.load_module(self.places, self.name, first_source, "first_call")
                    if first_source
                    else None,
                    self.spec,
                    states_of(self.spec),
                    self.start().row_places if _is_for_one_row(self.spec) else (),
                )
        return self._reference

    def steps(self, count: int) -> list[Step]:
        """The original's first calls on the longest stream, or utterances of all lengths."""
        if self._steps is None or len(self._steps) < count:
            feeds = _spread(self.streams(), count) if self.spec.padded else self.streams()[0]
            self._steps = chained_steps(self.reference().run, feeds, count)
        return self._steps[:count]

    def edges(self) -> list[EdgeCase]:
        """The original's calls on edge feeds in the shapes of its first steps."""
        if self._edges is None:
            streams = self.streams()
            feeds = (_spread(streams, SPREAD) if self.spec.padded else streams[0])[:CALLS]
            ranges = ranges_of(self.spec, streams)
            self._edges = edge_cases(self.gate.edges, feeds, ranges, self.reference().run, self.start())
        return self._edges


def _spread(streams: Streams, count: int) -> list[Feed]:
    """So many utterances, from the shortest to the longest."""
    feeds = sorted((feed for stream in streams for feed in stream), key=lambda f: sum(a.size for a in f.values()))
    chosen = np.linspace(0, len(feeds) - 1, min(count, len(feeds))).astype(int)
    return [feeds[index] for index in dict.fromkeys(chosen.tolist())]


def _padded_axis(spec: Graph, axis: str) -> PaddedAxis:
    length_input = spec.axes[axis].length_input
    assert length_input is not None
    return PaddedAxis(
        axis,
        length_input,
        mask_inputs=tuple(name for name, given in spec.inputs.items() if given.mask_of == axis),
        length_inputs=tuple(name for name, given in spec.inputs.items() if given.length_of == axis),
    )


def _with_weights(graph: Path) -> list[Path]:
    """An ONNX file and the files beside it that hold its weights; capture says what is wrong with them."""
    try:
        model = onnx.load(graph, load_external_data=False)
    except Exception:  # noqa: BLE001  (whatever a file of unknown origin makes the parser raise)
        return [graph]
    external = [tensor.external_data for tensor in model.graph.initializer if tensor.external_data]
    names = {entry.value for entries in external for entry in entries if entry.key == "location"}
    return [graph, *(graph.parent / name for name in sorted(names) if (graph.parent / name).is_file())]


def _caches(
    spec: Graph, graph: str, model: ir.Model, states: Sequence[State], places: Sequence[RowPlace]
) -> tuple[CacheAxis, ...]:
    """The cache axes that a recipe declares, and how many frames the graph adds along each."""
    found = []
    for name, axis in spec.caches.items():
        assert axis.window is not None and axis.length_input is not None  # as every window has
        assert axis.side is not None and axis.update is not None
        step = step_frames(model, states, places, name, graph)
        found.append(CacheAxis(name, axis.window, step, axis.length_input, axis.mask_input, axis.side, axis.update))
    return tuple(found)


def _check_overflow(places: RecipePlaces, graph: str, cache: CacheAxis, steps: int) -> None:
    """Parity over chained steps must see a cache overflow, or it shows nothing about the frames that leave it."""
    needed = cache.slots // cache.step + 2
    if steps < needed:
        raise RecipeError(
            f"{places.where('gates', 'parity', graph, 'chained_steps')}: expected at least {needed} "
            f"steps, so that a window of {cache.slots} frames overflows at {cache.step} per call, got {steps}",
            cure=f"write {needed} or more, and yield a stream that long",
        )


def _check_rows_first(model: ir.Model, batch: str, graph: str) -> None:
    """The axis with buckets counts rows, which are padded, cut back and compared along the first axis."""
    for value in (*model.graph.inputs, *model.graph.outputs):
        dims = house.dims_of(value)
        if dims is None or (dims and dims[0] == house.symbol(batch)):
            continue
        if not dims or isinstance(dims[0], int) or house.symbol(batch) in dims[1:]:
            raise Refused(
                f"expected {batch!r}, the axis with buckets, in front of {value.name}, got {list(dims)}",
                cure="transpose the model's inputs and outputs, or fix the axis",
                place=Place(stage="capture", graph=graph, tensor=str(value.name), axis=batch),
            )


def _is_for_one_row(spec: Graph) -> bool:
    return any(given.original is not None for given in spec.inputs.values())


def _row_places(spec: Graph, model: ir.Model) -> tuple[RowPlace, ...]:
    """Where an original for one row has the batch: as the recipe says, in states as they go in, else in a first 1."""
    if not _is_for_one_row(spec):
        return ()
    inputs = {name: RowPlace(name, given.row_place) for name, given in spec.inputs.items()}
    fed = {state.output: inputs[state.input].axis for state in states_of(spec)}
    outputs = []
    for name, value in house.outputs_named(model).items():
        dims = house.dims_of(value)
        outputs.append(RowPlace(name, fed[name] if name in fed else 0 if dims and dims[0] == 1 else None))
    return (*inputs.values(), *outputs)


def _graph_axis(state: State, places: Sequence[RowPlace]) -> int | None:
    """The frames axis of a state as the captured graph numbers it."""
    place = next((each for each in places if each.tensor == state.input), None)
    return state.frames_axis if place is None or state.frames_axis is None else place.axis_of(state.frames_axis)


def _check_state_sizes(model: ir.Model, states: Sequence[State], places: Sequence[RowPlace], graph: str) -> None:
    """Every state comes back in the size in which it goes in; a frames axis may grow."""
    inputs, outputs = house.inputs_named(model), house.outputs_named(model)
    for state in states:
        fed, back = house.dims_of(inputs[state.input]), house.dims_of(outputs[state.output])
        if fed is None or back is None:
            continue
        differ = [
            axis != _graph_axis(state, places) and isinstance(a, int) and isinstance(b, int) and a != b
            for axis, (a, b) in enumerate(zip(fed, back, strict=False))
        ]
        if len(fed) != len(back) or any(differ):
            raise Refused(
                f"state {state.input!r} goes in as {list(fed)} and comes back from {state.output!r} as {list(back)}",
                cure="feed back a state of one size, or declare the growing axis with a window",
                place=Place(stage="capture", graph=graph, tensor=state.input),
            )


def step_frames(model: ir.Model, states: Sequence[State], places: Sequence[RowPlace], axis: str, graph: str) -> int:
    """How many frames a call adds: what the graph joins to a cache along its frames axis, or by how much it grows."""
    inputs = house.inputs_named(model)
    for state in states:
        frames_axis = _graph_axis(state, places)
        if frames_axis is None or state.cache != axis:
            continue
        cache = inputs[state.input]
        for node in house.consumers_of(cache):
            if not house.is_op(node, "Concat"):
                continue
            added = [house.dims_of(value) for value in node.inputs if value is not None and value is not cache]
            sizes = [dims[frames_axis] if dims is not None else None for dims in added]
            frames = [size for size in sizes if isinstance(size, int)]
            if frames and len(frames) == len(sizes):
                return sum(frames)
        back = house.dims_of(house.outputs_named(model)[state.output])
        added_frames = None if back is None else back[frames_axis] - house.symbol(axis)
        if added_frames is not None and added_frames.is_Integer and added_frames > 0:
            return int(added_frames)
    raise Refused(
        f"no cache is joined along {axis!r} with a fixed number of new frames",
        cure="join each cache with the new frames by concatenation, and fix the number of new frames per call",
    ).at(graph=graph, axis=axis, stage="capture")


class _OnnxReference:
    """An ONNX file as its own original; the runner cuts its caches to their slots before each call."""

    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered

    def run(self, feeds: Iterable[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        """Per chunk: all outputs, and the states cut to their slots."""
        runner = runner_of(self.lowered)
        for count, feed in enumerate(feeds):
            try:
                outputs = runner.step(feed)
            except Exception as error:
                raise RecipeError(
                    f"the ONNX file does not run at chained step {count}: {' '.join(str(error).split())[:300]}",
                    cure="export it with dynamic axes; a size that the exporter has fixed fits one cache length only",
                    place=Place(stage="reference", graph=self.lowered.graph),
                ) from error
            yield outputs, dict(runner.states)
