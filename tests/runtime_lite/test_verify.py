"""`verify` measures every bucket of every graph and sees every difference."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from runtime_lite import BundleRefused, Runtime
from runtime_lite.format.golden import TOGETHER, Golden, GoldenStep, npz_from_golden
from runtime_lite.verify import Comparison, _error_and_limit, verify_model
from tests.runtime_lite.bundles import (
    WEIGHT,
    ragged_golden,
    random_chunks,
    replace_hashed,
    streaming_golden,
    truth_of_plain,
    truth_of_ragged,
    truth_of_stream,
    write_double_bundle,
    write_ragged_bundle,
    write_streaming_bundle,
    write_wired_bundle,
)


def compare(directory: Path) -> dict[tuple[str, str, str], Comparison]:
    with Runtime() as runtime:
        return {(c.graph, c.bucket, c.output): c for c in verify_model(runtime.load(directory))}


def test_verify_measures_every_bucket_and_output(tmp_path: Path) -> None:
    found = compare(write_double_bundle(tmp_path / "bundle"))
    assert set(found) == {
        (graph, bucket, output)
        for graph, outputs in (("plain", ["y"]), ("streaming", ["y", "next_keys"]))
        for bucket in ("batch=1", "batch=4")
        for output in outputs
    }
    assert all(c.holds and c.max_abs_error < 2e-6 for c in found.values())
    assert found["streaming", "batch=4", "y"].steps == 5
    assert found["streaming", "batch=4", "next_keys"].steps == 1
    peak = max(np.abs(step.outputs["y"]).max() for step in streaming_golden().steps)
    assert found["streaming", "batch=1", "y"].limit == pytest.approx(1e-5 * peak)


def together_golden(shift: int = 0) -> Golden:
    """What the wired graphs answer to a stream of five chunks."""
    steps = []
    chunks = random_chunks(5)
    for number, (chunk, (y, _)) in enumerate(zip(chunks, truth_of_stream(chunks), strict=True)):
        feed = {"x": chunk, "shift": np.array([number + shift]), "tokens": np.full((1, 3), number % 3)}
        by_tokens, mean = truth_of_ragged(y, feed["tokens"])
        plain = truth_of_plain(y, np.array([number]))
        steps.append(GoldenStep(feed, {"streaming.y": y, "plain.y": plain, "ragged.y": by_tokens, "mean": mean}))
    return Golden(tuple(steps), 1e-5)


def test_wired_graphs_are_verified_together(tmp_path: Path) -> None:
    directory = write_wired_bundle(tmp_path / "bundle")
    alone = compare(directory)
    assert {graph for graph, _, _ in alone} == {"streaming", "plain", "ragged"}
    replace_hashed(directory, TOGETHER, npz_from_golden(together_golden()))
    found = compare(directory)
    assert {key for key in found if key not in alone} == {
        ("streaming+plain+ragged", "together", name) for name in ("streaming.y", "plain.y", "ragged.y", "mean")
    }
    assert all(comparison.holds for comparison in found.values())
    replace_hashed(directory, TOGETHER, npz_from_golden(together_golden(shift=1)))
    assert [key[2] for key, comparison in compare(directory).items() if not comparison.holds] == ["plain.y"]


@pytest.mark.parametrize("change", ["an input is missing", "an output is missing", "another shape", "NaN"])
def test_a_recording_of_wired_graphs_that_does_not_fit_is_refused(tmp_path: Path, change: str) -> None:
    golden = together_golden()
    first = golden.steps[0]
    feeds, outputs = dict(first.feeds), dict(first.outputs)
    if change == "an input is missing":
        del feeds["shift"]
    elif change == "an output is missing":
        del outputs["mean"]
    elif change == "another shape":
        outputs["mean"] = outputs["mean"][:, :1]
    else:
        outputs["mean"] = outputs["mean"] * np.nan
    directory = write_wired_bundle(tmp_path / "bundle")
    spoiled = Golden((GoldenStep(feeds, outputs), *golden.steps[1:]), golden.tolerance)
    replace_hashed(directory, TOGETHER, npz_from_golden(spoiled))
    with pytest.raises(BundleRefused, match=r"together\.npz.*expected"):
        compare(directory)


def with_golden(directory: Path, golden: Golden) -> Path:
    replace_hashed(directory, "golden/streaming.npz", npz_from_golden(golden))
    return directory


@pytest.mark.parametrize(("step", "output"), [(0, "y"), (3, "y"), (4, "y"), (4, "next_keys")])
def test_verify_sees_one_wrong_value_in_any_step(tmp_path: Path, step: int, output: str) -> None:
    golden = streaming_golden()
    wrong = golden.steps[step].outputs[output].copy()
    wrong[0, -1, 0] += 0.01
    steps = list(golden.steps)
    steps[step] = GoldenStep(steps[step].feeds, {**steps[step].outputs, output: wrong})
    found = compare(with_golden(write_streaming_bundle(tmp_path / "bundle"), Golden(tuple(steps), golden.tolerance)))
    assert {key[2] for key, comparison in found.items() if not comparison.holds} == {output}
    assert found["streaming", "batch=1", output].max_abs_error == pytest.approx(0.01, rel=0.01)


def test_verify_runs_each_recorded_row_in_every_bucket_that_holds_it(tmp_path: Path) -> None:
    found = compare(write_ragged_bundle(tmp_path / "bundle"))
    steps = {bucket: c.steps for (_, bucket, output), c in found.items() if output == "y"}
    assert steps == {"batch=1,time=4": 2, "batch=1,time=8": 4, "batch=4,time=4": 2, "batch=4,time=8": 4}
    assert len(found) == 8
    assert all(c.holds and c.max_abs_error < 2e-6 for c in found.values())


def test_verify_sees_one_wrong_value_of_a_padded_row(tmp_path: Path) -> None:
    golden = ragged_golden()
    wrong = golden.steps[2].outputs["y"].copy()  # six frames: in the larger bucket only
    wrong[0, -1, 0] += 0.01
    step = GoldenStep(golden.steps[2].feeds, {**golden.steps[2].outputs, "y": wrong})
    directory = write_ragged_bundle(tmp_path / "bundle")
    steps = (*golden.steps[:2], step, *golden.steps[3:])
    replace_hashed(directory, "golden/ragged.npz", npz_from_golden(Golden(steps, golden.tolerance)))
    broken = {key[1:] for key, comparison in compare(directory).items() if not comparison.holds}
    assert broken == {("batch=1,time=8", "y"), ("batch=4,time=8", "y")}


def test_a_bucket_that_no_recorded_row_fits_into_is_refused(tmp_path: Path) -> None:
    golden = ragged_golden()
    directory = write_ragged_bundle(tmp_path / "bundle")
    replace_hashed(directory, "golden/ragged.npz", npz_from_golden(Golden(golden.steps[2:], golden.tolerance)))
    with pytest.raises(BundleRefused) as refusal:
        compare(directory)
    expected = "golden/ragged.npz: expected a recorded step that fits into batch=1,time=4, got only longer ones"
    assert expected in str(refusal.value)


def test_verify_holds_at_the_limit_and_not_beyond() -> None:
    at = Comparison("g", "batch=1", "y", 1, 0.5, 0.5)
    assert at.holds
    assert not dataclasses.replace(at, max_abs_error=0.5001).holds
    assert not dataclasses.replace(at, max_abs_error=float("inf")).holds


def test_verify_chains_the_steps(tmp_path: Path) -> None:
    golden = streaming_golden()
    swapped = (golden.steps[1], golden.steps[0], *golden.steps[2:])
    found = compare(with_golden(write_streaming_bundle(tmp_path / "bundle"), Golden(swapped, golden.tolerance)))
    assert not found["streaming", "batch=1", "y"].holds


def test_verify_sees_weights_that_are_nan(tmp_path: Path) -> None:
    directory = write_streaming_bundle(tmp_path / "bundle")
    replace_hashed(directory, "graphs/weights.bin", (WEIGHT * np.nan).tobytes())
    broken = compare(directory)["streaming", "batch=4", "y"]
    assert broken.max_abs_error == np.inf
    assert not broken.holds


@pytest.mark.parametrize(
    ("flips", "min_equal", "holds"),
    [(0, 1.0, True), (1, 1.0, False), (1, 0.99, True), (2, 0.99, False), (2, 0.8, True)],
)
def test_recorded_labels_are_classes(flips: int, min_equal: float, holds: bool) -> None:
    """Of ten recorded labels one may flip at a near tie where any may; how far apart the two are says nothing."""
    right = np.arange(10)
    got = np.where(right < flips, 9999, right)
    error, limit = _error_and_limit([(got, right)], Golden((), 0.5, min_equal))
    assert error == flips / 10 and (error <= limit) == holds


def test_codes_stand_for_numbers() -> None:
    found = _error_and_limit([(np.array([4], np.int8), np.array([5], np.int8))], Golden((), 1e-5), is_coded=True)
    assert found == (1.0, 1.0)
