"""Defines the frozen Recipe record: what to build, from what, and which promises the build must keep."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Self

import pydantic
from pydantic import Field

from compiler.base.did_you_mean import did_you_mean
from compiler.recipe.field_types import FilePath, Name, ObjectName, Positive, Record, disagree
from compiler.recipe.gates import Gates, TaskGate
from compiler.recipe.graph import Graph
from compiler.recipe.latencies import check_latencies
from compiler.recipe.voice import Voice, check_voice
from compiler.recipe.wiring import Wire, check_wiring

FrontEndValue = int | float | str | bool


class Feeds(Record):
    """A data generator: a callable without arguments that yields streams; a stream is an iterable of feeds.

    Attributes:
        feeds: one generator, or one per graph.
        count: streams taken from it.
        files: folders and files the feeds are made from; their content is part of the cache key.
    """

    feeds: ObjectName | dict[Name, ObjectName]
    count: Positive
    files: tuple[FilePath, ...] = ()

    def for_graph(self, graph: str) -> str:
        """Return the generator of one graph's feeds."""
        return self.feeds if isinstance(self.feeds, str) else self.feeds[graph]


class Data(Record):
    """Feeds by their roles; no feed may have two of them.

    Attributes:
        verification: what gates run; the recordings of the task have this role as well.
        calibration: where passes take ranges and noise from.
        development: where passes measure the task to choose by it; None measures it on the calibration data.
        distillation: what models with `share_heads` are trained on.
    """

    verification: Feeds
    calibration: Feeds | None = None
    development: Feeds | None = None
    distillation: Feeds | None = None


class Target(Record):
    """One artefact kind to build; written `- kind: name`, its options beside it.

    Attributes:
        kind: a target.
        options: by name; each target has its own.
    """

    kind: Name
    options: dict[str, Any] = Field(default_factory=dict)


class Recipe(Record):
    """Everything a build needs.

    Attributes:
        name: the bundle's name.
        graphs: by name.
        data: feeds to verify, to calibrate and to choose with.
        targets: artefact kinds to build; a bundle for each that ships.
        gates: the promises of the build.
        front_end: scalars a user of the bundle must know, e.g. `sample_rate_hz`.
        wiring: outputs that other graphs of the bundle take; whoever runs the bundle runs them together.
        voice: which graphs make sound of a text, as one request of the runtime.
        source_lines: whether graphs, proofs and certificates of the bundle name, for each node, the line of the model's
            source: file, function, module and the text of the line. Without it nothing that ships has any of it.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=64)]
    graphs: Annotated[dict[Name, Graph], Field(min_length=1)]
    data: Data
    targets: Annotated[tuple[Target, ...], Field(min_length=1)]
    gates: Gates
    front_end: dict[str, FrontEndValue] = Field(default_factory=dict)
    wiring: tuple[Wire, ...] = ()
    voice: Voice | None = None
    source_lines: bool = True

    @pydantic.model_validator(mode="after")
    def _agree(self) -> Self:
        _check_graph_names(("gates", "parity"), self.gates.parity, self.graphs)
        for name, gate in self.gates.parity.items():
            if gate.drift is not None and all(
                not input_spec.is_carried for input_spec in self.graphs[name].inputs.values()
            ):
                cure = "drop drift, or declare the states"
                message = "expected a graph that hands states on for drift, got none of them"
                raise disagree(message, cure, "gates", "parity", name, "drift")
        heard = None if self.gates.task is None else self.gates.task.graph
        if heard is not None and heard not in self.graphs:
            message = f"expected the name of a graph, got {heard!r}"
            raise disagree(message, did_you_mean(heard, self.graphs), "gates", "task", "graph")
        if self.data.development is not None and self.data.calibration is None:
            message = "expected data.calibration beside it, as passes that choose record ranges there, got none"
            raise disagree(message, "write calibration, or drop development", "data", "development")
        shared = {name: graph for name, graph in self.graphs.items() if graph.share_heads is not None}
        if bool(shared) != (self.data.distillation is not None):
            expected, got = (
                ("data.distillation", "none") if shared else ("share_heads in a graph", "none beside data.distillation")
            )
            cure = "write both, or none of them"
            place = ("graphs", next(iter(shared)), "share_heads") if shared else ("data", "distillation")
            raise disagree(f"expected {expected}, got {got}", cure, *place)
        if self.data.distillation is not None and isinstance(self.data.distillation.feeds, dict):
            _check_graph_names(("data", "distillation", "feeds"), self.data.distillation.feeds, shared)
        for key in ("verification", "calibration", "development"):
            feeds = getattr(self.data, key)
            if feeds is not None and isinstance(feeds.feeds, dict):
                _check_graph_names(("data", key, "feeds"), feeds.feeds, self.graphs)
        check_wiring(self.wiring, self.graphs)
        check_latencies(self.graphs, self.wiring)
        if self.voice is not None:
            check_voice(self.voice, self.graphs)
        if bool(self.wiring) != (self.gates.pipeline is not None):
            expected, got = ("gates.pipeline", "none") if self.wiring else ("wiring", "gates.pipeline without it")
            message = f"expected {expected} for graphs that are held to a promise together, got {got}"
            raise disagree(
                message, "write both, or none of them", *(("wiring",) if self.wiring else ("gates", "pipeline"))
            )
        return self

    def task_of(self, graph: str) -> TaskGate | None:
        """Return the task gate, if it runs recordings through that graph; else None."""
        task = self.gates.task
        return task if task is not None and graph == (task.graph or next(iter(self.graphs))) else None


def _check_graph_names(keys: tuple[str, ...], got: Collection[str], graphs: Mapping[str, Graph]) -> None:
    for name in got:
        if name not in graphs:
            raise disagree(f"expected the name of a graph, got {name!r}", did_you_mean(name, graphs), *keys, name)
    for name in graphs:
        if name not in got:
            raise disagree(f"expected an entry for every graph, got none for {name!r}", f"add {name}", *keys)
