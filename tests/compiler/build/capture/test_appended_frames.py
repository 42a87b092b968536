"""A model that gives its new frames alone is built as one that gives the whole cache, and held to the same."""

from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from compiler.build.capture.appended_frames import append_frames, is_appended
from compiler.build.capture.initial_graph import initial_graph, states_of
from compiler.build.capture.torch_module import TorchReference
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.stages import State
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, Input, Source
from tests.kit.graphs import parse

TEXT = """(float[batch,2,4] x, float[batch,cached,4] cache)
    => (float[batch,2,4] y, float[batch,2,4] new) <int64[1] axes = {1}> {
        new = Relu(x)
        joined = Concat<axis = 1>(cache, new)
        most = ReduceMax(joined, axes)
        y = Add(x, most)
    }"""


class Heard(nn.Module):
    def forward(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        new = torch.relu(x)
        return x + torch.cat([cache, new], 1).amax(1, keepdim=True), new


def spec(update: str) -> Graph:
    return Graph(
        source=Source(factory="m:f"),
        inputs={
            "x": Input(shape=("batch", 2, 4), dtype="float32"),
            "cache": Input(shape=("batch", "cached", 4), dtype="float32", state="new"),
        },
        outputs=("y", "new"),
        axes={"batch": Axis(buckets=(1, 2)), "cached": Axis(window=3, update=update)},  # type: ignore[arg-type]
        passes=(),
    )


def test_the_recipe_says_which_states_are_appended() -> None:
    state = State("cache", "new", 1, "cached")
    assert (is_appended(spec("append"), state), is_appended(spec("replace"), state)) == (True, False)
    assert not is_appended(spec("append"), State("hidden", "next_hidden", None))


def test_the_graph_gives_the_whole_cache_under_the_name_of_the_new_frames() -> None:
    model = parse(TEXT, {})
    append_frames(model, spec("append"), [(State("cache", "new", 1, "cached"), 1)])
    new = graphs.outputs_named(model)["new"]
    joined = new.producer()
    assert joined is not None and joined.op_type == "Concat"
    assert [value.name for value in joined.inputs if value is not None] == ["cache", "new_before"]
    assert [str(dim) for dim in graphs.dims_of(new) or ()] == ["batch", "cached + 2", "4"]


def test_a_stream_of_the_graph_is_that_of_the_original() -> None:
    given, rng = spec("append"), np.random.default_rng(0)
    lowered = initial_graph(mock.Mock(), "net", given, (parse(TEXT, {}), None), 9, {})
    assert [(cache.step, cache.update) for cache in lowered.caches] == [(2, "replace")]
    feeds = [{"x": rng.standard_normal((1, 2, 4)).astype(np.float32)} for _ in range(6)]
    runner = runner_of(lowered)
    steps = TorchReference(Heard(), None, given, states_of(given)).run(feeds)
    for feed, (outputs, states) in zip(feeds, steps, strict=True):
        got = runner.step(feed)
        np.testing.assert_array_equal(outputs["y"], got["y"])
        np.testing.assert_array_equal(states["cache"], runner.states["cache"])
