"""The runtime's options are checked, and what it loads lives as long as it does."""

import dataclasses
import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import BadInput, BundleRefused, Dropped, Overloaded, Runtime
from runtime_lite.bench import bench_model
from runtime_lite.executors.onnx import OnnxExecutor
from runtime_lite.format.golden import Golden, GoldenStep, npz_from_golden
from runtime_lite.verify import verify_model
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import (
    PLAIN_TEXT,
    WEIGHT,
    WIDTH,
    graph_files,
    onnx_bytes,
    plain_golden,
    plain_graph,
    random_chunks,
    replace_graph,
    replace_hashed,
    streaming_graph,
    truth_of_stream,
    write_bundle,
    write_double_bundle,
    write_streaming_bundle,
    write_wired_bundle,
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


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 1.0}, {"max_streams": 0}, {"workers": 10**6}])
def test_wrong_counts_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=rf"Runtime: expected {next(iter(options))} from 1 to \d+, got"):
        Runtime(**options)


@pytest.mark.parametrize("priority", [None, 1.0, 1000, True])
def test_a_wrong_priority_is_refused(bundle: Path, priority: int) -> None:
    with Runtime() as runtime, pytest.raises(BadInput, match=r"Runtime\.load: expected a priority from -100 to 100"):
        runtime.load(bundle, priority=priority)


def with_weight(directory: Path, factor: float) -> Path:
    """The bundle with other weights."""
    write_double_bundle(directory)
    replace_hashed(directory, "graphs/weights.bin", (WEIGHT * np.float32(factor)).tobytes())
    return directory


def test_a_swap_serves_what_comes_from_now_on_and_leaves_open_streams_where_they_are(
    bundle: Path, tmp_path: Path
) -> None:
    chunks = [{"x": chunk} for chunk in random_chunks(4)]
    plain = {"x": chunks[0]["x"], "shift": np.array([0])}
    with Runtime() as runtime:
        old, new = runtime.load(bundle), runtime.load(with_weight(tmp_path / "new", 2.0))
        with old.open_stream("streaming") as one, new.open_stream("streaming") as two:
            before, after = ([s.push(c)["y"] for c in chunks] for s in (one, two))
        model = runtime.load(bundle)
        with model.open_stream("streaming") as pinned:
            np.testing.assert_allclose(pinned.push(chunks[0])["y"], before[0], rtol=0.0, atol=ATOL)
            snapshot = pinned.snapshot()
            runtime.swap(model, tmp_path / "new")
            fork = pinned.fork()
            for at in (1, 2, 3):
                np.testing.assert_allclose(pinned.push(chunks[at])["y"], before[at], rtol=0.0, atol=ATOL)
            np.testing.assert_allclose(fork.push(chunks[1])["y"], before[1], rtol=0.0, atol=ATOL)
            with model.open_stream("streaming") as fresh:
                with pytest.raises(BadInput, match="a state belongs to the weights that made it"):
                    fresh.restore(snapshot)
                np.testing.assert_allclose(fresh.push(chunks[0])["y"], after[0], rtol=0.0, atol=ATOL)
        np.testing.assert_allclose(model.run(plain, "plain")["y"], new.run(plain, "plain")["y"], rtol=0.0, atol=ATOL)
        assert not np.allclose(model.run(plain, "plain")["y"], old.run(plain, "plain")["y"])
        fork.close()
        assert runtime.request_counts.balanced


@pytest.mark.parametrize(
    ("old", "new", "is_taken"),
    [
        (None, (0, 5), False),
        ((0, 5), (1, 5), False),
        ((0, 5), (0, 4), False),
        ((0, 5), (-1, 6), True),
        ((0, 5), None, True),
    ],
)
def test_a_swap_takes_no_bundle_that_refuses_what_was_taken(
    tmp_path: Path, old: tuple[int, int] | None, new: tuple[int, int] | None, is_taken: bool
) -> None:
    def with_range(name: str, declared: tuple[int, int] | None) -> Path:
        graph = plain_graph()
        inputs = [dataclasses.replace(each, range=declared if each.name == "shift" else None) for each in graph.inputs]
        files = graph_files() | {"golden/plain.npz": npz_from_golden(plain_golden())}
        return write_bundle(tmp_path / name, {"plain": dataclasses.replace(graph, inputs=tuple(inputs))}, files)

    with Runtime() as runtime:
        model = runtime.load(with_range("old", old))
        if is_taken:
            runtime.swap(model, with_range("new", new))
        else:
            with pytest.raises(BundleRefused, match=r"graph 'plain': range of 'shift': expected .* or more, got \("):
                runtime.swap(model, with_range("new", new))


def test_an_old_version_is_closed_with_its_last_stream(bundle: Path) -> None:
    closed: list[str] = []

    class Watched(OnnxExecutor):
        def close(self) -> None:
            closed.append("closed")
            super().close()

    with Runtime() as runtime:
        model = runtime.load(bundle, executors=Watched)
        first, second = model.open_stream("streaming"), model.open_stream("streaming")
        runtime.swap(model, bundle)
        first.close()
        assert closed == []
        second.push({"x": random_chunks(1)[0]})
        second.close()
        assert closed == ["closed", "closed"]  # one executor per graph


def test_closing_a_swapped_model_ends_the_streams_of_its_old_versions(bundle: Path) -> None:
    with Runtime() as runtime:
        model = runtime.load(bundle)
        pinned = [model.open_stream("streaming")]
        for _ in range(2):
            runtime.swap(model, bundle)
            pinned.append(model.open_stream("streaming"))
        model.close()
        for stream in pinned:
            with pytest.raises(BadInput, match="got one of a closed model"):
                stream.push({"x": random_chunks(1)[0]})
        assert runtime.health().streams == 0


def test_a_model_closed_during_a_swap_stays_closed(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Runtime() as runtime:
        model = runtime.load(bundle)

        def closed_meanwhile(_: object) -> dict[tuple[str, str], int]:
            model.close()
            return {}

        monkeypatch.setattr("runtime_lite.runtime._warm_up", closed_meanwhile)
        with pytest.raises(BadInput, match="expected an open model, got a closed one"):
            runtime.swap(model, bundle)
        assert model.closed


def test_a_bundle_that_fails_to_load_changes_nothing(bundle: Path, tmp_path: Path) -> None:
    feed = {"x": random_chunks(1)[0], "shift": np.array([0])}
    broken = write_double_bundle(tmp_path / "broken")
    (broken / "graphs" / "weights.bin").write_bytes(b"\0" * 16)
    garbage = write_double_bundle(tmp_path / "garbage")
    replace_graph(garbage, "graphs/streaming.batch4.onnx", onnx_bytes(PLAIN_TEXT.format(n=4, f=2)))
    other = write_streaming_bundle(tmp_path / "other")
    wired = write_wired_bundle(tmp_path / "wired")
    with Runtime() as runtime:
        model = runtime.load(bundle)
        expected = model.run(feed, "plain")["y"]
        for wrong, sentence in (
            (broken, "weights.bin"),
            (garbage, "streaming.batch4"),
            (other, "expected the graphs"),
            (wired, "wiring: expected that of"),
        ):
            with pytest.raises(BundleRefused, match=sentence):
                runtime.swap(model, wrong)
            np.testing.assert_array_equal(model.run(feed, "plain")["y"], expected)
        with pytest.raises(BadInput, match="expected"):
            runtime.swap(model, tmp_path / "nowhere")
        with Runtime() as another, pytest.raises(BadInput, match="expected an open model of this runtime"):
            another.swap(model, bundle)
        model.close()
        with pytest.raises(BadInput, match="expected an open model of this runtime"):
            runtime.swap(model, bundle)


def test_swaps_under_load_fail_nothing_and_mix_no_versions(bundle: Path, tmp_path: Path) -> None:
    new = with_weight(tmp_path / "new", 2.0)
    feeds = [{"x": random_chunks(1, seed=seed)[0], "shift": np.array([0])} for seed in range(4)]
    with Runtime(workers=2) as runtime:
        model, other = runtime.load(bundle), runtime.load(new)
        answers = [[each.run(feed, "plain")["y"] for each in (model, other)] for feed in feeds]
        stop = threading.Event()
        wrong: list[object] = []

        def work(seed: int) -> None:
            while not stop.is_set():
                got = model.submit(feeds[seed], "plain").result(PATIENCE_S)["y"]
                if not any(np.allclose(got, answer, rtol=0.0, atol=ATOL) for answer in answers[seed]):
                    wrong.append(got)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for at in range(6):
            runtime.swap(model, bundle if at % 2 else new)
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert wrong == []
        counts = runtime.request_counts
        assert counts.submitted == counts.count("done") and counts.balanced


def test_loading_and_unloading_under_load_ends_every_request(bundle: Path) -> None:
    feed = {"x": random_chunks(1)[0], "shift": np.array([0])}
    with Runtime(workers=2) as runtime:
        unexpected: list[BaseException] = []

        def work() -> None:
            for _ in range(6):
                model = runtime.load(bundle)
                tickets = [model.submit(feed, "plain") for _ in range(3)]
                model.close()
                for ticket in tickets:
                    try:
                        ticket.result(PATIENCE_S)
                    except Dropped as error:
                        if error.reason != "model closed":
                            unexpected.append(error)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert unexpected == [] and runtime.request_counts.live == 0 and runtime.request_counts.balanced
        assert runtime.health().healthy


def test_a_model_that_is_warm_opens_no_session_for_a_request(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Runtime() as runtime:
        model = runtime.load(bundle, warm_up=True)
        monkeypatch.setattr("onnxruntime.InferenceSession", lambda *_, **__: pytest.fail("opened a session"))
        for rows in (1, 3):
            for frames in (2, 3):
                x = random_chunks(1, rows)[0][:, :frames]
                assert model.run({"x": x, "shift": np.arange(rows)}, "plain")["y"].shape == (rows, frames, WIDTH)
            with model.open_stream("streaming", rows=rows) as stream:
                stream.push({"x": random_chunks(1, rows)[0]})


def test_the_first_request_of_a_warm_model_finds_what_is_known_of_its_kind(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Runtime() as runtime:
        model = runtime.load(bundle, warm_up=True)
        for place in ("feeds.check_feed", "bucket.Bucket.__init__"):
            monkeypatch.setattr(
                f"runtime_lite.calls.{place}", lambda *_, **__: pytest.fail("looked at for the first time")
            )
        monkeypatch.setattr("runtime_lite.serving.request.key_of", lambda *_: pytest.fail("made the key of a kind"))
        for rows in (1, 4):
            for frames in (2, 3):
                x = random_chunks(1, rows)[0][:, :frames]
                assert model.run({"x": x, "shift": np.arange(rows)}, "plain")["y"].shape == (rows, frames, WIDTH)
            with model.open_stream("streaming", rows=rows) as stream:
                stream.push({"x": random_chunks(1, rows)[0]})


def test_warming_up_ends_with_the_smallest_bucket_and_keeps_nothing_for_runs(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[int, ...]] = []
    run = OnnxExecutor.run

    def note(self: OnnxExecutor, sizes: Any, inputs: Any, outputs: Any) -> None:
        ran.append(tuple(sizes.values()))
        run(self, sizes, inputs, outputs)

    monkeypatch.setattr(OnnxExecutor, "run", note)
    with Runtime() as runtime:
        model = runtime.load(bundle, warm_up=True)
        runner = model.runner("streaming")
        assert not any(bucket._free for bucket in runner._buckets.values())
        assert not any(runner._blocks._spare.values())
    assert ran == [(4, 3), (4, 3), (4, 2), (4, 2), (1, 3), (1, 3), (1, 2), (1, 2), (4,), (4,), (1,), (1,)]


def test_a_drained_runtime_refuses_and_reports(bundle: Path) -> None:
    with Runtime() as runtime:
        model = runtime.load(bundle)
        model.submit({"x": random_chunks(1)[0], "shift": np.array([0])}, "plain").result(PATIENCE_S)
        with pytest.raises(BadInput, match=r"Runtime\.drain: expected limit_s as seconds from 0 on, got -1"):
            runtime.drain(-1)
        report = runtime.drain(10)
        assert (report.finished, report.dropped) == (0, ()) and report.seconds < 10
        with pytest.raises(Overloaded, match="draining"):
            model.run({"x": random_chunks(1)[0], "shift": np.array([0])}, "plain")


def test_a_runtime_closed_with_work_in_it_ends_all_of_it(bundle: Path) -> None:
    before = set(threading.enumerate())
    runtime = Runtime(workers=2)
    model = runtime.load(bundle)
    tickets = [model.submit({"x": random_chunks(1)[0], "shift": np.array([0])}, "plain") for _ in range(20)]
    runtime.close()
    assert all(ticket.done() for ticket in tickets)
    assert runtime.request_counts.balanced and runtime.request_counts.live == 0
    assert set(threading.enumerate()) <= before
