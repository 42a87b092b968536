"""The target that a bundle was built for comes back with the options of its recipe, or one sentence says why not."""

from pathlib import Path

import pytest

from compiler.build.bundle.target_of import target_of
from compiler.targets.tensorrt.target import Tensorrt
from runtime_lite import BadInput, read_bundle
from tests.runtime_lite.bundles import edit_manifest, replace_hashed
from tests.runtime_lite.engines import write_engine_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_engine_bundle(tmp_path / "bundle", built=False)


def test_the_options_are_those_of_the_recipe(bundle: Path) -> None:
    replace_hashed(bundle, "recipe.yaml", b"targets: [{kind: 'null'}, {kind: tensorrt, workspace_mb: 7}]\n")
    with read_bundle(bundle) as opened:
        assert target_of(opened) == Tensorrt(workspace_mb=7)


def test_a_target_that_is_not_known_here_is_named(bundle: Path) -> None:
    edit_manifest(bundle, lambda manifest: manifest["graphs"]["plain"].update(target="abacus"))
    with read_bundle(bundle) as opened, pytest.raises(BadInput, match=r"expected a target of .*, got 'abacus'; use"):
        target_of(opened)


@pytest.mark.parametrize(
    "recipe",
    [
        "{}", "[1]", "7", "a: [", "targets: 3", "targets: [tensorrt]", "targets: [{kind: 'null'}]",
        "targets: [{kind: tensorrt, colour: blue}]", "targets: [{kind: tensorrt, opset: 3}]",
        "targets: 2026-13-01", f"targets: {'[' * 9999}",
    ],
)  # fmt: skip
def test_a_recipe_that_does_not_give_the_target_is_one_sentence(bundle: Path, recipe: str) -> None:
    replace_hashed(bundle, "recipe.yaml", recipe.encode())
    with read_bundle(bundle) as opened, pytest.raises(BadInput, match="expected target tensorrt with options that"):
        target_of(opened)
