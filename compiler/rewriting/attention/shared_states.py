"""Computes the states of shared keys and values from the states of the single heads.

A group shares m = sum_h x_h A_h, frame by frame (`compiler.rewriting.attention.shared_maps`), so what is cached of m
follows from what was cached of the heads: sum_h c_h A'_h, with A'_h the map A_h in the channels of the cache.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from compiler.errors import Refused
from compiler.graph.stages import Array, StateMap
from compiler.rewriting.attention.shared_maps import Array as Real

CLOSE = 1e-3
"""Largest difference, beside the largest entry, between a map of one frame's channels and of another's."""


@dataclasses.dataclass(frozen=True, eq=False)
class SharedState:
    """One state.

    Attributes:
        heads_axis: where it has the heads, as it is fed.
        channels_axis: and where their channels.
        order: heads in the order of the groups, int64 [heads].
        maps: A'_h of the heads in that order, float32 [groups, heads of a group, d, d].
    """

    heads_axis: int
    channels_axis: int
    order: Array
    maps: Array

    def of(self, array: Array) -> Array:
        """Return the groups' state, from the heads' state."""
        axes = (self.heads_axis, self.channels_axis)
        heads = np.moveaxis(array, axes, (-2, -1))[..., self.order, :]
        apart = heads.reshape(*heads.shape[:-2], *self.maps.shape[:2], heads.shape[-1])
        shared = np.einsum("...gei,geij->...gj", apart, self.maps, optimize=True)
        found: Array = np.moveaxis(shared, (-2, -1), axes).astype(array.dtype)
        return found


@dataclasses.dataclass(frozen=True, eq=False)
class SharedStates(StateMap):
    """State map: states by input, of which every one named here has fewer heads."""

    states: Mapping[str, SharedState]

    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        """Map state values by input name."""
        return {name: self.states[name].of(array) if name in self.states else array for name, array in states.items()}

    def arrays(self) -> dict[str, Array]:
        """Return all maps as arrays, for storing."""
        found: dict[str, Array] = {}
        for name, each in self.states.items():
            axes = np.array([each.heads_axis, each.channels_axis], np.int64)
            found |= {f"{name}/axes": axes, f"{name}/order": each.order, f"{name}/maps": each.maps}
        return found

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array]) -> "SharedStates":
        """Return the maps from the arrays that `arrays` returned."""
        found = {}
        for name in dict.fromkeys(key.rpartition("/")[0] for key in arrays):
            heads_axis, channels_axis = map(int, arrays[f"{name}/axes"])
            found[name] = SharedState(heads_axis, channels_axis, arrays[f"{name}/order"], arrays[f"{name}/maps"])
        return cls(found)


def in_channels_of(table: Real, maps: Real, name: str) -> Real:
    """Return maps on projected channels as maps on the cached channels.

    Args:
        table: the map from projected to cached channels of each frame, [frames, d, d].
        maps: A_h, [heads, d, d].
        name: name of the cache.

    Raises:
        Refused: the maps depend on the frame.
    """
    cached_maps: Real = np.einsum("ij,hjk,kl->hil", np.linalg.pinv(table[0]), maps, table[0], optimize=True)
    expected = np.einsum("hij,tjk->htik", maps, table, optimize=True)
    got = np.einsum("tij,hjk->htik", table, cached_maps, optimize=True)
    if not np.allclose(got, expected, rtol=0, atol=CLOSE * float(np.abs(expected).max())):
        raise Refused(f"expected the frames in {name} to be mixed alike, got maps that depend on the place")
    return cached_maps
