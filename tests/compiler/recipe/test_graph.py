"""Inputs, outputs, axes and passes of a graph agree, or the recipe's line says where they do not."""

import re
from pathlib import Path
from typing import Any

import pytest

from compiler.errors import RecipeError
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, DeriveSteps, Input, Source
from compiler.recipe.load import load_recipe
from tests.kit.recipes import changed, load, refusal

CONTRADICTIONS = [
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
]


@pytest.mark.parametrize(("old", "new", "message"), CONTRADICTIONS)
def test_contradiction_is_answered_with_line_key_and_cure(old: str, new: str, message: str, tmp_path: Path) -> None:
    got = refusal(tmp_path, changed(old, new))
    assert got.startswith(message), got


def test_first_call_shares_checkpoint_of_source(tmp_path: Path) -> None:
    first_call = load(tmp_path).graphs["encoder"].first_call
    assert first_call is not None
    assert first_call.checkpoint == "weights.safetensors"


def test_first_call_keeps_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    text = changed("factory: model:build_first", "factory: model:build_first\n      checkpoint: first.safetensors")
    first_call = load(tmp_path, text).graphs["encoder"].first_call
    assert first_call is not None
    assert first_call.checkpoint == "first.safetensors"


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
    assert [inputs[0].row_axis, inputs[1].row_axis] == places
    assert all(given.shape[0] == "batch" for given in inputs)


@pytest.mark.parametrize("how", ["shape: [67, batch, 80]", "shape: [batch, 67, 80], original: [67, batch, 80]"])
def test_rows_elsewhere_than_in_front(how: str, tmp_path: Path) -> None:
    text = changed("    passes:\n", "    passes:\n      - add_batch_axis\n")
    graph = load(tmp_path, text.replace("shape: [batch, 67, 80]", how)).graphs["encoder"]
    given = graph.inputs["features"]
    assert (given.shape, given.original, given.row_axis) == (("batch", 67, 80), (67, "batch", 80), 1)
    assert not graph.is_for_one_row


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


def test_original_of_one_row_needs_an_axis_of_rows(tmp_path: Path) -> None:
    text = re.sub(r"batch: *\{buckets: [^}]*\}", "batch: {fixed: 1}", one_row("[1, 67, 80]", "[cache, 8]"))
    assert "expected an axis of rows with buckets, as 'features' has an original of one row" in refusal(tmp_path, text)


def test_a_number_that_all_calls_share_may_be_fixed(tmp_path: Path) -> None:
    text = changed("    inputs:\n", "    inputs:\n      rate: {shape: [], dtype: int64}\n")
    assert "where every call is given the same numbers, fix them, as in constant: 16000" in refusal(tmp_path, text)


CHUNKS = """\
name: mine
graphs:
  net:
    source: {factory: "m:f"}
    inputs:
      features: {shape: [batch, chunk, 40], dtype: float32}
      cache: {shape: [batch, cached, 64], dtype: float32, state: next_cache}
    outputs: [logits, next_cache]
    axes:
      batch: {buckets: [1, 4]}
      chunk: {buckets: [8], length_input: chunk_length}
      cached: {window: 64}
data:
  verification: {feeds: "m:verification", count: 2}
targets: [{kind: onnx_static}]
gates: {parity: {net: {max_abs: 1.0e-5, chained_steps: 12}}}
"""


def test_chunks_of_any_length_beside_states(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(CHUNKS)
    graph = load_recipe(str(tmp_path / "mine.yaml")).recipe.graphs["net"]
    assert (list(graph.padded), graph.has_utterances) == (["chunk"], False)


BESIDE_CHUNKS = {
    "first call": ('source: {factory: "m:f"}', 'source: {factory: "m:f"}\n    first_call: {factory: "m:first"}'),
    "mask": ("    outputs:", "      mask: {shape: [batch, chunk], dtype: int64, mask_of: chunk}\n    outputs:"),
    "pad mask": ("    outputs:", "      mask: {shape: [batch, chunk], dtype: bool, pad_mask_of: chunk}\n    outputs:"),
    "length": ("    outputs:", "      chunk_length: {shape: [batch], dtype: int64, length_of: chunk}\n    outputs:"),
    "count": ("    outputs:", "      offset: {shape: [batch], dtype: int64, counts: chunk}\n    outputs:"),
}


@pytest.mark.parametrize(("old", "new"), BESIDE_CHUNKS.values(), ids=BESIDE_CHUNKS)
def test_what_may_stand_beside_chunks_of_any_length(old: str, new: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(CHUNKS.replace(old, new, 1))
    assert list(load_recipe(str(tmp_path / "mine.yaml")).recipe.graphs["net"].padded) == ["chunk"]


def test_the_batch_of_a_state_is_found_beside_an_axis_whose_length_the_model_takes(tmp_path: Path) -> None:
    """Two axes have buckets; which one counts rows shows when the other's length has its name."""
    more = "      n: {shape: [batch], dtype: int64, length_of: chunk}\n"
    more += "      h: {shape: [2, batch, 8], dtype: float32, state: h1}\n"
    text = CHUNKS.replace("    outputs: [", f"{more}    outputs: [h1, ").replace(", length_input: chunk_length", "")
    (tmp_path / "mine.yaml").write_text(text)
    hidden = load_recipe(str(tmp_path / "mine.yaml")).recipe.graphs["net"].inputs["h"]
    assert (hidden.shape, hidden.original) == (("batch", 2, 8), (2, "batch", 8))


def test_no_mask_of_a_cache_is_fed_beside_chunks_of_any_length(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(CHUNKS.replace("window: 64", "window: 64, mask_input: mask"))
    with pytest.raises(
        RecipeError, match="expected no mask_input beside chunks of any length along 'chunk', got 'mask'"
    ):
        load_recipe(str(tmp_path / "mine.yaml"))


COUNTED = changed("    first_call:\n      factory: model:build_first\n", "").replace(
    "    outputs: [logits", "      offset: {shape: [batch], dtype: int64, counts: cache}\n    outputs: [logits"
)


def test_an_input_may_count_the_frames_of_a_window(tmp_path: Path) -> None:
    offset = load(tmp_path, COUNTED).graphs["encoder"].inputs["offset"]
    assert offset.counts == "cache" and offset.is_carried and not offset.is_data


def test_a_count_may_stand_beside_a_first_call(tmp_path: Path) -> None:
    first = '    first_call: {factory: "model:build_first"}\n    inputs:\n'
    assert load(tmp_path, COUNTED.replace("    inputs:\n", first)).graphs["encoder"].first_call is not None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("counts: cache", "counts: cahce", "got 'cahce'; did you mean 'cache'?"),
        (
            "counts: cache",
            "counts: batch",
            "counts: expected a window or the axis of a chunk, whose frames are counted",
        ),
        (
            "[batch], dtype: int64",
            "[], dtype: int64",
            "shape: expected shape [batch], a count of its own for every row, ",
        ),
        ("[batch], dtype: int64", "[batch], dtype: float32", "expected int32 or int64 for a count, got float32"),
        (
            "counts: cache",
            "counts: cache, state: logits",
            "expected one of state, mask_of, pad_mask_of, length_of and counts",
        ),
        ("counts: cache", "counts: cache, range: [0, 9]", "expected a range for numbers that callers feed"),
    ],
)
def test_a_count_that_cannot_be_is_refused_with_its_cure(old: str, new: str, words: str, tmp_path: Path) -> None:
    assert COUNTED.count(old) == 1
    assert words in refusal(tmp_path, COUNTED.replace(old, new))


def test_inputs_without_frames_are_fed_alike_where_steps_are_derived() -> None:
    inputs = {
        "text": Input(shape=("batch", "letters"), dtype="int64", range=(0, 9)),
        "codes": Input(shape=("batch", "time"), dtype="int64", range=(0, 9)),
    }
    axes = {
        "batch": Axis(buckets=(1,)),
        "letters": Axis(buckets=(8,), length_input="letters_length"),
        "time": Axis(buckets=(1,), length_input="time_length"),
    }
    steps = DeriveSteps(along="time", window=20)
    graph = Graph(source=Source(onnx="x.onnx"), inputs=inputs, outputs=("y",), axes=axes, derive_steps=steps, passes=())
    assert graph.fed_alike == ("text",)
    assert graph.model_copy(update={"derive_steps": None}).fed_alike == ()


HELD: dict[str, Any] = {
    "source": {"factory": "m:f"},
    "inputs": {
        "memory": {"shape": ("batch", "text", 4), "dtype": "float32"},
        "weights": {"shape": ("batch", "text"), "dtype": "float32", "state": "after"},
    },
    "outputs": ("y", "after"),
    "axes": {"batch": {"buckets": (1, 2)}, "text": {"buckets": (4, 8), "length_input": "text_length"}},
}


def test_a_state_along_a_padded_axis_is_held_along_it() -> None:
    graph = Graph.model_validate(HELD)
    assert (graph.held, graph.held_along("weights"), graph.held_along("memory")) == (("text",), ["text"], [])
    assert graph.slots("text") == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": {"weights": HELD["inputs"]["weights"]}}, "feed along 'text', as the state 'weights' lies along it"),
        ({"flush": {"memory": 3}}, "expected no flush in a graph whose states lie along 'text'"),
    ],
)
def test_states_along_padded_axes_that_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Graph.model_validate({**HELD, **change})


BEGUN: dict[str, tuple[str, dict[str, Any], str]] = {
    "at data": ("y", {"initial": 1.0}, "expected initial at a state, got it at 'y', which no output feeds"),
    "of another size": ("weights", {"initial": ((1.0, 2.0),)}, r"shape \[1, 8\], .* got lists of shape \[1, 2\]"),
    "of another type": ("weights", {"initial": True}, "expected numbers that float32 has, got True"),
    "along a window": (
        "weights",
        {"initial": 1.0, "shape": ("batch", "past")},
        "expected a state of one size, got 'weights' along 'past', which begins with no frames",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BEGUN)
def test_what_no_state_can_begin_with_is_refused(what: str) -> None:
    name, change, message = BEGUN[what]
    inputs = {**HELD["inputs"], "y": {"shape": ("batch", 2), "dtype": "float32"}}
    inputs[name] = {**inputs[name], **change}
    axes = {**HELD["axes"], **({"past": {"window": 4}} if "past" in inputs[name]["shape"] else {})}
    with pytest.raises(ValueError, match=message):
        Graph.model_validate({**HELD, "inputs": inputs, "axes": axes})


def test_a_state_along_a_padded_axis_begins_with_a_number_for_every_slot() -> None:
    begun = {**HELD["inputs"]["weights"], "initial": ((1.0, *[0.0] * 7),)}
    graph = Graph.model_validate({**HELD, "inputs": {**HELD["inputs"], "weights": begun}})
    assert graph.sizes_at_start("weights") == [1, 8]


def test_a_first_call_of_its_own_gives_the_first_states(tmp_path: Path) -> None:
    text = changed("[batch, cache, 8], dtype: float32,", "[batch, 16, 8], dtype: float32, initial: 0.5,")
    assert "expected no initial beside first_call" in refusal(
        tmp_path, text.replace("      cache: {window: 16, mask_input: mask}\n", "")
    )
