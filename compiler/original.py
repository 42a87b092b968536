"""The model as it was handed over: captured once, run as the reference, with the streams to verify on.

Capture and data are stages of their own: their results are kept with a record of every source file they were made from,
so that neither the framework nor the user's code is imported while nothing has changed.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx
import onnx_ir as ir

from compiler import ir as house
from compiler import verify
from compiler.data import Streams, digest_of, draw_streams, locate_files
from compiler.edge_feeds import CALLS, ranges_of
from compiler.edges import EdgeCase, edge_cases
from compiler.errors import Place, RecipeError, Refused
from compiler.evidence import CalibrationEvidence, check_disjoint
from compiler.progress import Progress, StageReport
from compiler.recipe import Feeds, Graph, LoadedRecipe
from compiler.stage_cache import StageCache, hash_path, own_source_files, stage_key
from compiler.stages import Array, Feed, Lowered, PaddedAxis, RowPlace, State, Window, states_of
from compiler.tool_versions import tool_versions

CAPTURE_CODE = ("capture.py", "onnx_source.py", "ir.py", "stages.py", "references.py", "recipe.py")

SPREAD = 12
"""So many utterances stand for all lengths; edge feeds have the shapes of the shortest of them."""


class Reference(Protocol):
    """The original, ready to run."""

    def run(self, feeds: Iterable[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        """Per chunk: all outputs by name, and the states (cut to the window) that the next call takes."""
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
        self.loaded, self.name, self.spec = loaded, name, spec
        self.cache, self.progress = cache, progress
        self.gate = loaded.recipe.gates.parity[name]
        self.buckets = {n: axis.buckets for n, axis in spec.axes.items() if axis.buckets is not None}
        self._captured: Callable[[], tuple[ir.Model, ir.Model | None]]
        self._streams: Streams | None = None
        self._calibration: Streams | None = None
        self._steps: list[verify.Step] | None = None
        self._edges: list[EdgeCase] | None = None
        self._reference: Reference | None = None
        self.data_digest = self._draw("verification", loaded.recipe.data.verification) if with_data else ""
        calibration = loaded.recipe.data.calibration
        self.calibration_digest = self._draw("calibration", calibration) if with_data and calibration else ""
        self.digest = self._capture()

    def _draw(self, key: str, feeds: Feeds) -> str:
        """Digest of the feeds; drawing them is skipped while their files and code are unchanged."""
        files = [hash_path(file) for file in locate_files(self.loaded, key, feeds)]
        label = "data" if key == "verification" else "calibration data"
        stage = stage_key("data", key, feeds.model_dump_json(), self.name, *files)
        with self.progress.stage(self.name, label) as handle:
            started, began_s = time.perf_counter(), time.time()
            entry = self.cache.get_with_dependencies(stage) if self.cache is not None and feeds.files else None
            if entry is not None:
                digest = (entry / "digest").read_text()
            else:
                digest = digest_of(self.streams() if key == "verification" else self.calibration_streams())
                if self.cache is not None and feeds.files:
                    self.cache.put_with_dependencies(
                        stage, {"digest": digest.encode()}, own_source_files(), unchanged_since_s=began_s
                    )
            handle.finish(StageReport(self.name, label, time.perf_counter() - started, cached=entry is not None))
        return digest

    def data_digests(self) -> dict[str, str]:
        """SHA-256 of the feeds by what they serve."""
        found = {"verification": self.data_digest, "calibration": self.calibration_digest}
        return {key: digest for key, digest in found.items() if digest}

    def streams(self) -> Streams:
        """The verification streams, drawn once."""
        if self._streams is None:
            self._streams = self._drawn("verification", self.loaded.recipe.data.verification)
            verify.check_streams(self._streams, 1 if self.spec.padded else self.gate.chained_steps, self.name)
            self._streams.sort(key=len, reverse=True)
        return self._streams

    def calibration_streams(self) -> Streams:
        """The calibration streams, drawn once; none where the recipe names none."""
        if self._calibration is None:
            feeds = self.loaded.recipe.data.calibration
            self._calibration = [] if feeds is None else self._drawn("calibration", feeds)
        return self._calibration

    def _drawn(self, key: str, feeds: Feeds) -> Streams:
        streams = draw_streams(self.loaded, key, feeds, self.name, self.spec)
        return (
            [[feed] for stream in streams for feed in stream] if self.spec.padded else streams
        )  # utterances stand alone

    def check_apart(self, streams: Iterable[Sequence[Feed]], what: str) -> None:
        """Refuse streams of a gate that passes are calibrated with.

        Raises:
            DataError: a feed is in both.
        """
        if self.loaded.recipe.data.calibration is not None:
            check_disjoint(self.calibration_streams(), streams, self.loaded.where("data", "calibration"), what)

    def evidence(self) -> CalibrationEvidence | None:
        """What passes may measure on, if the recipe has calibration data.

        Raises:
            DataError: they serve the gates as well.
        """
        if self.loaded.recipe.data.calibration is None:
            return None
        self.check_apart(self.streams(), "the verification data")
        return CalibrationEvidence(self.loaded, self.calibration_streams(), lambda: self.reference().run)

    def _capture(self) -> str:
        """Digest of the captured graphs."""
        sources = (self.spec.source, self.spec.first_call)
        code = [hash_path(Path(__file__).with_name(name)) for name in CAPTURE_CODE]
        files = [hash_path(p) for p in self.source_files() if p.exists()]
        axes = [
            (name, axis.fixed, axis.window is not None, (axis.buckets or (0,))[-1] if name in self.spec.padded else 0)
            for name, axis in self.spec.axes.items()
        ]  # what it looks at
        shapes = json.dumps([self.spec.model_dump(mode="json", include={"inputs", "outputs"}), axes])
        texts = [source.model_dump_json() if source else "" for source in sources]
        key = stage_key("capture", *texts, shapes, json.dumps(tool_versions()), *code, *files)
        with self.progress.stage(self.name, "capture") as handle:
            started, began_s = time.perf_counter(), time.time()
            entry = self.cache.get_with_dependencies(key) if self.cache is not None else None
            if entry is not None:
                digest = (entry / "digest").read_text()
                self._captured = lambda: self._load_captured(entry)
            else:
                models = self._capture_now()
                content = [house.serialized(model) if model is not None else b"" for model in models]
                digest = stage_key(*content)
                self._captured = lambda: _copies(models)
                if self.cache is not None:
                    files_kept = {"later.onnx": content[0], "first.onnx": content[1], "digest": digest.encode()}
                    self.cache.put_with_dependencies(key, files_kept, own_source_files(), unchanged_since_s=began_s)
            handle.finish(StageReport(self.name, "capture", time.perf_counter() - started, cached=entry is not None))
        return digest

    def source_files(self) -> list[Path]:
        """Checkpoints and ONNX files, with the files that hold their weights."""
        sources = [source for source in (self.spec.source, self.spec.first_call) if source is not None]
        checkpoints = [self.loaded.locate(source.checkpoint) for source in sources if source.checkpoint is not None]
        graphs = [self.loaded.locate(source.onnx) for source in sources if source.onnx is not None]
        return [*checkpoints, *(file for graph in graphs for file in _with_weights(graph))]

    def _capture_now(self) -> tuple[ir.Model, ir.Model | None]:
        from compiler import capture  # the framework is imported only when something must be captured or compared

        source, first = self.spec.source, self.spec.first_call
        if first is not None and (first.onnx is None) != (source.onnx is None):
            where = self.loaded.where("graphs", self.name, "first_call")
            kinds = ("an ONNX file", "a factory") if source.onnx is None else ("a factory", "an ONNX file")
            raise RecipeError(
                f"{where}: expected {kinds[1]} as in source, got {kinds[0]}", cure="give both calls in the same form"
            )
        if source.onnx is not None:
            model = capture.capture_onnx(self.loaded.locate(source.onnx), self.name, self.spec)
            return model, None if first is None or first.onnx is None else self._first_onnx(first.onnx)
        module = capture.load_module(self.loaded, self.name, source, "source")
        model = capture.capture_module(module, self.name, self.spec, list(self.spec.inputs))
        if first is None:
            return model, None
        first_module = capture.load_module(self.loaded, self.name, first, "first_call")
        return model, capture.capture_module(first_module, self.name, self.spec, capture.first_call_inputs(self.spec))

    def _first_onnx(self, path: str) -> ir.Model:
        from compiler import capture

        inputs = {name: given for name, given in self.spec.inputs.items() if given.state is None}
        return capture.capture_onnx(
            self.loaded.locate(path), self.name, self.spec.model_copy(update={"inputs": inputs})
        )

    def _load_captured(self, entry: Path) -> tuple[ir.Model, ir.Model | None]:
        first = (entry / "first.onnx").read_bytes()
        later = ir.load(entry / "later.onnx")
        return later, house.deserialized(first) if first else None

    def start(self) -> Lowered:
        """The captured graph with the recipe's states and axes."""
        model, first = self._captured()
        for each in (model, first):
            if each is not None:
                house.infer_shapes(each)
        windows = {name: axis for name, axis in self.spec.axes.items() if axis.window is not None}
        states = states_of(self.spec)
        places = _row_places(self.spec, model)
        window = None
        if windows:
            (axis_name, axis), *more = windows.items()
            if more:
                raise Refused(
                    f"one cache axis per graph is supported, got {list(windows)}", cure="name all caches' axis alike"
                )
            assert axis.window is not None
            added = step_frames(model, states, places, axis_name, self.name)
            _check_overflow(self.loaded, self.name, axis.window, added, self.gate.chained_steps)
            assert axis.length_input is not None
            window = Window(axis_name, axis.window, added, axis.length_input, axis.mask_input)
        _check_state_sizes(model, states, places, self.name)
        batch = self.spec.batch
        if batch is not None and not places:
            _check_rows_first(model, batch, self.name)
        fed_back = {state.output for state in states}
        data_outputs = tuple(name for name in self.spec.outputs if name not in fed_back)
        padded = tuple(_padded_axis(self.spec, name) for name in self.spec.padded)
        return Lowered(
            self.name, model, first, states, window, batch, data_outputs, padded_axes=padded, row_places=places
        )

    def reference(self) -> Reference:
        """The original model, ready to run; its caches are cut to the window."""
        if self._reference is None:
            from compiler import capture

            if self.spec.source.onnx is not None:
                self._reference = _OnnxReference(self.start())
            else:
                first_source = self.spec.first_call
                window = next((axis.window for axis in self.spec.axes.values() if axis.window is not None), None)
                self._reference = capture.TorchReference(
                    capture.load_module(self.loaded, self.name, self.spec.source, "source"),
                    capture.load_module(self.loaded, self.name, first_source, "first_call") if first_source else None,
                    self.spec,
                    states_of(self.spec),
                    window,
                    self.start().row_places if _is_for_one_row(self.spec) else (),
                )
        return self._reference

    def steps(self, count: int) -> list[verify.Step]:
        """The original's first calls on the longest stream, or utterances of all lengths."""
        if self._steps is None or len(self._steps) < count:
            feeds = _spread(self.streams(), count) if self.spec.padded else self.streams()[0]
            self._steps = verify.chained_steps(self.reference().run, feeds, count)
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


def _copies(models: tuple[ir.Model, ir.Model | None]) -> tuple[ir.Model, ir.Model | None]:
    """Passes change what they are given; the original of an ONNX file must stay as it was captured."""
    model, first = models
    return house.clone(model), None if first is None else house.clone(first)


def _with_weights(graph: Path) -> list[Path]:
    """An ONNX file and the files beside it that hold its weights; capture says what is wrong with them."""
    try:
        model = onnx.load(graph, load_external_data=False)
    except Exception:  # noqa: BLE001  (whatever a file of unknown origin makes the parser raise)
        return [graph]
    external = [tensor.external_data for tensor in model.graph.initializer if tensor.external_data]
    names = {entry.value for entries in external for entry in entries if entry.key == "location"}
    return [graph, *(graph.parent / name for name in sorted(names) if (graph.parent / name).is_file())]


def _check_overflow(loaded: LoadedRecipe, graph: str, window: int, step_frames: int, steps: int) -> None:
    """Parity over chained steps must see the window overflow, or it shows nothing about the frames that leave it."""
    needed = window // step_frames + 2
    if steps < needed:
        raise RecipeError(
            f"{loaded.where('gates', 'parity', graph, 'chained_steps')}: expected at least {needed} "
            f"steps, so that a window of {window} frames overflows at {step_frames} per call, got {steps}",
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
        if frames_axis is None:
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
    """An ONNX file as its own original; the runner cuts its caches to the window before each call."""

    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered

    def run(self, feeds: Iterable[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        """Per chunk: all outputs, and the states cut to the window."""
        runner = verify.runner_of(self.lowered)
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
