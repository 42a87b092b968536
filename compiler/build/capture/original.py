"""Captures the original model once, runs it as the reference, and holds the streams that verify a build."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler.base.cache.results import Code, StageResults
from compiler.base.cache.store import StageCache
from compiler.base.interruption import shielded
from compiler.build.capture.calibration_data import RecipeCalibration
from compiler.build.capture.captured_graphs import CapturedGraphs, hashes_of, source_files
from compiler.build.capture.derived_steps import with_caches
from compiler.build.capture.drawn_data import DrawnData
from compiler.build.capture.first_states import with_first_states
from compiler.build.capture.initial_graph import cache_axis, check_window, initial_graph
from compiler.build.capture.reference import Reference, reference_of
from compiler.build.capture.trial_calls import TrialCalls
from compiler.build.report.progress import Progress
from compiler.build.verify.edge_agreement import EdgeCase, edge_cases
from compiler.build.verify.edge_feeds import CALLS, ranges_of
from compiler.errors import SlipwayError
from compiler.graph import model as graphs
from compiler.graph.runners.mapped_weights import unload_weights
from compiler.graph.runners.stream import OriginalCall, chained_steps
from compiler.graph.stages import Feed, Lowered
from compiler.recipe.gates import ParityGate, TaskGate
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import PassSpec
from compiler.recipe.load import LoadedRecipe, RecipeLocation
from compiler.recipe.stage_inputs import (
    CaptureInputs,
    LoweringInputs,
    Surroundings,
    for_capture,
    for_data,
    for_lowering,
    surroundings_of,
    task_for_lowering,
)
from compiler.recipe.tree.keys import Key
from compiler.recipe.user_code.streams import Streams, locate_files

SPREAD = 12
"""Number of utterances that stand for all lengths; edge feeds have the shapes of the shortest of them."""


@dataclasses.dataclass(frozen=True, eq=False)
class Original:
    """One graph's source; `original_of` makes it from a recipe. Nothing is captured or run before it is asked for.

    Attributes:
        location: paths and keys of the recipe.
        name: the graph's name.
        given: the graph's record at capture.
        spec: the same with the states and sizes that follow from the capture.
        passes: the passes that the recipe lists.
        gate: its parity gate.
        buckets: sizes by bucketed axis.
        surroundings: what every stage depends on.
        results: results of earlier builds.
        data: the drawn streams, by purpose.
        task: the task that passes may measure, None without calibration data.
        task_files: SHA-256 digests of the files that the task names.
        captured: the captured graphs.
        progress: shows the stages.
    """

    location: RecipeLocation
    name: str
    given: Graph
    spec: Graph
    passes: Sequence[PassSpec]
    gate: ParityGate
    buckets: Mapping[str, tuple[int, ...]]
    surroundings: Surroundings
    results: StageResults
    data: DrawnData
    task: TaskGate | None
    task_files: tuple[str, ...]
    captured: CapturedGraphs
    progress: Progress
    _called: list[OriginalCall] = dataclasses.field(default_factory=list, init=False, repr=False)

    def source_files(self) -> list[Path]:
        """Return checkpoints, ONNX files with their external weights, and files that the recipe names."""
        return source_files(self.location, self.name, self.given)

    def code(self) -> Code:
        """Return, by factory, whether the recipe names the files that it reads."""
        return self.captured.code()

    def lowering_inputs(self) -> LoweringInputs:
        """Return the inputs that all passes depend on."""
        digests = self.data.digests
        return LoweringInputs(
            self.surroundings,
            self.name,
            self.spec,
            self.gate.model_copy(update={"drift": None}),
            self.task,
            self.task_files,
            self.captured.digest,
            self.captured.inputs.files,
            digests.get("verification", ""),
            digests.get("calibration", ""),
            digests.get("development", ""),
        )

    def data_digests(self) -> dict[str, str]:
        """Return SHA-256 digests of the feeds, by their purpose."""
        return dict(self.data.digests)

    def streams(self) -> Streams:
        """Return the verification streams, the longest first."""
        return self.data.drawn("verification")

    def check_apart(self, streams: Iterable[Sequence[Feed]], *keys: Key) -> None:
        """Refuse streams of a gate that passes are calibrated or chosen on; see `DrawnData`."""
        self.data.check_apart(streams, *keys)

    def calibration(self) -> RecipeCalibration | None:
        """Return the data that passes may measure on, None without calibration data; see `DrawnData`."""
        return self.data.calibration(self.task, lambda: self.reference().run)

    def start(self) -> Lowered:
        """Return a copy of the captured graph with the recipe's states and axes, which passes may change."""
        started = self._started
        first = None if started.first_call is None else graphs.clone(started.first_call)
        return dataclasses.replace(started, model=graphs.clone(started.model), first_call=first)

    @functools.cached_property
    def _started(self) -> Lowered:
        longest = {axis: sizes[-1] for axis, sizes in self.buckets.items()}
        steps = self.gate.chained_steps
        return initial_graph(self.location, self.name, self.spec, self.captured.models(), steps, longest)

    def reference(self) -> Reference:
        """Return the original model, ready to run; its caches are limited to their slots."""
        return self._reference

    @functools.cached_property
    def _reference(self) -> Reference:
        reference = reference_of(self.location, self.name, self.spec, self.start, self.captured.whole, self.given)
        if reference.modules:
            from compiler.build.capture.shared_weights import share_weights  # the framework is imported already

            captured = [model for model in self.captured.models() if model is not None]
            for module in reference.modules:
                share_weights(module, captured)
            unload_weights()  # of both copies that were compared none is read now
        return reference

    def fault(self, feeds: Sequence[Feed]) -> SlipwayError | None:
        """Return why the captured graph answers these calls differently from the original; see `original_fault`."""
        with shielded():  # imports the framework, where nothing has yet
            from compiler.build.capture.original_fault import original_fault

        spec, model = self.captured.inputs.spec, self.captured.models()[0]
        return original_fault(self.location, self.name, spec, self.reference(), feeds, self.gate, model)

    def steps(self, count: int) -> list[OriginalCall]:
        """Return the original's first calls on the longest stream, or calls of utterances of all lengths."""
        if len(self._called) < count:
            feeds = _spread(self.streams(), count) if self.spec.has_utterances else self.streams()[0]
            self._called[:] = chained_steps(self.reference().run, feeds, count)
        return self._called[:count]

    @functools.cached_property
    def _edges(self) -> list[EdgeCase]:
        streams = self.streams()
        feeds = (_spread(streams, SPREAD) if self.spec.has_utterances else streams[0])[:CALLS]
        ranges = ranges_of(self.spec, streams)
        unload_weights()
        return edge_cases(self.gate.edges, feeds, ranges, self.reference().run, self.start(), self.spec.fed_alike)

    def edges(self) -> list[EdgeCase]:
        """Return the original's calls on edge feeds in the shapes of its first steps."""
        return self._edges


def _spread(streams: Streams, count: int) -> list[Feed]:
    """Return at most `count` utterances, from the shortest to the longest."""
    feeds = sorted((feed for stream in streams for feed in stream), key=lambda f: sum(a.size for a in f.values()))
    chosen = np.linspace(0, len(feeds) - 1, min(count, len(feeds))).astype(int)
    return [feeds[index] for index in dict.fromkeys(chosen.tolist())]


def original_of(
    loaded: LoadedRecipe,
    name: str,
    spec: Graph,
    cache: StageCache | None,
    progress: Progress,
    *,
    with_data: bool = True,
) -> Original:
    """Draw the data of a graph, and return its original; steps that are derived are captured for their states.

    Args:
        loaded: the recipe.
        name: graph name.
        spec: its record.
        cache: results of earlier builds, or None.
        progress: shows the stages.
        with_data: whether the verification streams are drawn; without them nothing can be compared.

    Raises:
        SlipwayError: data, states or a derived step are refused; the message names the key.
    """
    location, gate, surroundings = loaded.location, loaded.recipe.gates.parity[name], surroundings_of(loaded)
    spec = with_first_states(location, name, spec)
    capture_spec, lowering_spec = for_capture(spec), for_lowering(spec)
    results = StageResults(cache, loaded.path.parent)
    data = DrawnData(location, name, for_data(spec), results)
    shortest = 1 if spec.has_utterances else gate.chained_steps
    for purpose, feeds in loaded.recipe.data if with_data else ():
        if feeds is not None and purpose != "distillation":  # what the checkpoint was made from, long before
            least = shortest if purpose == "verification" else 0
            data.draw(purpose, feeds, least, surroundings, progress)
    task = task_for_lowering(loaded.recipe.task_of(name)) if "calibration" in data.digests else None
    named = [] if task is None else locate_files(location, task.files, "gates", "task")
    inputs = CaptureInputs(surroundings, name, capture_spec, hashes_of(source_files(location, name, capture_spec)))
    try_calls = functools.partial(_try_calls, location, name, lowering_spec, gate, data)
    captured = CapturedGraphs(location, inputs, results, progress, data.is_data, try_calls)
    return Original(
        location=location,
        name=name,
        given=capture_spec,
        spec=lowering_spec
        if spec.derive_steps is None
        else with_caches(lowering_spec, captured.models()[0], captured.certificate()),
        passes=spec.passes,
        gate=gate,
        buckets={axis: sizes.buckets for axis, sizes in spec.axes.items() if sizes.buckets is not None},
        surroundings=surroundings,
        results=results,
        data=data,
        task=task,
        task_files=hashes_of(named),
        captured=captured,
        progress=progress,
    )


def _try_calls(
    location: RecipeLocation, name: str, spec: Graph, gate: ParityGate, data: DrawnData, trial: TrialCalls
) -> None:
    """Run the first calls of the longest verification stream, and check windows and gate against them."""
    slots = {axis: cache.window for axis, cache in spec.caches.items() if cache.window is not None}
    frames = trial.run(data.drawn("verification")[0] if "verification" in data.digests else (), slots)
    for axis, step in frames.items():
        if spec.first_call is None and not spec.padded and step > 0:
            check_window(location, name, cache_axis(spec, axis, step), step, gate.chained_steps)
