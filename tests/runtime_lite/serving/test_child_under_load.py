"""The process of an executor is killed under load: every request is answered or named, and streams go on right."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np

from runtime_lite import ExecutorFailed, Model, Runtime, in_child
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import random_chunks, truth_of_stream, write_streaming_bundle
from tests.runtime_lite.executors.test_child import children

STREAMS, CHUNKS, KILLS = 6, 25, 3


def push_all(model: Model, seed: int, failed: list[str], wrong: list[int]) -> None:
    """Push a stream to its end; a chunk whose run failed is pushed again, from the state before it."""
    chunks = random_chunks(CHUNKS, seed=seed)
    with model.open_stream() as stream:
        for number, (chunk, (output, _)) in enumerate(zip(chunks, truth_of_stream(chunks), strict=True)):
            while True:
                try:
                    got = stream.push({"x": chunk})["y"]
                    break
                except ExecutorFailed as error:
                    failed.append(error.reason)
            if not np.allclose(got, output, atol=1e-4):
                wrong.append(number)
            time.sleep(0.01)


def test_streams_survive_their_executor(tmp_path: Path) -> None:
    before = children(os.getpid())
    failed: list[str] = []
    wrong: list[int] = []
    with Runtime(workers=2) as runtime:
        model = runtime.load(write_streaming_bundle(tmp_path / "b"), executors=in_child())
        pushing = [threading.Thread(target=push_all, args=(model, seed, failed, wrong)) for seed in range(STREAMS)]
        for thread in pushing:
            thread.start()
        for _ in range(KILLS):
            time.sleep(0.1)
            for child in children(os.getpid()) - before:
                os.kill(child, signal.SIGKILL)
        for thread in pushing:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in pushing)
        counts = runtime.request_counts
    assert wrong == []
    assert set(failed) <= {"crash"}
    assert (counts.balanced, counts.live, counts.count("failed")) == (True, 0, len(failed))
    assert counts.count("done") == STREAMS * CHUNKS
