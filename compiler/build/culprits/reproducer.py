"""Writes a folder that reproduces a defect: the faulty subgraphs before and after the pass, with their inputs.

    before.onnx   the subgraphs as they were           findings.json  nodes, source lines, statistics, limits
    after.onnx    the subgraphs as the pass left them  reproduce.py   runs both with numpy and onnxruntime alone,
    inputs.npz    what they read, one call                           exits with 1 while they differ

Large weights of a graph lie beside it, in `before.weights` and `after.weights`. Where the pass has reshaped what is to
blame, as it may do with states, `expected/...` of the inputs takes the place of `before.onnx`.

The folder stands beside the bundle, as `<bundle>.failure`; it is replaced as a whole by the next failure, and removed
by the next build that succeeds. Nothing in it depends on time or place.
"""

import dataclasses
import io
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler.base.pieces import Content, write_files
from compiler.build.bundle.staged_folder import staged
from compiler.build.culprits.records import Culprit, Findings
from compiler.errors import RecipeError
from compiler.graph import model as graphs
from compiler.graph.runners.forced_values import TeacherForcedRun, read_by, section_of
from compiler.graph.runners.half_precision import with_rounding
from compiler.graph.runners.stored_graph import stored
from compiler.graph.runners.structure import split
from compiler.graph.stages import Array, Lowered
from runtime_lite.format.canonical_json import canonical_json

SCRIPT = "reproduce.py"
FINDINGS = "findings.json"
GRAPHS = "before", "after"
FILES = {SCRIPT, FINDINGS, "inputs.npz", *(f"{name}.{kind}" for name in GRAPHS for kind in ("onnx", "weights"))}

PROGRAM = '''\
"""Shows in what the sections of `after.onnx` differ from those of `before.onnx`; needs numpy and onnxruntime.

    python reproduce.py        exits with 1 while a difference is larger than its limit, else with 0
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

HERE = Path(__file__).resolve().parent


def run(name, inputs):
    """The outputs of a graph, with the runtime's own optimisations off."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(HERE / name), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    feed = {value.name: inputs[f"{name}/{value.name}"] for value in session.get_inputs()}
    return dict(zip(names, session.run(names, feed)))


def part(array, place):
    """What can be compared: without padding."""
    array = array.astype(np.float64)
    return array[tuple(slice(*ends) for ends in place)] if len(place) == array.ndim else array


def main():
    inputs = np.load(HERE / "inputs.npz")
    findings = json.loads((HERE / "findings.json").read_text())
    before = run("before.onnx", inputs) if (HERE / "before.onnx").exists() else {}
    after = run("after.onnx", inputs)
    failed = False
    for each in findings["culprits"]:
        name = each["tensor"]
        right = before[name] if name in before else inputs[f"expected/{name}"]
        expected, got = part(right, each["place_before"]), part(after[name], each["place_after"])
        error = got - expected.reshape(got.shape)
        error[(got == expected.reshape(got.shape)) | (np.isnan(got) & np.isnan(expected.reshape(got.shape)))] = 0.0
        rms = float(np.sqrt(np.mean(error**2))) if np.isfinite(error).all() else float("inf")
        limit = each["limit"]
        failed |= not rms <= limit
        print(f"{name} ({each['op']} {each['node']}, {each['source'] or 'no source line'})")
        print(f"  root mean square of the difference {rms:.4g}, limit {limit:.4g}, largest {np.max(np.abs(error)):.4g}")
        print(f"  before {expected.min():.4g}..{expected.max():.4g}, after {got.min():.4g}..{got.max():.4g}")
    print("differs" if failed else "no difference beyond its limit")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
'''


def failure_folder(out: Path) -> Path:
    """Return the folder of a failed build's reproducer, beside the bundle."""
    return out.with_name(f"{out.name}.failure")


def write_reproducer(findings: Findings, folder: Path, stage: str, beyond: float) -> Path:
    """Write the reproducer's folder, replacing that of an earlier failure.

    Args:
        findings: with at least one culprit.
        folder: the folder to write.
        stage: the pass or gate that failed.
        beyond: multiple of the explained error from which on an error counts as a defect.

    Returns:
        The script to run.

    Raises:
        RecipeError: the path is something else.
    """
    files = reproducer_files(findings, stage, beyond)
    with staged(folder, check_reproducer) as partial:
        write_files(partial, files)
    return folder / SCRIPT


def remove_reproducer(folder: Path) -> None:
    """Remove an earlier failure's reproducer; other files of that name stay."""
    if folder.is_dir() and not _others(folder):
        shutil.rmtree(folder)


def check_reproducer(folder: Path) -> None:
    """Refuse to remove anything but an earlier failure's reproducer.

    Raises:
        RecipeError: the path is something else.
    """
    others = _others(folder) if folder.is_dir() else ["a file"] if folder.exists() or folder.is_symlink() else []
    if others:
        raise RecipeError(
            f"{folder}: expected what an earlier failure has left, or nothing, got {others[0]}",
            cure="choose another --out, or remove it",
        )


def _others(folder: Path) -> list[str]:
    """Return the files in a folder that do not belong to a reproducer."""
    found = sorted(folder.iterdir())
    return [path.name for path in found if path.name not in FILES or path.is_symlink() or not path.is_file()]


def reproducer_files(findings: Findings, stage: str, beyond: float) -> dict[str, Content]:
    """Return the content of a reproducer, by file name."""
    forced_run = findings.forced_run
    assert forced_run is not None
    tensors = [culprit.local.tensor for culprit in findings.culprits]
    known = {str(output.name) for node in findings.before.model.graph for output in node.outputs}
    known -= {state.output for state in findings.after.states}  # passes reshape them
    ends = set(findings.names)
    comparable = [name for name in tensors if name in known]
    before = extract_subgraph(findings.before, comparable, ends) if comparable else None
    after = extract_subgraph(findings.after, tensors, ends)
    arrays: dict[str, Array] = {f"expected/{name}": forced_run.right[name] for name in tensors if name not in known}
    for file, lowered, model in (("before.onnx", findings.before, before), ("after.onnx", findings.after, after)):
        for name in graphs.inputs_named(model) if model is not None else ():
            arrays[f"{file}/{name}"] = _as_in_graph(
                lowered, name, _given(forced_run, name, is_after=lowered is findings.after)
            )
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    content = {
        "stage": stage,
        "graph": findings.after.graph,
        "call": forced_run.step,
        "culprits": [
            _described(culprit, forced_run, beyond, is_known=culprit.local.tensor in known)
            for culprit in findings.culprits
        ],
    }
    originals = {} if before is None else stored(split(with_rounding(before)), "before")
    return {
        **originals,
        **stored(split(with_rounding(after)), "after"),
        "inputs.npz": packed.getvalue(),
        FINDINGS: canonical_json(content),
        SCRIPT: PROGRAM.encode(),
    }


def extract_subgraph(lowered: Lowered, tensors: Sequence[str], ends: set[str]) -> ir.Model:
    """Return the sections that end in some tensors as a graph; values that they read are its inputs."""
    model = graphs.clone(lowered.model)
    copy = dataclasses.replace(lowered, model=model)
    nodes = {node: None for name in tensors for node in section_of(copy, name, ends - {name})}
    read = [
        value for node in nodes for value in read_by([node]) if value.producer() not in nodes or _is_end(value, ends)
    ]
    outputs = {str(output.name): output for node in nodes for output in node.outputs}
    inputs = []
    for value in dict.fromkeys(read):
        graph_input = value
        if value.producer() is not None:
            graph_input = ir.Value(name=value.name, type=value.type, shape=value.shape)
            if str(value.name) in tensors:  # it is made here as well: its maker keeps the name
                graph_input.name = f"{value.name}.given"
            for use in list(value.uses()):
                if use.node in nodes:
                    use.node.replace_input_with(use.idx, graph_input)
        inputs.append(graph_input)
    model.graph.outputs[:] = [outputs[name] for name in tensors]
    model.graph.inputs[:] = inputs
    graphs.prune(model)
    model.metadata_props.clear()
    return model


def _is_end(value: ir.Value, ends: set[str]) -> bool:
    return str(value.name) in ends


def _given(forced_run: TeacherForcedRun, name: str, *, is_after: bool) -> Array:
    """Return the right value that a section reads, in the form of its graph."""
    name = name.removesuffix(".given")
    if is_after:
        return forced_run.given(name) if name in forced_run.right else forced_run.inputs_after[name]
    return forced_run.before[name] if name in forced_run.before else forced_run.inputs_before[name]


def _as_in_graph(lowered: Lowered, name: str, array: Array) -> Array:
    """Return an input or output without the batch axis, where the graph is for one row."""
    place = next((each for each in lowered.row_axes if each.tensor == name), None)
    return array if place is None else np.ascontiguousarray(place.to_graph(array))


def _described(culprit: Culprit, forced_run: TeacherForcedRun, beyond: float, *, is_known: bool) -> dict[str, Any]:
    local, name = culprit.local, culprit.local.tensor
    place = [
        part.indices(size)[:2] for part, size in zip(forced_run.places[name], forced_run.own[name].shape, strict=True)
    ]
    whole = (forced_run.before[name] if is_known else forced_run.right[name]).shape
    ends = [part.indices(size)[1] for part, size in zip(forced_run.origins[name], whole, strict=True)]
    fits = len(ends) == len(place)
    return {
        "tensor": name,
        "node": str(culprit.node.name),
        "op": culprit.node.op_type,
        "source": culprit.source,
        "region": [
            {"node": str(node.name), "op": node.op_type, "source": graphs.source_of(node)} for node in culprit.nodes
        ],
        "error": local.error if np.isfinite(local.error) else None,
        "explained": local.explained,
        "limit": min(beyond * local.explained, local.error / 2),
        "place_after": place,
        "place_before": [(max(end - (b - a), 0), end) for end, (a, b) in zip(ends, place, strict=True)] if fits else [],
        "before": [dataclasses.asdict(node) for node in culprit.before],
        "after": [dataclasses.asdict(node) for node in culprit.after],
    }
