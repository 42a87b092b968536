"""Recordings survive the way to `.npz` and back, and `verify` measures every bucket and sees every difference."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from runtime_lite import Runtime
from runtime_lite.arrays import arrays_from_npz, npz_from_arrays
from runtime_lite.errors import BadInput
from runtime_lite.golden import Golden, GoldenStep, golden_from_npz, npz_from_golden
from runtime_lite.manifest import DTYPES
from runtime_lite.verify import Comparison, verify_model
from tests.runtime_lite.bundles import (
    plain_golden,
    plain_graph,
    replace_hashed,
    streaming_golden,
    streaming_graph,
    write_double_bundle,
    write_streaming_bundle,
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (2, 3), (2, 3, 4)])
def test_arrays_survive_the_way_to_npz_and_back(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    content = npz_from_arrays({"b/c": array, "a": array.T.copy().T})
    assert content == npz_from_arrays({"a": array.T.copy().T, "b/c": array})
    found = arrays_from_npz(content, "feeds", BadInput)
    assert list(found) == ["a", "b/c"]
    for got in found.values():
        np.testing.assert_array_equal(got, array)
        assert got.dtype == array.dtype
        assert got.shape == array.shape


def test_what_numpy_writes_is_read(tmp_path: Path) -> None:
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.array(7)}
    for name, save in (("plain", np.savez), ("packed", np.savez_compressed)):
        save(tmp_path / name, **arrays)  # type: ignore[arg-type]
        found = arrays_from_npz((tmp_path / f"{name}.npz").read_bytes(), name, BadInput)
        for key, array in arrays.items():
            np.testing.assert_array_equal(found[key], array)


def test_recordings_survive_the_way_to_npz_and_back() -> None:
    for golden, graph in ((streaming_golden(), streaming_graph()), (plain_golden(), plain_graph())):
        content = npz_from_golden(golden)
        found = golden_from_npz(content, "golden", graph)
        assert npz_from_golden(found) == content
        assert len(found.steps) == len(golden.steps)
        assert found.tolerance == pytest.approx(golden.tolerance)


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
