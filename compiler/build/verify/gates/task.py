"""Decodes recordings with the original and with the bundle, and checks the increase of the task metric."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, SupportsFloat

import numpy as np

import runtime_lite
from compiler.base.records.findings import Finding, at_most
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.errors import DataError, GateFailed, Location
from compiler.graph.runners.ahead import ahead
from compiler.graph.runners.stream import Advance
from compiler.graph.stages import Array, Feed
from compiler.recipe.gates import TaskGate
from compiler.recipe.graph import Graph
from compiler.recipe.load import RecipeLocation
from compiler.recipe.record import Recipe
from compiler.recipe.user_code.callables import call, function_name, importable, resolve
from compiler.recipe.user_code.streams import check_stream

CURE = "see the findings on parity for the tensor that differs most"


def task_functions(location: RecipeLocation, gate: TaskGate) -> dict[str, Callable[..., Any]]:
    """Return the functions that a task gate names.

    Raises:
        RecipeError: a function does not exist.
    """
    folders = location.search_path()
    return {
        key: resolve(getattr(gate, key), folders, location.where("gates", "task", key))
        for key in ("recordings", "decode", "metric")
    }


@dataclasses.dataclass(frozen=True)
class _Task:
    """A task gate with its functions, and the graph that hears its recordings."""

    gate: TaskGate
    where: str
    functions: Mapping[str, Callable[..., Any]]
    graph: str
    spec: Graph

    @classmethod
    def of(cls, shipped: Shipped) -> "_Task":
        loaded, gate = shipped.loaded, shipped.loaded.recipe.gates.task
        assert gate is not None
        functions = task_functions(loaded.location, gate)
        spec = loaded.recipe.graphs[shipped.name]
        return cls(gate, loaded.where("gates", "task"), functions, shipped.name, spec)

    @property
    def metric(self) -> str:
        """Return the name of the metric, for messages."""
        return function_name(self.functions["metric"]).split(":")[-1]

    def recordings(self) -> list[Any]:
        return _draw_recordings(self.functions["recordings"], self.spec, self.where)

    def text(self, outputs: Sequence[Mapping[str, Array]]) -> str:
        return decoded(self.functions["decode"], outputs, self.where)

    def value(self, references: Sequence[str], said: Sequence[str]) -> float:
        return measured(self.functions["metric"], references, said, self.where)


@dataclasses.dataclass(frozen=True)
class TaskResult:
    """The task metric, original against bundle; smaller is better. Receipts hold it as it is."""

    metric: str
    reference: float
    bundle: float
    increase: float
    limit: float
    recordings: int
    identical: int

    def findings(self, graph: str, gate: TaskGate) -> Iterator[Finding]:
        """Yield the findings that the recipe requires of the task."""
        yield at_most(
            "task.max_increase",
            graph,
            self.metric,
            limit=self.limit,
            measured=self.increase,
            detail=f"original {self.reference:.4g}, bundle {self.bundle:.4g}, {self.recordings} recordings, "
            f"{self.identical} of them identical",
            figures={
                "original": self.reference,
                "bundle": self.bundle,
                "recordings": self.recordings,
                "identical": self.identical,
            },
        )
        if gate.identical:
            same = self.identical == self.recordings
            yield Finding("task.identical", graph, self.metric, self.identical, self.recordings, same, is_least=True)


def _promised(recipe: Recipe, graph: str) -> Iterator[Finding]:
    gate = recipe.task_of(graph)
    if gate is not None:
        yield Finding("task.max_increase", graph, limit=gate.max_increase)
        if gate.identical:
            yield Finding("task.identical", graph)


def _check(shipped: Shipped, advance: Advance) -> Checked:
    """Decode every recording with the original and with the bundle, and compare metric and text.

    Raises:
        RecipeError: a function of the gate does not exist.
        DataError: a function raises, or there are no recordings.
        GateFailed: the metric rose by more than allowed, or a text differs where identity is required.
    """
    with importable(shipped.loaded.search_path()):
        task = _Task.of(shipped)
        recordings = task.recordings()
        shipped.original.check_apart([recording.chunks for recording in recordings], "gates", "task", "recordings")
        with runtime_lite.Runtime() as runtime:
            model = runtime.load(shipped.folder, shipped.executors)
            texts = _texts(task, model, recordings, shipped, advance)
            others = _said_otherwise_together(task, model, recordings, texts["bundle"])
        references = [recording.reference for recording in recordings]
        original, bundle = (task.value(references, texts[key]) for key in ("original", "bundle"))
    told = zip(recordings, texts["original"], texts["bundle"], strict=True)
    differing = [recording.name for recording, a, b in told if a != b or recording.name in others]
    identical = len(recordings) - len(differing)
    result = TaskResult(
        task.metric, original, bundle, bundle - original, task.gate.max_increase, len(recordings), identical
    )
    findings = list(result.findings(shipped.name, task.gate))
    _require(result, task.gate, differing, shipped.name, findings)
    detail = f"{result.metric} {result.reference:.4f} -> {result.bundle:.4f}"
    return Checked(findings, detail, {"task": dataclasses.asdict(result)})


def _texts(
    task: _Task, model: runtime_lite.Model, recordings: Sequence[Any], shipped: Shipped, advance: Advance
) -> dict[str, list[str]]:
    """Return the texts that original and bundle decode from every recording, run alone."""
    texts: dict[str, list[str]] = {"original": [], "bundle": []}
    originals = ahead([outputs for outputs, _ in shipped.original.run(each.chunks)] for each in recordings)
    for count, (recording, original) in enumerate(zip(recordings, originals, strict=True), start=1):
        texts["original"].append(task.text(original))
        texts["bundle"].append(task.text(_answers(model, task.graph, recording.chunks)))
        advance(count, len(recordings))
    return texts


def _said_otherwise_together(
    task: _Task, model: runtime_lite.Model, recordings: Sequence[Any], alone: Sequence[str]
) -> set[str]:
    """Return the names of utterances whose text differs between a batch and a run alone."""
    if not task.spec.has_utterances:
        return set()
    together = _in_batches(model, task.graph, [list(each.chunks) for each in recordings])
    return {recordings[number].name for number, outputs in together if task.text(outputs) != alone[number]}


def _answers(model: runtime_lite.Model, graph: str, chunks: Sequence[Feed]) -> list[dict[str, Array]]:
    """Return the bundle's outputs of one recording, run as a user would."""
    if not model.runner(graph).graph.states:
        return [model.run(chunk, graph) for chunk in chunks]
    with model.open_stream(graph) as stream:
        return [stream.push(chunk) for chunk in chunks]


def _in_batches(
    model: runtime_lite.Model, graph: str, recordings: Sequence[Sequence[Feed]]
) -> Iterator[tuple[int, list[dict[str, Array]]]]:
    """Yield the number and outputs of every recording, once per batch bucket, beside random partners."""
    chunks = [(number, chunk) for number, recording in enumerate(recordings) for chunk in recording]
    record = model.runner(graph).graph
    for rows in () if record.batch_axis is None else record.row_buckets:
        order = np.random.default_rng(rows).permutation(len(chunks))
        answers: list[dict[str, Array]] = [{} for _ in chunks]
        for start in range(0, len(chunks), rows):
            group = order[start : start + rows]
            batch_answers = model.run_many([chunks[index][1] for index in group], graph)
            for index, outputs in zip(group, batch_answers, strict=True):
                answers[index] = outputs
        for number in range(len(recordings)):
            yield number, [answer for (owner, _), answer in zip(chunks, answers, strict=True) if owner == number]


def _draw_recordings(function: Callable[..., Any], spec: Graph, where: str) -> list[Any]:
    """Return all recordings, each with a name, chunks that fit the graph, and a reference text."""
    name = function_name(function)
    drawn: list[Any] = call(lambda: list(function()), where, DataError, named=function)
    if not drawn:
        raise DataError(f"{where}: expected recordings from {name}, got none", cure="yield recordings")
    for index, recording in enumerate(drawn):
        missing = [key for key in ("name", "chunks", "reference") if not hasattr(recording, key)]
        if missing:
            raise DataError(
                f"{where}: expected recordings of {name} to have name, chunks and reference, got no {missing[0]} in "
                f"number {index}, {type(recording).__name__}",
                cure="yield records with the three attributes",
            )
        check_stream(recording.chunks, spec, f"{where}: recording {recording.name} of {name}")
    return drawn


def decoded(function: Callable[..., Any], outputs: Sequence[Mapping[str, Array]], where: str) -> str:
    """Return the text that the task's decoder returns for a recording's outputs.

    Raises:
        DataError: the decoder raises, or returns no text.
    """
    said = call(function, where, DataError, outputs)
    if not isinstance(said, str):
        kind = type(said).__name__
        raise DataError(f"{where}: expected {function_name(function)} to return text, got {kind}", cure="return a str")
    return said


def measured(function: Callable[..., Any], references: Sequence[str], said: Sequence[str], where: str) -> float:
    """Return the task's metric.

    Raises:
        DataError: the metric raises, or returns no finite number.
    """
    value = call(function, where, DataError, references, said)
    if isinstance(value, bool | str) or not isinstance(value, SupportsFloat) or not np.isfinite(float(value)):
        raise DataError(
            f"{where}: expected {function_name(function)} to return a finite number, got {value!r}",
            cure="return a float, smaller is better",
        )
    return float(value)


def _require(
    found: TaskResult, gate: TaskGate, differing: Sequence[str], graph: str, findings: Sequence[Finding]
) -> None:
    if not findings[0].holds:
        message = (
            f"expected {found.metric} to rise by at most {gate.max_increase:g}, got {found.increase:g} "
            f"({found.reference:.4f} to {found.bundle:.4f})"
        )
    elif gate.identical and differing:
        message = f"expected {found.recordings} identical results, got {len(differing)} others: {differing[:3]}"
    else:
        return
    raise GateFailed(message, cure=CURE, place=Location(stage="task", graph=graph), findings=findings)


def _wanted(recipe: Recipe, shipped: Shipped) -> bool:
    """Whether the metric is computed: a simulator takes seconds for a chunk, and a task has thousands."""
    return recipe.task_of(shipped.name) is not None and not shipped.simulated


TASK = Gate("task", _check, _promised, _wanted, phases=("bundle", "engines"))
