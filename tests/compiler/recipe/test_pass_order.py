"""Passes stand behind those that must have run, by the recipe alone, or the recipe's line says which does not."""

from pathlib import Path

import pytest

from compiler.errors import RecipeError
from compiler.recipe.load import load_recipe
from compiler.recipe.pass_order import check_order
from tests.kit.recipes import GOOD, changed, write

AFTER = {
    "simplify": (),
    "merge_first_call": ("add_batch_axis",),
    "pad_axes": ("add_batch_axis", "merge_first_call", "select_states"),
    "select_states": (),
    "window_states": ("pad_axes",),
    "quantize_static": ("merge_first_call",),
}
PASSES = "      - pad_axes: {fill: 0.0}\n      - simplify\n"


def check(tmp_path: Path, *passes: str, text: str = GOOD) -> None:
    listed = "".join(f"      - {each}\n" for each in passes)
    check_order(load_recipe(write(tmp_path, text.replace(PASSES, listed))), "encoder", AFTER)


@pytest.mark.parametrize(
    "passes",
    [
        ("simplify", "merge_first_call", "pad_axes", "window_states", "simplify"),
        ("merge_first_call", "pad_axes"),
        ("merge_first_call", "select_states", "pad_axes", "quantize_static"),
        ("simplify",),
    ],
)
def test_passes_in_order(passes: tuple[str, ...], tmp_path: Path) -> None:
    check(tmp_path, *passes)


@pytest.mark.parametrize(
    ("passes", "line", "message"),
    [
        (("merge_first_call", "window_states", "pad_axes"), 18,
         "window_states: expected pad_axes before window_states, got it behind; list pad_axes before window_states"),
        (("simplify", "window_states"), 18, "window_states: expected pad_axes before window_states, got none; list"),
        (("quantize_static",), 17, "quantize_static: expected merge_first_call before quantize_static, got none"),
        (("merge_first_call", "pad_axes", "select_states"), 18,
         "pad_axes: expected select_states before pad_axes, got it behind"),
        (("merge_first_call", "select_states", "pad_axes", "select_states"), 19,
         "pad_axes: expected select_states before pad_axes, got it behind"),
    ],
)  # fmt: skip
def test_passes_out_of_order(passes: tuple[str, ...], line: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as refused:
        check(tmp_path, *passes)
    assert f"tiny.yaml:{line}: graphs.encoder.passes.{message}" in str(refused.value)


def test_what_has_nothing_to_do_on_the_graph_need_not_be_listed(tmp_path: Path) -> None:
    alone = changed("    first_call:\n      factory: model:build_first\n", "")
    check(tmp_path, "quantize_static", text=alone)
    fixed = alone.replace("{window: 16, mask_input: mask}", "{fixed: 16}")
    check(tmp_path, "window_states", text=fixed)
