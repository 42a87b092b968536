"""Captures a model's graphs from a factory's module or from ONNX files, and keeps the result in the stage cache.

Capture is a stage of its own: its result is kept with a record of all that the user's code has read, so that neither
the framework nor that code is imported while nothing has changed.
"""

import functools
import gc
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from compiler.base.cache.dependencies import ABSENT, hash_path
from compiler.base.cache.results import Code, StageResults
from compiler.base.cache.store import stage_key
from compiler.base.interruption import shielded
from compiler.base.pieces import Content
from compiler.base.records.build_report import StageReport
from compiler.build.capture.constant_inputs import constants_of, fix_inputs
from compiler.build.capture.derived_steps import DerivedModel, derived_model
from compiler.build.capture.equal_heads import merge_equal_heads
from compiler.build.capture.trial_calls import TrialCalls
from compiler.build.report.progress import Progress
from compiler.errors import RecipeError, SlipwayError
from compiler.graph import model as graphs
from compiler.graph.runners.mapped_weights import map_weights, unload_weights
from compiler.graph.runners.stored_graph import read_stored, stored
from compiler.graph.runners.structure import Structure, split
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Source
from compiler.recipe.load import RecipeLocation
from compiler.recipe.stage_inputs import CaptureInputs, key_of
from compiler.recipe.user_code.streams import locate_files
from runtime_lite.format.canonical_json import canonical_json

Models = tuple[ir.Model, ir.Model | None]
"""Of the call that runs for every chunk, and of the one that starts a stream, if it is another."""

MOST_LEFT_BYTES = 2**26
"""Weights of a captured module that are larger together are looked for and freed at once."""

CALLS = ("later", "first")
"""What the files of both are called in the cache."""


def source_files(location: RecipeLocation, graph: str, spec: Graph) -> list[Path]:
    """Return checkpoints, ONNX files with their external weights, and files that the recipe names."""
    found: list[Path] = []
    for key in ("source", "first_call"):
        source: Source | None = getattr(spec, key)
        if source is None:
            continue
        found += [] if source.checkpoint is None else [location.locate(source.checkpoint)]
        found += [] if source.onnx is None else _with_weights(location.locate(source.onnx))
        found += [location.locate(given.constant) for given in spec.inputs.values() if isinstance(given.constant, str)]
        found += locate_files(location, source.files, "graphs", graph, key)
    return found


def hashes_of(files: list[Path]) -> tuple[str, ...]:
    """Return hashes of the contents of files."""
    return tuple(hash_path(path) if path.exists() else ABSENT for path in files)


def _with_weights(graph: Path) -> list[Path]:
    """Return an ONNX file and the files beside it that hold its weights; errors are left to capture."""
    try:
        model = onnx.load(graph, load_external_data=False)
    except Exception:  # noqa: BLE001  (whatever a file of unknown origin makes the parser raise)
        return [graph]
    external = [tensor.external_data for tensor in model.graph.initializer if tensor.external_data]
    names = {entry.value for entries in external for entry in entries if entry.key == "location"}
    return [graph, *(graph.parent / name for name in sorted(names) if (graph.parent / name).is_file())]


class CapturedGraphs:
    """The graphs of one source.

    Args:
        location: the recipe's paths and keys.
        inputs: the inputs of the stage.
        results: the cached results of earlier builds.
        progress: prints the stage.
        is_data: paths whose content is in a key already.
        before_export: runs the first calls of a module that is about to be exported, and checks their results.

    Attributes:
        digest: of the graphs, and of the modules that the factories returned.
    """

    def __init__(
        self,
        location: RecipeLocation,
        inputs: CaptureInputs,
        results: StageResults,
        progress: Progress,
        is_data: Callable[[str], bool],
        before_export: Callable[[TrialCalls], None],
    ) -> None:
        self.location, self.inputs, self.graph, self.before_export = location, inputs, inputs.graph, before_export
        self._models: Models | None = None
        self._entry: Path | None = None
        self._derived: DerivedModel | None = None
        self._steps: Structure | None = None
        key = key_of(inputs)
        with progress.stage(self.graph, "capture") as handle:
            started, why = time.perf_counter(), ""
            self._entry = results.find(key)
            if self._entry is not None:
                self.digest = (self._entry / "digest").read_text()
            else:
                self._models, module_digest = self._capture()
                if self.inputs.spec.share_heads is not None:
                    merge_equal_heads(self._models[0], self.graph, self.inputs.spec.without_constants)
                if self.inputs.spec.derive_steps is not None:
                    self._models = self._derive(self._models[0]), None
                whole = None if self._derived is None else self._derived.whole
                if map_weights(*self._models, whole) > MOST_LEFT_BYTES:
                    gc.collect()  # the module, which the exporter leaves in cycles of references
                graphs = [split(model) for model in self._models if model is not None]
                self._steps = graphs[0] if self._derived is not None else None  # passes change the graph itself
                self.digest = stage_key(*(graph.content for graph in graphs), module_digest)
                files: dict[str, Content] = {"digest": self.digest.encode(), **self._derivation()}
                for graph, call in zip(graphs, CALLS, strict=False):
                    files |= stored(graph, call)
                why = results.keep(key, files, self.code(), is_data)
                unload_weights()
            seconds, is_cached = time.perf_counter() - started, self._entry is not None
            told = "; ".join(note for note in (self._told(), why) if note)
            handle.finish(StageReport(self.graph, "capture", seconds, cached=is_cached, detail=told))

    def _derive(self, model: ir.Model) -> ir.Model:
        self._derived = derived_model(model, self.graph, self.inputs.spec.without_constants)
        return self._derived.model

    def _derivation(self) -> dict[str, Content]:
        """Return the stored content of a graph whose steps are derived; empty for other graphs."""
        if self._derived is None:
            return {}
        return {
            **stored(split(self._derived.whole), "whole"),
            "derivation.json": canonical_json(self._derived.certificate),
        }

    def _told(self) -> str:
        if self._derived is None:
            return ""
        caches = len(self._derived.certificate["caches"])
        ahead = int(self._derived.certificate["look_ahead"])
        told = f", which look ahead by up to {ahead} frames of their own chunk" if ahead else ""
        steps, why = self.inputs.spec.derive_steps, self._derived.certificate["why_it_ends"]
        if steps is not None and steps.forget:
            told += f"; streams end with the window: {why}" if why else "; streams go on without end"
        return f"steps derived with {caches} caches{told}, certificate of {self._derived.steps} steps replayed"

    def whole(self) -> ir.Model:
        """Return the graph over whole sequences that steps were derived from; cached values are among its outputs."""
        if self._derived is not None:
            return graphs.clone(self._derived.whole)
        assert self._entry is not None
        return read_stored(self._entry / "whole.onnx")

    def certificate(self) -> dict[str, Any]:
        """Return the certificate of the derived steps."""
        if self._derived is not None:
            return self._derived.certificate
        assert self._entry is not None
        found: dict[str, Any] = json.loads((self._entry / "derivation.json").read_bytes())
        return found

    def derivation(self) -> tuple[Structure, Structure, dict[str, Any]] | None:
        """Return the graph over whole sequences, the derived steps and their certificate; None for other graphs."""
        if self.inputs.spec.derive_steps is None:
            return None
        certificate, steps = self.certificate(), self._steps
        if steps is None:
            assert self._entry is not None
            steps = split(read_stored(self._entry / f"{CALLS[0]}.onnx"))
        whole, left = self.whole(), {each["output"] for each in certificate["caches"]}
        whole.graph.outputs[:] = [value for value in whole.graph.outputs if value.name not in left]
        graphs.prune(whole)
        return split(whole), steps, certificate

    def models(self) -> Models:
        """Return the graphs, read from the cache where an earlier build has captured them."""
        if self._models is None:
            assert self._entry is not None
            later, first = (self._entry / f"{call}.onnx" for call in CALLS)
            self._models = read_stored(later), read_stored(first) if first.is_file() else None
        return self._models

    def code(self) -> Code:
        """Return, by factory, whether the recipe names the files that it reads."""
        sources = (self.inputs.spec.source, self.inputs.spec.first_call)
        return {each.factory: bool(each.files) for each in sources if each is not None and each.factory is not None}

    def _capture(self) -> tuple[Models, str]:
        """Return the graphs of both calls, and a digest of the modules they were captured from."""
        with shielded():  # a signal in the middle of importing the framework would end the process without a word
            from compiler.build.capture import module_call, module_contents, torch_module, unsteady_original
            from compiler.build.capture.fixed_arguments import load_fixed

        spec = self.inputs.spec
        source, first = spec.source, spec.first_call
        if first is not None and (first.onnx is None) != (source.onnx is None):
            where = self.location.where("graphs", self.graph, "first_call")
            kinds = ("an ONNX file", "a factory") if source.onnx is None else ("a factory", "an ONNX file")
            raise RecipeError(
                f"{where}: expected {kinds[1]} as in source, got {kinds[0]}", cure="give both calls in the same form"
            )
        if source.onnx is not None:
            model = torch_module.capture_onnx(self.location.locate(source.onnx), self.graph, spec)
            fix_inputs(model, constants_of(self.location, self.graph, spec))
            return (model, None if first is None or first.onnx is None else self._first_onnx(first.onnx)), ""
        module = load_fixed(self.location, self.graph, spec, "source")
        digest = module_contents.digest_of_module(module)
        first_module = None if first is None else load_fixed(self.location, self.graph, spec, "first_call")
        spec = spec.without_constants
        called = functools.partial(module_call.called, outputs=spec.outputs, states=spec.fed_back)
        later = functools.partial(called, module)
        starts = None if first_module is None else functools.partial(called, first_module)
        trial = TrialCalls(self.graph, spec, later, starts)
        try:
            self.before_export(trial)
        except SlipwayError as error:
            unsteady_original.name_draws(error, functools.partial(self.before_export, trial))
            raise
        model = torch_module.capture_module(module, self.graph, spec, list(spec.inputs))
        if first_module is None:
            return (model, None), digest
        digest = stage_key(digest, module_contents.digest_of_module(first_module))
        first_model = torch_module.capture_module(first_module, self.graph, spec, torch_module.first_call_inputs(spec))
        return (model, first_model), digest

    def _first_onnx(self, path: str) -> ir.Model:
        from compiler.build.capture import torch_module

        spec = self.inputs.spec
        inputs = {name: spec.inputs[name] for name in torch_module.first_call_inputs(spec)}
        model = torch_module.capture_onnx(
            self.location.locate(path), self.graph, spec.model_copy(update={"inputs": inputs})
        )
        fix_inputs(model, constants_of(self.location, self.graph, spec))
        return model
