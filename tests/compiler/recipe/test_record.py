"""A recipe is read strictly: the right one loads, every wrong one is answered with file, line, key and cure."""

from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml
from hypothesis import strategies

from compiler.errors import RecipeError
from compiler.recipe.record import STANDARD_PASSES, Recipe, find_recipe, load_recipe, render_recipe

GOOD = """\
name: tiny
graphs:
  encoder:
    source:
      factory: model:build
      checkpoint: weights.safetensors
    first_call:
      factory: model:build_first
    inputs:
      features: {shape: [batch, 67, 80], dtype: float32}
      cache_{0..2}: {shape: [batch, cache, 8], dtype: float32, state: "next_{0..2}"}
    outputs: [logits, "next_{0..2}"]
    axes:
      batch: {buckets: [1, 4]}
      cache: {window: 16, mask_input: mask}
    passes:
      - pad_axes: {fill: 0.0}
      - simplify
data:
  verification:
    feeds: data:streams
    count: 2
targets:
  - kind: onnx_static
    opset: 20
gates:
  parity:
    encoder: {max_abs: 1.0e-5, chained_steps: 100}
"""


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def refusal(tmp_path: Path, text: str, *overrides: str, checkpoint: str | None = None) -> str:
    """The message of the error, the file's folder cut off."""
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(tmp_path, text), overrides, checkpoint)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(f"{tmp_path}/", "")


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, f"the good recipe holds {old!r} {GOOD.count(old)} times"
    return GOOD.replace(old, new)


def load(tmp_path: Path, text: str = GOOD, *overrides: str) -> Recipe:
    return load_recipe(write(tmp_path, text), overrides).recipe


@pytest.mark.parametrize(
    ("features", "cache", "places"),
    [
        ("[1, 67, 80]", "[1, cache, 8]", [0, 0]),
        ("[67, 80]", "[cache, 8]", [None, None]),
        ("[67, 1, 80]", "[cache, 8, 1]", [1, 2]),
    ],
)
def test_original_of_one_row(features: str, cache: str, places: list[int | None], tmp_path: Path) -> None:
    text = one_row(features, cache)
    inputs = list(load(tmp_path, text).graphs["encoder"].inputs.values())
    assert [inputs[0].row_place, inputs[1].row_place] == places
    assert all(given.shape[0] == "batch" for given in inputs)


def one_row(features: str, cache: str) -> str:
    """The good recipe with the shapes of an original that is written for one row, where they are given."""
    text = changed("    passes:\n", "    passes:\n      - add_batch_axis\n")
    for end, original in (("80], dtype: float32", features), ('"next_{0..2}"}', cache)):
        assert text.count(end) >= 1
        new = end.rstrip("}") + (f", original: {original}" if original else "") + ("}" if end.endswith("}") else "")
        text = text.replace(end, new, 1)
    return text


@pytest.mark.parametrize(
    ("features", "cache", "message"),
    [
        ("[1, 67, 80]", "", "cache_0: expected original for every input, got it for 'features' and not for 'cache_0'"),
        ("[1, 67, 81]", "[cache, 8]", "expected shape without 'batch', or with a 1 for it, got [1, 67, 81]"),
        ("[2, 67, 80]", "[cache, 8]", "write [1, 67, 80] or [67, 80]"),
        ("[batch, 67, 80]", "[cache, 8]", "got ['batch', 67, 80]"),
    ],
)
def test_original_of_one_row_that_does_not_fit(features: str, cache: str, message: str, tmp_path: Path) -> None:
    assert message in refusal(tmp_path, one_row(features, cache))


def test_original_of_one_row_needs_its_pass_and_the_batch_in_front(tmp_path: Path) -> None:
    text = one_row("[1, 67, 80]", "[cache, 8]")
    without = text.replace("      - add_batch_axis\n", "")
    assert "expected add_batch_axis among passes" in refusal(tmp_path, without)
    turned = text.replace("shape: [batch, 67, 80]", "shape: [67, batch, 80]")
    assert "expected the axis with buckets in front, got [67, 'batch', 80]" in refusal(tmp_path, turned)


def test_the_word_standard_stands_for_the_standard_passes(tmp_path: Path) -> None:
    text = changed("    passes:\n", "    passes:\n      - standard\n")
    names = [spec.name for spec in load(tmp_path, text).graphs["encoder"].passes]
    assert names == [*STANDARD_PASSES, "pad_axes", "simplify"]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("window_stattes", "expected the name of a pass, got 'window_stattes'; did you mean 'window_states'?"),
        ("simplify: {round: 2}", "expected an option of simplify, got 'round'; did you mean 'rounds'?"),
    ],
)
def test_a_pass_behind_standard_is_known_by_its_name_and_line(entry: str, words: str, tmp_path: Path) -> None:
    """Its number in the list that `standard` stands for is no number of the recipe."""
    text = changed("      - pad_axes: {fill: 0.0}\n      - simplify\n", f"      - standard\n      - {entry}\n")
    (line,) = [at for at, each in enumerate(text.splitlines(), 1) if entry in each]
    loaded = load_recipe(write(tmp_path, text))
    with pytest.raises(RecipeError) as refused:
        loaded.check_passes({name: {"rounds"} if name == "simplify" else set() for name in STANDARD_PASSES})
    assert f"tiny.yaml:{line}: graphs.encoder.passes.{entry.split(':')[0]}: {words}" in str(refused.value)


def test_recipe_loads_into_frozen_record(tmp_path: Path) -> None:
    recipe = load(tmp_path)
    graph = recipe.graphs["encoder"]
    assert list(graph.inputs) == ["features", "cache_0", "cache_1", "cache_2"]
    assert [spec.state for spec in graph.inputs.values()] == [None, "next_0", "next_1", "next_2"]
    assert graph.outputs == ("logits", "next_0", "next_1", "next_2")
    assert graph.inputs["cache_1"].shape == ("batch", "cache", 8)
    assert (graph.axes["cache"].window, graph.axes["cache"].length_input) == (16, "real_length")
    assert graph.axes["batch"].buckets == (1, 4)
    assert [(spec.name, spec.options) for spec in graph.passes] == [("pad_axes", {"fill": 0.0}), ("simplify", {})]
    assert [(target.kind, target.options) for target in recipe.targets] == [("onnx_static", {"opset": 20})]
    assert recipe.gates.parity["encoder"].max_abs == 1e-5
    with pytest.raises(ValueError, match="frozen"):
        recipe.name = "other"


def test_first_call_shares_checkpoint_of_source(tmp_path: Path) -> None:
    first_call = load(tmp_path).graphs["encoder"].first_call
    assert first_call is not None
    assert first_call.checkpoint == "weights.safetensors"


def test_first_call_keeps_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    text = changed("factory: model:build_first", "factory: model:build_first\n      checkpoint: first.safetensors")
    first_call = load(tmp_path, text).graphs["encoder"].first_call
    assert first_call is not None
    assert first_call.checkpoint == "first.safetensors"


def test_effective_text_holds_defaults_and_loads_to_the_same_record(tmp_path: Path) -> None:
    loaded = load_recipe(write(tmp_path, GOOD))
    assert "length_input: real_length" in loaded.text
    assert "identical" not in loaded.text
    again = load_recipe(write(tmp_path, loaded.text))
    assert again.recipe == loaded.recipe
    assert again.text == loaded.text


@pytest.mark.parametrize("name", sorted(path.name for path in Path("recipes").glob("*.yaml")))
def test_effective_text_of_shipped_recipes_loads_to_the_same_record(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name).recipe
    assert load_recipe(write(tmp_path, render_recipe(recipe))).recipe == recipe


def test_zero_padded_ranges_and_order_of_inputs(tmp_path: Path) -> None:
    recipe = load(tmp_path, GOOD.replace("{0..2}", "{08..11}"))
    assert list(recipe.graphs["encoder"].inputs) == ["features", "cache_08", "cache_09", "cache_10", "cache_11"]


def test_optional_parts(tmp_path: Path) -> None:
    recipe = load(
        tmp_path,
        GOOD
        + """\
  task:
    recordings: data:recordings
    decode: decode:text
    metric: metric:wer
    max_increase: 0
  budget: {size_mb: 40}
front_end: {sample_rate_hz: 16000, dither: 0.0, window: povey, snip_edges: true}
""",
    )
    assert recipe.gates.task is not None
    assert recipe.gates.task.identical is False
    assert recipe.gates.budget is not None
    assert recipe.gates.budget.p95_ms is None
    assert recipe.front_end == {"sample_rate_hz": 16000, "dither": 0.0, "window": "povey", "snip_edges": True}


# Each row: what is changed in the good recipe, into what, and the message that answers.
WRONG_VALUES = [
    pytest.param("name: tiny\n", "", "tiny.yaml:1: name: expected this key, got none; add name", id="missing key"),
    pytest.param(
        "dtype: float32}\n      cache",
        "dtpye: float32}\n      cache",
        "tiny.yaml:10: graphs.encoder.inputs.features.dtpye: expected a known key, got 'dtpye'; "
        "did you mean 'dtype'? known: dtype, length_of, mask_of, original, range, shape, state",
        id="misspelt key",
    ),
    pytest.param(
        "gates:\n",
        "gate: {}\ngates:\n",
        "tiny.yaml:26: gate: expected a known key, got 'gate'; did you mean 'gates'? "
        "known: data, front_end, gates, graphs, name, targets",
        id="unknown key at the top",
    ),
    pytest.param(
        "80], dtype: float32",
        "80], dtype: fp32",
        "tiny.yaml:10: graphs.encoder.inputs.features.dtype: expected one of the known names, got 'fp32'; "
        "did you mean 'float32'?",
        id="dtype of another framework",
    ),
    pytest.param(
        "max_abs: 1.0e-5",
        "max_abs: 1e-5",
        "tiny.yaml:28: gates.parity.encoder.max_abs: expected a number, got '1e-5'; YAML reads 1e-5 as text; "
        "write 1.0e-5",
        id="exponent without point",
    ),
    pytest.param(
        "max_abs: 1.0e-5",
        "max_abs: 1.5e5",
        "tiny.yaml:28: gates.parity.encoder.max_abs: expected a number, got '1.5e5'; YAML reads 1.5e5 as text; "
        "write 1.5e+5",
        id="exponent without sign",
    ),
    pytest.param(
        "max_abs: 1.0e-5",
        "max_abs: .nan",
        "tiny.yaml:28: gates.parity.encoder.max_abs: expected a finite number, got .nan; change the value",
        id="tolerance that is no number",
    ),
    pytest.param(
        "max_abs: 1.0e-5",
        "max_abs: 0.0",
        "tiny.yaml:28: gates.parity.encoder.max_abs: expected a number above 0, got 0.0; change the value",
        id="tolerance of zero",
    ),
    pytest.param(
        "chained_steps: 100}",
        "chained_steps: 100, drift: {steps: 4}}",
        "tiny.yaml:28: gates.parity.encoder.drift.steps: expected a number of at least 8, got 4; change the value",
        id="drift of few steps",
    ),
    pytest.param(
        "chained_steps: 100",
        "chained_steps: 100.0",
        "tiny.yaml:28: gates.parity.encoder.chained_steps: expected an integer, got 100.0; write 100",
        id="integer with a point",
    ),
    pytest.param(
        "chained_steps: 100",
        'chained_steps: "100"',
        "tiny.yaml:28: gates.parity.encoder.chained_steps: expected an integer, got '100'; drop the quotes: 100",
        id="number in quotes",
    ),
    pytest.param(
        "chained_steps: 100",
        "chained_steps: true",
        "tiny.yaml:28: gates.parity.encoder.chained_steps: expected an integer, got true; write an integer",
        id="boolean for a number",
    ),
    pytest.param(
        "name: tiny",
        "name: no",
        'tiny.yaml:1: name: expected text, got no; YAML reads no as a boolean; write "no" in quotes',
        id="boolean for a name",
    ),
    pytest.param(
        "name: tiny",
        "name: 3.10",
        'tiny.yaml:1: name: expected text, got 3.10; YAML reads 3.10 as a number; write "3.10" in quotes',
        id="version for a name",
    ),
    pytest.param(
        "name: tiny",
        "name: 2026-01-01",
        "tiny.yaml:1: expected text or a number, got 2026-01-01, which YAML reads as a timestamp; "
        'write "2026-01-01" in quotes',
        id="date",
    ),
    pytest.param(
        "count: 2",
        "count: 1:30",
        "tiny.yaml:22: expected text or a number, got 1:30, which YAML reads in base 60; "
        'write "1:30" in quotes, or the plain number',
        id="base 60",
    ),
    pytest.param(
        "count: 2",
        "count: 010",
        'tiny.yaml:22: expected a number, got 010, which YAML reads in base 8; write 10, or "010" in quotes',
        id="base 8",
    ),
    pytest.param(
        "count: 2",
        "count:",
        "tiny.yaml:22: data.verification.count: expected an integer, got nothing; give it a value, or delete the key",
        id="key without a value",
    ),
    pytest.param(
        "kind: onnx_static",
        "kind: null",
        'tiny.yaml:24: targets.0.kind: expected text, got null; YAML reads null as null; write "null" in quotes',
        id="target null without quotes",
    ),
    pytest.param(
        "      batch: {buckets",
        "      on: {fixed: 1}\n      batch: {buckets",
        'tiny.yaml:14: expected a name as key, got on, which YAML reads as a boolean; write "on" in quotes',
        id="boolean as key",
    ),
    pytest.param(
        "[batch, 67, 80]",
        "[batch, 67.5, 80]",
        "tiny.yaml:10: graphs.encoder.inputs.features.shape.1: expected an integer or text, got 67.5; ",
        id="fraction in a shape",
    ),
    pytest.param(
        "[batch, 67, 80]",
        "[batch, -1, 80]",
        "tiny.yaml:10: graphs.encoder.inputs.features.shape.1: expected a number of at least 1, got -1; "
        "change the value",
        id="negative size",
    ),
    pytest.param(
        "[batch, 67, 80]",
        "67",
        "tiny.yaml:10: graphs.encoder.inputs.features.shape: expected a list, got 67; write [67]",
        id="shape that is no list",
    ),
    pytest.param(
        "factory: model:build\n",
        "factory: model.build\n",
        "tiny.yaml:5: graphs.encoder.source.factory: expected a reference package.module:name, got 'model.build'; "
        "for example package.module:build",
        id="reference without a colon",
    ),
    pytest.param(
        "feeds: data:streams",
        "feeds: 5",
        "tiny.yaml:21: data.verification.feeds: expected text or a mapping, got 5; YAML reads 5 as an integer",
        id="feeds of another type",
    ),
    pytest.param(
        "feeds: data:streams",
        "feeds: {encoder: streams}",
        "tiny.yaml:21: data.verification.feeds.encoder: expected a reference package.module:name, got 'streams'; ",
        id="feeds per graph, no reference",
    ),
    pytest.param(
        "  encoder:\n    source",
        "  en-coder:\n    source",
        "tiny.yaml:3: graphs.en-coder: expected a name of letters, digits and underscores that starts with a letter, "
        "got the key 'en-coder'; rename it",
        id="graph name with a hyphen",
    ),
    pytest.param(
        "targets:\n  - kind: onnx_static\n    opset: 20\n",
        "targets: []\n",
        "tiny.yaml:23: targets: expected at least 1 entry, got a list of 0; change the value",
        id="no target",
    ),
    pytest.param(
        "  - kind: onnx_static\n    opset: 20\n",
        "  - onnx_static\n",
        "tiny.yaml:24: targets.0: expected a mapping, got 'onnx_static'; ",
        id="target that is no mapping",
    ),
    pytest.param(
        "      - simplify",
        "      - simplify: 3",
        "tiny.yaml:18: expected a pass name or `name: {option: value}`, got a mapping with keys simplify; ",
        id="pass options that are no mapping",
    ),
    pytest.param(
        "      - simplify",
        "      - {simplify: {}, pad: {}}",
        "tiny.yaml:18: expected a pass name or `name: {option: value}`, got a mapping with keys simplify, pad; "
        'write each pass as its own list entry, e.g. "- pad_axes: {fill: 0.0}"',
        id="two passes in one entry",
    ),
    pytest.param(
        "data:\n  verification:\n    feeds: data:streams\n    count: 2\n",
        "data: later\n",
        "tiny.yaml:19: data: expected a mapping, got 'later'; ",
        id="part that is no mapping",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG_VALUES)
def test_wrong_value_is_answered_with_line_key_and_cure(old: str, new: str, message: str, tmp_path: Path) -> None:
    got = refusal(tmp_path, changed(old, new))
    assert got.startswith(message), got


CONTRADICTIONS = [
    pytest.param(
        "      checkpoint: weights.safetensors\n",
        "      onnx: model.onnx\n",
        "tiny.yaml:4: graphs.encoder.source: expected one of factory and onnx, got both; "
        "name where the graph comes from",
        id="two origins",
    ),
    pytest.param(
        "      factory: model:build\n",
        "",
        "tiny.yaml:4: graphs.encoder.source: expected one of factory and onnx, got neither; "
        "name where the graph comes from",
        id="no origin",
    ),
    pytest.param(
        "      factory: model:build\n",
        "      onnx: model.onnx\n",
        "tiny.yaml:6: graphs.encoder.source.checkpoint: expected no checkpoint beside onnx, got one; ",
        id="checkpoint of an onnx file",
    ),
    pytest.param(
        "{buckets: [1, 4]}",
        "{buckets: [4, 1, 4]}",
        "tiny.yaml:14: graphs.encoder.axes.batch: expected ascending distinct buckets, got [4, 1, 4]; write [1, 4]",
        id="buckets out of order",
    ),
    pytest.param(
        "{buckets: [1, 4]}",
        "{buckets: []}",
        "tiny.yaml:14: graphs.encoder.axes.batch: expected ascending distinct buckets, got []; write [1]",
        id="no bucket",
    ),
    pytest.param(
        "{buckets: [1, 4]}",
        "{buckets: [0, 4]}",
        "tiny.yaml:14: graphs.encoder.axes.batch.buckets.0: expected a number of at least 1, got 0; ",
        id="bucket of zero",
    ),
    pytest.param(
        "{buckets: [1, 4]}",
        "{buckets: [1], fixed: 1}",
        "tiny.yaml:14: graphs.encoder.axes.batch: expected one of fixed, buckets and window, got fixed and buckets; ",
        id="axis of two kinds",
    ),
    pytest.param(
        "{buckets: [1, 4]}",
        "{}",
        "tiny.yaml:14: graphs.encoder.axes.batch: expected one of fixed, buckets and window, got none; ",
        id="axis of no kind",
    ),
    pytest.param(
        "{buckets: [1, 4]}",
        "{buckets: [1], mask_input: m}",
        "tiny.yaml:14: graphs.encoder.axes.batch: expected mask_input on a window axis only, got it on a buckets "
        "axis; ",
        id="mask of a batch axis",
    ),
    pytest.param(
        "window: 16",
        "window: 0",
        "tiny.yaml:15: graphs.encoder.axes.cache.window: expected a number of at least 1, got 0; ",
        id="window of zero",
    ),
    pytest.param(
        "mask_input: mask",
        "mask_input: real_length",
        "tiny.yaml:15: graphs.encoder.axes.cache: expected different names for length_input and mask_input, got "
        "one name; ",
        id="mask named as the length",
    ),
    pytest.param(
        "mask_input: mask",
        "mask_input: features",
        "tiny.yaml:15: graphs.encoder.axes.cache.mask_input: expected a new name for the input it adds, got "
        "'features', ",
        id="mask named as an input",
    ),
    pytest.param(
        "[batch, 67, 80]",
        "[bacth, 67, 80]",
        "tiny.yaml:10: graphs.encoder.inputs.features.shape: expected numbers and axes declared under axes, got "
        "'bacth'; declare it, or write a number; did you mean 'batch'? known: batch, cache",
        id="undeclared axis",
    ),
    pytest.param(
        "      batch: {buckets",
        "      frames: {fixed: 67}\n      batch: {buckets",
        "tiny.yaml:14: graphs.encoder.axes.frames: expected an axis of some shape, got 'frames' in none; delete it; ",
        id="unused axis",
    ),
    pytest.param(
        'state: "next_{0..2}"',
        'state: "nxt_{0..2}"',
        "tiny.yaml:11: graphs.encoder.inputs.cache_0.state: expected the name of an output, got 'nxt_0'; "
        "did you mean 'next_0'? ",
        id="state that is no output",
    ),
    pytest.param(
        'state: "next_{0..2}"',
        "state: next_0",
        "tiny.yaml:11: expected the same range in an input and its state, got 'cache_{0..2}' and 'next_0'; "
        "write {0..2} in both",
        id="range in the key only",
    ),
    pytest.param(
        'state: "next_{0..2}"',
        'state: "next_{1..3}"',
        "tiny.yaml:11: expected the same range in an input and its state, ",
        id="shifted range",
    ),
    pytest.param(
        "      cache_{0..2}",
        "      cache_{2..0}",
        "tiny.yaml:11: expected an ascending range of at most 1000 names, got 'cache_{2..0}'; ",
        id="descending range",
    ),
    pytest.param(
        "      cache_{0..2}",
        "      cache_{000..2}",
        "tiny.yaml:11: expected an ascending range of at most 1000 names, got 'cache_{000..2}'; ",
        id="range with more digits at its start",
    ),
    pytest.param(
        "      cache_{0..2}",
        "      cache_{0..99999}",
        "tiny.yaml:11: expected an ascending range of at most 1000 names, got 'cache_{0..99999}'; ",
        id="endless range",
    ),
    pytest.param(
        "      cache_{0..2}",
        "      cache_{a..c}",
        "tiny.yaml:11: expected one range such as {00..11} in a name, got 'cache_{a..c}'; write one range",
        id="range of letters",
    ),
    pytest.param(
        "      cache_{0..2}",
        "      cache_1: {shape: [batch, cache, 8], dtype: float32}\n      cache_{0..2}",
        "tiny.yaml:12: expected each input once, got 'cache_1' again; let the ranges not overlap",
        id="overlapping names",
    ),
    pytest.param(
        'outputs: [logits, "next_{0..2}"]',
        'outputs: [logits, logits, "next_{0..2}"]',
        "tiny.yaml:12: graphs.encoder.outputs: expected distinct names, got 'logits' twice; ",
        id="output twice",
    ),
    pytest.param(
        "      features: {shape: [batch, 67, 80], dtype: float32}",
        "      features: {shape: [batch, 67, 80], dtype: float32, state: next_0}",
        "tiny.yaml:11: graphs.encoder.inputs.cache_0.state: expected an output that feeds no other input, got "
        "'next_0', which feeds ",
        id="two inputs fed by one output",
    ),
    pytest.param(
        "    encoder: {max_abs",
        "    encodr: {max_abs",
        "tiny.yaml:28: gates.parity.encodr: expected the name of a graph, got 'encodr'; "
        "did you mean 'encoder'? known: encoder",
        id="gate of no graph",
    ),
    pytest.param(
        "    encoder: {max_abs: 1.0e-5, chained_steps: 100}\n",
        "    {}\n",
        "tiny.yaml:27: gates.parity: expected an entry for every graph, got none for 'encoder'; add encoder",
        id="graph without a gate",
    ),
    pytest.param(
        "feeds: data:streams",
        "feeds: {decoder: data:streams}",
        "tiny.yaml:21: data.verification.feeds.decoder: expected the name of a graph, got 'decoder'; ",
        id="feeds of no graph",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), CONTRADICTIONS)
def test_contradiction_is_answered_with_line_key_and_cure(old: str, new: str, message: str, tmp_path: Path) -> None:
    got = refusal(tmp_path, changed(old, new))
    assert got.startswith(message), got


NOT_PLAIN_DATA = [
    pytest.param("", "tiny.yaml:1: expected a mapping, got nothing; ", id="empty file"),
    pytest.param("- a\n- b\n", "tiny.yaml:1: expected a mapping, got a list of 2; ", id="list"),
    pytest.param(
        "name: tiny\nname: tiny\n",
        "tiny.yaml:2: expected each key once, got 'name' again (first in tiny.yaml:1); ",
        id="duplicate key",
    ),
    pytest.param("a: &x 1\n", "tiny.yaml:1: expected plain YAML data, got a tag, an anchor or an alias; ", id="anchor"),
    pytest.param("a: *x\n", "tiny.yaml:1: expected plain YAML data, got a tag, an anchor or an alias; ", id="alias"),
    pytest.param(
        "a: 1\nb: !!python/object/apply:os.system [ls]\n",
        "tiny.yaml:2: expected plain YAML data, got a tag, an anchor or an alias; write the value out; "
        "a recipe is data only",
        id="code in a tag",
    ),
    pytest.param("a:\n  <<: {b: 1}\n", "tiny.yaml:2: expected a name as key, got the merge key '<<'; ", id="merge key"),
    pytest.param("? [a]\n: 1\n", "tiny.yaml:1: expected a name as key, got a list or mapping; ", id="list as key"),
    pytest.param(
        "a: 1\n---\nb: 2\n",
        "tiny.yaml:2: expected plain YAML data, got but found another document; ",
        id="two documents",
    ),
    pytest.param(
        "a: [" + "[" * 2000, "tiny.yaml:1: expected plain YAML data, got nesting deeper than 24; ", id="deep nesting"
    ),
    pytest.param("a:\n\tb: 1\n", "tiny.yaml:2: expected plain YAML data, got ", id="tab"),
    pytest.param(
        "a: [b_{00..01}]\n",
        "tiny.yaml:1: expected plain YAML data, got expected ',' or ']', but got '{'; "
        'inside [ ] and { } put a name with a range in quotes, e.g. "cache_{00..11}"',
        id="range without quotes in a list",
    ),
    pytest.param(
        "a: " + "9" * 5000, "tiny.yaml:1: expected a number of at most 64 characters, got 5000; ", id="endless number"
    ),
    pytest.param("a: 0b_\n", "tiny.yaml:1: expected a number, got 0b_; ", id="number without digits"),
    pytest.param(
        "a: \x01\n", "tiny.yaml: expected plain YAML data, got unacceptable character #x0001: ", id="control character"
    ),
    pytest.param("#" * (1 << 20) + "\n", "tiny.yaml: expected at most 1048576 bytes, got 1048577; ", id="huge file"),
]


@pytest.mark.parametrize(("text", "message"), NOT_PLAIN_DATA)
def test_what_is_not_plain_data_is_refused(text: str, message: str, tmp_path: Path) -> None:
    got = refusal(tmp_path, text)
    assert got.startswith(message), got


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_bytes(b"name: \xff\n")
    with pytest.raises(RecipeError, match=r"expected UTF-8 text, got byte 0xff at offset 6; save it as UTF-8"):
        load_recipe(str(path))


# Overrides


@pytest.mark.parametrize(
    ("override", "keys", "value"),
    [
        ("name=other", "name", "other"),
        ("gates.parity.encoder.max_abs=1.0e-6", "gates.parity.encoder.max_abs", 1e-6),
        ("graphs.encoder.axes.batch.buckets=[1, 2, 8]", "graphs.encoder.axes.batch.buckets", (1, 2, 8)),
        ("graphs.encoder.axes.batch.buckets.1=9", "graphs.encoder.axes.batch.buckets", (1, 9)),
        ("graphs.encoder.axes.cache.mask_input=null", "graphs.encoder.axes.cache.mask_input", None),
        ("graphs.encoder.inputs.cache_1.dtype=float16", "graphs.encoder.inputs.cache_1.dtype", "float16"),
        ("graphs.encoder.passes.pad_axes.fill=2.0", "graphs.encoder.passes.0.options", {"fill": 2.0}),
        ("graphs.encoder.passes.simplify.rounds=3", "graphs.encoder.passes.1.options", {"rounds": 3}),
        ("graphs.encoder.passes.1=canonicalize_x", "graphs.encoder.passes.1.name", "canonicalize_x"),
        ("targets.onnx_static.opset=21", "targets.0.options", {"opset": 21}),
        ('targets.0.kind="null"', "targets.0.kind", "null"),
        ("gates.budget.size_mb=40", "gates.budget.size_mb", 40),
        ("front_end.sample_rate_hz=16000", "front_end.sample_rate_hz", 16000),
        ("data.verification.files=[testset]", "data.verification.files", ("testset",)),
    ],
)
def test_override_sets_one_value(override: str, keys: str, value: object, tmp_path: Path) -> None:
    found: Any = load(tmp_path, GOOD, override)
    for key in keys.split("."):
        found = (
            found[int(key)]
            if isinstance(found, tuple)
            else found[key]
            if isinstance(found, dict)
            else getattr(found, key)
        )
    assert found == value


def test_override_reaches_names_with_dots(tmp_path: Path) -> None:
    recipe = load(tmp_path, GOOD.replace("features:", "feats.1:"), "graphs.encoder.inputs.feats.1.dtype=float16")
    assert recipe.graphs["encoder"].inputs["feats.1"].dtype == "float16"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("name", "--set: expected path.to.key=value, got 'name'; for example"),
        ("=3", "--set: expected path.to.key=value, got '=3'; "),
        (
            "graphs.encodr.axes.batch.fixed=1",
            "--set: expected an existing path, got 'graphs.encodr.axes.batch.fixed'; "
            "did you mean 'encoder'? known: encoder",
        ),
        (
            "gates.bugdet.size_mb=4",
            "--set: expected an existing path, got 'gates.bugdet.size_mb'; "
            "did you mean 'budget'? known: budget, parity, task",
        ),
        ("gates.parity.decoder.max_abs=1", "--set: expected an existing path, got 'gates.parity.decoder.max_abs'; "),
        ("name.first=x", "--set: expected a mapping or list at name, got 'tiny'; shorten the path"),
        (
            "graphs.encoder.passes.pad_axis.fill=1",
            "--set: expected an entry of graphs.encoder.passes, got 'pad_axis'; did you mean 'pad_axes'? known: 0, 1, ",
        ),
        ("targets.7.kind=x", "--set: expected an entry of targets, got '7'; known: 0, onnx_static"),
        (
            "gates.parity.encoder.max_abs=1e-6",
            "--set: gates.parity.encoder.max_abs: expected a number, got '1e-6'; YAML reads",
        ),
        ("gates.parity.encoder.max_abs=[", "--set: expected plain YAML data, got "),
        ("data.verification.count=010", "--set: expected a number, got 010, which YAML reads in base 8; "),
    ],
)
def test_wrong_override_is_answered(override: str, message: str, tmp_path: Path) -> None:
    got = refusal(tmp_path, GOOD, override)
    assert got.startswith(message), got


def test_checkpoint_option_replaces_every_checkpoint(tmp_path: Path) -> None:
    graph = load_recipe(write(tmp_path, GOOD), (), "other.safetensors").recipe.graphs["encoder"]
    assert graph.first_call is not None
    assert graph.source.checkpoint == graph.first_call.checkpoint == "other.safetensors"


def test_checkpoint_option_with_several_checkpoints_is_refused(tmp_path: Path) -> None:
    text = changed("factory: model:build_first", "factory: model:build_first\n      checkpoint: first.safetensors")
    message = (
        "--checkpoint: expected a recipe with one checkpoint, got first.safetensors, weights.safetensors; write --set "
    )
    assert refusal(tmp_path, text, checkpoint="x").startswith(message)


def test_checkpoint_option_without_factory_is_refused(tmp_path: Path) -> None:
    text = changed("      factory: model:build\n      checkpoint: weights.safetensors\n", "      onnx: model.onnx\n")
    text = text.replace("    first_call:\n      factory: model:build_first\n", "")
    assert refusal(tmp_path, text, checkpoint="x").startswith(
        "--checkpoint: expected a recipe with a factory, got only onnx"
    )


def test_graph_without_passes_gets_the_standard_ones_and_set_reaches_them(tmp_path: Path) -> None:
    text = changed("    passes:\n      - pad_axes: {fill: 0.0}\n      - simplify\n", "")
    passes = load(tmp_path, text, "graphs.encoder.passes.simplify.rounds=2").graphs["encoder"].passes
    assert tuple(spec.name for spec in passes) == STANDARD_PASSES
    assert passes[0].options == {"rounds": 2}
    assert not any(spec.options for spec in passes[1:])
    assert load(tmp_path, text.replace("    axes:", "    passes: []\n    axes:")).graphs["encoder"].passes == ()


# Names and places


def test_recipe_is_found_by_path_or_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.yaml").write_text(GOOD)
    assert find_recipe("mine") == find_recipe("mine.yaml") == Path("recipes/mine.yaml")
    assert find_recipe("recipes/mine.yaml") == Path("recipes/mine.yaml")
    assert find_recipe("cpu.yaml").is_absolute()  # beside Slipway
    with pytest.raises(RecipeError, match=r"--recipe: expected a file, or a name in recipes/, got 'mone'; .*mine.yaml"):
        find_recipe("mone")


def test_relative_paths_mean_the_current_directory_then_the_recipes_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    loaded = load_recipe(write(there, GOOD))
    monkeypatch.chdir(here)
    assert loaded.search_path() == (here, there)
    assert loaded.locate("weights.bin") == here / "weights.bin"
    (there / "weights.bin").touch()
    assert loaded.locate("weights.bin") == there / "weights.bin"
    (here / "weights.bin").touch()
    assert loaded.locate("weights.bin") == here / "weights.bin"


def test_where_names_the_line_of_a_key(tmp_path: Path) -> None:
    loaded = load_recipe(write(tmp_path, GOOD))
    assert loaded.where("graphs", "encoder", "passes", 1).endswith("tiny.yaml:18: graphs.encoder.passes.simplify")
    assert loaded.where("graphs", "encoder", "inputs", "cache_2").endswith(
        "tiny.yaml:11: graphs.encoder.inputs.cache_2"
    )


def test_passes_and_targets_are_checked_against_registries(tmp_path: Path) -> None:
    loaded = load_recipe(write(tmp_path, GOOD))
    loaded.check_passes({"pad_axes": {"fill"}, "simplify": set()})
    loaded.check_targets({"onnx_static": {"opset"}})
    with pytest.raises(
        RecipeError,
        match=r"tiny.yaml:18: graphs.encoder.passes.simplify: expected the name of a pass, got 'simplify'; did",
    ):
        loaded.check_passes({"pad_axes": {"fill"}, "simplify_graph": set()})
    with pytest.raises(
        RecipeError, match=r"tiny.yaml:17: graphs.encoder.passes.pad_axes: expected an option of pad_axes, got 'fill'"
    ):
        loaded.check_passes({"pad_axes": {"filling"}, "simplify": set()})
    with pytest.raises(RecipeError, match=r"tiny.yaml:24: targets.0: expected the name of a target, got 'onnx_static'"):
        loaded.check_targets({"null": set()})


# Bytes in, typed error or valid record out

FRAGMENTS = strategies.sampled_from(
    [*GOOD.splitlines(keepends=True), "  ", "- ", "{", "}", "[", ": ", "{0..9}", "&a", "!x", "0", "\t"]
)


@hypothesis.given(
    strategies.one_of(
        strategies.binary(max_size=200),
        strategies.lists(FRAGMENTS, max_size=30).map(lambda parts: "".join(parts).encode()),
    )
)
def test_any_bytes_give_a_recipe_or_a_recipe_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(data)
    try:
        load_recipe(str(path))
    except RecipeError as error:
        assert str(error)  # noqa: PT017  (an error is one of two right answers)


SCALARS = strategies.one_of(
    strategies.none(), strategies.booleans(), strategies.integers(), strategies.floats(), strategies.text(max_size=8)
)


@hypothesis.given(strategies.data())
def test_any_value_anywhere_gives_a_recipe_or_a_recipe_error(
    tmp_path_factory: pytest.TempPathFactory, data: strategies.DataObject
) -> None:
    tree = yaml.safe_load(GOOD)
    node: Any = tree
    while True:
        key = data.draw(strategies.sampled_from(list(node) if isinstance(node, dict) else list(range(len(node)))))
        if not isinstance(node[key], dict | list) or not node[key] or data.draw(strategies.booleans()):
            break
        node = node[key]
    node[key] = data.draw(
        strategies.recursive(
            SCALARS,
            lambda inner: (
                strategies.lists(inner, max_size=3)
                | strategies.dictionaries(strategies.text(max_size=4), inner, max_size=3)
            ),
        )
    )
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    try:
        loaded = load_recipe(str(path))
    except RecipeError as error:
        assert str(error)  # noqa: PT017  (an error is one of two right answers)
    else:
        path.write_text(loaded.text, encoding="utf-8")
        assert load_recipe(str(path)).recipe == loaded.recipe


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("range: [1.0, -1.0]", "features.range: expected the smaller number first, got [1, -1]; swap them"),
        ("range: [1.0]", "features.range: expected two numbers, got 1; write the smallest"),
        ("range: [0.0, .inf]", "features.range.1: expected a finite number, got .inf"),
        ("range: 1.0", "features.range: expected a list, got 1.0"),
    ],
)
def test_wrong_range_is_refused_with_its_line(given: str, message: str, tmp_path: Path) -> None:
    text = changed(
        "features: {shape: [batch, 67, 80], dtype: float32}",
        f"features: {{shape: [batch, 67, 80], dtype: float32, {given}}}",
    )
    assert f"tiny.yaml:10: graphs.encoder.inputs.{message}" in refusal(tmp_path, text)


def test_range_is_of_numbers_that_callers_feed(tmp_path: Path) -> None:
    state = changed('state: "next_{0..2}"}', 'state: "next_{0..2}", range: [0.0, 1.0]}')
    assert "expected a range for numbers that callers feed, got one for a state, mask or length" in refusal(
        tmp_path, state
    )
    whole = changed("dtype: float32}\n      cache", "dtype: int64, range: [0.5, 2.0]}\n      cache")
    assert "expected whole numbers for int64, got [0.5, 2]; round them" in refusal(tmp_path, whole)
    good = changed("dtype: float32}\n      cache", "dtype: float32, range: [-1, 1.0]}\n      cache")
    assert load_recipe(write(tmp_path, good)).recipe.graphs["encoder"].inputs["features"].range == (-1.0, 1.0)


def test_kinds_of_edge_feeds_are_known_by_name(tmp_path: Path) -> None:
    text = changed("chained_steps: 100}", "chained_steps: 100, edges: [silence, noise]}")
    assert "gates.parity.encoder.edges.1: expected one of the known names, got 'noise'" in refusal(tmp_path, text)


def test_drift_is_for_graphs_that_hand_states_on(tmp_path: Path) -> None:
    text = changed("chained_steps: 100}", "chained_steps: 100, drift: {max_growth: 2}}")
    gate = load_recipe(write(tmp_path, text)).recipe.gates.parity["encoder"]
    assert gate.drift is not None
    assert (gate.drift.steps, gate.drift.max_growth) == (1000, 2.0)
    alone = text.replace(', state: "next_{0..2}"', "")
    assert "gates.parity.encoder.drift: expected a graph that hands states on for drift" in refusal(tmp_path, alone)
