"""Streams on mosec carry what the runtime's carry; what its worker does is run without it."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.serving.contenders import recorded
from benchmarks.serving.mosec_streams import SETTINGS_VARIABLE, HeldStreams, body_of, write_settings
from runtime_lite import Runtime, read_bundle
from runtime_lite.load_test.command import recorded_feeds
from tests.runtime_lite.bundles import write_open_bundle


def test_a_worker_holds_the_states_of_its_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_open_bundle(tmp_path / "bundle")
    calls, initial = recorded(path, "streaming")
    with read_bundle(path) as bundle:
        graph = bundle.manifest.graphs["streaming"]
    states = {state.input: state.output for state in graph.states}
    write_settings(tmp_path, path / graph.artifacts[0].file, states, initial, calls[0], 16, 0.005)
    monkeypatch.setenv(SETTINGS_VARIABLE, str(tmp_path))
    held = HeldStreams()
    held.step([body_of(2, begins=True, feeds=calls[0])])
    for at in range(3):  # the second stream has begun before, and begins anew
        held.step([body_of(number, begins=not at, feeds=calls[at]) for number in (1, 2)])
    with Runtime() as runtime:
        model = runtime.load(path)
        feeds = recorded_feeds(model, "streaming")
        with model.open_stream("streaming") as ours:
            for at in range(3):
                ours.push(feeds[at % len(feeds)])
            for name, value in ours.snapshot().state.values.items():
                for number in (1, 2):
                    np.testing.assert_allclose(held.states[number][name], value, atol=1e-6)
