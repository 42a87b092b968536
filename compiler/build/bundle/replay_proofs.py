"""Replays the certificates of a bundle against the graphs that it ships, on any machine that has the compiler.

Shows four things of every graph, and of derived steps also that their results are those of the whole sequence:

1. The certificate holds: the independent checker replays every step between the two graphs that it names.
2. The claims of the manifest follow from it: independent rows, true lengths with their smallest, caches, masks.
3. What ships follows from what was proved: the passes after the last proof and the freezing of buckets run again, and
   give the very bytes of every graph file. Passes that rounded or measured on data cannot run again; they are named.
4. The graph that was proved takes and gives what the manifest says.

The replay reports what it cannot show: that the graph before the proof is the original model, whose weights are not
here.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from compiler.base.cache.tool_versions import tool_versions
from compiler.build.bundle.proof_files import LEFT_OUT, drawn
from compiler.build.bundle.recipe_of import recipe_of
from compiler.build.bundle.target_of import target_of
from compiler.checker.check import check
from compiler.checker.graph import Rejected
from compiler.checker.once import KIND, check_once
from compiler.checker.steps import check_steps
from compiler.errors import SlipwayError
from compiler.graph.runners.structure import LEAST_BYTES, WEIGHTS, Structure
from compiler.graph.sizes.expressions import expression, symbol
from compiler.graph.stages import Array, Lowered, PaddedAxis, Pass, State
from compiler.passes import make_pass, with_preferred
from compiler.passes.hoist_invariants import HoistInvariants
from compiler.proof.propagation.rows_alone import AFTER
from compiler.targets import placements
from compiler.targets.static_graphs import write_static
from compiler.targets.weights_file import WeightsFile
from runtime_lite.errors import BundleRefused, show
from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.graph_contract import without_contract
from runtime_lite.format.initial_value import initial_of_lists
from runtime_lite.format.manifest import SCHEMA_VERSION, Graph
from runtime_lite.format.reader import Bundle
from runtime_lite.states import WINDOW

REBUILD = "do not use the bundle, rebuild it"

UNSEEN = "not checkable here: that the graph before the proof is the original model, and its weights"


def verify_proofs(bundle: Bundle) -> Iterator[str]:
    """Replay every proof of a bundle; yield one line per graph that lists what was shown and what was not.

    Raises:
        BundleRefused: a certificate does not hold, belongs to another graph, or proves less than the manifest claims.
    """
    version = bundle.manifest.schema_version
    if version != SCHEMA_VERSION:
        cure = "rebuild the bundle, or replay them with the Slipway that built it"
        refuse(f"{bundle.path}: proofs", f"those of schema {SCHEMA_VERSION}", f"schema {version}", cure)
    for name, graph in bundle.manifest.graphs.items():
        where = f"{bundle.path}: {graph.certificate}"
        try:
            yield _verify(bundle, where, name, graph)
        except (BundleRefused, SlipwayError):
            raise
        except Exception as error:  # noqa: BLE001 - what a certificate holds is not trusted to have any shape
            refuse(where, "a certificate as a build writes it", f"one that fails with {_said(error)}", REBUILD)


def _said(error: Exception) -> str:
    return show(f"{type(error).__name__}: {error}"[:200])


def _verify(bundle: Bundle, where: str, name: str, graph: Graph) -> str:
    content = json.loads(bundle.read_file(graph.certificate))
    if (
        not isinstance(content, dict)
        or set(content) - {"derivation"} != {"graph", "records"}
        or not isinstance(content["records"], list)
    ):
        refuse(where, "a certificate with 'graph' and 'records'", show(content), REBUILD)
    if content["graph"] != name:
        refuse(where, f"a certificate of graph {name!r}", f"one of {show(content['graph'])}", REBUILD)
    steps_told = _replay_derivation(bundle, where, name, content.get("derivation"))
    _replay_once(bundle, where, name, content["records"])
    proofs = [record for record in content["records"] if record.get("kind") != KIND]
    if not proofs:
        _require(where, "a proof of the claims in the manifest", _claims(graph) == _claims_of([]), "none")
        return f"{name}: nothing is padded or batched, nothing to replay"
    steps = 0
    graphs = []
    known = proofs[0]["lowered"]
    along = {cache["axis"] for cache in known["caches"]}
    others = [
        {end: state[end] for end in ("input", "output")} for state in known["states"] if state["cache"] not in along
    ]
    told_of = proofs[0]["replaced"]
    _require(where, f"a proof that these states have one size: {show(others)}", told_of == others, show(told_of))
    for record in proofs:
        before, after = (_load(bundle, where, record["graphs"][side]) for side in ("before", "after"))
        graphs.append((before, after))
        try:
            first, weights = after if record.get(AFTER) else before, {**before.weights, **after.weights}
            steps += check(first.proto, after.proto, record, weights=weights)
        except Rejected as rejected:
            refuse(where, "a certificate that holds", str(rejected), REBUILD)
    told, proved = _claims(graph), _claims_of(proofs)
    if told != proved:
        key = next(key for key in told if told[key] != proved[key])
        refuse(where, f"the manifest's {key} to follow from the proof ({show(proved[key])})", show(told[key]), REBUILD)
    most = {axis: slots for proof in proofs for axis, slots in proof.get("maximum", {}).items()}
    beyond = [axis for axis, slots in most.items() if axis in graph.axes and graph.axes[axis].buckets[-1] > slots]
    _require(where, f"buckets of at most the slots that are proved, {show(most)}", not beyond, show(beyond))
    _check_signature(where, graph, graphs[-1][1].proto)
    again = _build_again(bundle, where, name, graph, proofs, graphs[-1][1])
    return f"{name}: certificate of {steps} steps replayed, the manifest follows from it; {again}; {steps_told}{UNSEEN}"


def _replay_once(bundle: Bundle, where: str, name: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Replay the proofs of values computed once per stream, one for each such pass in the recipe."""
    told = [record for record in records if record.get("kind") == KIND]
    listed = [pass_listed for pass_listed in _passes(bundle, name) if pass_listed.name == HoistInvariants.name]
    _require(where, f"{len(listed)} proofs of what is computed once", len(told) == len(listed), str(len(told)))
    for record, pass_made in zip(told, listed, strict=True):
        inputs = [*pass_made.inputs] if isinstance(pass_made, HoistInvariants) else []
        _require(where, f"a proof of what is computed of {show(inputs)}", record["inputs"] == inputs,
                 show(record["inputs"]))  # fmt: skip
        before, after = (_load(bundle, where, record["graphs"][side]) for side in ("before", "after"))
        try:
            check_once(before.proto, after.proto, record, weights={**before.weights, **after.weights})
        except Rejected as rejected:
            refuse(where, "a certificate of what is computed once that holds", str(rejected), REBUILD)


def _passes(bundle: Bundle, name: str) -> list[Pass]:
    """Return the passes of a graph, as the recipe in the bundle lists them."""
    recipe = recipe_of(bundle)
    given = [each if isinstance(each, dict) else {each: {}} for each in recipe["graphs"][name]["passes"]]
    preferred = target_of(bundle).pass_options
    listed = [(key, with_preferred(key, options or {}, preferred)) for each in given for key, options in each.items()]
    return [make_pass(key, options, placements()) for key, options in listed]


def _replay_derivation(bundle: Bundle, where: str, name: str, told: Mapping[str, Any] | None) -> str:
    """Replay the derivation of steps; return a report text, empty where steps are not derived."""
    recipe = recipe_of(bundle)
    is_derived = recipe["graphs"][name].get("derive_steps") is not None
    _require(where, "a derivation where the recipe derives steps, and there alone", is_derived == (told is not None),
             "none" if told is None else "one")  # fmt: skip
    if told is None:
        return ""
    if any(True for side in ("whole", "steps") for _ in _left_out(bundle, told["graphs"][side]["file"])):
        return "not checkable here: that calls say what the whole sequence says, of weights that were rounded later; "
    whole, steps = (_load(bundle, where, told["graphs"][side]) for side in ("whole", "steps"))
    try:
        weights = {**whole.weights, **steps.weights}
        count = check_steps(whole.proto, steps.proto, told["certificate"], weights=weights)
    except Rejected as rejected:
        refuse(where, "a certificate of derived steps that holds", str(rejected), REBUILD)
    return f"certificate of {count} derived steps replayed; "


def _require(where: str, expected: str, holds: bool, got: str) -> None:
    if not holds:
        refuse(where, expected, got, REBUILD)


def _claims(graph: Graph) -> dict[str, Any]:
    """Return a manifest's claims that need a proof."""
    padded = {n: axis for n, axis in graph.axes.items() if axis.length_input is not None}
    return {
        "axis of independent rows": graph.batch_axis if graph.rows_independent else None,
        "length inputs": {n: axis.length_input for n, axis in sorted(padded.items())},
        "lengths of streams": sorted(n for n, axis in padded.items() if axis.is_held),
        "smallest lengths": {n: axis.minimum for n, axis in sorted(padded.items())},
        "caches": {each.axis: dataclasses.asdict(each.as_kind(WINDOW)) for each in graph.caches},
    }


def _claims_of(proofs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what certificates prove, in the form of `_claims`: rows by the last, lengths by those of padding."""
    batch = {proof["batch"] for proof in proofs}
    sides = {axis: side for proof in proofs for axis, side in proof["sides"].items()}
    lengths = {axis: inputs for proof in proofs for axis, inputs in proof["length_inputs"].items()}
    minimum = {axis: least for proof in proofs for axis, least in proof["minimum"].items()}
    left = sorted(axis for axis, side in sides.items() if side == "left")
    masks = {mask: sizes for proof in proofs for mask, (sizes, side) in proof["mask_inputs"].items() if side == "right"}
    known_axes = [padded_axis for proof in proofs[:1] for padded_axis in proof["lowered"]["padded_axes"]]
    caches = {}
    for known in proofs[0]["lowered"]["caches"] if proofs else ():
        axis, mask = known["axis"], known["mask_input"]
        covered = None if mask not in masks else expression(masks[mask])
        has_mask = mask is None or covered == symbol(axis) + known["step"]
        is_counted = _counted(proofs[0]["lowered"], known) == [
            state for state in proofs[0]["states"] if state["cache"] == axis
        ]
        if sides.get(axis) == known["side"] and minimum[axis] == 0 and has_mask and is_counted:
            caches[axis] = {**known, "length_input": lengths[axis]}
    return {
        "axis of independent rows": batch.pop() if len(batch) == 1 else None,
        "length inputs": {axis: lengths.get(axis) for axis in left},
        "lengths of streams": sorted(padded_axis["axis"] for padded_axis in known_axes if padded_axis.get("is_held")),
        "smallest lengths": {axis: minimum.get(axis) for axis in left},
        "caches": caches,
    }


def _counted(lowered: Mapping[str, Any], cache: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the states along a cache with the runtime's counting of their frames, in a certificate's form."""
    adds = str(cache["step"]) if cache["added"] is None else cache["added"]
    counts = {"cache": cache["axis"], "slots": cache["slots"], "adds": adds}
    along = [each for each in lowered["states"] if each["cache"] == cache["axis"]]
    return [{"input": e["input"], "output": e["output"], "axis": e["frames_axis"], **counts} for e in along]


def _load(bundle: Bundle, where: str, named: Mapping[str, str]) -> Structure:
    """Return a graph of a proof, with its weights in memory."""
    entry = bundle.manifest.files.get(named["file"])
    if entry is None or entry.sha256 != named["sha256"]:
        refuse(where, f"the graph with SHA-256 {show(named['sha256'])}", f"another {show(named['file'])}", REBUILD)
    model = onnx.load_model_from_string(bundle.read_file(named["file"]))
    weights, read = dict[str, Array](), dict[str, bytes]()
    for tensor in model.graph.initializer:
        told = {entry.key: entry.value for entry in tensor.external_data}
        if not told:
            continue
        if told["location"] == LEFT_OUT:
            array = drawn(tensor, float(told["low"]), float(told["high"]))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
            continue
        file = (
            f"graphs/{told['location'][10:]}"
            if told["location"].startswith("../graphs/")
            else f"proofs/{told['location']}"
        )
        data = read.setdefault(file, b"") or bundle.read_file(file)
        read[file] = data
        offset, length = int(told["offset"]), int(told["length"])
        _require(where, f"{length} bytes at {offset} in {file}", 0 <= offset <= len(data) - length, str(len(data)))
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        if length < LEAST_BYTES or ir.DataType(tensor.data_type) not in WEIGHTS:
            tensor.raw_data = data[offset : offset + length]
            continue
        content = np.frombuffer(data, np.uint8, length, offset)
        digest = hashlib.sha256(content.data).hexdigest()
        weights[digest] = content.view(ir.DataType(tensor.data_type).numpy()).reshape(tuple(tensor.dims))
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=digest)
    return Structure(model, weights)


def _check_signature(where: str, graph: Graph, model: onnx.ModelProto) -> None:
    """Require that the proved graph has the manifest's inputs and outputs of role data, with equal shapes."""
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in [*model.graph.input, *model.graph.output]
    }
    axes = set(graph.axes)
    for tensor in (*graph.inputs, *graph.outputs):
        if tensor.role != "data":
            continue
        proved = shapes.get(tensor.name)
        wanted = list(tensor.shape)
        known = proved is not None and len(proved) == len(wanted)
        same = known and all(
            theirs == ours or (ours not in axes and isinstance(ours, str) and isinstance(theirs, str))
            for theirs, ours in zip(proved or [], wanted, strict=True)
        )
        _require(where, f"a proof of a graph with {tensor.name!r} of shape {show(wanted)}", same, show(proved))


def unseen_words(measured: Sequence[str], target: str) -> str:
    """Return what cannot be checked of a graph whose proof lacks weights, or is followed by passes that measured.

    Args:
        measured: names of the passes that rounded or measured on data; none where the target alone rounds.
        target: name of the target.
    """
    made = f"{', '.join(measured)} made of the proved graph on measured data"
    return f"not checkable here: what {made if measured else f'the rounding of {target} made of the proved graph'}"


def _build_again(
    bundle: Bundle, where: str, name: str, graph: Graph, proofs: Sequence[Mapping[str, Any]], model: Structure
) -> str:
    """Repeat the passes after the last proof, and compare every graph file with the result."""
    passes = _passes(bundle, name)
    names = [pass_made.name for pass_made in passes]
    first, last = (
        max(position for position, pass_name in enumerate(names) if pass_name == proofs[end]["pass"]) for end in (0, -1)
    )
    measured = [pass_made.name for pass_made in passes[first + 1 :] if pass_made.lossy or pass_made.expensive]
    unseen = unseen_words(measured, graph.target)
    if any(pass_made.lossy or pass_made.expensive for pass_made in passes[last + 1 :]):
        return unseen
    if any(True for _ in _left_out(bundle, proofs[-1]["graphs"]["after"]["file"])):
        return unseen
    lowered = _lowered(name, proofs[-1]["lowered"], model)
    for pass_made in passes[last + 1 :]:
        lowered = pass_made.apply(lowered).lowered
    shown = {(state.input, state.output, state.frames_axis, state.cache, state.initial) for state in graph.states}
    carried = {(state.input, state.output, state.frames_axis, state.cache, state.initial) for state in lowered.states}
    unlike = sorted(map(str, shown ^ carried))
    _require(where, "the states that were proved, and what each of them begins with", not unlike, show(unlike))
    shown_caches, made_caches = (
        [dataclasses.asdict(cache) for cache in told] for told in (graph.caches, lowered.caches)
    )
    _require(where, f"the caches {show(made_caches)}", shown_caches == made_caches, show(shown_caches))
    buckets = {axis: bounds.buckets for axis, bounds in graph.axes.items()}
    count = len({artifact.file for artifact in graph.artifacts})
    shipped = {artifact.file: without_contract(bundle.read_file(artifact.file)) for artifact in graph.artifacts}
    shipped |= {path: bundle.read_file(path) for artifact in graph.artifacts for path in artifact.files}
    weights = None if graph.latency is None else _shared_weights(graph, shipped)
    opens_rows = count < len(graph.artifacts)
    built = write_static(target_of(bundle), lowered, buckets, opens_rows=opens_rows, weights=weights)
    for file in sorted(built.files.keys() | shipped.keys()):
        if built.files.get(file) != shipped.get(file):
            other = {
                tool: version for tool, version in tool_versions().items() if bundle.manifest.tools.get(tool) != version
            }
            got = "another content" + (f" (made here with {show(other)})" if other else "")
            refuse(where, f"{file} as it follows from the graph that was proved", got, REBUILD)
    return f"{count} graph files follow from it byte for byte{f'; {unseen}' if measured else ''}"


def _shared_weights(graph: Graph, shipped: Mapping[str, bytes]) -> WeightsFile:
    """Return the weights file that a graph shares with others, as it ships; only shipped weights are found in it."""
    [path] = {path for artifact in graph.artifacts for path in artifact.files}
    content = [shipped[artifact.file] for artifact in graph.artifacts]
    return WeightsFile.read_by(PurePosixPath(path).name, shipped[path], content)


def _left_out(bundle: Bundle, file: str) -> Iterator[str]:
    """Yield the names of the weights that are left out of a proof's graph."""
    model = onnx.load_model_from_string(bundle.read_file(file))
    for tensor in model.graph.initializer:
        if any(entry.value == LEFT_OUT for entry in tensor.external_data):
            yield tensor.name


def _lowered(name: str, known: Mapping[str, Any], model: Structure) -> Lowered:
    """Return the graph after a proof, ready for the passes that follow."""
    fields = {field.name for field in dataclasses.fields(Lowered)}
    rest = {key: known[key] for key in ("batch_axis", "is_padded", "rows_independent") if key in fields}
    return Lowered(
        name,
        model.model(),
        states=tuple(map(_state, known["states"])),
        caches=tuple(CacheAxis(**cache) for cache in known["caches"]),
        data_outputs=tuple(known["data_outputs"]),
        padded_axes=tuple(map(_padded_axis, known["padded_axes"])),
        **rest,
    )


def _state(known: Mapping[str, Any]) -> State:
    state = State(**known)
    return dataclasses.replace(state, initial=initial_of_lists(state.initial))


def _padded_axis(known: Mapping[str, Any]) -> PaddedAxis:
    axis = PaddedAxis(**known)
    return dataclasses.replace(
        axis,
        mask_inputs=tuple(axis.mask_inputs),
        pad_mask_inputs=tuple(axis.pad_mask_inputs),
        length_inputs=tuple(axis.length_inputs),
    )
