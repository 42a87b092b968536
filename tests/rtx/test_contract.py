"""Our code against the genuine TensorRT-RTX, without a device: its bindings, and its runtime as far as that goes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runtime_lite import EngineAbsent
from runtime_lite.executors.tensorrt_engine import HostCode, try_engine
from tests.rtx.installed import NEEDS_RTX
from tests.rtx.test_real_builder import ATTENTION, engine_of
from tests.runtime_lite.engines import write_engine_bundle

ROOT = Path(__file__).resolve().parents[2]

pytestmark = NEEDS_RTX

OF_RTX_ALONE = {
    "ICudaEngine.create_runtime_config",
    "IRuntimeCache.deserialize",
    "IRuntimeCache.serialize",
    "IRuntimeConfig.create_runtime_cache",
    "IRuntimeConfig.set_execution_context_allocation_strategy",
    "IRuntimeConfig.set_runtime_cache",
}
"""What our code calls of TensorRT-RTX, and not of TensorRT."""


@pytest.mark.parametrize("name", ["plain", "open"])
def test_engines_are_run_through_names_and_signatures_that_the_library_has(name: str, tmp_path: Path) -> None:
    """With an engine per bucket, and with one that has a profile for each."""
    bundle = write_engine_bundle(tmp_path / "bundle", target="tensorrt_rtx", name=name)
    command = [sys.executable, "-m", "tests.rtx.in_child", str(bundle)]
    environment = {**os.environ, "SLIPWAY_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["held"] and all(found["held"])
    assert set(found["calls"]) > OF_RTX_ALONE


@pytest.mark.parametrize("kept", [1000, 0])
def test_what_is_no_whole_engine_is_refused_in_the_librarys_words(kept: int, tmp_path: Path) -> None:
    """The genuine runtime opens it in a process of its own: cut short, and of another form."""
    _, content = engine_of(tmp_path, ATTENTION, {"fill": np.array(-65504, np.float16)})
    broken = content[:kept] or bytes(len(content))
    said = r"^net\.plan: expected an engine that TensorRT-RTX 1\.7\.1\.116 opens, got .*; build the bundle again"
    with pytest.raises(EngineAbsent, match=said):
        try_engine(broken, HostCode.RTX, "net.plan")
