"""shared_states: what caches hold when heads share."""

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.rewriting.attention.shared_states import SharedState, SharedStates, in_channels_of

RNG = np.random.default_rng(0)
MAPS = RNG.standard_normal((2, 2, 3, 3)).astype(np.float32)
ORDER = np.array([0, 2, 3, 1])


@pytest.mark.parametrize("axes", [(1, 3), (1, 2), (2, 3)])
def test_groups_hold_the_sum_of_their_heads_by_the_maps(axes: tuple[int, int]) -> None:
    heads = RNG.standard_normal((2, 4, 5, 3)).astype(np.float32)  # [batch, heads, frames, d]
    expected = np.stack(
        [sum(heads[:, h] @ MAPS[g, e] for e, h in enumerate(ORDER[2 * g : 2 * g + 2])) for g in (0, 1)], 1
    )
    laid = np.moveaxis(heads, (1, 3), axes)
    got = SharedStates({"cache": SharedState(*axes, ORDER, MAPS)}).apply({"cache": laid, "other": laid})
    np.testing.assert_allclose(got["cache"], np.moveaxis(expected, (1, 3), axes), rtol=1e-4, atol=1e-4)
    assert got["other"] is laid and got["cache"].dtype == np.float32


def test_what_is_kept_is_what_was() -> None:
    once = SharedStates({"a": SharedState(1, 3, ORDER, MAPS), "b/c": SharedState(2, 1, ORDER, MAPS)})
    again = SharedStates.of_arrays(once.arrays())
    assert list(again.states) == ["a", "b/c"]
    for name, each in again.states.items():
        assert (each.heads_axis, each.channels_axis) == (once.states[name].heads_axis, once.states[name].channels_axis)
        np.testing.assert_array_equal(each.maps, MAPS)
    assert SharedStates.of_arrays({}).states == {}


def test_maps_are_those_of_what_is_cached() -> None:
    angles = np.array([0.0, 0.5, 1.0])
    turned = np.stack([[[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]] for a in angles])
    swapped = turned[:, :, ::-1]  # channels are cached the other way round
    complex_maps = np.array([[[0.5, 2.0], [-2.0, 0.5]]])
    found = in_channels_of(swapped, complex_maps, "cache")
    np.testing.assert_allclose(swapped @ found[0], complex_maps[0] @ swapped, atol=1e-12)
    with pytest.raises(Refused, match="frames in cache to be mixed alike"):
        in_channels_of(swapped, np.array([[[0.5, 2.0], [2.0, 0.5]]]), "cache")
