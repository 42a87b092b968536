"""A recipe with old names is read as one with the names of today, and each old name is told with its line."""

import re
from pathlib import Path

import pytest

from compiler.passes import pass_kinds
from compiler.recipe.load import load_recipe, recipe_of_values, render_recipe
from compiler.recipe.record import Recipe
from compiler.recipe.tree.located_yaml import read_document
from compiler.recipe.tree.renames import OLD_NAMES, PASSES, with_new_names
from compiler.targets import TARGETS
from tests.docs.pages import ROOT
from tests.kit.recipes import refusal, write

SHARED = """\
name: tiny
graphs:
  net:
    source: {factory: model:build}
    inputs: {features: {shape: [batch, 8, 80], dtype: float32}}
    outputs: [logits]
    axes: {batch: {buckets: [1]}}
    share_heads: {groups: 2, answers: classes, limit: 0.1}
data:
  verification: {feeds: data:streams, count: 2}
  healing: {feeds: data:more, count: 20}
targets: [{kind: onnx_static}]
gates: {parity: {net: {max_abs: 1.0e-5, chained_steps: 1}}}
"""


def loaded(tmp_path: Path, text: str, *overrides: str) -> tuple[Recipe, list[str]]:
    """The record, and the notices without the file's folder."""
    notices: list[str] = []
    recipe = load_recipe(write(tmp_path, text), overrides, tell=notices.append).recipe
    return recipe, [notice.replace(f"{tmp_path}/", "") for notice in notices]


def test_old_key_is_read_under_its_new_name_and_its_line_is_told(tmp_path: Path) -> None:
    recipe, notices = loaded(tmp_path, SHARED)
    assert recipe.data.distillation is not None and recipe.data.distillation.count == 20
    assert notices == [
        "tiny.yaml:11: data: healing is now called distillation; write distillation, the next version does not read "
        "healing"
    ]
    assert "healing" not in render_recipe(recipe)


def test_new_names_are_read_without_a_word(tmp_path: Path) -> None:
    assert loaded(tmp_path, SHARED.replace("healing", "distillation"))[1] == []


def test_old_names_are_read_in_the_path_of_set_and_in_its_value(tmp_path: Path) -> None:
    recipe, notices = loaded(tmp_path, SHARED.replace("healing", "distillation"), "data.healing.count=7")
    assert recipe.data.distillation is not None and recipe.data.distillation.count == 7
    assert [notice.partition(" is now")[0] for notice in notices] == ["--set: data: healing"]
    whole = "data={verification: {feeds: a:b, count: 1}, healing: {feeds: c:d, count: 3}}"
    recipe, notices = loaded(tmp_path, SHARED, whole)
    assert recipe.data.distillation is not None and recipe.data.distillation.count == 3
    assert len(notices) == 2


def test_old_names_of_passes_and_forms_are_read_wherever_they_may_stand(tmp_path: Path) -> None:
    passes = "graphs.net.passes=[compute_once: {inputs: [features]}, fold_mask_inputs]"
    recipe, notices = loaded(tmp_path, SHARED.replace("healing", "distillation"), passes)
    assert [each.name for each in recipe.graphs["net"].passes] == ["hoist_invariants", "remove_mask_inputs"]
    assert notices[0] == (
        "--set: graphs.*.passes: compute_once is now called hoist_invariants; write hoist_invariants, the next version "
        "does not read compute_once"
    )
    option = "graphs.net.passes.compute_once.slots=3"
    recipe, notices = loaded(tmp_path, SHARED.replace("healing", "distillation"), passes, option)
    assert dict(recipe.graphs["net"].passes[0].options)["slots"] == 3 and len(notices) == 3
    for forms in ("[multiply_before_lookup]", "{net: [multiply_before_lookup]}"):
        recipe, notices = loaded(tmp_path, SHARED.replace("healing", "distillation"), f"targets.0.forms={forms}")
        assert "fold_table_product" in str(recipe.targets[0].options) and len(notices) == 1


def test_new_names_are_those_of_passes_and_no_pass_has_an_old_one() -> None:
    known = {*pass_kinds(), *(form.name for kind in TARGETS.values() for form in kind.offers)}
    assert set(PASSES.values()) <= known and not set(PASSES) & known


def test_key_under_both_of_its_names_is_refused(tmp_path: Path) -> None:
    both = SHARED.replace("targets:", "  distillation: {feeds: data:more, count: 3}\ntargets:")
    assert refusal(tmp_path, both) == (
        "tiny.yaml:11: data.healing: expected one of distillation and its old name healing, got both; delete healing"
    )


def test_values_of_a_program_are_warned_of() -> None:
    values = read_document(SHARED.encode(), "given").plain()
    with pytest.warns(UserWarning, match="data: healing is now called distillation"):
        recipe_of_values(values, "given")


def test_recipe_of_another_shape_is_left_to_the_check_of_the_record() -> None:
    for text in ("7", "{data: 3, graphs: [1]}", "{graphs: {a: 1, b: {passes: 3}}, targets: {kind: x}}", "data:"):
        tree = read_document(text.encode(), "given")
        assert with_new_names(tree, pytest.fail) == tree


def test_no_recipe_that_ships_has_an_old_name() -> None:
    for path in sorted((ROOT / "recipes").glob("*.yaml")):
        with_new_names(read_document(path.read_bytes(), path.name), pytest.fail)


def test_page_lists_the_old_names() -> None:
    page = (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `[\w`, .]+` \| `(\w+)` \| `(\w+)` \|$", page, re.MULTILINE)
    assert sorted(rows) == sorted({pair for names in OLD_NAMES.values() for pair in names.items()})
