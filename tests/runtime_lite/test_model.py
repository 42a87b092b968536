"""Loaded bundles give the truth computed by hand: alone, padded to a bucket, and as streams over many pushes."""

import dataclasses
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from runtime_lite import BadInput, BundleRefused, Model, Runtime, read_bundle
from runtime_lite.calls.blocks import BlockPool, joined
from runtime_lite.calls.bucket import Bucket, full_feed
from runtime_lite.calls.state import initial_state
from runtime_lite.executors.onnx import OnnxExecutor
from runtime_lite.format.arrays import Array
from runtime_lite.format.golden import npz_from_golden
from runtime_lite.format.manifest import Graph, Wire
from runtime_lite.verify import verify_model
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import (
    WIDTH,
    WINDOW,
    graph_files,
    plain_golden,
    plain_graph,
    random_chunks,
    streaming_golden,
    streaming_graph,
    truth_of_plain,
    truth_of_stream,
    write_bundle,
    write_double_bundle,
)
from tests.runtime_lite.executors.fresh_outputs import run_fresh

ATOL = 2e-6


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_double_bundle(tmp_path_factory.mktemp("double"))


@pytest.fixture
def model(bundle: Path) -> Iterator[Model]:
    with Runtime() as runtime:
        yield runtime.load(bundle)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_a_stream_equals_the_truth_long_after_its_window_overflows(model: Model, rows: int) -> None:
    chunks = random_chunks(40, rows)
    with model.open_stream("streaming", rows=rows) as stream:
        for chunk, (_, keys) in zip(chunks, truth_of_stream(chunks), strict=True):
            assert stream.push({"x": chunk}).keys() == {"y"}
            np.testing.assert_allclose(stream.state.values["keys"], keys, rtol=0.0, atol=ATOL)
        stream.reset()
        for chunk, (output, _) in zip(chunks, truth_of_stream(chunks), strict=True):
            np.testing.assert_allclose(stream.push({"x": chunk})["y"], output, rtol=0.0, atol=ATOL)
        assert stream.state.lengths["cache"].tolist() == [WINDOW] * rows


@pytest.mark.parametrize("frames", [2, 3])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 9])
def test_run_pads_to_a_bucket_splits_at_the_largest_and_cuts_back(model: Model, rows: int, frames: int) -> None:
    x, shift = random_chunks(1, rows)[0][:, :frames], np.arange(rows)
    output = model.run({"x": x, "shift": shift}, graph="plain")["y"]
    assert output.shape == (rows, frames, WIDTH)
    np.testing.assert_allclose(output, truth_of_plain(x, shift), rtol=0.0, atol=ATOL)


def test_run_of_a_graph_with_states_starts_from_its_initial_states_every_time(model: Model) -> None:
    chunks = random_chunks(2)
    expected = next(truth_of_stream(chunks[1:]))[0]
    model.run({"x": chunks[0]}, graph="streaming")
    np.testing.assert_allclose(model.run({"x": chunks[1]}, graph="streaming")["y"], expected, rtol=0.0, atol=ATOL)


def test_interleaved_streams_do_not_touch_each_other(model: Model) -> None:
    chunks = [random_chunks(8, seed=seed) for seed in (1, 2, 3)]
    alone = []
    for one in chunks:
        with model.open_stream("streaming") as stream:
            alone.append([stream.push({"x": chunk})["y"] for chunk in one])
    order = np.random.default_rng(4).permutation(np.repeat([0, 1, 2], 8))
    streams = [model.open_stream("streaming") for _ in chunks]
    together: list[list[Array]] = [[], [], []]
    for number in order:
        together[number].append(streams[number].push({"x": chunks[number][len(together[number])]})["y"])
    np.testing.assert_array_equal(together, alone)  # bit-identical


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e30])
def test_poison_in_free_rows_leaves_the_valid_rows_bit_identical(bundle: Path, poison: float) -> None:
    with Runtime() as runtime:
        runner = runtime.load(bundle).runner("streaming")
        feed = runner.check("test", {"x": random_chunks(1, 3)[0]})
        bucket, state = Bucket(runner.graph, {"batch": 4}), initial_state(runner.graph, 3)
        carried = joined(BlockPool(runner.graph), [state.values], 4)
        clean = full_feed(bucket, [feed], [state], carried, bucket.take().inputs)
        dirty = {name: array.copy() for name, array in clean.items()}
        for name in ("x", "keys"):
            dirty[name][3] = poison
        dirty["real_length"][3] = WINDOW
        expected, got = (run_fresh(runner.executor, runner.graph, {"batch": 4}, feeds) for feeds in (clean, dirty))
    for name in ("y", "next_keys"):
        np.testing.assert_array_equal(got[name][:3], expected[name][:3])
        assert not np.array_equal(got[name][3], expected[name][3])  # the poison was really there


def test_a_row_is_bit_identical_alone_and_with_any_neighbours_in_its_bucket(model: Model) -> None:
    chunks = random_chunks(6, 3)
    with model.open_stream("streaming", rows=3) as together, model.open_stream("streaming", rows=2) as fewer:
        for chunk in chunks:
            np.testing.assert_array_equal(
                together.push({"x": chunk})["y"][:2], fewer.push({"x": np.ascontiguousarray(chunk[:2])})["y"]
            )


def test_a_refused_push_changes_nothing(model: Model) -> None:
    chunks = random_chunks(3)
    with model.open_stream("streaming") as stream, model.open_stream("streaming") as untouched:
        for chunk in chunks:
            for wrong in (chunk[:, :2], chunk.astype(np.float64), chunk * np.nan, np.concatenate([chunk, chunk])):
                with pytest.raises(BadInput):
                    stream.push({"x": wrong})
            np.testing.assert_array_equal(stream.push({"x": chunk})["y"], untouched.push({"x": chunk})["y"])


def test_a_backend_failure_in_a_push_changes_nothing(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = random_chunks(2)
    with model.open_stream("streaming") as stream:
        stream.push({"x": chunks[0]})
        before = stream.state
        with monkeypatch.context() as patched:

            def interrupt(*_: object) -> None:
                raise KeyboardInterrupt

            patched.setattr(OnnxExecutor, "run", interrupt)
            with pytest.raises(KeyboardInterrupt):
                stream.push({"x": chunks[1]})
        assert stream.state.lengths == before.lengths
        np.testing.assert_array_equal(stream.state.values["keys"], before.values["keys"])
        expected = list(truth_of_stream(chunks))[1][0]
        np.testing.assert_allclose(stream.push({"x": chunks[1]})["y"], expected, rtol=0.0, atol=ATOL)


def test_what_the_caller_does_to_an_output_or_a_feed_reaches_no_state(model: Model) -> None:
    chunks = random_chunks(3)
    with model.open_stream("streaming") as stream:
        for chunk, (expected, _) in zip(chunks, truth_of_stream(chunks.copy()), strict=True):
            output = stream.push({"x": chunk})["y"]
            np.testing.assert_allclose(output, expected, rtol=0.0, atol=ATOL)
            output[:] = np.nan
            chunk[:] = np.nan


def test_a_second_push_at_the_same_time_is_refused(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, leave = threading.Event(), threading.Event()
    run = OnnxExecutor.run

    def wait(self: OnnxExecutor, sizes: Mapping[str, int], *arrays: Mapping[str, Array]) -> None:
        inside.set()
        assert leave.wait(PATIENCE_S)
        run(self, sizes, *arrays)

    monkeypatch.setattr(OnnxExecutor, "run", wait)
    chunk = random_chunks(1)[0]
    with model.open_stream("streaming") as stream:
        thread = threading.Thread(target=stream.push, args=({"x": chunk},))
        thread.start()
        assert inside.wait(PATIENCE_S)
        with pytest.raises(BadInput, match="expected one push at a time, got a push during another"):
            stream.push({"x": chunk})
        leave.set()
        thread.join(PATIENCE_S)
        assert stream.state.lengths["cache"].tolist() == [3]


def test_run_from_many_threads_equals_run_alone(model: Model) -> None:
    feeds = [{"x": random_chunks(1, 1 + i % 4, seed=i)[0], "shift": np.arange(1 + i % 4)} for i in range(24)]
    alone = [model.run(feed, graph="plain")["y"] for feed in feeds]
    together: list[Array | None] = [None] * len(feeds)

    def work(index: int) -> None:
        together[index] = model.run(feeds[index], graph="plain")["y"]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(feeds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    for got, expected in zip(together, alone, strict=True):
        assert got is not None
        np.testing.assert_allclose(got, expected, rtol=0.0, atol=ATOL)  # beside others the bucket may be another one


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m: m.run({}), "expected the name of one of its graphs ('plain', 'streaming'), got none; pass graph="),
        (lambda m: m.run({}, graph="Plain"), "expected one of its graphs ('plain', 'streaming'), got graph 'Plain'"),
        (lambda m: m.open_stream("plain"), "plain.open_stream: expected a graph with states, got one without"),
        (lambda m: m.open_stream("streaming", rows=0), "expected rows from 1 to 4, got 0"),
        (lambda m: m.open_stream("streaming", rows=5), "expected rows from 1 to 4, got 5"),
        (lambda m: m.open_stream("streaming", rows=True), "expected rows from 1 to 4, got True"),
        (
            lambda m: m.open_stream("streaming").push({"x": random_chunks(1, 2)[0]}),
            "streaming.push: expected 1 rows, as the stream was opened, got 2; feed 1 or open a stream with rows=2",
        ),
        (lambda m: m.run({"x": None}, graph=["plain"]), "got graph ['plain']"),
    ],
)
def test_a_wrong_call_says_what_is_right(model: Model, call: object, sentence: str) -> None:
    assert callable(call)
    with pytest.raises(BadInput) as refusal:
        call(model)
    assert sentence in str(refusal.value)


def test_whatever_is_closed_refuses_to_work(bundle: Path) -> None:
    chunk = random_chunks(1)[0]
    runtime = Runtime()
    model = runtime.load(bundle)
    stream, other = model.open_stream("streaming"), model.open_stream("streaming")
    stream.close()
    stream.close()
    with pytest.raises(BadInput, match="expected an open stream, got a closed one; open another"):
        stream.push({"x": chunk})
    with pytest.raises(BadInput, match="expected an open stream"):
        stream.reset()
    other.push({"x": chunk})
    runtime.close()
    runtime.close()
    with pytest.raises(BadInput, match="expected a stream of an open model, got one of a closed model"):
        other.push({"x": chunk})
    for call in (lambda: model.run({"x": chunk}), lambda: model.open_stream(), lambda: model.runner("streaming")):
        with pytest.raises(BadInput, match="expected an open model, got a closed one"):
            call()
    with pytest.raises(BadInput, match="expected an open runtime, got a closed one"):
        runtime.load(bundle)


def with_rows_called(graph: Graph, name: str) -> Graph:
    """The record of a graph whose batch axis has another name."""

    def named(shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
        return tuple(name if size == "batch" else size for size in shape)

    return dataclasses.replace(
        graph,
        inputs=tuple(dataclasses.replace(each, shape=named(each.shape)) for each in graph.inputs),
        outputs=tuple(dataclasses.replace(each, shape=named(each.shape)) for each in graph.outputs),
        states=tuple(dataclasses.replace(each, shape=named(each.shape)) for each in graph.states),
        axes={name if axis == "batch" else axis: each for axis, each in graph.axes.items()},
        artifacts=tuple(
            dataclasses.replace(each, sizes={name if axis == "batch" else axis: n for axis, n in each.sizes.items()})
            for each in graph.artifacts
        ),
        batch_axis=name,
    )


@pytest.mark.parametrize("name", ["rows", "streams", "stapel"])
def test_the_batch_axis_is_known_by_its_part_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    graphs = {"streaming": with_rows_called(streaming_graph(), name), "plain": with_rows_called(plain_graph(), name)}
    files = graph_files() | {"golden/streaming.npz": npz_from_golden(streaming_golden())}
    directory = write_bundle(tmp_path / name, graphs, files | {"golden/plain.npz": npz_from_golden(plain_golden())})
    chunks, x, shift = random_chunks(4, 3), random_chunks(1, 9)[0], np.arange(9)
    with Runtime() as runtime:
        model = runtime.load(directory)
        compared = list(verify_model(model))
        assert {each.bucket for each in compared} == {f"{name}=1", f"{name}=4"} and all(each.holds for each in compared)
        np.testing.assert_allclose(
            model.run({"x": x, "shift": shift}, graph="plain")["y"], truth_of_plain(x, shift), rtol=0.0, atol=ATOL
        )
        with model.open_stream("streaming", rows=3) as stream:
            for chunk, (expected, _) in zip(chunks, truth_of_stream(chunks), strict=True):
                np.testing.assert_allclose(stream.push({"x": chunk})["y"], expected, rtol=0.0, atol=ATOL)


def test_a_state_that_another_graph_starts_from_is_read_and_refused_by_its_name(tmp_path: Path) -> None:
    files = graph_files() | {"golden/streaming.npz": npz_from_golden(streaming_golden())}
    graphs = {"prefill": streaming_graph(), "streaming": streaming_graph()}
    wire = Wire("prefill", "next_keys", "streaming", "keys")
    directory = write_bundle(tmp_path / "bundle", graphs, files, (wire,))
    with read_bundle(directory) as opened:
        assert opened.manifest.wiring == (wire,)
    with Runtime() as runtime, pytest.raises(BundleRefused, match="got a state that another graph starts from, which"):
        runtime.load(directory)
