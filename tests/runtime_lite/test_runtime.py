"""The runtime's options are checked, and what it loads lives as long as it does."""

import dataclasses
import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

from runtime_lite import BadInput, Runtime
from runtime_lite.bench import bench_model
from runtime_lite.format.golden import Golden, GoldenStep, npz_from_golden
from runtime_lite.verify import verify_model
from tests.runtime_lite.bundles import (
    WIDTH,
    graph_files,
    random_chunks,
    streaming_graph,
    truth_of_stream,
    write_bundle,
    write_double_bundle,
)

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


def test_closed_models_are_let_go(bundle: Path) -> None:
    with Runtime() as runtime:
        closed = runtime.load(bundle)
        closed.close()
        gone = weakref.ref(closed)
        del closed
        runtime.load(bundle)
        gc.collect()
        assert gone() is None


def fixed_rows(shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
    return tuple(4 if size == "batch" else size for size in shape)


def test_a_graph_without_a_batch_axis_is_fed_in_its_own_size(tmp_path: Path) -> None:
    graph = streaming_graph()
    chunks = random_chunks(6, 4)
    steps = [GoldenStep({"x": chunk}, {"y": y}) for chunk, (y, _) in zip(chunks, truth_of_stream(chunks), strict=True)]
    last = {"next_keys": list(truth_of_stream(chunks))[-1][1]}
    steps[-1] = GoldenStep(steps[-1].feeds, {**steps[-1].outputs, **last})
    graph = dataclasses.replace(
        graph,
        axes={},
        batch_axis=None,
        inputs=tuple(dataclasses.replace(tensor, shape=fixed_rows(tensor.shape)) for tensor in graph.inputs),
        outputs=tuple(dataclasses.replace(tensor, shape=fixed_rows(tensor.shape)) for tensor in graph.outputs),
        states=tuple(dataclasses.replace(state, shape=fixed_rows(state.shape)) for state in graph.states),
        artifacts=(dataclasses.replace(graph.artifacts[1], sizes={}),),
    )
    files = graph_files() | {graph.golden: npz_from_golden(Golden(tuple(steps), 1e-5))}
    directory = write_bundle(tmp_path / "fixed", {"streaming": graph}, files)
    with Runtime() as runtime:
        model = runtime.load(directory)
        with model.open_stream() as stream:
            for chunk, (y, _) in zip(chunks, truth_of_stream(chunks), strict=True):
                np.testing.assert_allclose(stream.push({"x": chunk})["y"], y, rtol=0.0, atol=ATOL)
        with pytest.raises(BadInput, match=r"expected size 4 on axis 0 of \[4, 3, 2\], got 1; feed exactly 4"):
            model.run({"x": chunks[0][:1]})
        comparisons = list(verify_model(model))
        assert [(c.bucket, c.output, c.holds) for c in comparisons] == [
            ("static", "y", True),
            ("static", "next_keys", True),
        ]
        assert [timing.bucket for timing in bench_model(model, 2, 1)] == ["static"]
