"""Recipe to bundle: capture, passes, target, gates; every stage is compared with the original and kept in the cache.

    data -> capture -> pass, pass, ... -> target -> verify -> task -> bundle

The key of a stage is a hash over everything its result follows from: the key before it, its options, its code, the
tools and the data. Reports and artefacts are kept, graphs between passes are not: when anything after capture is
missing, the passes run again, which is quick, and only stages without a report are compared again. A failed stage is
never kept.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from compiler import gates, verify
from compiler import ir as house
from compiler.bundle import (
    GraphParts,
    bundle_files,
    canonical_json,
    check_replaceable,
    staged,
    write_costs,
    write_files,
)
from compiler.data import Streams, digest_of, draw_streams, locate_files
from compiler.errors import GateFailed, InternalError, Place, RecipeError, Refused, SlipwayError
from compiler.passes import PASSES
from compiler.progress import BuildReport, ParityRow, Progress, SpeedRow, StageHandle, StageReport, TaskRow
from compiler.recipe import Graph, LoadedRecipe
from compiler.references import shown_path
from compiler.spec import check_between_passes
from compiler.stage_cache import StageCache, hash_path, own_source_files, stage_key
from compiler.stages import Lowered, Outcome, Pass, State, Window, states_of
from compiler.targets import TARGETS
from compiler.targets.base import Built, Emitted, Target
from runtime_lite.costs import Cost
from runtime_lite.manifest import Sources
from runtime_lite.runtime import Runtime
from runtime_lite.verify import verify_model

PASS_STEPS = 12
"""Chained steps compared after each pass: enough to overflow a window of 128 frames by chunks of 16."""

TOOLS = ("torch", "onnx", "onnx-ir", "onnxscript", "onnx-shape-inference", "onnxruntime", "numpy")

CAPTURE_CODE = ("capture.py", "ir.py", "stages.py", "references.py", "recipe.py")


@dataclasses.dataclass(frozen=True)
class BuildOptions:
    """How to build.

    Attributes:
        out: the bundle.
        strict: a target whose toolchain is absent fails the build.
        cache: results of earlier builds, or None.
    """

    out: Path
    strict: bool = False
    cache: StageCache | None = None


def pass_options() -> dict[str, tuple[str, ...]]:
    """Option names by pass, for checking recipes."""
    return {name: _fields(kind) for name, kind in PASSES.items()}


def target_options() -> dict[str, tuple[str, ...]]:
    """Option names by target, for checking recipes."""
    return {name: _fields(kind) for name, kind in TARGETS.items()}


def _check_option_types(loaded: LoadedRecipe) -> None:
    for name, graph in loaded.recipe.graphs.items():
        for index, spec in enumerate(graph.passes):
            types = {field.name: field.type for field in dataclasses.fields(PASSES[spec.name])}  # type: ignore[arg-type]
            for option, value in spec.options.items():
                wanted = types[option]
                if wanted in (bool, int, str) and type(value) is not wanted:
                    where = loaded.where("graphs", name, "passes", index)
                    raise RecipeError(
                        f"{where}: {spec.name}: {option}: expected {wanted.__name__}, got {value!r}",
                        cure="change the value",
                    )


def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def tool_versions() -> dict[str, str]:
    """Versions of what a bundle is made with."""
    return {name: importlib.metadata.version(name) for name in TOOLS} | {"python": platform.python_version()}


def build(loaded: LoadedRecipe, options: BuildOptions, progress: Progress) -> BuildReport:
    """Build, verify and write one bundle.

    Raises:
        SlipwayError: by fault, with the place; nothing is left behind and a previous bundle is untouched.
    """
    loaded.check_passes(pass_options())
    _check_option_types(loaded)
    loaded.check_targets(target_options())
    check_replaceable(options.out)
    kinds = [target.kind for target in loaded.recipe.targets]
    targets = [TARGETS[target.kind](**target.options) for target in loaded.recipe.targets]
    shipping = [target for target in targets if target.ships]
    if len(shipping) > 1:
        raise Refused(f"one bundle holds one target, got {kinds}", cure="write one recipe per target")
    target = shipping[0] if shipping else targets[0]
    builds = {
        name: _GraphBuild(loaded, name, spec, target, options.cache, progress)
        for name, spec in loaded.recipe.graphs.items()
    }
    for each in builds.values():
        each.lower()
    reports = [report for each in builds.values() for report in each.reports]
    if not target.ships:
        return BuildReport(str(loaded.path), "no bundle: the null target emits nothing", tuple(reports))
    return _Assembly(loaded, options, progress, builds, reports).finish()


class _GraphBuild:
    """Everything between a graph's source and its artefacts."""

    def __init__(
        self, loaded: LoadedRecipe, name: str, spec: Graph, target: Target, cache: StageCache | None, progress: Progress
    ) -> None:
        self.loaded, self.name, self.spec, self.target = loaded, name, spec, target
        self.cache, self.progress = cache, progress
        self.gate = loaded.recipe.gates.parity[name]
        self.reports: list[StageReport] = []
        self.code = _code_digest()
        self.key = ""
        self.lowered: Lowered | None = None
        self.certificate: list[dict[str, Any]] = []
        self._captured: Callable[[], tuple[ir.Model, ir.Model | None]]
        self._streams: Streams | None = None
        self._steps: list[verify.Step] | None = None
        self._reference: Any = None
        self.buckets = {n: axis.buckets for n, axis in spec.axes.items() if axis.buckets is not None}

    # --- the stages, in order

    def lower(self) -> None:
        """Run or look up everything up to the target's files."""
        self.data_digest = self._data()
        self.key = stage_key(self._capture(), self.data_digest, self.code, json.dumps(tool_versions()))
        plan = self._plan()
        self.target_key = stage_key(
            plan[-1][1] if plan else self.key, self.target.name, repr(self.target), repr(self.buckets)
        )
        if self._all_cached(plan):
            self._recall(plan)
            return
        self._run_passes(plan)

    def _plan(self) -> list[tuple[Pass, str]]:
        """Every pass with the key of its result."""
        plan, key = [], self.key
        for spec in self.spec.passes:
            made = PASSES[spec.name](**{name: _hashable(value) for name, value in spec.options.items()})
            key = stage_key(key, "pass", repr(made), self.gate.model_dump_json())
            plan.append((made, key))
        return plan

    def _all_cached(self, plan: Sequence[tuple[Pass, str]]) -> bool:
        if self.cache is None or self.cache.get(stage_key(self.target_key, "built")) is None:
            return False
        return all(self.cache.get(stage_key(key, "report")) is not None for _, key in plan)

    def _recall(self, plan: Sequence[tuple[Pass, str]]) -> None:
        """Reports of the passes from the cache."""
        for made, key in plan:
            with self.progress.stage(self.name, made.name) as handle:
                report, records = self._cached_report(key)
                self._done(handle, report)
                self.certificate += records

    def _cached_report(self, key: str) -> tuple[StageReport, list[dict[str, Any]]]:
        content = self._cached_json(stage_key(key, "report"), "report.json")
        report = StageReport(**{**content["report"], "refused": tuple(content["report"]["refused"])})
        return dataclasses.replace(report, cached=True), content["records"]

    def _cached_json(self, key: str, name: str) -> Any:
        assert self.cache is not None
        entry = self.cache.get(key)
        return None if entry is None else json.loads((entry / name).read_text())

    def _keep(self, key: str, files: Mapping[str, bytes]) -> None:
        if self.cache is not None:
            self.cache.put(key, files)

    def _data(self) -> str:
        """Digest of the verification feeds; drawing them is skipped while their files and code are unchanged."""
        feeds = self.loaded.recipe.data.verification
        files = [hash_path(file) for file in locate_files(self.loaded, "verification", feeds)]
        key = stage_key("data", feeds.model_dump_json(), self.name, *files)
        with self.progress.stage(self.name, "data") as handle:
            started, began_s = time.perf_counter(), time.time()
            entry = self.cache.get_with_dependencies(key) if self.cache is not None and feeds.files else None
            if entry is not None:
                digest = (entry / "digest").read_text()
            else:
                digest = digest_of(self.streams())
                if self.cache is not None and feeds.files:
                    self.cache.put_with_dependencies(
                        key, {"digest": digest.encode()}, own_source_files(), unchanged_since_s=began_s
                    )
            self._done(handle, StageReport(self.name, "data", time.perf_counter() - started, cached=entry is not None))
        return digest

    def streams(self) -> Streams:
        """The verification streams, drawn once."""
        if self._streams is None:
            feeds = self.loaded.recipe.data.verification
            self._streams = draw_streams(self.loaded, "verification", feeds, self.name, self.spec)
            verify.check_streams(self._streams, self.gate.chained_steps, self.name)
            self._streams.sort(key=len, reverse=True)
        return self._streams

    def _capture(self) -> str:
        """Digest of the captured graphs."""
        sources = (self.spec.source, self.spec.first_call)
        code = [hash_path(Path(__file__).with_name(name)) for name in CAPTURE_CODE]
        files = [hash_path(p) for p in self.source_files() if p.exists()]
        axes = [
            (name, axis.fixed, axis.window is not None) for name, axis in self.spec.axes.items()
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
            self._done(
                handle, StageReport(self.name, "capture", time.perf_counter() - started, cached=entry is not None)
            )
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
        window = None
        if windows:
            (axis_name, axis), *more = windows.items()
            if more:
                raise Refused(
                    f"one cache axis per graph is supported, got {list(windows)}", cure="name all caches' axis alike"
                )
            assert axis.window is not None
            step_frames = _step_frames(model, states, axis_name, self.name)
            window = Window(axis_name, axis.window, step_frames, axis.length_input, axis.mask_input)
        if len(self.buckets) > 1:
            raise Refused(
                f"one axis with buckets per graph is supported, got {list(self.buckets)}", cure="fix the other axes"
            ).at(graph=self.name, stage="capture")
        _check_state_sizes(model, states, self.name)
        batch = next((name for name in self.buckets), None)
        if batch is not None:
            _check_rows_first(model, batch, self.name)
        fed_back = {state.output for state in states}
        data_outputs = tuple(name for name in self.spec.outputs if name not in fed_back)
        return Lowered(self.name, model, first, states, window, batch, data_outputs)

    def _run_passes(self, plan: Sequence[tuple[Pass, str]]) -> None:
        lowered = self.start()
        for made, key in plan:
            with self.progress.stage(self.name, made.name) as handle:
                started = time.perf_counter()
                before = dataclasses.replace(lowered, model=house.clone(lowered.model))
                outcome = self._apply(made, lowered)
                lowered = outcome.lowered
                cached = self._cached_json(stage_key(key, "report"), "report.json") if self.cache else None
                if cached is not None:
                    report, records = self._cached_report(key)
                else:
                    max_abs, limit = self._compare(made.name, before, lowered)
                    report = StageReport(
                        self.name,
                        made.name,
                        time.perf_counter() - started,
                        matched=outcome.matched,
                        rewritten=outcome.rewritten,
                        refused=tuple(map(str, outcome.refused)),
                        max_abs=max_abs,
                        limit=limit,
                    )
                    records = [{"pass": made.name, **record} for record in outcome.records]
                    content = {"report": dataclasses.asdict(report), "records": records}
                    self._keep(stage_key(key, "report"), {"report.json": canonical_json(content)})
                self.certificate += records
                self._done(handle, report)
        self.lowered = lowered

    def _apply(self, made: Pass, lowered: Lowered) -> Outcome:
        try:
            outcome = made.apply(lowered)
            check_between_passes(outcome.lowered)
        except SlipwayError as error:
            raise error.at(stage=made.name, graph=self.name) from None
        return outcome

    def _compare(self, stage: str, before: Lowered, after: Lowered) -> tuple[float, float]:
        """Parity after a pass; on failure the first node that differs."""
        steps = self.steps(min(PASS_STEPS, self.gate.chained_steps))
        differences = verify.compare(after, verify.runner_of(after), steps)
        worst = verify.worst_of(differences, self.gate.max_abs)
        if worst.holds(self.gate.max_abs):
            return worst.max_abs, worst.limit(self.gate.max_abs)
        gates.require_parity(
            self.name, "capture", verify.compare(before, verify.runner_of(before), steps), self.gate,
            "the exported graph differs before any pass has touched it: compare with a looser max_abs, or report it",
        )  # fmt: skip
        found = verify.first_difference(before, after, steps, self.gate.max_abs)
        error = GateFailed(
            f"expected {worst.tensor} within {worst.limit(self.gate.max_abs):.3g} of the original after {stage}, got a "
            f"difference of {worst.max_abs:.3g} at chained step {worst.worst_step}"
            + (f"; the first node that differs is {found.node.name} by {found.max_abs:.3g}" if found else ""),
            cure=f"remove {stage} from the recipe's passes and report it; it is the pass that broke parity",
        )
        if found is not None:
            place = found.place()
            error.at(node=place.node, op=place.op, tensor=place.tensor, source=place.source)
        raise error.at(stage=stage, graph=self.name, tensor=worst.tensor)

    # --- the original

    def reference(self) -> Any:
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
                )
        return self._reference

    def steps(self, count: int) -> list[verify.Step]:
        """The original's first calls on the longest stream."""
        if self._steps is None or len(self._steps) < count:
            self._steps = verify.chained_steps(self.reference().run, self.streams()[0], count)
        return self._steps[:count]

    # --- the target

    def final(self) -> Lowered:
        """The graph after all passes, run again when everything came from the cache."""
        if self.lowered is None:
            lowered = self.start()
            for made, _ in self._plan():
                lowered = self._apply(made, lowered).lowered
            self.lowered = lowered
        return self.lowered

    def emit(self) -> Built:
        """The target's artefacts."""
        with self.progress.stage(self.name, self.target.name) as handle:
            started = time.perf_counter()
            try:
                built = self.target.emit(self.final(), self.buckets)
            except SlipwayError as error:
                raise error.at(stage=self.target.name, graph=self.name) from None
            self._keep(stage_key(self.target_key, "built"), {"emitted": b"1"})
            report = StageReport(
                self.name, self.target.name, time.perf_counter() - started, detail=f"{len(built.artifacts)} graphs"
            )
            self._done(handle, report)
        return built

    def _done(self, handle: StageHandle, report: StageReport) -> None:
        self.reports.append(report)
        handle.finish(report)

    def parts(self) -> dict[str, tuple[str, ...]]:
        """What packed states hold."""
        groups = [group for state_map in self.final().state_maps for group in getattr(state_map, "groups", ())]
        return dict(groups)


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


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _code_digest() -> str:
    """Hash over the source of the compiler and of the bundle format."""
    here = Path(__file__).parent
    return stage_key(hash_path(here), hash_path(here.parent / "runtime_lite"))


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


def _check_state_sizes(model: ir.Model, states: Sequence[State], graph: str) -> None:
    """Every state comes back in the size in which it goes in; a frames axis may grow."""
    inputs, outputs = house.inputs_named(model), house.outputs_named(model)
    for state in states:
        fed, back = house.dims_of(inputs[state.input]), house.dims_of(outputs[state.output])
        if fed is None or back is None:
            continue
        differ = [
            axis != state.frames_axis and isinstance(a, int) and isinstance(b, int) and a != b
            for axis, (a, b) in enumerate(zip(fed, back, strict=False))
        ]
        if len(fed) != len(back) or any(differ):
            raise Refused(
                f"state {state.input!r} goes in as {list(fed)} and comes back from {state.output!r} as {list(back)}",
                cure="feed back a state of one size, or declare the growing axis with a window",
                place=Place(stage="capture", graph=graph, tensor=state.input),
            )


def _step_frames(model: ir.Model, states: Sequence[State], axis: str, graph: str) -> int:
    """How many frames a call adds: what the graph joins to a cache along its frames axis."""
    inputs = house.inputs_named(model)
    for state in states:
        if state.frames_axis is None:
            continue
        cache = inputs[state.input]
        for node in house.consumers_of(cache):
            if not house.is_op(node, "Concat"):
                continue
            added = [house.dims_of(value) for value in node.inputs if value is not None and value is not cache]
            sizes = [dims[state.frames_axis] if dims is not None else None for dims in added]
            frames = [size for size in sizes if isinstance(size, int)]
            if frames and len(frames) == len(sizes):
                return sum(frames)
    raise Refused(
        f"no cache is joined along {axis!r} with a fixed number of new frames",
        cure="join each cache with the new frames by concatenation, and fix the number of new frames per call",
    ).at(graph=graph, axis=axis, stage="capture")


class _OnnxReference:
    """An ONNX file as its own original; the runner cuts its caches to the window before each call."""

    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered

    def run(self, feeds: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Per chunk: all outputs, and the states cut to the window."""
        runner = verify.runner_of(self.lowered)
        for feed in feeds:
            outputs = runner.step(feed)
            yield outputs, dict(runner.states)


class _Assembly:
    """Gates on what ships, and the bundle."""

    def __init__(
        self,
        loaded: LoadedRecipe,
        options: BuildOptions,
        progress: Progress,
        builds: Mapping[str, _GraphBuild],
        reports: list[StageReport],
    ) -> None:
        self.loaded, self.options, self.progress = loaded, options, progress
        self.builds, self.reports = builds, reports
        self.parity: list[ParityRow] = []
        self.speed: list[SpeedRow] = []
        self.task: TaskRow | None = None

    def finish(self) -> BuildReport:
        """Look the whole bundle up, or make and check it; then write it."""
        cache = self.options.cache
        keys = [build.target_key for build in self.builds.values()]
        key = stage_key("bundle", self.loaded.text, *keys, json.dumps(self._checkpoints()), self._task_inputs())
        began_s = time.time()
        entry = cache.get_with_dependencies(key) if cache is not None else None  # the code of the task gate
        with staged(self.options.out) as folder:
            if entry is not None:
                self._recall(entry, folder)
            else:
                content = self._make(folder)
                if cache is not None:
                    cache.put_with_dependencies(key, content, own_source_files(), unchanged_since_s=began_s)
            sizes = {
                p.relative_to(folder).as_posix(): p.stat().st_size for p in sorted(folder.rglob("*")) if p.is_file()
            }
            gates.check_budget(self.loaded.recipe.gates.budget, sum(sizes.values()), self.speed)
        return BuildReport(
            str(self.loaded.path),
            str(self.options.out),
            tuple(self.reports),
            tuple(self.parity),
            self.task,
            sizes,
            tuple(self.speed),
        )

    def _checkpoints(self) -> dict[str, str]:
        """SHA-256 of every file that a graph comes from, by the name in the recipe's folder or here."""
        files = sorted({file for build in self.builds.values() for file in build.source_files()})
        names = [file.name for file in files]
        shown = [file.name if names.count(file.name) == 1 else shown_path(file) for file in files]
        return {name: hash_path(file) for name, file in zip(shown, files, strict=True)}

    def _task_inputs(self) -> str:
        files = self.loaded.recipe.data.verification.files
        return stage_key(*(hash_path(self.loaded.locate(file)) for file in files))

    def _recall(self, entry: Path, folder: Path) -> None:
        """The bundle of an earlier build with the same key."""
        with self.progress.stage("", "bundle") as handle:
            started = time.perf_counter()
            found = json.loads((entry / "findings.json").read_text())
            self.parity = [ParityRow(**row) for row in found["parity"]]
            self.speed = [SpeedRow(**row) for row in found["speed"]]
            self.task = TaskRow(**found["task"]) if found["task"] else None
            for path in sorted((entry / "bundle").rglob("*")):
                if path.is_file():
                    target = folder / path.relative_to(entry / "bundle")
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(path.read_bytes())
            self._report(handle, "bundle", started, cached=True)

    def _make(self, folder: Path) -> dict[str, bytes]:
        """Emit, verify and write everything below `folder`; what the cache keeps of it."""
        graphs: dict[str, GraphParts] = {}
        receipts: dict[str, Any] = {}
        for name, build in self.builds.items():
            built = build.emit()
            self.reports.append(build.reports[-1])
            write_files(folder, built.files)
            golden, receipts[name] = self._verify(folder, build, built)
            certificate = canonical_json({"graph": name, "records": build.certificate})
            graphs[name] = GraphParts(
                build.final(), build.parts(), build.buckets, build.target.name, built, certificate, golden
            )
        sources = Sources(
            checkpoint=self._checkpoints(),
            recipe=hashlib.sha256(self.loaded.text.encode()).hexdigest(),
            data={f"verification {name}": build.data_digest for name, build in self.builds.items()},
        )
        files = bundle_files(self.loaded, graphs, {"parity": receipts}, sources, tool_versions())
        write_files(folder, files)
        self._replay(folder)
        self._run_task(folder)
        if self.task is not None:
            receipts["task"] = dataclasses.asdict(self.task)
            files = bundle_files(self.loaded, graphs, {"parity": receipts}, sources, tool_versions())
            write_files(folder, {name: files[name] for name in ("receipts.json", "manifest.json")})
        self._measure(folder, graphs)
        findings = {
            "parity": [dataclasses.asdict(row) for row in self.parity],
            "speed": [dataclasses.asdict(row) for row in self.speed],
            "task": dataclasses.asdict(self.task) if self.task else None,
        }
        kept = {f"bundle/{p.relative_to(folder).as_posix()}": p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        return kept | {"findings.json": canonical_json(findings)}

    def _verify(self, folder: Path, build: _GraphBuild, built: Built) -> tuple[bytes, dict[str, Any]]:
        """Parity, bucket agreement and invariance of one graph's artefacts."""
        smallest: Emitted = built.artifacts[0]
        name = build.name
        with self.progress.stage(name, "verify") as handle:
            started = time.perf_counter()
            steps = build.steps(max(build.gate.chained_steps, 1))
            differences, golden = gates.check_artifact(folder, smallest, name, steps, build.gate, handle.advance)
            rows = gates.parity_rows(name, differences, build.gate)
            self.parity += rows
            buckets = gates.check_buckets(folder, built.artifacts, name, build.streams(), build.gate)
            worst = verify.worst_of(differences, build.gate.max_abs)
            self._report(
                handle, "verify", started, name, max_abs=worst.max_abs, limit=worst.limit(build.gate.max_abs),
                detail=f"{worst.steps} chained steps",
            )  # fmt: skip
        with self.progress.stage(name, "invariance") as handle:
            started = time.perf_counter()
            padding = gates.check_padding(folder, built.artifacts, build.streams()[0])
            self._report(
                handle, "invariance", started, name, detail=f"poison {', '.join(verify.POISONS)}: no bit changed"
            )
        return golden, {
            "chained": [dataclasses.asdict(d) for d in differences],
            "limit": build.gate.max_abs,
            "buckets": buckets,
            "invariance": padding,
        }

    def _replay(self, folder: Path) -> None:
        """Open the bundle as its user will, and run its golden feeds in every bucket."""
        with self.progress.stage("", "replay") as handle:
            started = time.perf_counter()
            with Runtime() as runtime:
                comparisons = list(verify_model(runtime.load(folder)))
            failed = [c for c in comparisons if not c.holds]
            if failed:
                raise InternalError(f"the bundle does not replay its own golden feeds: {failed[0]}").at(stage="replay")
            self._report(handle, "replay", started, detail=f"{len(comparisons)} comparisons through runtime_lite")

    def _run_task(self, folder: Path) -> None:
        gate = self.loaded.recipe.gates.task
        if gate is None:
            return
        name, build = next(iter(self.builds.items()))
        with self.progress.stage(name, "task") as handle:
            started = time.perf_counter()
            self.task = gates.run_task(self.loaded, gate, folder, name, build.reference().run, handle.advance)
            detail = f"{self.task.metric} {self.task.reference:.4f} -> {self.task.bundle:.4f}"
            self._report(handle, "task", started, name, detail=detail)

    def _measure(self, folder: Path, graphs: Mapping[str, GraphParts]) -> None:
        with self.progress.stage("", "speed") as handle:
            started = time.perf_counter()
            for name, graph in graphs.items():
                self.speed += gates.measure_speed(folder, graph.built.artifacts, name)
            costs: dict[str, dict[str, Cost]] = {}
            for row in self.speed:
                costs.setdefault(row.graph, {})[row.sizes] = Cost(row.threads, row.p50_ms, row.p95_ms)
            write_costs(folder, costs)
            self._report(handle, "speed", started)

    def _report(self, handle: StageHandle, stage: str, started: float, graph: str = "", **found: Any) -> None:
        report = StageReport(graph, stage, time.perf_counter() - started, **found)
        self.reports.append(report)
        handle.finish(report)
