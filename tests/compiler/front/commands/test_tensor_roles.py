"""States, masks and lengths are known by names, sizes and types; what only sounds alike stays data."""

import pytest

from compiler.front.commands.onnx_signature import Signature, Tensor
from compiler.front.commands.tensor_roles import carried_states, is_length, mask_key, unpaired_states
from compiler.graph.sizes.expressions import expression


def tensor(text: str, dtype: str = "float32") -> Tensor:
    """`cache[batch,past + 2,4]`."""
    name, _, dims = text.removesuffix("]").partition("[")
    return Tensor(name, tuple(expression(dim) for dim in dims.split(",") if dim), dtype)


def pairs(inputs: list[str], outputs: list[str]) -> dict[str, tuple[str, int | None]]:
    found = carried_states(Signature(tuple(map(tensor, inputs)), tuple(map(tensor, outputs))))
    assert all(each.reason for each in found)
    return {each.input: (each.output, each.frames_axis) for each in found}


@pytest.mark.parametrize(
    ("given", "back"),
    [
        ("cache_in", "cache_out"),
        ("conv_state", "new_conv_state"),
        ("h", "next_h"),
        ("h0", "hn"),
        ("h", "hn"),
        ("h_0", "h_n"),
        ("prev_keys", "next_keys"),
        ("past_key_values.0.key", "present.0.key"),
        ("pastState", "presentState"),
        ("state.3", "updated_state.3"),
        ("memory", "output_1"),
    ],
)
def test_a_state_is_known_by_its_name(given: str, back: str) -> None:
    inputs, outputs = ["x[1,8]", f"{given}[1,16]"], ["y[1,30]", f"{back}[1,16]"]
    assert pairs(inputs, outputs) == {given: (back, None)}


def test_many_layers_are_paired_by_their_numbers() -> None:
    inputs = [f"past_{kind}_{n}[batch,2,past,8]" for n in range(3) for kind in ("key", "value")]
    outputs = [f"present_{kind}_{n}[batch,2,past + 1,8]" for kind in ("key", "value") for n in (2, 0, 1)]
    expected = {f"past_{k}_{n}": (f"present_{k}_{n}", 2) for n in range(3) for k in ("key", "value")}
    assert pairs(["ids[batch,1]", *inputs], ["logits[batch,1,50]", *outputs]) == expected


def test_what_comes_back_longer_is_a_cache_whatever_it_is_called() -> None:
    found = pairs(["x[batch,2,4]", "left[batch,n,4]"], ["y[batch,2,4]", "joined[batch,n + 2,4]"])
    assert found == {"left": ("joined", 1)}


@pytest.mark.parametrize("longer", ["n{}", "new{}", "{}n", "grown{}"])
def test_caches_of_one_size_are_paired_by_names_that_have_a_little_more(longer: str) -> None:
    names = ["k0", "v0", "k1", "v1"]
    backs = [longer.format(name) for name in ("v1", "k0", "v0", "k1")]
    found = pairs(["x[b,3]", *(f"{n}[b,2,t,8]" for n in names)], ["y[b,3]", *(f"{n}[b,2,t + 3,8]" for n in backs)])
    assert found == {name: (longer.format(name), 2) for name in names}


def test_a_state_of_one_size_is_known_by_an_n_in_front() -> None:
    assert pairs(["x[1,8]", "k[1,2,64]"], ["nx[1,9]", "nk[1,2,64]"]) == {"k": ("nk", None)}
    assert pairs(["k1[1,8]"], ["k10[1,8]"]) == {}


def test_caches_without_a_hint_are_paired_in_order_where_as_many_come_back() -> None:
    inputs = ["x[b,3]", "a[b,t,8]", "b[b,t,8]"]
    found = pairs(inputs, ["y[b,3]", "p[b,t + 3,8]", "q[b,t + 3,8]"])
    assert found == {"a": ("p", 1), "b": ("q", 1)}
    given = Signature(tuple(map(tensor, inputs)), tuple(map(tensor, ["p[b,t + 3,8]", "q[b,t + 3,8]", "r[b,t + 3,8]"])))
    assert carried_states(given) == ()
    maybe = unpaired_states(given, ())
    assert {name: [each.output for each in found] for name, found in maybe.items()} == {
        "a": ["p", "q", "r"],
        "b": ["p", "q", "r"],
    }


def test_h_and_c_of_one_size_are_kept_apart_by_their_names() -> None:
    found = pairs(["x[1,1,8]", "h0[2,1,8]", "c0[2,1,8]"], ["y[1,1,8]", "cn[2,1,8]", "hn[2,1,8]"])
    assert found == {"h0": ("hn", None), "c0": ("cn", None)}


def test_names_without_a_hint_are_paired_in_order_where_they_fit_one_by_one() -> None:
    found = pairs(["x[1,8]", "h[1,16]", "c[1,16]"], ["output_0[1,30]", "output_1[1,16]", "output_2[1,16]"])
    assert found == {"h": ("output_1", None), "c": ("output_2", None)}


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (["audio_in[1,160]"], ["audio_out[1,160]"]),
        (["input_features[batch,time,80]"], ["output_features[batch,time,80]"]),
        (["x[batch,8]"], ["y[batch,8]"]),
        (["cache_in[1,8]"], ["cache_out[1,9]"]),
        (["cache_in[1,8]"], ["cache_out[1,8,1]"]),
        (["x[1,4]", "h[1,16]"], ["a[1,16]", "b[1,16]"]),
    ],
)
def test_what_only_sounds_alike_stays_data(inputs: list[str], outputs: list[str]) -> None:
    assert pairs(inputs, outputs) == {}


def test_a_state_of_another_type_stays_data() -> None:
    signature = Signature((tensor("cache_in[1,8]", "float16"),), (tensor("cache_out[1,8]"),))
    assert carried_states(signature) == ()


def test_masks_and_lengths_are_known_by_name_and_type() -> None:
    assert mask_key(tensor("mask[batch,time]", "int64")) == "mask_of"
    assert mask_key(tensor("padding_mask[batch,time]", "bool")) == "pad_mask_of"
    assert mask_key(tensor("mask[batch]", "int64")) is None
    assert mask_key(tensor("padded[batch,time]")) is None
    assert is_length(tensor("feature_lengths[batch]", "int64"))
    assert not is_length(tensor("feature_lengths[batch]"))
    assert not is_length(tensor("lengths[batch,time]", "int64"))
