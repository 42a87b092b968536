"""Engines of a bundle behind the runtime, on doubles of the vendor's libraries."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import BundleRefused, EngineAbsent, Runtime, read_bundle
from runtime_lite.executor_tensorrt import TensorrtExecutor
from runtime_lite.verify import verify_model
from tests.kit import vendor
from tests.runtime_lite import engines
from tests.runtime_lite.bundles import edit_manifest, replace_hashed
from tests.runtime_lite.engines import use_doubles, write_engine_bundle


def feeds(rows: int) -> dict[str, Any]:
    return {"x": np.ones((rows, 2, 2), np.float32), "shift": np.zeros(rows, np.int64)}


def test_a_finished_bundle_replays_its_golden_feeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_doubles(monkeypatch)
    before = dict(vendor.MEMORY.blocks)
    with Runtime() as runtime:
        comparisons = list(verify_model(runtime.load(write_engine_bundle(tmp_path / "b"))))
        assert comparisons
        assert all(comparison.holds for comparison in comparisons)
        assert len(vendor.MEMORY.blocks) > len(before), "it ran on the device"
    assert vendor.MEMORY.blocks == before


def test_an_engine_is_opened_at_its_first_use_and_tried_once_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_doubles(monkeypatch)
    tried: list[str] = []
    monkeypatch.setattr("runtime_lite.executor_tensorrt.try_engine", lambda content, code, where: tried.append(where))
    with read_bundle(write_engine_bundle(tmp_path / "b")) as bundle:
        executor = TensorrtExecutor(bundle, "plain")
        assert tried == []
        for rows in (1, 4, 1):
            executor.run({"batch": rows, "frames": 2}, feeds(rows))
        assert [Path(where).name for where in tried] == ["plain.batch1.frames2.plan"]
        executor.close()
        executor.close()


def test_a_device_of_another_capability_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_doubles(monkeypatch, capability="8.6")
    with Runtime() as runtime, pytest.raises(EngineAbsent, match=r"of compute capability '7.5', got T4 of 8.6"):
        runtime.load(write_engine_bundle(tmp_path / "b"))


def test_an_engine_with_other_inputs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_doubles(monkeypatch)
    directory = write_engine_bundle(tmp_path / "b")
    other = (directory / "engines/plain.batch4.frames2.plan").read_bytes()
    replace_hashed(directory, "engines/plain.batch1.frames2.plan", other)
    with Runtime() as runtime, pytest.raises(BundleRefused, match="as the manifest lists it"):
        runtime.load(directory).run(feeds(1))


@pytest.mark.parametrize("flags", [(), ("VERSION_COMPATIBLE",)])
def test_code_in_engines_is_allowed_by_the_plan(
    flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_doubles(monkeypatch)
    seen: list[bool] = []
    monkeypatch.setattr("runtime_lite.executor_tensorrt.try_engine", lambda content, code, where: seen.append(code))
    with Runtime() as runtime:
        runtime.load(write_engine_bundle(tmp_path / "b", flags=flags)).run(feeds(1))
    assert seen == [bool(flags)]


def test_without_a_driver_loading_ends_with_our_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_doubles(monkeypatch)

    def refuse() -> None:
        raise EngineAbsent("CUDA: expected a CUDA device, got no CUDA driver (libcuda.so.1); run it elsewhere")

    monkeypatch.setattr("runtime_lite.executor_tensorrt.probe", refuse)
    with Runtime() as runtime, pytest.raises(EngineAbsent, match="no CUDA driver"):
        runtime.load(write_engine_bundle(tmp_path / "b"))


def test_a_plan_that_lies_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_doubles(monkeypatch)
    directory = write_engine_bundle(tmp_path / "b")
    replace_hashed(directory, engines.PLAN, b"[]")
    with Runtime() as runtime, pytest.raises(BundleRefused, match="expected an object"):
        runtime.load(directory).run(feeds(1))
    edit_manifest(directory, lambda plain: plain["graphs"]["plain"]["engine"]["built_with"].clear())
    with pytest.raises(BundleRefused, match="what the engine was built with"):
        read_bundle(directory)
