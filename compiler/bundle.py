"""Writes a bundle atomically, in the format that runtime_lite/bundle.py owns."""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from compiler.errors import RecipeError
from compiler.recipe import LoadedRecipe
from compiler.stages import Lowered
from compiler.targets.base import Built
from runtime_lite.costs import Costs, json_from_costs
from runtime_lite.manifest import (
    COSTS_FILE,
    MANIFEST_FILE,
    Artifact,
    Axis,
    FileEntry,
    Graph,
    Manifest,
    Sources,
    State,
    StreamSpec,
    Tensor,
)
from runtime_lite.manifest_json import json_from_manifest


@dataclasses.dataclass(frozen=True)
class GraphParts:
    """What the bundle needs to know of one graph.

    Attributes:
        lowered: the graph after all passes, batch axis still symbolic.
        parts: what each state carries, by state input.
        buckets: sizes per bucketed axis.
        target: target name.
        built: its artefacts.
        certificate: records of every pass, as JSON text.
        golden: content of the golden file.
    """

    lowered: Lowered
    parts: Mapping[str, tuple[str, ...]]
    buckets: Mapping[str, tuple[int, ...]]
    target: str
    built: Built
    certificate: bytes
    golden: bytes


def graph_record(name: str, graph: GraphParts) -> Graph:
    """The manifest's record of one graph."""
    lowered, window = graph.lowered, graph.lowered.window
    states = {state.input: state for state in lowered.states}
    roles = {state.input: "state" for state in lowered.states} | {state.output: "state" for state in lowered.states}
    if window is not None:
        roles[window.length_input] = "length"
        if window.mask_input is not None:
            roles[window.mask_input] = "mask"
    inputs = tuple(_tensor(value, roles) for value in lowered.model.graph.inputs)
    outputs = tuple(_tensor(value, roles) for value in lowered.model.graph.outputs)
    shapes = {tensor.name: tensor for tensor in inputs}
    return Graph(
        target=graph.target,
        opset=graph.built.versions["opset"],
        ir_version=graph.built.versions["ir_version"],
        inputs=inputs,
        outputs=outputs,
        axes={axis: Axis(sizes) for axis, sizes in graph.buckets.items()},
        states=tuple(
            State(
                name=state.input,
                input=state.input,
                output=state.output,
                shape=shapes[state.input].shape,
                dtype=shapes[state.input].dtype,
                initial=0.0,
                update="replace",
                frames_axis=state.frames_axis,
                window=None if state.frames_axis is None or window is None else window.frames,
                parts=tuple(graph.parts.get(state.input, (state.input,))),
            )
            for state in states.values()
        ),
        stream=None
        if window is None
        else StreamSpec(window.length_input, window.mask_input, window.frames, window.step_frames, "right"),
        artifacts=tuple(Artifact(dict(a.sizes), a.file, a.files) for a in graph.built.artifacts),
        golden=f"golden/{name}.npz",
    )


def _tensor(value: Any, roles: Mapping[str, str]) -> Tensor:
    shape = tuple(dim if isinstance(dim, int) else str(dim) for dim in value.shape)
    return Tensor(str(value.name), shape, str(value.dtype.numpy()), roles.get(str(value.name), "data"))


def bundle_files(
    loaded: LoadedRecipe,
    graphs: Mapping[str, GraphParts],
    receipts: Mapping[str, Any],
    sources: Sources,
    tools: Mapping[str, str],
) -> dict[str, bytes]:
    """Every file of the bundle that is hashed, and the manifest; equal inputs give equal bytes."""
    files: dict[str, bytes] = {"recipe.yaml": loaded.text.encode(), "receipts.json": canonical_json(receipts)}
    for name, graph in graphs.items():
        files |= dict(graph.built.files)
        files[f"certificates/{name}.json"] = graph.certificate
        files[f"golden/{name}.npz"] = graph.golden
    manifest = Manifest(
        name=loaded.recipe.name,
        graphs={name: graph_record(name, graph) for name, graph in graphs.items()},
        front_end=dict(loaded.recipe.front_end),
        sha256=sources,
        tools=dict(tools),
        certificates=tuple(f"certificates/{name}.json" for name in graphs),
        receipts="receipts.json",
        recipe="recipe.yaml",
        files={
            path: FileEntry(len(content), hashlib.sha256(content).hexdigest())
            for path, content in sorted(files.items())
        },
    )
    return files | {MANIFEST_FILE: json_from_manifest(manifest)}


def canonical_json(content: Any) -> bytes:
    """Sorted keys, one space of indent, a newline at the end."""
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False).encode() + b"\n"


def check_replaceable(out: Path) -> None:
    """Refuse to write over something that is not a bundle.

    Raises:
        RecipeError: `out` is a file, or a folder with other content than a bundle's.
    """
    if out.is_dir() and (not any(out.iterdir()) or (out / MANIFEST_FILE).is_file()):
        return
    if out.exists() or out.is_symlink():
        raise RecipeError(
            f"{out}: expected a bundle to replace or nothing, got {'another folder' if out.is_dir() else 'a file'}",
            cure="choose another --out, or remove it",
        )


@contextlib.contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place when the block ends well, and is removed when it does not.

    Raises:
        OSError: the folder cannot be made or renamed; a previous bundle stays as it was.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.partial-"))
    try:
        yield folder
        folder.chmod(0o755)
        _swap(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _swap(folder: Path, out: Path) -> None:
    """Rename into place; the previous bundle comes back if that fails."""
    if not out.exists():
        os.rename(folder, out)
        return
    previous = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.previous-"))
    os.rename(out, previous / "bundle")
    try:
        os.rename(folder, out)
    except BaseException:
        os.rename(previous / "bundle", out)
        raise
    finally:
        if out.exists():
            shutil.rmtree(previous, ignore_errors=True)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write every file below a folder, and to disk."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def write_costs(folder: Path, costs: Costs) -> None:
    """Write the measured times, outside everything that is hashed."""
    (folder / COSTS_FILE).write_bytes(json_from_costs(costs))
