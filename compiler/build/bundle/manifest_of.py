"""Makes the manifest and the files of a bundle from the records of its graphs, in the format of runtime_lite."""

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from compiler.base.pieces import Content, sha256_of
from compiler.build.bundle.receipts import RECEIPTS, content_of_receipts
from compiler.errors import Refused
from compiler.graph.model import dims_of
from compiler.graph.sizes.expressions import written
from compiler.graph.stages import Lowered
from compiler.recipe.graph import Graph as GraphSpec
from compiler.recipe.load import LoadedRecipe
from compiler.targets.base import Built
from runtime_lite.errors import BundleRefused
from runtime_lite.format.golden import TOGETHER
from runtime_lite.format.graph_contract import contract_of, with_contract
from runtime_lite.format.initial_value import Initial, array_of_initial, initial_of_array
from runtime_lite.format.manifest import (
    MANIFEST_FILE,
    Artifact,
    Axis,
    FileEntry,
    FrameLimit,
    Graph,
    Latency,
    Manifest,
    Sources,
    State,
    Tensor,
    Voice,
    Wire,
)
from runtime_lite.format.manifest_json import json_from_manifest
from runtime_lite.format.voice_check import check_voice
from runtime_lite.format.wiring_check import check_wiring


@dataclasses.dataclass(frozen=True)
class GraphParts:
    """The records of one graph that the bundle is written from.

    Attributes:
        lowered: the graph after all passes, batch axis still symbolic.
        parts: what each state carries, by state input.
        buckets: sizes per bucketed axis.
        target: target name.
        built: its artefacts.
        certificate: records of every pass, as JSON text.
        golden: content of the golden file.
        proofs: the graphs that the certificate speaks of, by path relative to the bundle.
    """

    lowered: Lowered
    parts: Mapping[str, tuple[str, ...]]
    buckets: Mapping[str, tuple[int, ...]]
    target: str
    built: Built
    certificate: bytes
    golden: bytes
    proofs: Mapping[str, Content] = dataclasses.field(default_factory=dict)

    def with_feeds(self, name: str, content: bytes) -> "GraphParts":
        """Return the parts with recorded feeds beside the engine's plan, on which the engine is verified later."""
        assert self.built.engine is not None
        file = f"{PurePosixPath(self.built.engine.plan).parent}/{name}.feeds.npz"
        built = dataclasses.replace(self.built, files={**self.built.files, file: content})
        return dataclasses.replace(self, built=built)


def graph_record(name: str, graph: GraphParts) -> Graph:
    """Return the manifest's record of one graph."""
    lowered = graph.lowered
    states = {state.input: state for state in lowered.states}
    roles = {state.input: "state" for state in lowered.states} | {state.output: "state" for state in lowered.states}
    for cache in lowered.caches:
        roles[cache.length_input] = "length"
        if cache.mask_input is not None:
            roles[cache.mask_input] = "mask"
    padded = {axis.axis: axis for axis in lowered.padded_axes}
    roles |= {axis.length_input: "length" for axis in lowered.padded_axes}
    inputs = tuple(_tensor(value, roles) for value in lowered.model.graph.inputs)
    inputs = tuple(
        dataclasses.replace(tensor, range=lowered.ranges.get(tensor.name)) if tensor.role == "data" else tensor
        for tensor in inputs
    )
    outputs = tuple(_tensor(value, roles) for value in lowered.model.graph.outputs)
    shapes = {tensor.name: tensor for tensor in inputs}
    fed = {state.output: shapes[state.input] for state in lowered.states}
    outputs = tuple(_as_fed(tensor, fed[tensor.name]) if tensor.name in fed else tensor for tensor in outputs)
    return Graph(
        target=graph.target,
        opset=graph.built.versions["opset"],
        ir_version=graph.built.versions["ir_version"],
        inputs=inputs,
        outputs=outputs,
        axes={
            axis: Axis(sizes, padded[axis].length_input, padded[axis].minimum, padded[axis].is_held)
            if axis in padded
            else Axis(sizes)
            for axis, sizes in graph.buckets.items()
        },
        states=tuple(
            State(
                name=state.input,
                input=state.input,
                output=state.output,
                shape=shapes[state.input].shape,
                dtype=shapes[state.input].dtype,
                initial=_initial(state.initial, shapes[state.input].dtype),
                frames_axis=state.frames_axis,
                cache=state.cache,
                parts=tuple(graph.parts.get(state.input, (state.input,))),
            )
            for state in states.values()
        ),
        caches=lowered.caches,
        artifacts=tuple(Artifact(dict(a.sizes), a.file, a.files) for a in graph.built.artifacts),
        golden=f"golden/{name}.npz",
        rows_independent=lowered.rows_independent,
        certificate=f"certificates/{name}.json",
        batch_axis=lowered.batch_axis,
        engine=graph.built.engine,
        options=dict(graph.built.options),
    )


def _initial(initial: Initial, dtype: str) -> Initial:
    """Return a state's initial value in its own type."""
    return initial_of_array(array_of_initial(initial, dtype))


def _tensor(value: Any, roles: Mapping[str, str]) -> Tensor:
    shape = tuple(dim if isinstance(dim, int) else written(dim) for dim in dims_of(value) or ())
    return Tensor(str(value.name), shape, str(value.dtype.numpy()), roles.get(str(value.name), "data"))


def _as_fed(output: Tensor, given: Tensor) -> Tensor:
    """Return a state's output with the fixed sizes of its input in place of formulas."""
    pairs = zip(output.shape, given.shape, strict=False)
    shape = tuple(
        size if isinstance(own, str) and not own.isidentifier() and isinstance(size, int) else own
        for own, size in pairs
    )
    return dataclasses.replace(output, shape=shape) if len(output.shape) == len(given.shape) else output


def bundle_files(
    loaded: LoadedRecipe,
    graphs: Mapping[str, GraphParts],
    receipts: Mapping[str, Any],
    sources: Sources,
    tools: Mapping[str, str],
    together: bytes | None,
) -> dict[str, Content]:
    """Return every file of the bundle that is hashed, and the manifest; equal inputs give equal bytes.

    Raises:
        Refused: a wire leads from an output to an input that does not fit.
    """
    files: dict[str, Content] = {"recipe.yaml": loaded.text.encode(), RECEIPTS: content_of_receipts(receipts)}
    if together is not None:
        files[TOGETHER] = together
    records = {
        name: dataclasses.replace(
            graph_record(name, graph),
            flush=dict(loaded.recipe.graphs[name].flush),
            flush_values=dict(loaded.recipe.graphs[name].flush_values),
            latency=_latency(loaded.recipe.graphs[name]),
        )
        for name, graph in graphs.items()
    }
    for name, graph in graphs.items():
        files |= {**graph.built.files, **graph.proofs}
        digest = hashlib.sha256(graph.certificate).hexdigest()
        for artifact in {artifact.file: artifact for artifact in records[name].artifacts}.values():
            contract = contract_of(name, records[name], artifact, loaded.recipe.front_end, digest)
            files[artifact.file] = with_contract(bytes(files[artifact.file]), contract)
        files[f"certificates/{name}.json"] = graph.certificate
        files[f"golden/{name}.npz"] = graph.golden
    manifest = Manifest(
        name=loaded.recipe.name,
        graphs=records,
        front_end=dict(loaded.recipe.front_end),
        sha256=sources,
        tools=dict(tools),
        receipts=RECEIPTS,
        recipe="recipe.yaml",
        files={path: FileEntry(len(content), sha256_of(content)) for path, content in sorted(files.items())},
    )
    manifest = _with_voice(loaded, _wired(loaded, manifest))
    return files | {MANIFEST_FILE: json_from_manifest(manifest)}


def _latency(spec: GraphSpec) -> Latency | None:
    return None if spec.latency is None else Latency(spec.latency.of, spec.latency.name)


def _wired(loaded: LoadedRecipe, manifest: Manifest) -> Manifest:
    """Return a manifest with the recipe's wires, each checked against the final graphs."""
    for number, wire in enumerate(loaded.recipe.wiring):
        added = Wire(wire.from_graph, wire.output, wire.to_graph, wire.input)
        manifest = dataclasses.replace(manifest, wiring=(*manifest.wiring, added))
        try:
            check_wiring("wiring", manifest)
        except BundleRefused as error:
            said, _, _ = str(error).partition("; ")
            raise Refused(
                f"{loaded.where('wiring', number)}: {said.partition(': ')[2]}",
                cure="give both the same type, rows and buckets, or a length per row to the input",
            ) from None
    return manifest


def _with_voice(loaded: LoadedRecipe, manifest: Manifest) -> Manifest:
    """Return a manifest with the recipe's voice, checked against the final graphs."""
    voice = loaded.recipe.voice
    if voice is None:
        return manifest
    plain = {name: getattr(voice, name) for name in type(voice).model_fields}
    frames = None if voice.frames is None else FrameLimit(**voice.frames.model_dump())
    record = Voice(**{**plain, "frames": frames, "sampling": voice.sampling.of_runtime()})
    manifest = dataclasses.replace(manifest, voice=record)
    try:
        check_voice("voice", manifest)
    except BundleRefused as error:
        said, _, _ = str(error).rpartition("; ")
        place, _, said = said.partition(": ")
        keys = place.split(".")[1:]
        raise Refused(
            f"{loaded.where('voice', *keys)}: {said}", cure="correct the voice, or the graph that it names"
        ) from None
    return manifest
