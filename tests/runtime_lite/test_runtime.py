"""The runtime's options are checked, and what it loads lives as long as it does."""

from pathlib import Path

import numpy as np
import pytest

from runtime_lite import BadInput, Runtime
from tests.runtime_lite.bundles import WIDTH, random_chunks, write_double_bundle

ATOL = 2e-6


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_double_bundle(tmp_path_factory.mktemp("double"))


@pytest.mark.parametrize("threads", [0, -1, 1.0, True, None, "2", 10**6])
def test_a_wrong_number_of_threads_is_refused(threads: int) -> None:
    with pytest.raises(BadInput, match="Runtime: expected threads from 1 to 1024, got"):
        Runtime(threads=threads)


def test_two_threads_give_the_same_answer(bundle: Path) -> None:
    chunk = random_chunks(1, 4)[0]
    outputs = []
    for threads in (1, 2):
        with Runtime(threads=threads) as runtime:
            outputs.append(runtime.load(bundle).run({"x": chunk}, graph="streaming")["y"])
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=0.0, atol=ATOL)


def test_check_finite_can_be_switched_off(bundle: Path) -> None:
    chunk = np.full((1, 3, WIDTH), np.nan, np.float32)
    with Runtime(check_finite=False) as runtime:
        assert np.isnan(runtime.load(bundle).run({"x": chunk}, graph="streaming")["y"]).all()


def test_closing_the_runtime_closes_every_model(bundle: Path) -> None:
    with Runtime() as runtime:
        models = [runtime.load(bundle) for _ in range(2)]
        assert not any(model.closed for model in models)
    assert all(model.closed for model in models)


def test_a_bundle_loaded_twice_is_two_models(bundle: Path) -> None:
    with Runtime() as runtime:
        first, second = runtime.load(bundle), runtime.load(bundle)
        first.close()
        assert second.run({"x": random_chunks(1)[0]}, graph="streaming").keys() == {"y"}
