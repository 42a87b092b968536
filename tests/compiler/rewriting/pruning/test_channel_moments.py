"""channel_moments: what channels hold over calibration streams, summed."""

import numpy as np
import pytest

from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.instrumented import exposed
from compiler.rewriting.pruning import channel_moments as module
from compiler.rewriting.pruning.channel_moments import channel_moments
from compiler.rewriting.pruning.inner_axes import inner_axes
from tests.kit.graphs import BATCH
from tests.kit.quantization import speech, streams


@pytest.mark.parametrize("together", [1, 7, 1024])
def test_sums_are_those_of_all_frames_of_all_calls(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOGETHER", together)
    graph = speech()
    (_, axis), _ = inner_axes(graph.model)
    (moments,) = channel_moments(graph, [axis], streams(graph)).values()
    frames = []
    for stream in streams(graph):
        runner = runner_of(exposed(graph, ["swish"]))
        frames += [runner.step(feed)["swish"].reshape(-1, axis.count) for feed in stream]
    rows = np.concatenate(frames).astype(np.float64)
    rows = np.column_stack([rows, np.ones(len(rows))])
    assert graph.batch_axis == BATCH
    np.testing.assert_allclose(moments, rows.T @ rows, rtol=1e-5, atol=1e-6)
