"""The recipe of a bundle is read with the names of this version, whichever version has written it."""

from pathlib import Path

import pytest

from compiler.build.bundle.recipe_of import recipe_of
from compiler.errors import RecipeError
from runtime_lite import read_bundle
from tests.runtime_lite.bundles import replace_hashed
from tests.runtime_lite.engines import write_engine_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_engine_bundle(tmp_path / "bundle", built=False)


def test_old_names_become_new_ones_without_a_notice(bundle: Path) -> None:
    replace_hashed(bundle, "recipe.yaml", b"data: {healing: {count: 3}}\n")
    with read_bundle(bundle) as opened:
        assert recipe_of(opened) == {"data": {"distillation": {"count": 3}}}


def test_file_that_is_no_recipe_is_named(bundle: Path) -> None:
    replace_hashed(bundle, "recipe.yaml", b"a: [\n")
    with read_bundle(bundle) as opened, pytest.raises(RecipeError, match=r"recipe\.yaml:2: expected plain YAML data"):
        recipe_of(opened)
