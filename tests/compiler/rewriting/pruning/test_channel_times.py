"""channel_times: how long a part takes by the number of its channels, and which numbers are offered."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph.stages import Array, Lowered
from compiler.rewriting.pruning import channel_times
from compiler.rewriting.pruning.channel_times import ChannelTimes, call_of, counts_of, seconds_of
from compiler.rewriting.pruning.inner_axes import inner_axes
from tests.compiler.rewriting.pruning.test_inner_axes import SWISH, graph
from tests.kit.pruning import weigh_graphs


def stateless(model: ir.Model) -> Lowered:
    return Lowered("net", model)


TWO_LAYERS = """m = MatMul(x, w)  h = Relu(m)  r = MatMul(h, v)  n = MatMul(r, u)  k = Relu(n)
    y = MatMul(k, other)"""


def values_of(shape: tuple[int, ...] = (1, 5, 4)) -> dict[str, Array]:
    return {name: np.ones(shape, np.float32) for name in ("x", "r")}


def test_widths_are_multiples_of_a_tile_and_not_too_many() -> None:
    assert counts_of(64, 1, 16) == [48, 32, 16]
    assert counts_of(50, 1, 16) == [48, 32, 16]
    assert counts_of(16, 1, 16) == []
    assert len(counts_of(2048, 1, 16)) <= channel_times.MOST_WIDTHS
    assert all(width % 16 == 0 for width in counts_of(2048, 1, 16))


def test_heads_go_one_by_one_and_narrow_ones_as_many_as_fill_a_tile() -> None:
    assert counts_of(4, 36, 16) == [3, 2, 1]
    assert counts_of(8, 4, 16) == [4]
    assert counts_of(1, 64, 16) == []


def test_every_width_saves_what_its_part_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    weigh_graphs(monkeypatch)
    model = graph(SWISH)
    ((axis,), _) = inner_axes(model)
    offered = ChannelTimes(stateless(model), values_of(), 4, "test").offered(axis)
    assert [width.entries for width in offered] == [8, 4]
    per_channel = 4 + 1 + 4  # a column, an entry of the bias, a row
    assert [round(1e6 * width.seconds) for width in offered] == [4 * per_channel, 8 * per_channel]


def test_widths_that_make_nothing_faster_are_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    model = graph(SWISH)
    ((axis,), _) = inner_axes(model)
    monkeypatch.setattr(channel_times, "seconds_of", lambda calls: [1.0, 0.8, 0.9, 0.795, 0.7][: len(calls)])
    offered = ChannelTimes(stateless(model), values_of(), 3, "test").offered(axis)
    assert [(width.entries, round(width.seconds, 3)) for width in offered] == [(9, 0.2)]
    monkeypatch.setattr(channel_times, "seconds_of", lambda calls: [1.0, 0.8, 0.9, 0.7][: len(calls)])
    offered = ChannelTimes(stateless(model), values_of(), 3, "test").offered(axis)
    assert [width.entries for width in offered] == [9, 3]


def test_parts_that_are_alike_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = []

    def seconds(calls: list[object]) -> list[float]:
        timed.append(len(calls))
        return [1.0 / (at + 1) for at in range(len(calls))]

    monkeypatch.setattr(channel_times, "seconds_of", seconds)
    model = graph(TWO_LAYERS)
    axes, _ = inner_axes(model)
    wide = [axis for axis in axes if axis.count == 12]
    times = ChannelTimes(stateless(model), values_of(), 4, "test")
    assert len(wide) == 2 and len(axes) == 3
    assert times.offered(wide[0]) == times.offered(wide[1]) and timed == [3]


def test_calls_are_run_in_turns() -> None:
    model = graph(SWISH)
    call = call_of(model, values_of())
    assert all(0 < seconds < 1 for seconds in seconds_of([call, call]))
