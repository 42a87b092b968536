"""The standard pipeline stands where a recipe lists none, or names it."""

from pathlib import Path

from compiler.recipe.tree.standard_passes import STANDARD_PASSES
from tests.kit.recipes import changed, load


def test_the_word_standard_stands_for_the_standard_passes(tmp_path: Path) -> None:
    text = changed("    passes:\n", "    passes:\n      - standard\n")
    names = [spec.name for spec in load(tmp_path, text).graphs["encoder"].passes]
    assert names == [*STANDARD_PASSES, "pad_axes", "simplify"]


def test_graph_without_passes_gets_the_standard_ones_and_set_reaches_them(tmp_path: Path) -> None:
    text = changed("    passes:\n      - pad_axes: {fill: 0.0}\n      - simplify\n", "")
    passes = load(tmp_path, text, "graphs.encoder.passes.simplify.rounds=2").graphs["encoder"].passes
    assert tuple(spec.name for spec in passes) == STANDARD_PASSES
    assert passes[0].options == {"rounds": 2}
    assert not any(spec.options for spec in passes[1:])
    assert load(tmp_path, text.replace("    axes:", "    passes: []\n    axes:")).graphs["encoder"].passes == ()
