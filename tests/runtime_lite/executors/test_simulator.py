"""An executor in the interpreter of a vendor's environment: its packages come first, a crash is an error of one run."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from runtime_lite import ExecutorFailed, read_bundle
from runtime_lite.executors.simulator import SimulatorExecutor
from runtime_lite.format.arrays import Array
from tests.kit.stand_in_environment import environment_in, stand_in_for
from tests.runtime_lite.bundles import WIDTH, write_plain_bundle

VENDOR = """
import os, signal, sys
from runtime_lite.executors.onnx import OnnxExecutor


class Executor(OnnxExecutor):
    def run(self, sizes, inputs, outputs):
        if os.environ.get("VENDOR_CRASHES"):
            os.kill(os.getpid(), signal.SIGSEGV)
        super().run(sizes, inputs, outputs)
        outputs["y"][...] = len([path for path in sys.path if path.endswith("of_the_vendor")])
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], SimulatorExecutor]]:
    """Starts the executor of a bundle in the environment of a vendor."""
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(tmp_path / "toolchains"))
    packages = tmp_path / "of_the_vendor"
    packages.mkdir()
    (packages / "vendor_executor.py").write_text(VENDOR)
    environment = environment_in(tmp_path / "vendor")
    stand_in_for(environment, packages)
    with read_bundle(write_plain_bundle(tmp_path / "bundle")) as bundle:
        yield lambda: SimulatorExecutor(bundle, "plain", 1, "vendor_executor:Executor", environment.interpreter)


def run(executor: SimulatorExecutor) -> npt.NDArray[np.float32]:
    found = np.empty((1, 2, WIDTH), np.float32)
    feeds: dict[str, Array] = {"x": np.ones((1, 2, WIDTH), np.float32), "shift": np.zeros(1, np.int64)}
    executor.run({"batch": 1, "frames": 2}, feeds, {"y": found})
    return found


def test_it_runs_with_the_packages_of_the_environment(start: Callable[[], SimulatorExecutor]) -> None:
    executor = start()
    assert executor.simulates
    assert (run(executor) == 1).all()
    executor.close()


def test_a_simulator_that_crashes_is_an_error_of_one_run(
    start: Callable[[], SimulatorExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VENDOR_CRASHES", "1")
    executor = start()
    monkeypatch.delenv("VENDOR_CRASHES")
    with pytest.raises(ExecutorFailed, match="got a process ended by SIGSEGV"):
        run(executor)
    assert (run(executor) == 1).all(), "another process takes its place"
    executor.close()
