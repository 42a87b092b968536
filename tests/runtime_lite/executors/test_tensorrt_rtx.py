"""Engines of TensorRT-RTX behind the runtime, on doubles: for several devices, with kernels that are kept here."""

import sys
import types
from pathlib import Path

import pytest

from runtime_lite import EngineAbsent, Runtime
from runtime_lite.executors.cuda import Device
from runtime_lite.executors.tensorrt_engine import HostCode
from runtime_lite.executors.tensorrt_rtx import kernel_file
from runtime_lite.verify import verify_model
from tests.kit import vendor
from tests.runtime_lite.engines import use_doubles, write_engine_bundle
from tests.runtime_lite.executors.test_tensorrt import feeds

RTX = "tensorrt_rtx"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of kernels; the process that tries an engine is that of the other executor, and tested there."""
    tried: list[HostCode] = []
    monkeypatch.setattr("runtime_lite.executors.tensorrt.try_engine", lambda content, code, where: tried.append(code))
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/kernels"


def doubles(
    monkeypatch: pytest.MonkeyPatch, capability: str = "8.9", driver: str = "13.0", version: str = "1.7.1.116"
) -> types.ModuleType:
    library = use_doubles(monkeypatch, capability, "RTX 4060", target=RTX, driver=driver)
    vars(library)["__version__"] = version
    return library


def test_a_bundle_replays_its_golden_feeds_on_a_device_of_those_it_was_built_for(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubles(monkeypatch)
    before = dict(vendor.MEMORY.blocks)
    with Runtime() as runtime:
        comparisons = list(verify_model(runtime.load(write_engine_bundle(tmp_path / "b", target=RTX))))
        assert comparisons and all(comparison.holds for comparison in comparisons)
    assert vendor.MEMORY.blocks == before


def test_compiled_kernels_are_kept_for_the_next_start_and_never_in_the_bundle(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubles(monkeypatch)
    bundle = write_engine_bundle(tmp_path / "b", target=RTX)
    files = sorted(bundle.rglob("*"))
    for kernels in (b"compiled", b"compiled compiled"):
        with Runtime() as runtime:
            runtime.load(bundle).run(feeds(1))
        (file,) = cache.iterdir()
        assert file.read_bytes() == kernels
    file.write_bytes(b"of another machine")
    with Runtime() as runtime:
        runtime.load(bundle).run(feeds(1))
    assert file.read_bytes() == b"compiled", "what the library does not take is compiled anew"
    assert sorted(bundle.rglob("*")) == files


def test_a_folder_that_takes_no_kernels_stops_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubles(monkeypatch)
    cache.parent.write_text("a file where the folder should be")
    with Runtime() as runtime:
        runtime.load(write_engine_bundle(tmp_path / "b", target=RTX)).run(feeds(1))


@pytest.mark.parametrize(
    ("capability", "driver", "version", "said"),
    [
        (
            "7.5",
            "13.0",
            "1.7.1.116",
            "capability '8.6, 8.9', which its engines were built for, got RTX 4060 of 7.5; bu",
        ),
        ("8.9", "12.4", "1.7.1.116", r"a driver for CUDA 12.9 or later, got one for 12.4; install a newer NVIDIA"),
        ("8.9", "13.0", "1.8.0.2", r"TensorRT-RTX '1.7.1.116', which built its engines, got 1.8.0.2; install that"),
    ],
)
def test_another_device_driver_or_version_is_named_with_what_the_engine_is_for(
    capability: str, driver: str, version: str, said: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubles(monkeypatch, capability, driver, version)
    with Runtime() as runtime, pytest.raises(EngineAbsent, match=said):
        runtime.load(write_engine_bundle(tmp_path / "b", target=RTX)).run(feeds(1))


def test_without_a_driver_nothing_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Device:
        raise EngineAbsent("CUDA: expected a CUDA device, got no CUDA driver (libcuda.so.1); run it elsewhere")

    monkeypatch.setattr("runtime_lite.executors.tensorrt_rtx.probe", absent)
    with Runtime() as runtime, pytest.raises(EngineAbsent, match="got no CUDA driver"):
        runtime.load(write_engine_bundle(tmp_path / "b", target=RTX))


def test_without_the_library_its_package_is_named(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doubles(monkeypatch)
    monkeypatch.setitem(sys.modules, RTX, None)
    said = "expected the Python package tensorrt_rtx, got .*; install it .tensorrt-rtx-cu13"
    with Runtime() as runtime, pytest.raises(EngineAbsent, match=said):
        runtime.load(write_engine_bundle(tmp_path / "b", target=RTX)).run(feeds(1))


def test_kernels_are_kept_by_engine_device_and_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_CACHE", raising=False)
    first = kernel_file(b"engine", Device("RTX 4060", "8.9", "13.0"))
    assert first.parent == Path(".cache/slipway/kernels") and first.name.endswith("_RTX-4060-13.0.cache")
    others = [(b"other", "RTX 4060", "13.0"), (b"engine", "RTX 4070", "13.0"), (b"engine", "RTX 4060", "13.1")]
    assert first not in {kernel_file(engine, Device(name, "8.9", driver)) for engine, name, driver in others}
