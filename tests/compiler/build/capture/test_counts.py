"""Counts are states that the compiler adds: from 0, by the frames of a call, for every row of its own."""

from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from compiler.build.capture.counts import add_counts, count_states, frames_counted
from compiler.build.capture.initial_graph import initial_graph, states_of
from compiler.build.capture.torch_module import TorchReference
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.session import open_session
from compiler.graph.stages import State
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, Input, Source
from tests.kit.graphs import parse


def counting(counts: str) -> Graph:
    return Graph(
        source=Source(factory="m:f"),
        inputs={
            "x": Input(shape=("batch", "chunk", 4), dtype="float32"),
            "cache": Input(shape=("batch", "cached", 4), dtype="float32", state="next"),
            "offset": Input(shape=("batch",), dtype="int64", counts=counts),
        },
        outputs=("y", "next"),
        axes={"batch": Axis(buckets=(1, 2)), "chunk": Axis(fixed=2), "cached": Axis(window=6)},
        passes=(),
    )


TEXT = """(float[batch,2,4] x, float[batch,cached,4] cache, int64[batch] offset)
    => (float[batch,2,4] y, float[batch,kept,4] next) <int64[2] more = {1, 2}> {
        next = Concat<axis = 1>(cache, x)
        offset_after = Unsqueeze(offset, more)
        late = Cast<to = 1>(offset_after)
        y = Add(x, late)
    }"""


class Late(nn.Module):
    def forward(self, x: Tensor, cache: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
        return x + offset[:, None, None].float(), torch.cat([cache, x], 1)


def test_a_count_is_a_state_of_its_own_output() -> None:
    spec = counting("cached")
    assert count_states(spec) == (State("offset", "offset_after", None),)
    assert states_of(spec)[-1] == State("offset", "offset_after", None)
    taken = spec.model_copy(update={"outputs": ("offset_after", "next")})
    assert count_states(taken)[0].output == "offset_after_"


def test_frames_of_a_window_or_of_a_fixed_chunk_are_counted() -> None:
    assert frames_counted(counting("cached"), {"cached": 3}) == {"offset": 3}
    assert frames_counted(counting("chunk"), {"cached": 3}) == {"offset": 2}


def test_the_graph_moves_a_count_on_and_keeps_other_values_of_that_name() -> None:
    model = parse(TEXT, {})
    add_counts(model, counting("cached"), {"offset": 2})
    assert list(graphs.outputs_named(model)) == ["y", "next", "offset_after"]
    names = [value.name for node in model.graph for value in node.outputs]
    assert len(names) == len(set(names))


def test_a_chunk_of_any_length_is_counted_by_its_own() -> None:
    spec = counting("chunk")
    padded = Axis(buckets=(2, 4), length_input="chunk_length")
    spec = spec.model_copy(update={"axes": {**spec.axes, "chunk": padded}})
    assert frames_counted(spec, {}) == {"offset": graphs.symbol("chunk")}
    model = parse(TEXT.replace("float[batch,2,4]", "float[batch,chunk,4]"), {})
    add_counts(model, spec, {"offset": graphs.expression("(chunk + 1) // 2")})
    x, cache = np.zeros((1, 3, 4), np.float32), np.zeros((1, 0, 4), np.float32)
    session = open_session(graphs.serialized(model))
    (after,) = session.run(["offset_after"], {"x": x, "cache": cache, "offset": np.array([7])})
    assert (after.tolist(), after.dtype) == ([9], np.int64)


def test_a_stream_begins_at_0_and_counts_as_the_original_does() -> None:
    spec = counting("cached")
    lowered = initial_graph(mock.Mock(), "net", spec, (parse(TEXT, {}), None), 9, {})
    reference = TorchReference(Late(), None, spec, states_of(spec), counted={"offset": 2})
    feeds = [{"x": np.full((1, 2, 4), call, np.float32)} for call in range(5)]
    runner = runner_of(lowered)
    for call, (feed, (outputs, states)) in enumerate(zip(feeds, reference.run(feeds), strict=True)):
        got = runner.step(feed)
        assert outputs["y"].max() == got["y"].max() == call + 2 * call
        assert states["offset"].tolist() == got["offset_after"].tolist() == [2 * call + 2]
        assert states["offset"].dtype == got["offset_after"].dtype == np.int64
