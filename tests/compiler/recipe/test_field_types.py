"""Values that do not fit their type are answered with line, key and cure."""

from pathlib import Path

import pytest

from tests.kit.recipes import changed, refusal

WRONG_VALUES = [
    pytest.param("name: tiny\n", "", "tiny.yaml:1: name: expected this key, got none; add name", id="missing key"),
    pytest.param(
        "dtype: float32}\n      cache",
        "dtpye: float32}\n      cache",
        "tiny.yaml:10: graphs.encoder.inputs.features.dtpye: expected a known key, got 'dtpye'; "
        "did you mean 'dtype'? known: constant, counts, dtype, example, initial, length_of, mask_of, original, "
        "pad_mask_of, range, shape, state",
        id="misspelt key",
    ),
    pytest.param(
        "gates:\n",
        "gate: {}\ngates:\n",
        "tiny.yaml:26: gate: expected a known key, got 'gate'; did you mean 'gates'? "
        "known: data, front_end, gates, graphs, name, source_lines, targets",
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
        "[1, batch * 67, 80]",
        "tiny.yaml:10: graphs.encoder.inputs.features.shape.1: expected a name of letters, digits and underscores that "
        "starts with a letter, got 'batch * 67'; write a number, or the name of an axis; where rows are merged with "
        "something else, describe the model for one row, with `original`",
        id="merged rows",
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
