"""Files and modules of a recipe are looked for where a build would find them, and no code of them runs."""

from pathlib import Path

import pytest

from compiler.errors import RecipeError
from compiler.recipe.load import load_recipe
from compiler.recipe.user_code.named_places import require_named_places

RECIPE = """\
name: tiny
graphs:
  net:
    source: {factory: "pack.inner.model:make", checkpoint: w.safetensors, files: [notes.txt]}
    axes: {batch: {buckets: [1]}}
    inputs: {x: {shape: [batch, 4], dtype: float32}}
    outputs: [y]
data: {verification: {feeds: "data:feeds", count: 1}}
targets: [{kind: onnx_static}]
gates: {parity: {net: {max_abs: 1.0e-5, chained_steps: 1}}}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe and everything that it names; the modules end the process when they are imported."""
    for name in ("w.safetensors", "notes.txt", "tiny.yaml"):
        (tmp_path / name).write_text(RECIPE if name == "tiny.yaml" else "")
    (tmp_path / "pack" / "inner").mkdir(parents=True)
    for name in ("data.py", "pack/inner/__init__.py", "pack/inner/model.py"):
        (tmp_path / name).write_text("raise SystemExit\ndef make(): pass\ndef feeds(): pass\n")
    return tmp_path / "tiny.yaml"


def test_what_is_there_is_counted(recipe: Path) -> None:
    assert require_named_places(load_recipe(str(recipe))) == (2, 2)


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        ("w.safetensors", "tiny.yaml:4: graphs.net.source.checkpoint: expected a file, got nothing at"),
        ("notes.txt", "tiny.yaml:4: graphs.net.source.files.0: expected a file"),
        ("data.py", "data.verification.feeds: expected a module, got 'data'"),
        ("pack/inner/model.py", "graphs.net.source.factory: expected a module, got 'pack.inner.model'"),
    ],
)
def test_what_is_gone_is_named_with_its_line(gone: str, message: str, recipe: Path) -> None:
    (recipe.parent / gone).unlink()
    with pytest.raises(RecipeError) as caught:
        require_named_places(load_recipe(str(recipe)))
    assert message in str(caught.value)
    assert caught.value.cure


def test_a_name_that_its_module_lacks_is_answered_without_running_it(recipe: Path) -> None:
    recipe.write_text(RECIPE.replace("model:make", "model:mak"))
    with pytest.raises(RecipeError) as caught:
        require_named_places(load_recipe(str(recipe)))
    assert "graphs.net.source.factory: expected a callable in pack.inner.model, got nothing called 'mak'" in str(
        caught.value
    )
    assert "did you mean 'make'?" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["from data import *", "make = 3", "from data import feeds as make", "globals()['make'] = 3"]
)
def test_names_that_are_imported_or_made_are_not_missed(text: str, recipe: Path) -> None:
    (recipe.parent / "pack" / "inner" / "model.py").write_text(f"raise SystemExit\n{text}\n")
    assert require_named_places(load_recipe(str(recipe))) == (2, 2)
