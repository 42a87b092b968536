"""What no pass can do yet may be written, and is refused by its name and line before anything runs."""

from pathlib import Path

import pytest
from rich.console import Console

from compiler.commands.subjects import open_original
from compiler.errors import Refused
from compiler.recipe.load import load_recipe
from compiler.recipe.not_lowered import require_lowered_parts
from compiler.report.progress import Progress
from tests.kit.recipes import GOOD, WIRE, changed, refusal, wired, write

KINDS = {
    "side: left": "tiny.yaml:15: graphs.encoder.axes.cache.side: left-aligned caches are not lowered yet",
    "side: left, update: append": "tiny.yaml:15: graphs.encoder.axes.cache.side: left-aligned caches are not lowered",
    "update: append": "tiny.yaml:15: graphs.encoder.axes.cache.update: caches that append are not lowered yet",
}


def refused(tmp_path: Path, text: str) -> str:
    loaded = load_recipe(write(tmp_path, text))
    with pytest.raises(Refused) as caught:
        require_lowered_parts(loaded)
    assert (caught.value.exit_code, bool(caught.value.cure)) == (3, True)
    return str(caught.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_cache_is_refused_by_its_name(kind: str, tmp_path: Path) -> None:
    got = refused(tmp_path, changed("window: 16,", f"window: 16, {kind},"))
    assert got.startswith(KINDS[kind])
    assert got.endswith("feed the whole back, and write side: right, update: replace")


def test_the_original_of_such_a_cache_is_not_run_as_another_kind(tmp_path: Path) -> None:
    """What it gives is no whole cache, and would be fed back as one."""
    loaded = load_recipe(write(tmp_path, changed("window: 16,", "window: 16, update: append,")))
    with pytest.raises(Refused, match="caches that append are not lowered yet"):
        open_original(loaded, "encoder", None, Progress(Console(quiet=True)))


def test_a_state_that_another_graph_starts_from_is_refused_by_its_name(tmp_path: Path) -> None:
    require_lowered_parts(load_recipe(write(tmp_path, wired(WIRE))))
    state = "from_graph: encoder, output: next_1, to_graph: codec, input: past"
    got = refused(tmp_path, wired(WIRE, state))
    assert got.startswith("tiny.yaml:") and "wiring.1: states that another graph starts from are not built yet" in got


def test_what_is_lowered_may_be_written_out(tmp_path: Path) -> None:
    loaded = load_recipe(write(tmp_path, changed("window: 16,", "window: 16, side: right, update: replace,")))
    require_lowered_parts(loaded)
    assert loaded.recipe == load_recipe(write(tmp_path, GOOD)).recipe


@pytest.mark.parametrize(("key", "value"), [("side", "middle"), ("update", "ring"), ("side", "1")])
def test_an_unknown_kind_is_a_wrong_recipe(key: str, value: str, tmp_path: Path) -> None:
    got = refusal(tmp_path, changed("window: 16,", f"window: 16, {key}: {value},"))
    assert got.startswith(f"tiny.yaml:15: graphs.encoder.axes.cache.{key}: expected"), got


@pytest.mark.parametrize("key", ["side: right", "update: replace"])
def test_only_caches_have_a_side_and_an_update(key: str, tmp_path: Path) -> None:
    got = refusal(tmp_path, changed("{buckets: [1, 4]}", f"{{buckets: [1, 4], {key}}}"))
    assert f"graphs.encoder.axes.batch: expected {key.split(':')[0]} on a window axis only" in got


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
