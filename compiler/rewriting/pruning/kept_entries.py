"""Slices the states of a graph before pruning to the entries that pruning keeps."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from compiler.graph.stages import Array, StateMap

KeptAlong = tuple[int, npt.NDArray[np.int64]]
"""An axis of a state, and the indices that stay along it, ascending."""


@dataclasses.dataclass(frozen=True, eq=False)
class KeptEntries(StateMap):
    """State map: states by input, of which every one named here has fewer entries along some axes.

    Attributes:
        states: by input, the axes in the order in which they are cut.
    """

    states: Mapping[str, Sequence[KeptAlong]]

    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        """Map state values by input name; other arrays stay."""
        found = dict(states)
        for name in found.keys() & self.states.keys():
            for axis, kept in self.states[name]:
                found[name] = np.ascontiguousarray(np.take(found[name], kept, axis=axis))
        return found

    def arrays(self) -> dict[str, Array]:
        """Return what stays as arrays, for storing."""
        return {
            f"{name}/{number}/{axis}": kept
            for name, cuts in self.states.items()
            for number, (axis, kept) in enumerate(cuts)
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array]) -> "KeptEntries":
        """Return the map from the arrays that `arrays` returned."""
        found = dict[str, list[KeptAlong]]()
        for key in sorted(arrays, key=lambda key: int(key.split("/")[-2])):
            name, _, axis = key.rsplit("/", 2)
            found.setdefault(name, []).append((int(axis), arrays[key].astype(np.int64)))
        return cls(found)
