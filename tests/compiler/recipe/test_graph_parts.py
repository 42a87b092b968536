"""Sources, inputs and axes are checked each by itself."""

from pathlib import Path

import pydantic
import pytest

from compiler.recipe.graph_parts import Input
from compiler.recipe.load import load_recipe
from tests.kit.recipes import changed, refusal, write

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
]


@pytest.mark.parametrize(("old", "new", "message"), CONTRADICTIONS)
def test_contradiction_is_answered_with_line_key_and_cure(old: str, new: str, message: str, tmp_path: Path) -> None:
    got = refusal(tmp_path, changed(old, new))
    assert got.startswith(message), got


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("range: [1.0, -1.0]", "features.range: expected the smaller number first, got [1, -1]; swap them"),
        ("range: [1.0]", "features.range: expected two numbers, got 1; write the smallest"),
        ("range: [0.0, .inf]", "features.range.1: expected a finite number, got .inf"),
        ("range: 1.0", "features.range: expected a list, got 1.0"),
        ("example: .nan", "features.example: expected a finite number, got .nan"),
        ("example: half", "features.example: expected a number, got 'half'"),
        ("example: 1.0e+39", "features.example: expected a number that float32 has, got 1e+39; write one"),
        ("constant: 1.0", "features.shape: expected numbers in the shape of a constant, got 'batch'; write its sizes"),
        (
            "constant: 1.0, range: [0.0, 1.0]",
            "features.constant: expected nothing beside constant that says what is fed, got range; keep one",
        ),
        (
            "range: [-1.0, 1.0], example: 2",
            "features.example: expected a number from -1 to 1, the declared range, got 2; write one that callers feed",
        ),
    ],
)
def test_wrong_range_example_or_constant_is_refused_with_its_line(given: str, message: str, tmp_path: Path) -> None:
    text = changed(
        "features: {shape: [batch, 67, 80], dtype: float32}",
        f"features: {{shape: [batch, 67, 80], dtype: float32, {given}}}",
    )
    assert f"tiny.yaml:10: graphs.encoder.inputs.{message}" in refusal(tmp_path, text)


def test_example_is_of_what_callers_feed(tmp_path: Path) -> None:
    state = changed('state: "next_{0..2}"}', 'state: "next_{0..2}", example: 1}')
    assert "expected an example of what callers feed, got one of a state, count" in refusal(tmp_path, state)
    whole = changed("dtype: float32}\n      cache", "dtype: int64, example: 0.5}\n      cache")
    assert "expected a number that int64 has, got 0.5" in refusal(tmp_path, whole)
    good = changed("dtype: float32}\n      cache", "dtype: int64, example: 3}\n      cache")
    assert load_recipe(write(tmp_path, good)).recipe.graphs["encoder"].inputs["features"].example == 3.0


def test_range_is_of_numbers_that_callers_feed(tmp_path: Path) -> None:
    state = changed('state: "next_{0..2}"}', 'state: "next_{0..2}", range: [0.0, 1.0]}')
    assert "expected a range for numbers that callers feed, got one for a state, count, mask or length" in refusal(
        tmp_path, state
    )
    whole = changed("dtype: float32}\n      cache", "dtype: int64, range: [0.5, 2.0]}\n      cache")
    assert "expected whole numbers for int64, got [0.5, 2]; round them" in refusal(tmp_path, whole)
    good = changed("dtype: float32}\n      cache", "dtype: float32, range: [-1, 1.0]}\n      cache")
    assert load_recipe(write(tmp_path, good)).recipe.graphs["encoder"].inputs["features"].range == (-1.0, 1.0)


@pytest.mark.parametrize(
    ("dtype", "shape", "constant", "words"),
    [
        ("int64", (), 16000.5, "expected numbers that int64 has, got 16000.5"),
        ("int8", (), 16000, "expected numbers that int8 has, got 16000"),
        ("int64", (), True, "expected numbers that int64 has, got True"),
        ("bool", (1,), 1, "expected numbers that bool has, got 1"),
        ("float32", (2,), (1.0, 2.0, 3.0), r"or lists of shape \[2\], got lists of shape \[3\]"),
        ("float32", (2, 2), ((1.0,), (1.0, 2.0)), "got lists of different lengths"),
        ("float32", (2,), ("1", 2.0), "got '1'"),
    ],
)
def test_a_constant_has_the_shape_and_the_type_of_its_input(
    dtype: str, shape: tuple[int, ...], constant: object, words: str
) -> None:
    with pytest.raises(pydantic.ValidationError, match=words):
        Input.model_validate({"shape": shape, "dtype": dtype, "constant": constant})


@pytest.mark.parametrize(
    ("dtype", "shape", "constant"),
    [
        ("int64", (), 16000),
        ("bool", (), False),
        ("float32", (2,), (1, 2.5)),
        ("bfloat16", (), 0.5),
        ("int8", (1,), "x.npy"),
    ],
)
def test_a_constant_is_fed_by_nobody(dtype: str, shape: tuple[int, ...], constant: object) -> None:
    given = Input.model_validate({"shape": shape, "dtype": dtype, "constant": constant})
    assert not given.is_data and not given.is_carried
