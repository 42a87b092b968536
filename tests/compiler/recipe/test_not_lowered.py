"""What no pass can do yet may be written, and is refused by its name and line before anything runs."""

from pathlib import Path

import pytest

from compiler.errors import Refused
from compiler.recipe.load import load_recipe
from compiler.recipe.not_lowered import require_lowered_parts
from tests.kit.recipes import GOOD, WIRE, changed, refusal, wired, write


def test_a_state_that_another_graph_starts_from_is_refused_by_its_name(tmp_path: Path) -> None:
    require_lowered_parts(load_recipe(write(tmp_path, wired(WIRE))))
    state = "from_graph: encoder, output: next_1, to_graph: codec, input: past"
    with pytest.raises(Refused, match=r"wiring\.1: states that another graph starts from are not built yet") as caught:
        require_lowered_parts(load_recipe(write(tmp_path, wired(WIRE, state))))
    assert (caught.value.exit_code, bool(caught.value.cure)) == (3, True)


def test_what_is_lowered_may_be_written_out(tmp_path: Path) -> None:
    loaded = load_recipe(write(tmp_path, changed("window: 16,", "window: 16, update: replace,")))
    require_lowered_parts(loaded)
    assert loaded.recipe == load_recipe(write(tmp_path, GOOD)).recipe


def test_an_unknown_kind_is_a_wrong_recipe(tmp_path: Path) -> None:
    got = refusal(tmp_path, changed("window: 16,", "window: 16, update: ring,"))
    assert got.startswith("tiny.yaml:15: graphs.encoder.axes.cache.update: expected"), got


def test_only_caches_have_an_update(tmp_path: Path) -> None:
    got = refusal(tmp_path, changed("{buckets: [1, 4]}", "{buckets: [1, 4], update: replace}"))
    assert "graphs.encoder.axes.batch: expected update on a window axis only" in got


def test_two_caches_have_inputs_of_their_own(tmp_path: Path) -> None:
    two = changed("mask_input: mask}", "mask_input: mask}\n      other: {window: 8}").replace(
        "[logits,", "[logits, late,"
    )
    late = "      other_0: {shape: [batch, other, 8], dtype: float32, state: late}\n"
    two = two.replace("    outputs:", f"{late}    outputs:")
    message = (
        "graphs.encoder.axes: expected a length_input and a mask_input of its own for each axis, got 'real_length'"
    )
    assert message in refusal(tmp_path, two)
    named = two.replace("{window: 8}", "{window: 8, length_input: other_length}")
    assert list(load_recipe(write(tmp_path, named)).recipe.graphs["encoder"].caches) == ["cache", "other"]
    assert "got 'mask' twice" in refusal(tmp_path, named.replace("other_length}", "other_length, mask_input: mask}"))
    both = refusal(tmp_path, named.replace("shape: [batch, other, 8]", "shape: [batch, other, cache]"))
    assert "expected at most one axis with a window in the shape of a state, got ['other', 'cache']" in both
