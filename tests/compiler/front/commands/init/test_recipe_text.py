"""Texts that YAML and Python read as what was guessed."""

from typing import Any

import numpy as np
import pytest
import yaml

from compiler.front.commands.init.recipe_draft import Draft, draft_of
from compiler.front.commands.init.recipe_text import feeds_text, recipe_text
from compiler.front.commands.onnx_signature import Signature
from compiler.recipe.graph_parts import Source
from tests.compiler.front.commands.test_tensor_roles import tensor

STREAM = draft_of(
    Signature(
        (tensor("x[batch,8,4]"), tensor("ids[batch,8]", "int64"), tensor("cache[batch,past,4]")),
        (tensor("y[batch,8,4]"), tensor("next_cache[batch,past + 8,4]")),
    )
)
UTTERANCE = draft_of(
    Signature((tensor("x[batch,time,4]"), tensor("mask[batch,time]", "bool")), (tensor("y[batch,time,4]"),))
)


def streams_of(draft: Draft) -> list[list[dict[str, np.ndarray]]]:
    module: dict[str, Any] = {}
    exec(feeds_text(draft, "mine.yaml"), module)
    return list(module["verification"]())


def test_a_recipe_is_read_as_the_draft() -> None:
    read = yaml.safe_load(recipe_text(STREAM, "mine", Source(onnx="a b.onnx"), "mine_data:verification"))
    graph = read["graphs"]["mine"]
    assert graph["source"] == {"onnx": "a b.onnx"}
    assert graph["inputs"]["cache"] == {"shape": ["batch", "past", 4], "dtype": "float32", "state": "next_cache"}
    assert graph["outputs"] == ["y", "next_cache"]
    assert graph["axes"] == {"batch": {"buckets": [1, 4]}, "past": {"window": 64}}
    assert read["data"]["verification"] == {"feeds": "mine_data:verification", "count": 2}
    assert read["gates"]["parity"]["mine"] == {"max_abs": 1e-5, "chained_steps": 30}


@pytest.mark.parametrize("name", ["on", "no", "1", "1e3", "null", "a: b", "#x", "", "é", "x y", "{a}", "~", 'q"'])
def test_any_name_is_read_as_itself(name: str) -> None:
    draft = draft_of(Signature((tensor("x[1,4]"),), (tensor("y[1,4]"),)))
    odd = Draft(draft.inputs, (name,), draft.axes, draft.steps, draft.is_stream)
    read = yaml.safe_load(recipe_text(odd, "mine", Source(onnx=name or "m.onnx"), "mine_data:verification"))
    assert read["graphs"]["mine"]["outputs"] == [name]


def test_feeds_of_a_stream_hold_one_row_of_all_data() -> None:
    streams = streams_of(STREAM)
    assert [len(stream) for stream in streams] == [30, 30]
    assert {name: (array.shape, str(array.dtype)) for name, array in streams[0][0].items()} == {
        "x": ((1, 8, 4), "float32"),
        "ids": ((1, 8), "int64"),
    }
    assert not np.array_equal(streams[0][0]["x"], streams[0][1]["x"])


def test_feeds_of_utterances_are_of_many_lengths_up_to_the_largest_bucket() -> None:
    streams = streams_of(UTTERANCE)
    assert {len(stream) for stream in streams} == {1}
    assert [set(stream[0]) for stream in streams] == [{"x"}] * 8
    assert sorted({stream[0]["x"].shape[1] for stream in streams}) == [128, 256, 384, 512]
