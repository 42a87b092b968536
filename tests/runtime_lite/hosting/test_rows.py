"""The same rows pass in this process and through the model of Triton's Python backend."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime_lite.bundles import WEIGHT, replace_hashed, write_double_bundle
from tests.runtime_lite.hosting.hosts import ThisProcess, TritonStandIn
from tests.runtime_lite.hosting.rows import Bundles, all_rows


def write_bundles(folder: Path) -> Bundles:
    """The three bundles of the rows."""
    bundles = Bundles(*(write_double_bundle(folder / field.name) for field in dataclasses.fields(Bundles)))
    replace_hashed(bundles.second, "graphs/weights.bin", (3 * WEIGHT).tobytes())
    (bundles.broken / "graphs/weights.bin").write_bytes(WEIGHT.tobytes()[:-1])
    return bundles


@pytest.fixture(params=["this process", "Triton's Python backend"])
def host(request: pytest.FixtureRequest, bundles: Bundles, tmp_path: Path) -> Iterator[ThisProcess | TritonStandIn]:
    is_here = request.param == "this process"
    host = ThisProcess(bundles.first) if is_here else TritonStandIn(bundles.first, tmp_path / "models")
    yield host
    host.close()


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    return write_bundles(tmp_path_factory.mktemp("bundles"))


def test_all_rows_pass_one_after_the_other(host: ThisProcess | TritonStandIn, bundles: Bundles) -> None:
    for name, row in all_rows():
        try:
            row(host, bundles)
        except Exception as error:
            raise AssertionError(f"row {name}") from error
