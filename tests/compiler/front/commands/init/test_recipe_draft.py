"""What is guessed of a model: rows, caches, lengths, chunks, and what cannot be guessed."""

from typing import Any

import pytest

from compiler.front.commands.init.recipe_draft import Draft, draft_of
from compiler.front.commands.onnx_signature import Signature, Tensor
from tests.compiler.front.commands.test_tensor_roles import tensor


def draft(inputs: list[str | Tensor], outputs: list[str]) -> Draft:
    given = tuple(tensor(each) if isinstance(each, str) else each for each in inputs)
    return draft_of(Signature(given, tuple(map(tensor, outputs))))


def axes(found: Draft) -> dict[str, dict[str, Any]]:
    assert all(axis.reason.startswith("guessed: ") for axis in found.axes)
    return {axis.name: dict(axis.settings) for axis in found.axes}


def roles(found: Draft) -> dict[str, tuple[str, str] | None]:
    return {each.tensor.name: each.role for each in found.inputs}


def test_a_recurrent_step_has_its_rows_in_front() -> None:
    found = draft(["x[batch,1,40]", "h[batch,64]"], ["y[batch,1,30]", "next_h[batch,64]"])
    assert axes(found) == {"batch": {"buckets": (1, 4)}}
    assert roles(found) == {"x": None, "h": ("state", "next_h")}
    assert (found.steps, found.is_stream) == (30, True)


def test_rows_behind_layers_are_fixed() -> None:
    found = draft(["x[batch,1,40]", "h0[2,batch,64]"], ["y[batch,1,64]", "hn[2,batch,64]"])
    assert axes(found) == {"batch": {"fixed": 1}}


def test_caches_of_all_layers_share_one_window() -> None:
    caches = [f"past_{n}[batch,2,past_{n}_len,8]" for n in range(2)]
    grown = [f"present_{n}[batch,2,past_{n}_len + 4,8]" for n in range(2)]
    found = draft(["x[batch,4,16]", *caches], ["y[batch,4,16]", *grown])
    assert axes(found) == {"batch": {"buckets": (1, 4)}, "past_0_len": {"window": 64}}
    assert [each.shape for each in found.inputs[1:]] == [("batch", 2, "past_0_len", 8)] * 2
    assert found.steps == 30


def test_a_wide_chunk_asks_for_a_wide_window_and_steps_that_overflow_it() -> None:
    found = draft(["x[1,67,80]", "cache[1,n,16]"], ["y[1,16,9]", "next_cache[1,n + 1,16]"])
    assert (axes(found), found.steps) == ({"n": {"window": 64}}, 72)
    wide = draft(["x[1,67,80]", "cache[1,n,16]"], ["y[1,16,9]", "next_cache[1,n + 32,16]"])
    assert axes(wide) == {"n": {"window": 128}}


def test_chunks_of_any_size_get_one_and_caches_grow_by_it() -> None:
    found = draft(["x[batch,time,8]", "keys[batch,past,8]"], ["y[batch,time,8]", "next_keys[batch,past + time,8]"])
    assert axes(found) == {"batch": {"buckets": (1, 4)}, "time": {"fixed": 8}, "past": {"window": 64}}


def test_whole_utterances_have_lengths_and_masks() -> None:
    mask, length = tensor("mask[batch,time]", "int64"), tensor("lengths[batch]", "int64")
    found = draft(["x[batch,time,80]", mask, length], ["y[batch,time,9]"])
    assert axes(found)["time"] == {"buckets": (128, 256, 512)}
    assert roles(found) == {"x": None, "mask": ("mask_of", "time"), "lengths": ("length_of", "time")}
    padding = draft(["x[batch,time,80]", tensor("key_padding_mask[batch,time]", "bool")], ["y[batch,time,9]"])
    assert roles(padding) == {"x": None, "key_padding_mask": ("pad_mask_of", "time")}
    bare = draft(["x[batch,time,80]"], ["y[batch,time // 2,9]"])
    assert axes(bare)["time"] == {"buckets": (128, 256, 512), "length_input": "time_length"}
    assert bare.steps == 8


@pytest.mark.parametrize(
    ("given", "buckets"),
    [
        (tensor("waveform[batch,samples]"), (16_000, 32_000, 64_000)),
        (tensor("tokens[batch,length]", "int64"), (32, 64, 128)),
        (tensor("mel[batch,80,frames]"), (128, 256, 512)),
    ],
)
def test_buckets_are_of_what_the_input_holds(given: Tensor, buckets: tuple[int, ...]) -> None:
    assert axes(draft([given], ["y[batch,7]"]))[given.axes[-1]]["buckets"] == buckets


def test_a_first_axis_of_time_is_none_of_rows() -> None:
    assert axes(draft(["x[time,80]"], ["y[time,9]"]))["time"]["length_input"] == "time_length"


def test_axes_without_names_are_rows_and_time() -> None:
    found = draft(["x[x_dim0,x_dim1,80]"], ["y[x_dim0,x_dim1,9]"])
    assert list(axes(found)) == ["batch", "time"]


def test_names_are_made_such_that_a_recipe_takes_them() -> None:
    found = draft(["x[batch,2time]", "time_length[batch,4]"], ["y[batch,4]"])
    assert all(name.isidentifier() for name in axes(found))
    clash = draft(["x[1,2,4]", "real_length[1,4]", "past[1,n,4]"], ["y[1,4]", "present[1,n + 2,4]"])
    assert axes(clash) == {"n": {"window": 64, "length_input": "n_length"}}


def test_an_input_that_hangs_on_two_axes_is_left_to_the_caller() -> None:
    found = draft(
        ["x[batch,4,8]", "bias[batch,past + 4]", "k[batch,past,8]"], ["y[batch,4,8]", "next_k[batch,past + 4,8]"]
    )
    assert found.inputs[1].shape == ("batch", "TODO")
    assert found.inputs[1].reason.startswith("TODO: bias [batch, past + 4] hangs on other sizes")


def test_the_length_of_a_cache_is_none_of_the_data() -> None:
    found = draft(["x[1,2,4]", "mask[1,n]", "past[1,n,4]"], ["y[1,2,4]", "present[1,n + 2,4]"])
    assert found.inputs[1].shape == (1, "TODO")
    assert axes(found) == {"n": {"window": 64}}


def test_a_cache_that_may_come_back_as_any_of_several_outputs_is_left_to_the_caller() -> None:
    found = draft(["x[b,3]", "a[b,t,8]"], ["y[b,3]", "p[b,t + 3,8]", "q[b,t + 3,8]"])
    assert roles(found) == {"x": None, "a": ("state", "TODO")}
    assert found.inputs[1].reason == "TODO: the output that feeds it; these come back longer: p, q"
    assert axes(found)["t"] == {"window": 64}


@pytest.mark.parametrize(
    "axes_of", ["x_dynamic_axes_1 past_dynamic_axes_1", "x_dim0 past_dim0", "s0 s7", "unk__1 unk__2"]
)
def test_rows_that_an_exporter_named_per_input_are_one_axis(axes_of: str) -> None:
    first, second = axes_of.split()
    found = draft(
        [f"x[{first},3]", f"past[{second},past_dynamic_axes_2,8]"],
        [f"y[{first},9]", f"present[{second},past_dynamic_axes_2 + 3,8]"],
    )
    assert [each.shape for each in found.inputs] == [("batch", 3), ("batch", "cached", 8)]
