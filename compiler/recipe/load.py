"""Turns a recipe's text into its record: expands ranges, applies overrides, fills in defaults, and checks strictly.

Nothing is converted silently. Every message reads `<file>:<line>: <key>: expected <E>, got <G>; <cure>`.
"""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic
import yaml

from compiler.base.cache.dependencies import SLIPWAY_DIR
from compiler.base.did_you_mean import did_you_mean
from compiler.errors import RecipeError
from compiler.recipe.graph_parts import PassSpec
from compiler.recipe.record import Recipe, Target
from compiler.recipe.tree.keys import Key, require_filled, where
from compiler.recipe.tree.latencies import expand_latencies
from compiler.recipe.tree.located_yaml import Node, node_of, read_document
from compiler.recipe.tree.messages import first_problem
from compiler.recipe.tree.overrides import apply_override
from compiler.recipe.tree.renames import Tell, with_new_names, with_new_path
from compiler.recipe.tree.short_forms import (
    expand_name_ranges,
    inherit_checkpoints,
    normalize_specs,
    replace_checkpoints,
)
from compiler.recipe.tree.standard_passes import add_default_passes

RECIPES_DIR = "recipes"


@dataclasses.dataclass(frozen=True)
class RecipeLocation:
    """Where a recipe came from: lines for messages, and folders for what it names; no value of it.

    Attributes:
        path: the file.
        tree: the values with their lines, for messages of later stages.
    """

    path: Path
    tree: Node = dataclasses.field(repr=False)

    def where(self, *keys: Key) -> str:
        """Return the start of a message about a key: `recipes/cpu.yaml:12: graphs.encoder.passes`."""
        return where(self.tree, keys)

    def search_path(self) -> tuple[Path, ...]:
        """Return the folders for relative paths and for modules named in the recipe, in order of search."""
        return tuple(dict.fromkeys((Path.cwd(), self.path.resolve().parent)))

    def locate(self, relative: str) -> Path:
        """Return the file that a recipe's path means: the first that exists, else the one in the current directory."""
        candidates = [folder / relative for folder in self.search_path()]
        return next((path for path in candidates if path.exists()), candidates[0])


@dataclasses.dataclass(frozen=True)
class LoadedRecipe(RecipeLocation):
    """A checked recipe and where it came from.

    Attributes:
        recipe: the record.
        text: effective YAML, ranges expanded, overrides applied and defaults filled in; loads to the same record.
    """

    recipe: Recipe
    text: str

    def for_target(self, index: int) -> "LoadedRecipe":
        """Return the recipe with one of its targets alone, as the bundle for that target stores it."""
        recipe = self.recipe.model_copy(update={"targets": (self.recipe.targets[index],)})
        return dataclasses.replace(self, recipe=recipe, text=render_recipe(recipe))

    def with_limits_of(self, label: str) -> "LoadedRecipe":
        """Return the recipe whose lossy limits are those of one target; the same where it gives none by target.

        Args:
            label: the target's, as `ParityGate.for_target` takes it.
        """
        parity = self.recipe.gates.parity
        if not any(gate.targets for gate in parity.values()):
            return self
        gates = self.recipe.gates.model_copy(
            update={"parity": {name: gate.for_target(label) for name, gate in parity.items()}}
        )
        recipe = self.recipe.model_copy(update={"gates": gates})
        return dataclasses.replace(self, recipe=recipe, text=render_recipe(recipe))

    @property
    def location(self) -> RecipeLocation:
        """Return the paths and keys that a stage may know besides its declared inputs."""
        return RecipeLocation(self.path, self.tree)


def load_recipe(
    path_or_name: str, overrides: Sequence[str] = (), checkpoint: str | None = None, tell: Tell = warnings.warn
) -> LoadedRecipe:
    """Read, complete and check a recipe.

    Args:
        path_or_name: a file, or a name found in `recipes/`.
        overrides: `path.to.key=value`, typed by YAML rules, applied in order.
        checkpoint: replaces the checkpoint of every graph.
        tell: called with a notice, one line, for each old name in the recipe.

    Raises:
        RecipeError: the recipe cannot be read, or is wrong; the message names the line and the key.
    """
    path = find_recipe(path_or_name)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecipeError(
            f"{path}: expected a readable recipe, got {error.strerror or error}",
            cure="check the path and its permissions",
        ) from None
    return _completed(path, read_document(data, _display(path)), overrides, checkpoint, tell)


def recipe_of_values(values: Mapping[str, Any], name: str, checkpoint: str | None = None) -> LoadedRecipe:
    """Complete and check a recipe given as values, as if read from a file.

    Args:
        values: content of the file: mappings, lists, text, numbers, booleans, and records of a recipe.
        name: name in messages, in place of the file's.
        checkpoint: replaces the checkpoint of every graph.

    Raises:
        RecipeError: the recipe is wrong; the message names the key.
    """
    return _completed(Path(name), node_of(plain_of(values), name), (), checkpoint, warnings.warn)


def _completed(path: Path, tree: Node, overrides: Sequence[str], checkpoint: str | None, tell: Tell) -> LoadedRecipe:
    tree = expand_name_ranges(with_new_names(tree, tell))
    tree = add_default_passes(tree)
    for override in overrides:
        tree = with_new_names(apply_override(tree, with_new_path(override, tell)), tell)
        tree = add_default_passes(tree)
    require_filled(tree)
    tree = add_default_passes(expand_latencies(tree))
    tree = normalize_specs(expand_name_ranges(tree))
    if checkpoint is not None:
        tree = replace_checkpoints(tree, checkpoint)
    recipe = _validate(inherit_checkpoints(tree))
    return LoadedRecipe(path, tree, recipe, render_recipe(recipe))


def _validate(tree: Node) -> Recipe:
    try:
        return Recipe.model_validate(tree.plain())
    except pydantic.ValidationError as error:
        raise first_problem(tree, error.errors(include_url=False)) from None


def find_recipe(path_or_name: str) -> Path:
    """Return the recipe file: a path as given, or a name in `recipes/` here or beside Slipway, `.yaml` optional.

    Raises:
        RecipeError: there is no such file.
    """
    path = Path(path_or_name)
    if path.is_file():
        return path
    folders = list(dict.fromkeys((Path(RECIPES_DIR), SLIPWAY_DIR / RECIPES_DIR)))
    names = (path_or_name, f"{path_or_name}.yaml")
    for candidate in (folder / name for folder in folders for name in names):
        if candidate.is_file():
            return candidate
    known = {file.name for folder in folders if folder.is_dir() for file in folder.glob("*.yaml")}
    raise RecipeError(
        f"--recipe: expected a file, or a name in {RECIPES_DIR}/, got {path_or_name!r}",
        cure=did_you_mean(path_or_name, known),
    )


def render_recipe(recipe: Recipe) -> str:
    """Return the recipe as YAML with defaults filled in; keys without value and default are left out."""
    text: str = yaml.safe_dump(
        plain_of(recipe), sort_keys=False, width=120, default_flow_style=None, allow_unicode=True
    )
    return text


def plain_of(value: Any) -> Any:
    """Return records as a file writes them: mappings, lists and scalars, without keys that have no value."""
    if isinstance(value, PassSpec):
        return {value.name: plain_of(value.options)} if value.options else value.name
    if isinstance(value, Target):
        return {"kind": value.kind, **plain_of(value.options)}
    if isinstance(value, pydantic.BaseModel):
        return {key: plain_of(child) for key, child in value if child is not None}
    if isinstance(value, dict):
        return {key: plain_of(child) for key, child in value.items()}
    if isinstance(value, tuple | list):
        return [plain_of(child) for child in value]
    return value


def _display(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
