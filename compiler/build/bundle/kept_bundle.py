"""Stores a whole bundle with its findings in the stage cache, and restores both in a later build with equal inputs."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler.base.cache.dependencies import hash_path
from compiler.base.cache.results import Code, StageResults
from compiler.base.pieces import Content
from compiler.base.records.build_report import SpeedRow
from compiler.base.records.findings import Finding
from compiler.build.bundle.staged_folder import copy_files
from compiler.recipe.load import LoadedRecipe
from compiler.recipe.stage_inputs import BundleInputs, Surroundings, key_of
from compiler.recipe.user_code.callables import shown_path
from compiler.recipe.user_code.streams import locate_files
from compiler.targets.base import Target
from runtime_lite.format.canonical_json import canonical_json

FOLDER, FOUND = "bundle", "findings.json"


def checkpoint_hashes(files: Sequence[Path]) -> dict[str, str]:
    """Return SHA-256 of every file that a graph comes from, by its name, or by its path where two have one name."""
    ordered = sorted(set(files))
    names = [file.name for file in ordered]
    shown = [file.name if names.count(file.name) == 1 else shown_path(file) for file in ordered]
    return {name: hash_path(file) for name, file in zip(shown, ordered, strict=True)}


def bundle_inputs(
    loaded: LoadedRecipe,
    surroundings: Surroundings,
    graphs: Mapping[str, str],
    checkpoints: Mapping[str, str],
    target: Target,
) -> BundleInputs:
    """Return everything that a bundle depends on.

    Args:
        loaded: the recipe.
        surroundings: surroundings of the build.
        graphs: key of each graph's artefacts.
        checkpoints: result of `checkpoint_hashes`.
        target: target, whose toolchain runs the artefacts where it is installed.
    """
    recipe, location = loaded.recipe, loaded.location
    files = locate_files(location, recipe.data.verification.files, "data", "verification")
    if recipe.gates.task is not None:
        files += locate_files(location, recipe.gates.task.files, "gates", "task")
    if recipe.gates.pipeline is not None:
        files += locate_files(location, recipe.gates.pipeline.files, "gates", "pipeline")
    return BundleInputs(
        surroundings,
        loaded.text,
        graphs,
        checkpoints,
        tuple(map(hash_path, files)),
        target.absent() or "",
        tuple(f"{part.name}: {part.found}" for part in target.parts()),
    )


def code_of_gates(loaded: LoadedRecipe) -> Code:
    """Return the callables that the gates run, with whether the recipe names the files that they read."""
    task = loaded.recipe.gates.task
    names = () if task is None else (task.recordings, task.decode, task.metric)
    code = {name: task is not None and bool(task.files) for name in names}
    pipeline = loaded.recipe.gates.pipeline
    return code if pipeline is None else {**code, pipeline.feeds: bool(pipeline.files)}


@dataclasses.dataclass(frozen=True)
class Found:
    """The results of a build that are not in its bundle."""

    findings: tuple[Finding, ...]
    speed: tuple[SpeedRow, ...]


class KeptBundle:
    """One bundle in the cache.

    Args:
        results: of the recipe's stages.
        inputs: all that the bundle is made from.
        code: callables that the build runs.
    """

    def __init__(self, results: StageResults, inputs: BundleInputs, code: Code) -> None:
        self.results, self.key, self.code = results, key_of(inputs), code
        self.entry = results.find(self.key)

    def recall(self, folder: Path) -> Found:
        """Write the bundle of an earlier build into a folder, byte for byte, and return its findings."""
        assert self.entry is not None
        copy_files(self.entry / FOLDER, folder)
        found = json.loads((self.entry / FOUND).read_text())
        return Found(
            tuple(Finding(**each) for each in found["findings"]), tuple(SpeedRow(**each) for each in found["speed"])
        )

    def keep(self, folder: Path, found: Found) -> str:
        """Keep the content of a folder.

        Returns:
            The result of `StageResults.keep`.
        """
        files = {
            f"{FOLDER}/{path.relative_to(folder).as_posix()}": path for path in folder.rglob("*") if path.is_file()
        }
        own = os.path.join(folder, "")  # it and its files are looked at by the runtime at any time
        content: dict[str, Content | Path] = {**files, FOUND: canonical_json(dataclasses.asdict(found))}
        return self.results.keep(self.key, content, self.code, lambda path: os.path.join(path, "").startswith(own))
