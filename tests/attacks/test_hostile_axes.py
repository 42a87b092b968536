"""Attacks through axes with a length per row, formulas and `rows_independent`."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import BundleRefused, Runtime, read_bundle
from runtime_lite.format.arrays import arrays_from_npz, npz_from_arrays
from runtime_lite.format.graph_contract import check_contracts
from runtime_lite.verify import verify_model
from tests.attacks.edits import Edit, drop_at, exact_axis, graph_of, set_at, stopped
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import (
    edit_manifest,
    random_row,
    replace_hashed,
    rewrite_contracts,
    write_ragged_bundle,
    write_streaming_bundle,
)


def add_words(plain: dict[str, Any]) -> None:
    """Give the tokens an axis of their own, counted by the same input."""
    graph = graph_of(plain)
    graph["axes"]["words"] = graph["axes"]["time"]
    graph["inputs"][1]["shape"] = ["batch", "words"]
    graph["artifacts"] = [
        dict(artifact, sizes=dict(artifact["sizes"], words=words))
        for artifact in graph["artifacts"]
        for words in (4, 8)
    ]


def add_buckets(plain: dict[str, Any], count: int) -> None:
    """Give the batch axis some buckets, all of one file."""
    graph = graph_of(plain)
    graph["axes"]["batch"]["buckets"] = list(range(1, count + 1))
    graph["artifacts"] = [
        dict(like, sizes={"batch": n, "time": t})
        for n in range(1, count + 1)
        for t, like in zip((4, 8), graph["artifacts"][:2], strict=True)
    ]


EDITS: dict[str, tuple[Edit, str]] = {
    # formulas
    "code as formula": (
        set_at("outputs", 0, "shape", 1, to="__import__('os').system('id')"),
        "outputs[0].shape[1]: formula \"__import__('os').system('id')\": expected integers, axis names, + - * // min()",
    ),
    "power tower": (
        set_at("outputs", 0, "shape", 1, to="9**9**9**9"),
        "expected a number, an axis name or",
    ),
    "attribute": (set_at("outputs", 0, "shape", 1, to="time.__class__"), "got '.__class__'"),
    "formula without end": (set_at("outputs", 0, "shape", 1, to="time+" * 60 + "1"), "expected at most 200 characters"),
    "formula without bottom": (set_at("outputs", 0, "shape", 1, to="(" * 150), "expected at most 20 levels, got more"),
    "escape in a formula": (set_at("outputs", 0, "shape", 1, to="time\x1b[2J"), "shape[1]: expected a printable text"),
    "empty formula": (set_at("outputs", 0, "shape", 1, to=""), "shape[1]: expected a printable text"),
    "formula overflows": (
        set_at("outputs", 0, "shape", 1, to="time" + " * 9999999999" * 12),
        "expected numbers of at most 64 bits, got more at {'time': 4}",
    ),
    "formula too large": (
        set_at("outputs", 0, "shape", 1, to="time * 999999999"),
        "expected valid places within 1 to 2147483647 places for 'time * 999999999', got 3999999996 at batch=1,time=4",
    ),
    "tensor too large": (
        set_at("outputs", 0, "shape", 1, to="time * 99999999"),
        "ragged.y.shape: expected a tensor of at most 4294967296 bytes",
    ),
    "division by zero": (
        set_at("outputs", 0, "shape", 1, to="time // (time - 8)"),
        "got -1 at batch=1,time=4",
    ),
    "division by zero in the largest bucket": (
        set_at("outputs", 0, "shape", 1, to="max(1, time // (time - 8))"),
        "expected a divisor other than 0, got 0 at {'time': 8}",
    ),
    "division by zero at the smallest length": (
        set_at("outputs", 0, "shape", 1, to="1 // (time - 3)"),
        "expected a divisor other than 0, got 0 at {'time': 3}",
    ),
    "nothing left": (set_at("outputs", 0, "shape", 1, to="time - time"), "got 0 at batch=1,time=4"),
    "less than nothing valid": (set_at("outputs", 0, "shape", 1, to="2 * time - 7"), "got 1 at batch=1,time=4, -1 of"),
    "more valid than there is": (set_at("outputs", 0, "shape", 1, to="9 - time"), "got 5 at batch=1,time=4, 6 of them"),
    "unknown axis in a formula": (set_at("outputs", 0, "shape", 1, to="time + a"), "(batch, time), got 'a'"),
    "rows in a formula": (
        set_at("outputs", 0, "shape", 1, to="batch * time"),
        "expected formulas over axes other",
    ),
    "formula of nothing": (set_at("outputs", 0, "shape", 1, to="2 + 2"), "expected formulas over axes other"),
    "formula in an input": (
        set_at("inputs", 0, "shape", 1, to="2 * time"),
        "ragged.x.shape: expected formulas in outputs of role 'data' only, got '2 * time'",
    ),
    "formula in a length": (set_at("inputs", 2, "shape", to=["batch", "time + 1"]), "expected formulas in outputs of"),
    "length along the time": (set_at("inputs", 2, "shape", to=["time"]), "expected the axis 'batch', which the graph"),
    # lengths
    "axis without record of its length": (drop_at("axes", "time", "length_input"), "expected the key 'length_input'"),
    "no minimum": (drop_at("axes", "time", "minimum"), "axes.time: expected the key 'minimum'"),
    "length input that is none": (
        set_at("axes", "time", "length_input", to="x"),
        "inputs: expected ['x'] as the inputs of role 'length', got ['time_length']",
    ),
    "length input of nothing": (
        set_at("axes", "time", "length_input", to="n"),
        "inputs: expected ['n'] as the inputs of role 'length', got ['time_length']",
    ),
    "length input that nothing counts": (
        set_at("axes", "time", to=exact_axis(4, 8)),
        "inputs: expected [] as the inputs of role 'length', got ['time_length']",
    ),
    "two axes with one length": (
        add_words,
        "expected ['time_length', 'time_length'] as the inputs of role 'length', got ['time_length']",
    ),
    "length as float": (
        set_at("inputs", 2, "dtype", to="float32"),
        "time_length: expected int32 or int64 of shape [rows], got [['batch'], 'float32']",
    ),
    "lengths of free rows": (
        set_at("axes", "batch", "length_input", to="time_length"),
        "axes.batch.length_input: expected null, free rows need no length, got 'time_length'",
    ),
    "minimum beyond the smallest bucket": (
        set_at("axes", "time", "minimum", to=5),
        "axes.time.minimum: expected at most the smallest bucket, 4, got 5",
    ),
    "negative minimum": (set_at("axes", "time", "minimum", to=-1), "minimum: expected an integer from 0"),
    "fractional minimum": (set_at("axes", "time", "minimum", to=0.5), "minimum: expected an integer from 0"),
    "minimum of an exact axis": (
        set_at("axes", "batch", "minimum", to=2),
        "expected 1 without a length_input",
    ),
    "input without rows": (
        set_at("inputs", 1, "shape", to=["time"]),
        "tokens.shape: expected the axis 'batch' beside an axis with a length per row, got ['time']",
    ),
    "too many artifacts": (lambda m: add_buckets(m, 513), "artifacts: expected at most 1024, got 1026"),
    # rows_independent
    "no rows_independent": (drop_at("rows_independent"), "graphs.ragged: expected the key 'rows_independent'"),
    "rows_independent withdrawn": (
        set_at("rows_independent", to=False),
        "rows_independent: expected true for the buckets 1, 4 of 'batch', got false",
    ),
    "rows_independent as number": (set_at("rows_independent", to=1), "rows_independent: expected true or false, got 1"),
    "rows_independent as text": (
        set_at("rows_independent", to="true"),
        "rows_independent: expected true or false, got 'true'",
    ),
    "rows_independent without proof": (drop_at("certificate"), "graphs.ragged: expected the key 'certificate'"),
    "proof of nothing": (set_at("certificate", to=None), "certificate: expected a file name, got None"),
}


@pytest.mark.parametrize("attack", EDITS)
def test_hostile_lengths_formulas_and_rows(tmp_path: Path, attack: str) -> None:
    edit, sentence = EDITS[attack]
    directory = write_ragged_bundle(tmp_path / "bundle")
    edit_manifest(directory, edit)
    assert sentence in stopped(directory)


def test_lengths_beside_states_that_the_graph_was_not_built_for(tmp_path: Path) -> None:
    bundle = write_streaming_bundle(tmp_path / "bundle")

    def lengthen(plain: dict[str, Any]) -> None:
        graph = graph_of(plain)
        graph["axes"]["time"] = {"buckets": [3], "length_input": "time_length", "minimum": 1}
        graph["inputs"][0]["shape"] = ["batch", "time", 2]
        graph["inputs"].append({"name": "time_length", "shape": ["batch"], "dtype": "int64", "role": "length"})
        for artifact in graph["artifacts"]:
            artifact["sizes"]["time"] = 3

    edit_manifest(bundle, lengthen)
    with read_bundle(bundle) as opened, pytest.raises(BundleRefused, match="says what the graph was built for"):
        check_contracts(opened)


def change_formula(directory: Path, text: str) -> Path:
    edit_manifest(directory, set_at("outputs", 0, "shape", 1, to=text))
    rewrite_contracts(directory)
    return directory


def test_a_formula_that_the_graph_file_contradicts_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    directory = change_formula(write_ragged_bundle(tmp_path / "bundle"), "time - 1")
    with Runtime() as runtime, pytest.raises(BundleRefused) as refusal:
        runtime.load(directory).run(random_row(5))
    assert "expected outputs as the manifest lists them (('y', 'tensor(float)', [1, 7, 2]))" in str(refusal.value)
    assert "got ('y', 'tensor(float)', [1, 4, 2])" in str(refusal.value)


def test_a_formula_that_lies_between_the_buckets_is_seen_by_verify(tmp_path: Path) -> None:
    directory = change_formula(write_ragged_bundle(tmp_path / "bundle"), "time // 2")  # right for 4 and 8
    with Runtime() as runtime, pytest.raises(BundleRefused) as refusal:
        list(verify_model(runtime.load(directory)))
    assert "[step0000/output]['y']: expected shape ['batch', 'time // 2', 2] at one row" in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("4 + (8 - time) * (time - 3)", "'y': expected from 0 to 4 valid places for"),
        ("4 - max(0, time - 4) * (8 - time) * 9", "at sizes {'batch': 1, 'time': 5}, got -23; rebuild the bundle"),
        ("time // 2 + 0 * (1 // (time - 5))", "expected a divisor other than 0, got 0 at {'time': 5}"),
    ],
)
def test_a_formula_that_is_sound_in_every_bucket_and_not_between_is_refused_by_run(
    tmp_path: Path, text: str, sentence: str
) -> None:
    directory = change_formula(write_ragged_bundle(tmp_path / "bundle"), text)
    with Runtime() as runtime, pytest.raises(BundleRefused) as refusal:
        runtime.load(directory).run(random_row(5))
    assert sentence in str(refusal.value)


def edit_golden(directory: Path, edit: Callable[[dict[str, Any]], object]) -> str:
    """Return the sentence that stops a bundle after an edit of its recordings."""
    arrays: dict[str, Any] = dict(
        arrays_from_npz((directory / "golden/ragged.npz").read_bytes(), "golden", BundleRefused)
    )
    edit(arrays)
    replace_hashed(directory, "golden/ragged.npz", npz_from_arrays(arrays))
    with Runtime() as runtime, pytest.raises(BundleRefused) as refusal:
        list(verify_model(runtime.load(directory)))
    return str(refusal.value)


RECORDINGS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "longer than any bucket": (
        lambda a: a.update({"step0003/feed/x": np.zeros((1, 9, 2), np.float32)}),
        "[step0003/feed]['x']: expected shape ['batch', 'time', 2] at one row, got float32 of shape [1, 9, 2]",
    ),
    "shorter than was proved": (
        lambda a: a.update({"step0000/feed/x": np.zeros((1, 2, 2), np.float32)}),
        "[step0000/feed]['x']: expected shape ['batch', 'time', 2] at one row, got float32 of shape [1, 2, 2]",
    ),
    "two lengths": (
        lambda a: a.update({"step0002/feed/tokens": np.zeros((1, 5), np.int64)}),
        "[step0002/feed]['tokens']: expected shape ['batch', 'time'] at one row, got int64 of shape [1, 5]",
    ),
    "output of another length": (
        lambda a: a.update({"step0002/output/y": np.zeros((1, 4, 2), np.float32)}),
        "[step0002/output]['y']: expected shape ['batch', '(time - 1) // 2 + 1', 2] at one row",
    ),
    "length recorded": (
        lambda a: a.update({"step0002/feed/time_length": np.array([6])}),
        "[step0002/feed]: expected the arrays ['tokens', 'x'], got ['time_length', 'tokens', 'x']",
    ),
}


@pytest.mark.parametrize("attack", RECORDINGS)
def test_hostile_recordings_of_ragged_rows(tmp_path: Path, attack: str) -> None:
    edit, sentence = RECORDINGS[attack]
    assert sentence in edit_golden(write_ragged_bundle(tmp_path / "bundle"), edit)


def test_the_slowest_formulas_are_answered_at_once(tmp_path: Path) -> None:
    directory = write_ragged_bundle(tmp_path / "bundle")

    def slow(plain: dict[str, Any]) -> None:
        add_buckets(plain, 512)
        output = graph_of(plain)["outputs"][0]
        sums = [f"time*1{'+1-1' * 45}+{10 + number}" for number in range(63)]
        graph_of(plain)["outputs"] += [
            dict(output, name=f"y{number}", shape=["batch", text]) for number, text in enumerate(sums)
        ]

    edit_manifest(directory, slow)
    start = time.process_time()
    with read_bundle(directory):
        assert time.process_time() - start < PATIENCE_S
