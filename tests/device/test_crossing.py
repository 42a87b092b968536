"""What a call moves is counted by the double of CUDA: with states on the device, features, masks and answers alone."""

from pathlib import Path

import pytest

from runtime_lite.executors.cuda import CudaPython
from tests.device import crossing
from tests.runtime_lite.bundles import STEP, WIDTH, WINDOW
from tests.runtime_lite.engines import use_cpu_for_cuda, use_doubles, write_cuda_bundle
from tests.runtime_lite.in_place_graph import WRITTEN_IN_PLACE


@pytest.mark.parametrize("name", ["streaming", *(kind.update for kind in WRITTEN_IN_PLACE)])
def test_features_masks_and_answers_alone_cross_where_states_stay(name: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        use_doubles(patched)
        use_cpu_for_cuda(patched)
        found = list(crossing.crossing(write_cuda_bundle(tmp_path / "bundle", name), CudaPython()._cuda))
    assert found
    for moved in found:
        assert moved.on_device == moved.data
        assert moved.by_host.to_device > moved.data.to_device
        assert moved.by_host.to_host > moved.data.to_host


def test_the_table_has_a_line_for_each_bucket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert crossing.main([str(write_cuda_bundle(tmp_path / "bundle"))]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    data = 4 * (4 * STEP * WIDTH + 8 + 4 * (WINDOW + STEP)), 4 * 4 * STEP * WIDTH
    assert last.endswith("| {:,} | {:,} |".format(*data))
