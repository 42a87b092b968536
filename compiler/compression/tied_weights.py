"""Writes the weights of merged attention heads into the module's parameters, with equal values where heads share.

    K of heads 0, 3, 5, 7 of a group   ->   one K, four times
    Q, O of every head                 ->   with the maps of the group folded in

The module has as many parameters as before, and its own `forward` computes what the merged graph computes.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from compiler.compression.channels import Channels, bias_beside, channels_in
from compiler.graph.stages import Array as Numbers
from compiler.passes.merge_kv_heads import Merge
from compiler.rewriting.attention.probing import Affine


@dataclasses.dataclass(frozen=True, eq=False)
class Tie:
    """Entries of a parameter that are equal.

    Attributes:
        parameter: its name.
        axis: along which they lie.
        index: int64 [groups, members, channels]: members of a group are equal, channel by channel.
    """

    parameter: str
    axis: int
    index: Numbers


@dataclasses.dataclass(frozen=True, eq=False)
class Tied:
    """Weights with ties.

    Attributes:
        parameters: by name, those that were changed.
        ties: which entries stay equal.
    """

    parameters: Mapping[str, Numbers]
    ties: tuple[Tie, ...]


def tied_weights(parameters: Mapping[str, Numbers], merges: Sequence[Merge]) -> Tied:
    """Write merged heads into the parameters that they came from.

    Args:
        parameters: parameters of the module, by name.
        merges: the attentions whose heads share.

    Raises:
        Refused: a projection is not found among the parameters.
    """
    changed: dict[str, Numbers] = {}
    ties: list[Tie] = []
    for merge in merges:
        _Writing(parameters, merge, changed, ties).write()
    return Tied(changed, tuple(ties))


@dataclasses.dataclass(frozen=True)
class _Writing:
    """Writes the weights of one attention."""

    parameters: Mapping[str, Numbers]
    merge: Merge
    changed: dict[str, Numbers]
    ties: list[Tie]

    def write(self) -> None:
        site, weights = self.merge.site, self.merge.weights
        heads, size = site.attention.heads, site.attention.size
        order = np.array([head for group in self.merge.partition for head in group])
        back = np.argsort(order)

        def by_slot(affine: Affine) -> Affine:
            """Return heads in their original order, from the order of groups."""
            columns = affine.weights.reshape(-1, heads, size)[:, back]
            return Affine(columns.reshape(-1, heads * size), affine.bias.reshape(heads, size)[back].reshape(-1))

        def spread(affine: Affine) -> Affine:
            """Return a group's shared projection repeated for each of its heads."""
            groups, repeats = len(self.merge.partition), heads // len(self.merge.partition)
            columns = np.repeat(affine.weights.reshape(-1, groups, size), repeats, axis=1)
            biases = np.repeat(affine.bias.reshape(groups, size), repeats, axis=0)
            return by_slot(Affine(columns.reshape(-1, heads * size), biases.reshape(-1)))

        name = site.attention.name
        self._put(site.query, by_slot(weights.query), f"the queries of {name}")
        self._put(site.key, spread(weights.key), f"the keys of {name}", shared=True)
        self._put(site.value, spread(weights.value), f"the values of {name}", shared=True)
        rows = weights.output.weights.reshape(heads, size, -1)[back].reshape(heads * size, -1)
        places = channels_in(self.parameters, site.output.weights, f"the projection behind {name}")
        places.put(self._copy(places.parameter), rows.astype(np.float32))

    def _put(self, before: Affine, after: Affine, name: str, *, shared: bool = False) -> None:
        places = channels_in(self.parameters, before.weights.T, name)
        bias = bias_beside(self.parameters, places, before.bias)
        places.put(self._copy(places.parameter), after.weights.T.astype(np.float32))
        if bias is not None:
            self._copy(bias)[places.index] = after.bias.astype(np.float32)
        if shared:
            self.ties.append(Tie(places.parameter, places.axis, self._equal(places)))
            if bias is not None:
                self.ties.append(Tie(bias, 0, self._equal(places)))

    def _equal(self, places: Channels) -> Numbers:
        """Return the indices of each group's heads, [groups, heads of a group, channels]."""
        by_head = places.index.reshape(self.merge.site.attention.heads, -1)
        found: Numbers = np.stack([by_head[list(group)] for group in self.merge.partition])
        return found

    def _copy(self, name: str) -> Numbers:
        if name not in self.changed:
            self.changed[name] = np.array(self.parameters[name])
        return self.changed[name]
