"""One session per graph file, opened once; attacks through graph files are in tests/attacks."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

from benchmarks.serving.no_op import write_no_op
from runtime_lite import BadInput, Bundle, BundleRefused, Runtime, read_bundle
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.executors.child import in_child
from runtime_lite.executors.executor import ExecutorFactory, make_executor
from runtime_lite.executors.onnx import OnnxExecutor
from runtime_lite.format.arrays import Array
from runtime_lite.verify import verify_model
from tests.runtime_lite.bundles import (
    STREAMING_TEXT,
    edit_manifest,
    onnx_bytes,
    plain_graph,
    random_chunks,
    replace_graph,
    replace_hashed,
    truth_of_stream,
    write_double_bundle,
    write_open_bundle,
)
from tests.runtime_lite.executors.fresh_outputs import poisoned_outputs, run_fresh

GATHER_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
plain (float[1,2,2] x, int64[1] shift) => (float[1,2,2] y)
<float[2,2] weight = {0, 0, 0, 0}>
{
    row = Gather(weight, shift)
    y = Add(x, row)
}
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_double_bundle(tmp_path / "bundle")


@pytest.fixture
def bundle(directory: Path) -> Iterator[Bundle]:
    with read_bundle(directory) as opened:
        yield opened


def feeds(rows: int) -> dict[str, Array]:
    return {"x": np.ones((rows, 2, 2), np.float32), "shift": np.zeros(rows, np.int64)}


def test_a_session_is_opened_at_its_first_use_and_kept(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    read_file = Bundle.read_file

    def note(self: Bundle, name: str) -> bytes:
        read.append(name)
        return read_file(self, name)

    monkeypatch.setattr(Bundle, "read_file", note)
    executor = OnnxExecutor(bundle, "plain", 1)
    assert read == []
    for rows in (1, 1, 4, 1, 4):
        run_fresh(executor, plain_graph(), {"batch": rows, "frames": 2}, feeds(rows))
    weights = "graphs/weights.bin"
    assert read == ["graphs/plain.batch1.frames2.onnx", weights, "graphs/plain.batch4.frames2.onnx", weights]


def test_what_the_first_run_of_a_bucket_took_goes_back(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Options(ort_state.RunOptions):  # type: ignore[misc]
        def add_run_config_entry(self, key: str, value: str) -> None:
            assert (key, value) == ("memory.enable_memory_arena_shrinkage", "cpu:0")
            asked.append(len(ran))
            super().add_run_config_entry(key, value)

    monkeypatch.setattr(ort_state, "RunOptions", Options)
    executor, ran = OnnxExecutor(bundle, "plain", 1), []
    for rows in (1, 1, 4, 1, 4):
        run_fresh(executor, plain_graph(), {"batch": rows, "frames": 2}, feeds(rows))
        ran.append(rows)
    assert asked == [0, 2]


def test_what_runs_of_rows_between_two_buckets_took_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Options(ort_state.RunOptions):  # type: ignore[misc]
        def add_run_config_entry(self, key: str, value: str) -> None:
            asked.append(rows)
            super().add_run_config_entry(key, value)

    monkeypatch.setattr(ort_state, "RunOptions", Options)
    with read_bundle(write_open_bundle(tmp_path / "bundle")) as opened:
        graph = opened.manifest.graphs["streaming"]
        runner = GraphRunner("streaming", graph, OnnxExecutor(opened, "streaming", 1), True)
        for rows in (3, 2, 4, 3, 1):
            fed = [runner.check("test", {"x": random_chunks(1)[0]}) for _ in range(rows)]
            runner.step_streams(fed, [runner.initial_state(1) for _ in fed], {"batch": rows})
        runner.close()
    assert asked == [4, 1]


def test_buckets_that_share_a_file_share_a_session_and_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    read_file = Bundle.read_file

    def note(self: Bundle, name: str) -> bytes:
        opened.append(name)
        return read_file(self, name)

    monkeypatch.setattr(Bundle, "read_file", note)
    with Runtime() as runtime:
        model = runtime.load(write_open_bundle(tmp_path / "bundle"))
        for rows in (1, 4, 2):
            chunks = random_chunks(4, rows)
            with model.open_stream(rows=rows) as stream:
                for chunk, (expected, _) in zip(chunks, truth_of_stream(chunks), strict=True):
                    np.testing.assert_allclose(stream.push({"x": chunk})["y"], expected, rtol=0.0, atol=2e-6)
        assert all(comparison.holds for comparison in verify_model(model))
    assert opened.count("graphs/weights.bin") == 1


@pytest.mark.parametrize("executors", [make_executor, in_child()])
def test_as_many_rows_run_as_are_there_where_the_file_leaves_them_open(
    tmp_path: Path, executors: ExecutorFactory
) -> None:
    with read_bundle(write_open_bundle(tmp_path / "bundle")) as bundle:
        graph = bundle.manifest.graphs["streaming"]
        runner = GraphRunner("streaming", graph, executors(bundle, "streaming", 1), True)
        truth = [truth_of_stream(random_chunks(6, 1, seed)) for seed in range(4)]
        chunks = [random_chunks(6, 1, seed) for seed in range(4)]
        states = [runner.initial_state(1) for _ in chunks]
        for call, rows in enumerate((3, 2, 4, 3, 1, 2)):  # those that do not run fall behind
            feeds = [runner.check("test", {"x": chunks[row][call]}) for row in range(4)]
            for together in [slice(0, rows), slice(rows, 4)] if rows < 4 else [slice(0, 4)]:
                size = {"batch": len(feeds[together])}
                answers = runner.step_streams(feeds[together], states[together], size)
                states[together] = [state for _, state in answers]
                for (outputs, _), expected in zip(answers, truth[together], strict=True):
                    np.testing.assert_allclose(outputs["y"], next(expected)[0], rtol=0.0, atol=2e-6)
        with pytest.raises(BadInput, match="5 on axis 'batch', which was not built"):
            runner.step_streams(feeds, states, {"batch": 5})
        runner.close()


@pytest.mark.parametrize(
    ("text", "got"),
    [
        (STREAMING_TEXT.format(n="N"), "got ('x', 'tensor(float)', ['N', 3, 2])"),
        (STREAMING_TEXT.format(n=4), "got ('x', 'tensor(float)', [4, 3, 2])"),
        (
            STREAMING_TEXT.format(n="batch").replace("float[batch,3,2] x", "float[batch,frames,2] x"),
            "got ('x', 'tensor(float)', ['batch', 'frames', 2])",
        ),
        (
            STREAMING_TEXT.format(n="batch").replace("=> (float[batch,3,2] y", "=> (float[rows,3,2] y"),
            "got ('y', 'tensor(float)', ['rows', 3, 2])",
        ),
    ],
)
def test_only_the_batch_axis_of_a_shared_file_may_be_open(tmp_path: Path, text: str, got: str) -> None:
    directory = write_open_bundle(tmp_path / "bundle")
    replace_graph(directory, "graphs/streaming.batch.onnx", onnx_bytes(text))
    with Runtime() as runtime, pytest.raises(BundleRefused) as refusal:
        runtime.load(directory).open_stream().push({"x": random_chunks(1)[0]})
    assert got in str(refusal.value)


def test_equal_feeds_give_equal_bits_in_every_session(bundle: Bundle) -> None:
    noise = feeds(4)
    noise["x"] = np.random.default_rng(0).standard_normal((4, 2, 2)).astype(np.float32)
    sizes = {"batch": 4, "frames": 2}
    answers = [run_fresh(OnnxExecutor(bundle, "plain", 1), plain_graph(), sizes, noise)["y"] for _ in range(3)]
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


def test_the_weights_outlive_the_bytes_they_came_from(bundle: Bundle) -> None:
    executor = OnnxExecutor(bundle, "plain", 1)
    before = run_fresh(executor, plain_graph(), {"batch": 4, "frames": 2}, feeds(4))["y"]
    gc.collect()
    np.testing.assert_array_equal(run_fresh(executor, plain_graph(), {"batch": 4, "frames": 2}, feeds(4))["y"], before)


@pytest.mark.parametrize("index", [2, -3, 2**40])
def test_a_value_that_an_operator_refuses_is_the_callers_mistake(directory: Path, index: int) -> None:
    replace_hashed(directory, "graphs/plain.batch1.frames2.onnx", onnx_bytes(GATHER_TEXT))
    edit_manifest(directory, lambda plain: None)
    with read_bundle(directory) as bundle:
        executor = OnnxExecutor(bundle, "plain", 1)
        wrong = feeds(1) | {"shift": np.array([index])}
        with pytest.raises(
            BadInput, match=r"graph 'plain': expected values that its operators accept, got .*; check the feed"
        ):
            run_fresh(executor, plain_graph(), {"batch": 1, "frames": 2}, wrong)
        outputs = run_fresh(executor, plain_graph(), {"batch": 1, "frames": 2}, feeds(1))
        assert np.isfinite(outputs["y"]).all()


def test_outputs_of_other_shapes_than_the_manifest_lists_are_the_bundles_fault(tmp_path: Path) -> None:
    directory = write_open_bundle(tmp_path / "b")
    text = STREAMING_TEXT.format(n="batch").replace("y = Add(projected,", "y = Add(twice,")
    text = text.replace("length = Cast", "twice = Concat<axis = 0>(projected, projected)\n    length = Cast")
    replace_graph(directory, "graphs/streaming.batch.onnx", onnx_bytes(text))
    with Runtime() as runtime, pytest.raises(BundleRefused, match="expected outputs of the shapes that the manifest"):
        runtime.load(directory).open_stream().push({"x": random_chunks(1)[0]})


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "columns first": np.asfortranarray,
    "every other place": lambda array: np.repeat(array, 2, 2)[:, :, ::2],
    "backwards": lambda array: array[:, ::-1].copy()[:, ::-1],
    "between items": lambda array: np.frombuffer(b"." + array.tobytes(), np.uint8)[1:].view("f4").reshape(array.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_input_of_any_layout_is_read_as_what_it_is_and_never_written(bundle: Bundle, layout: str) -> None:
    executor, sizes = OnnxExecutor(bundle, "plain", 1), {"batch": 4, "frames": 2}
    x = np.random.default_rng(0).standard_normal((4, 2, 2)).astype(np.float32)
    laid = LAYOUTS[layout](x)
    wanted = run_fresh(executor, plain_graph(), sizes, {**feeds(4), "x": x})
    got = run_fresh(executor, plain_graph(), sizes, {**feeds(4), "x": laid})
    np.testing.assert_array_equal(got["y"], wanted["y"])
    np.testing.assert_array_equal(laid, x)


def test_an_output_that_is_an_input_passed_on_is_written_too(tmp_path: Path) -> None:
    with read_bundle(write_no_op(tmp_path, width=4, stream=True)) as bundle:
        executor, graph = OnnxExecutor(bundle, "no_op", 1), bundle.manifest.graphs["no_op"]
        given = {name: np.full((4, 4), value, np.float32) for name, value in (("x", 1.5), ("past", 2.5))}
        outputs = run_fresh(executor, graph, {"batch": 4}, given)
    assert (outputs["y"] == 1.5).all() and (outputs["next"] == 2.5).all()
    assert not any(np.shares_memory(ours, theirs) for ours in outputs.values() for theirs in given.values())


def test_a_run_that_is_refused_writes_nothing_later(directory: Path) -> None:
    replace_hashed(directory, "graphs/plain.batch1.frames2.onnx", onnx_bytes(GATHER_TEXT))
    edit_manifest(directory, lambda plain: None)
    with read_bundle(directory) as bundle:
        executor, sizes = OnnxExecutor(bundle, "plain", 1), {"batch": 1, "frames": 2}
        places = poisoned_outputs(plain_graph(), sizes)
        with pytest.raises(BadInput):
            executor.run(sizes, feeds(1) | {"shift": np.array([2])}, places)
        places["y"][:] = 7
        run_fresh(executor, plain_graph(), sizes, feeds(1))
    assert (places["y"] == 7).all()
