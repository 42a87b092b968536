"""Writes a bundle atomically, in the format that runtime_lite/bundle.py owns."""

import contextlib
import ctypes
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from compiler.errors import RecipeError
from compiler.interruption import shielded
from compiler.ir import dims_of
from compiler.recipe import LoadedRecipe
from compiler.sizes import written
from compiler.stages import Lowered
from compiler.targets.base import Built
from runtime_lite.contract import contract_of, with_contract
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

AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Constants of Linux's renameat2."""


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
        proofs: the graphs that the certificate speaks of, by path relative to the bundle.
    """

    lowered: Lowered
    parts: Mapping[str, tuple[str, ...]]
    buckets: Mapping[str, tuple[int, ...]]
    target: str
    built: Built
    certificate: bytes
    golden: bytes
    proofs: Mapping[str, bytes] = dataclasses.field(default_factory=dict)

    def with_file(self, name: str, content: bytes) -> "GraphParts":
        """The same with one more file in the bundle."""
        built = dataclasses.replace(self.built, files={**self.built.files, name: content})
        return dataclasses.replace(self, built=built)


def graph_record(name: str, graph: GraphParts) -> Graph:
    """The manifest's record of one graph."""
    lowered, window = graph.lowered, graph.lowered.window
    states = {state.input: state for state in lowered.states}
    roles = {state.input: "state" for state in lowered.states} | {state.output: "state" for state in lowered.states}
    if window is not None:
        roles[window.length_input] = "length"
        if window.mask_input is not None:
            roles[window.mask_input] = "mask"
    padded = {each.axis: each for each in lowered.padded_axes}
    roles |= {each.length_input: "length" for each in lowered.padded_axes}
    inputs = tuple(_tensor(value, roles) for value in lowered.model.graph.inputs)
    outputs = tuple(_tensor(value, roles) for value in lowered.model.graph.outputs)
    shapes = {tensor.name: tensor for tensor in inputs}
    return Graph(
        target=graph.target,
        opset=graph.built.versions["opset"],
        ir_version=graph.built.versions["ir_version"],
        inputs=inputs,
        outputs=outputs,
        axes={
            axis: Axis(sizes, padded[axis].length_input, padded[axis].minimum) if axis in padded else Axis(sizes)
            for axis, sizes in graph.buckets.items()
        },
        states=tuple(
            State(
                name=state.input,
                input=state.input,
                output=state.output,
                shape=shapes[state.input].shape,
                dtype=shapes[state.input].dtype,
                initial=_zero(shapes[state.input].dtype),
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
        rows_independent=lowered.rows_independent,
        certificate=f"certificates/{name}.json",
        engine=graph.built.engine,
    )


def _zero(dtype: str) -> bool | int | float:
    """What a state starts with, as its own type writes it."""
    return False if dtype == "bool" else 0.0 if dtype.startswith("float") else 0


def _tensor(value: Any, roles: Mapping[str, str]) -> Tensor:
    shape = tuple(dim if isinstance(dim, int) else written(dim) for dim in dims_of(value) or ())
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
    records = {name: graph_record(name, graph) for name, graph in graphs.items()}
    for name, graph in graphs.items():
        files |= {**graph.built.files, **graph.proofs}
        for emitted in graph.built.artifacts:
            digest = hashlib.sha256(graph.certificate).hexdigest()
            contract = contract_of(name, records[name], emitted.sizes, loaded.recipe.front_end, digest)
            files[emitted.file] = with_contract(files[emitted.file], contract)
        files[f"certificates/{name}.json"] = graph.certificate
        files[f"golden/{name}.npz"] = graph.golden
    manifest = Manifest(
        name=loaded.recipe.name,
        graphs=records,
        front_end=dict(loaded.recipe.front_end),
        sha256=sources,
        tools=dict(tools),
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
        RecipeError: `out` is a file, a folder with other content than a bundle's, or lies where nothing can be written.
    """
    is_bundle = out.is_dir() and (not any(out.iterdir()) or (out / MANIFEST_FILE).is_file())
    if (out.exists() or out.is_symlink()) and not is_bundle:
        raise RecipeError(
            f"{out}: expected a bundle to replace or nothing, got {'another folder' if out.is_dir() else 'a file'}",
            cure="choose another --out, or remove it",
        )
    parent = next(folder for folder in out.absolute().parents if folder.exists())
    try:
        with shielded():
            Path(tempfile.mkdtemp(dir=parent, prefix=f".{out.name}.partial-")).rmdir()
    except OSError as error:
        raise RecipeError(
            f"{out}: expected a folder in which a bundle can be written, got {error.strerror!r} in {parent}",
            cure="check the path and its permissions, or choose another --out",
        ) from error


SWEEP_AFTER_S = 60.0
"""A younger folder may belong to a build that has not locked it yet."""


@contextlib.contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place when the block ends well, and is removed when it does not.

    Raises:
        OSError: the folder cannot be made or renamed; a previous bundle stays as it was.
    """
    out = out.resolve()  # a link stays, what it names is replaced
    out.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{out.name}.partial-"
    _sweep(out.parent, prefix)
    with contextlib.ExitStack() as cleanup:
        with shielded():
            folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=prefix))
            cleanup.callback(_remove, folder)  # what is there then: nothing, a part, or the previous bundle
            held = os.open(folder, os.O_RDONLY)
            cleanup.callback(os.close, held)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield folder
        with shielded():
            folder.chmod(0o755)
            _put_in_place(folder, out)
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder, whatever signal comes."""
    try:
        with shielded():
            shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _sweep(parent: Path, prefix: str) -> None:
    """Remove what killed builds have left: folders of theirs that nobody holds any more."""
    for folder in parent.iterdir():
        with contextlib.suppress(OSError):  # held by a running build, or gone already
            if not folder.name.startswith(prefix) or time.time() - folder.stat().st_mtime < SWEEP_AFTER_S:
                continue
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


def _put_in_place(folder: Path, out: Path) -> None:
    """Rename where nothing is, exchange where a bundle is: at every moment `out` is the old bundle or the new one."""
    while True:
        try:
            os.rename(folder, out)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return
        with contextlib.suppress(FileNotFoundError):  # another builder is replacing it at this moment
            _exchange(folder, out)
            return


def _exchange(folder: Path, out: Path) -> None:
    """Swap two folders in one step; in two, and back if the second fails, where the system knows no exchange."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None and rename(AT_FDCWD, os.fsencode(folder), AT_FDCWD, os.fsencode(out), RENAME_EXCHANGE) == 0:
        return
    code = ctypes.get_errno() if rename is not None else errno.ENOSYS
    if code not in (errno.ENOSYS, errno.EINVAL):
        raise OSError(code, os.strerror(code), str(out))
    aside = folder.with_name(f"{folder.name}.previous")
    os.rename(out, aside)
    try:
        os.rename(folder, out)
    except BaseException:
        os.rename(aside, out)
        raise
    os.rename(aside, folder)


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
