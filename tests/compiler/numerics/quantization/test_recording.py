"""Recordings of calibration streams."""

import dataclasses

import numpy as np
import pytest

from compiler.errors import DataError
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.stream import Runner, poisoned
from compiler.graph.stages import Array, Feed, Lowered
from compiler.numerics.quantization.recording import Wanted, inputs_of, record
from compiler.numerics.quantization.weighted_layers import find_layers
from compiler.passes.pad_axes import PadAxes
from tests.kit.graphs import BATCH
from tests.kit.offline import offline
from tests.kit.quantization import STEP, speech, streams


def test_a_table_follows_from_graph_and_streams_alone() -> None:
    graph = speech()
    wanted = inputs_of(find_layers(graph.model))
    table = record(graph, wanted, streams(graph))
    assert table.calls == 24 and table.digest == record(graph, wanted, streams(graph)).digest
    assert table.digest != record(graph, wanted, streams(graph)[:1]).digest
    assert table.tensors["normed@-1"].entries == 24 * STEP * 8


def test_values_are_those_of_chained_calls() -> None:
    graph = speech()
    table = record(graph, [Wanted("y", -1)], streams(graph))
    seen = []
    for stream in streams(graph):
        runner = runner_of(graph)
        seen += [runner.step(feed)["y"] for feed in stream]
    assert table.tensors["y@-1"].high == pytest.approx(np.max(seen), rel=1e-5)


def test_caches_that_hold_nothing_yet_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is the same for any finite garbage in padded slots as for NaN: valid entries never see them."""
    graph = speech()
    wanted = [Wanted("next_past", -1), Wanted("mixed", -1)]
    clean = record(graph, wanted, streams(graph))

    def garbage(lowered: Lowered, full: Feed, active: Array, fills: list[float]) -> Feed:
        assert np.isnan(fills).all()
        return poisoned(lowered, full, active, [1e30] * len(active))

    monkeypatch.setattr("compiler.calib.watched_streams.poisoned", garbage)
    assert record(graph, wanted, streams(graph)).digest == clean.digest


def test_slots_behind_a_row_leave_no_trace() -> None:
    graph = offline_lowered()
    stream = [{"x": np.random.default_rng(n).standard_normal((1, 3 + n, 8)).astype(np.float32)} for n in range(4)]
    table = record(graph, [Wanted("h", -1)], [stream])
    assert table.tensors["h@-1"].entries == (3 + 4 + 5 + 6) * 8 and table.tensors["h@-1"].dropped == 0


def offline_lowered() -> Lowered:
    lowered = offline(f"(float[{BATCH},time,8] x) => (float[{BATCH},time,8] y) {{ h = Add(x, x)  y = Relu(h) }}")
    return PadAxes().apply(lowered).lowered


def test_no_calls_are_an_error() -> None:
    graph = speech()
    with pytest.raises(DataError, match="got no calls"):
        record(graph, [Wanted("y", -1)], [])


def test_the_graph_stays_as_it_is() -> None:
    graph = speech()
    before = [node.name for node in graph.model.graph], len(graph.model.graph.outputs)
    record(dataclasses.replace(graph), [Wanted("y", -1)], streams(graph))
    assert ([node.name for node in graph.model.graph], len(graph.model.graph.outputs)) == before
    assert isinstance(runner_of(graph), Runner)
