"""Engines of a bundle behind the runtime, on doubles of the vendor's libraries."""

import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import BundleRefused, EngineAbsent, InternalError, Runtime, read_bundle
from runtime_lite.__main__ import main
from runtime_lite.executors.cuda import CudaPython
from runtime_lite.executors.tensorrt import TensorrtExecutor
from runtime_lite.executors.tensorrt_engine import HostCode
from runtime_lite.verify import verify_model
from tests.kit import vendor
from tests.runtime_lite import engines
from tests.runtime_lite.bundles import STEP, WIDTH, edit_manifest, replace_hashed, write_plain_bundle
from tests.runtime_lite.engines import use_doubles, write_engine_bundle
from tests.runtime_lite.executors.fresh_outputs import run_fresh

ROOT = Path(__file__).resolve().parents[3]


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
    monkeypatch.setattr("runtime_lite.executors.tensorrt.try_engine", lambda content, code, where: tried.append(where))
    with read_bundle(write_engine_bundle(tmp_path / "b")) as bundle:
        executor = TensorrtExecutor(bundle, "plain")
        assert tried == []
        for rows in (1, 4, 1):
            run_fresh(executor, bundle.manifest.graphs["plain"], {"batch": rows, "frames": 2}, feeds(rows))
        assert [Path(where).name for where in tried] == ["plain.batch1.frames2.plan"]
        executor.close()
        executor.close()


@pytest.mark.parametrize(
    ("compatibility", "name", "capability", "fits"),
    [
        ("NONE", "T4", "7.5", True),
        ("NONE", "Quadro RTX 5000", "7.5", False),
        ("NONE", "A10", "8.6", False),
        ("SAME_COMPUTE_CAPABILITY", "Quadro RTX 5000", "7.5", True),
        ("SAME_COMPUTE_CAPABILITY", "A10", "8.6", False),
        ("AMPERE_PLUS", "A10", "8.6", True),
        ("AMPERE_PLUS", "T4", "7.5", False),
        ("OF_NEXT_YEAR", "Quadro RTX 5000", "7.5", False),
    ],
)
def test_the_device_is_the_one_that_engines_were_built_for(
    compatibility: str, name: str, capability: str, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_doubles(monkeypatch, capability, name)
    directory = write_engine_bundle(tmp_path / "b", compatibility=compatibility)
    with Runtime() as runtime:
        if fits:
            runtime.load(directory).run(feeds(1))
            return
        with pytest.raises(EngineAbsent, match=rf"built on, 'T4' of compute capability '7.5' .*, got {name} of"):
            runtime.load(directory)


@pytest.mark.parametrize(
    ("flags", "here", "fits"),
    [
        ((), "10.99.0", True),
        ((), "10.99.1", False),
        (("VERSION_COMPATIBLE",), "10.100.0", True),
        (("VERSION_COMPATIBLE",), "10.99.0.post1", True),
        (("VERSION_COMPATIBLE",), "10.9.0", False),
        (("VERSION_COMPATIBLE",), "11.0.0", False),
    ],
)
def test_the_version_is_the_one_that_engines_were_built_with_or_a_later_one_where_they_say_so(
    flags: tuple[str, ...], here: str, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library: Any = use_doubles(monkeypatch)
    library.__version__ = here
    directory = write_engine_bundle(tmp_path / "b", flags=flags)
    with Runtime() as runtime:
        model = runtime.load(directory, allow_host_code=True)
        if fits:
            model.run(feeds(1))
            return
        later = ", or a later version 10" if flags else ""
        with pytest.raises(EngineAbsent, match=rf"TensorRT '10\.99\.0', which built its engines{later}, got {here}; "):
            model.run(feeds(1))


def test_an_engine_with_other_inputs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_doubles(monkeypatch)
    directory = write_engine_bundle(tmp_path / "b")
    other = (directory / "engines/plain.batch4.frames2.plan").read_bytes()
    replace_hashed(directory, "engines/plain.batch1.frames2.plan", other)
    with Runtime() as runtime, pytest.raises(BundleRefused, match="as the manifest lists it"):
        runtime.load(directory).run(feeds(1))


def test_an_engine_that_is_refused_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_doubles(monkeypatch)
    directory = write_engine_bundle(tmp_path / "b")
    other = (directory / "engines/plain.batch4.frames2.plan").read_bytes()
    replace_hashed(directory, "engines/plain.batch1.frames2.plan", other)
    before = dict(vendor.MEMORY.blocks)
    cuda: Any = CudaPython()
    monkeypatch.setattr("runtime_lite.executors.device_executor.open_cuda", lambda: cuda)
    with Runtime() as runtime:
        model = runtime.load(directory)
        for _ in range(2):
            with pytest.raises(BundleRefused, match="as the manifest lists it"):
                model.run(feeds(1))
        assert vendor.MEMORY.blocks == before
        assert (len(cuda._cuda.live), cuda._cuda.host) == (1, {}), "the queue of all work is the executor's"
    assert cuda._cuda.live == []


def test_code_in_engines_is_the_callers_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_doubles(monkeypatch)
    seen: list[HostCode] = []
    monkeypatch.setattr("runtime_lite.executors.tensorrt.try_engine", lambda content, code, where: seen.append(code))
    carrying = write_engine_bundle(tmp_path / "b", flags=("VERSION_COMPATIBLE",))
    with Runtime() as runtime:
        with pytest.raises(BundleRefused, match=r"got version-compatible ones, .*load it with allow_host_code=True"):
            runtime.load(carrying)
        assert seen == [], "nothing of it was opened"
        runtime.load(carrying, allow_host_code=True).run(feeds(1))
        runtime.load(write_engine_bundle(tmp_path / "c"), allow_host_code=True).run(feeds(1))
    assert seen == [HostCode.ENGINE, HostCode.LIBRARY], "allowed is not used where nothing asks for it"


def test_a_plan_that_hides_the_code_of_its_engines_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_doubles(monkeypatch)
    directory = write_engine_bundle(tmp_path / "b", flags=("VERSION_COMPATIBLE",))
    replace_hashed(directory, engines.PLAN, b'{"builder": {"flags": [], "hardware_compatibility": "NONE"}}')
    with Runtime() as runtime, pytest.raises(EngineAbsent, match="engine host code is not allowed"):
        runtime.load(directory, allow_host_code=True).run(feeds(1))


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_code_in_engines_is_allowed_on_the_command_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_doubles(monkeypatch)
    given = [command, str(write_engine_bundle(tmp_path / "b", flags=("VERSION_COMPATIBLE",)))]
    given += ["--runs", "1", "--warm-up", "1"] if command == "bench" else []
    assert main(given) == 2
    assert "--allow-host-code" in capsys.readouterr().err
    assert main([*given, "--allow-host-code"]) == 0


def test_an_engine_without_its_lean_runtime_runs_where_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_doubles(monkeypatch)
    directory = write_engine_bundle(tmp_path / "b", flags=("EXCLUDE_LEAN_RUNTIME", "VERSION_COMPATIBLE"))
    with Runtime() as runtime, pytest.raises(EngineAbsent, match="got no libnvinfer_lean"):
        runtime.load(directory).run(feeds(1))
    monkeypatch.syspath_prepend(str(vendor.write_lean_runtime(tmp_path)))
    with Runtime() as runtime:
        assert runtime.load(directory).run(feeds(1))


def test_pycuda_runs_a_bundle_and_closes_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_doubles(monkeypatch)
    driver = vendor.PyCudaDriver(vendor.MEMORY)
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setitem(sys.modules, "pycuda", types.ModuleType("pycuda"))
    monkeypatch.setattr(sys.modules["pycuda"], "driver", driver, raising=False)
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    with Runtime() as runtime:
        assert runtime.load(write_engine_bundle(tmp_path / "b")).run(feeds(1))
    assert driver.stack == 0


def test_engines_need_no_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_doubles(monkeypatch)
    monkeypatch.setitem(sys.modules, "runtime_lite.executors.onnx", None)
    with Runtime() as runtime:
        assert runtime.load(write_engine_bundle(tmp_path / "b")).run(feeds(1))
        with pytest.raises(EngineAbsent, match=r"graph 'plain': expected the package onnxruntime, got .*; pip install"):
            runtime.load(write_plain_bundle(tmp_path / "p"))


def test_nothing_but_graphs_imports_onnxruntime() -> None:
    program = "import sys; sys.modules['onnxruntime'] = None\n"
    program += "import runtime_lite, runtime_lite.__main__, runtime_lite.executors.tensorrt, runtime_lite.verify"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_driver_loading_ends_with_our_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_doubles(monkeypatch)

    def refuse() -> None:
        raise EngineAbsent("CUDA: expected a CUDA device, got no CUDA driver (libcuda.so.1); run it elsewhere")

    monkeypatch.setattr("runtime_lite.executors.tensorrt.probe", refuse)
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


def test_numbers_of_rows_share_one_engine_with_a_profile_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library: Any = use_doubles(monkeypatch)
    opened = []

    class Counting(library.Runtime):  # type: ignore[misc]
        def deserialize_cuda_engine(self, content: bytes) -> Any:
            opened.append(super().deserialize_cuda_engine(content))
            return opened[-1]

    library.Runtime = Counting
    before = dict(vendor.MEMORY.blocks)
    with Runtime() as runtime:
        comparisons = list(verify_model(runtime.load(write_engine_bundle(tmp_path / "b", name="open"))))
        assert {comparison.bucket for comparison in comparisons} == {"batch=1", "batch=4"}
        assert all(comparison.holds for comparison in comparisons)
    assert len(opened) == 1, "its weights are shared"
    assert vendor.MEMORY.blocks == before


def test_an_engine_without_a_profile_for_a_bucket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_doubles(monkeypatch)
    directory = write_engine_bundle(tmp_path / "b", name="open")
    file = "engines/streaming.batch.plan"
    plain = json.loads((directory / file).read_bytes())
    del plain["profiles"][0]
    replace_hashed(directory, file, json.dumps(plain).encode())
    before = dict(vendor.MEMORY.blocks)
    with Runtime() as runtime:
        model = runtime.load(directory)
        with pytest.raises(InternalError, match=r"plan: expected a profile for inputs of shapes .*; build the engine"):
            model.open_stream().push({"x": np.ones((1, STEP, WIDTH), np.float32)})
    assert vendor.MEMORY.blocks == before
