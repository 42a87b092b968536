"""A recipe is read strictly: the right one loads, every wrong one is answered with file, line, key and cure."""

from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml
from hypothesis import strategies

from compiler.errors import RecipeError
from compiler.recipe.load import find_recipe, load_recipe, render_recipe
from tests.kit.recipes import GOOD, changed, load, refusal, write


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


WRONG_RANGES = [
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
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG_RANGES)
def test_wrong_range_of_names_is_answered(old: str, new: str, message: str, tmp_path: Path) -> None:
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
            "--set: graphs.encodr.source: expected this key, got none; "
            "did you mean 'encoder'? known: encoder; else add source",
        ),
        (
            "gates.bugdet.size_mb=4",
            "--set: gates.bugdet: expected a known key, got 'bugdet'; "
            "did you mean 'budget'? known: budget, parity, pipeline, task",
        ),
        (
            "gates.parity.decoder.max_abs=1",
            "--set: gates.parity.decoder.chained_steps: expected this key, got none; did you mean 'encoder'? ",
        ),
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


@pytest.mark.parametrize("name", sorted(path.name for path in Path("recipes").glob("*.yaml")))
def test_no_two_roles_of_a_recipe_that_ships_draw_from_one_generator(name: str) -> None:
    # regression: a build that calibrates on what it verifies with is refused, when it has captured everything
    recipe = load_recipe(name).recipe
    for graph in recipe.graphs:
        roles = [role.feeds for _, role in recipe.data if role is not None]
        drawn = [feeds if isinstance(feeds, str) else feeds.get(graph) for feeds in roles]
        named = [each for each in drawn if each is not None]
        assert len(named) == len(set(named))


def test_the_recipe_of_one_target_has_its_limits_and_says_so(tmp_path: Path) -> None:
    by_target = "chained_steps: 100, targets: {npu: {max_abs: 0.5}}}"
    loaded = load_recipe(write(tmp_path, changed("chained_steps: 100}", by_target)))
    limited = loaded.with_limits_of("npu")
    assert limited.recipe.gates.parity["encoder"].lossy is not None
    assert "npu:" not in limited.text and "max_abs: 0.5" in limited.text
    assert loaded.with_limits_of("other").recipe.gates.parity["encoder"].lossy is None
    plain = load_recipe(write(tmp_path, GOOD))
    assert plain.with_limits_of("npu") is plain
