"""Implements `build.py init MODEL.onnx|module:factory`: writes a recipe and feeds that are guessed from the model.

Nothing is ever overwritten. What could not be guessed is a marked TODO, at which `build.py check` points.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path

from compiler.errors import RecipeError
from compiler.front.commands.init.factory_signature import Wanted, signature_of_factory
from compiler.front.commands.init.recipe_draft import draft_of
from compiler.front.commands.init.recipe_text import feeds_text, recipe_text
from compiler.front.commands.onnx_signature import Signature, open_file, read_file, signature_of
from compiler.front.commands.shared_axes import share_axes
from compiler.recipe.graph_parts import Source
from compiler.recipe.load import RecipeLocation
from compiler.recipe.tree.keys import TODO
from compiler.recipe.tree.located_yaml import Node
from runtime_lite.format.atomic_file import replace_file

STAGE = "init"


@dataclasses.dataclass(frozen=True)
class Written:
    """The written files and their content.

    Attributes:
        recipe: the recipe file.
        feeds: the module beside it, or None where the inputs are not known.
        guessed: number of marked guesses in it.
        todo: number of places that the user has to fill in.
    """

    recipe: Path
    feeds: Path | None
    guessed: int
    todo: int


def init_recipe(what: str, out: Path | None, inputs: Mapping[str, Wanted], checkpoint: str | None) -> Written:
    """Write a recipe for a model.

    Args:
        what: `MODEL.onnx` or `package.module:factory`.
        out: path of the recipe; `./<model>.yaml` by default.
        inputs: wanted inputs of a factory's module, by name.
        checkpoint: checkpoint of a factory's module.

    Raises:
        RecipeError: the model cannot be read, the inputs do not fit it, or such a file exists.
        Refused: the model cannot be run.
    """
    is_file = what.endswith(".onnx") or Path(what).is_file()
    if not is_file and not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", what):
        raise RecipeError(f"expected MODEL.onnx or module:factory, got {what!r}", cure="name a file or a function")
    if is_file and (inputs or checkpoint is not None):
        option = "--input" if inputs else "--checkpoint"
        raise RecipeError(f"{what}: expected no {option}, as the file has its own, got one", cure="leave it out")
    stem = Path(what).stem if is_file else what.partition(":")[0].rpartition(".")[2]
    recipe = out or Path(f"{stem}.yaml")
    module = f"{re.sub(r'[^A-Za-z0-9_]', '_', recipe.stem)}_data"
    module = module if re.match(r"[A-Za-z_]", module) else f"_{module}"
    feeds = recipe.with_name(f"{module}.py")
    _require_new(recipe, feeds)
    location = RecipeLocation(recipe, Node({}, "init"))
    if is_file:
        source, signature = Source(onnx=_path_in(recipe, Path(what))), _of_file(Path(what))
    else:
        source = Source(factory=what, checkpoint=checkpoint)
        signature = signature_of_factory(source, location, inputs)
    return _written(recipe, feeds, source, signature)


def _of_file(path: Path) -> Signature:
    model, _ = read_file(path, STAGE)
    open_file(path, STAGE, optimize=False)
    share_axes(model)
    return signature_of(model, path, STAGE)


def _require_new(recipe: Path, feeds: Path) -> None:
    """Require that the recipe and its module of feeds can be written, before the work."""
    if recipe.suffix not in (".yaml", ".yml"):
        raise RecipeError(f"--out: expected a file that ends in .yaml, got {recipe}", cure=f"write {recipe}.yaml")
    if not recipe.parent.is_dir():
        raise RecipeError(f"--out: expected a folder that is there, got {recipe.parent}", cure="make it first")
    for path in (recipe, feeds):
        if os.path.lexists(path):
            raise RecipeError(
                f"expected a new file, got {path}, which is there already", cure="name another with --out, or remove it"
            )


def _path_in(recipe: Path, model: Path) -> str:
    """Return the model's path as the recipe finds it: relative to the current directory or the recipe's folder."""
    relative = os.path.relpath(model, recipe.parent)
    found = RecipeLocation(recipe, Node({}, "")).locate(relative)
    return relative if found.exists() and found.samefile(model) else str(model.resolve())


def _written(recipe: Path, feeds: Path, source: Source, signature: Signature) -> Written:
    draft = draft_of(signature)
    name = re.sub(r"[^A-Za-z0-9_]", "_", recipe.stem)[:60]
    name = name if re.match(r"[A-Za-z_]", name) else f"_{name}"
    is_known = bool(draft.outputs) and not any(TODO in draft_input.shape for draft_input in draft.inputs)
    text = recipe_text(draft, name, source, f"{feeds.stem}:verification" if is_known else TODO)
    if is_known:
        with replace_file(feeds) as file:
            file.write(feeds_text(draft, recipe.name).encode())
    with replace_file(recipe) as file:
        file.write(text.encode())
    body = text.split("\nname:", 1)[1]
    todo = len(re.findall(rf"(?<=[:\[ ]){TODO}\b(?!:)", body))
    return Written(recipe, feeds if is_known else None, body.count("guessed:"), todo)
