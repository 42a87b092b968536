"""Finds, by comparing values, the rows or columns of module parameters that hold the channels of a projection.

An exporter renames, transposes and folds weights, so names identify little. But every channel of a projection is a row
or a column of some parameter, number by number. Nothing is taken for granted of how channels are ordered there:
queries, keys and values may lie in parameters of their own, one behind the other, or head by head.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from compiler.errors import Refused
from compiler.graph.stages import Array as Numbers
from compiler.rewriting.attention.shared_maps import Array

CLOSE = 1e-4
"""Largest difference, beside the largest entry, between a channel of the graph and of a parameter: both are float32."""


@dataclasses.dataclass(frozen=True, eq=False)
class Channels:
    """Positions of a projection's channels in a parameter of the module.

    Attributes:
        parameter: name of the parameter, which has two axes.
        axis: the parameter's axis of channels.
        index: the index of every channel along it, int64 [channels].
    """

    parameter: str
    axis: int
    index: Numbers

    def of(self, array: Numbers) -> Numbers:
        """Return the projection's channels from the parameter's content, [channels, ..]."""
        return np.moveaxis(array, self.axis, 0)[self.index]

    def put(self, array: Numbers, channels: Numbers) -> None:
        """Write the projection's channels into the parameter's content, in place."""
        np.moveaxis(array, self.axis, 0)[self.index] = channels


def channels_in(parameters: Mapping[str, Numbers], weights: Array, name: str) -> Channels:
    """Return the parameter that holds every channel of a projection.

    Args:
        parameters: parameters by name.
        weights: [channels, inside].
        name: name of the projection, for messages.

    Raises:
        Refused: no parameter does, or several do.
    """
    holders = []
    for parameter, array in parameters.items():
        for axis in (0, 1) if array.ndim == 2 else ():
            index = _matching(np.moveaxis(array, axis, 0), weights)
            if index is not None:
                holders.append(Channels(parameter, axis, index))
    if len(holders) != 1:
        got = ", ".join(holder.parameter for holder in holders) or "none"
        raise Refused(
            f"expected one parameter of the module with the weights of {name}, got {got}",
            cure="write the projection as a product with a parameter that nothing else holds, or leave share_heads out",
        )
    return holders[0]


def _matching(rows: Numbers, wanted: Array) -> Numbers | None:
    """Return the matching row for each wanted one, all different; None where one has none."""
    if rows.shape[1] != wanted.shape[1] or len(rows) < len(wanted):
        return None
    close = CLOSE * max(float(np.abs(wanted).max()), float(np.finfo(np.float32).tiny))
    # a sum over each row with weights of its own tells rows apart; only near sums are looked at entry by entry
    drawn = np.random.default_rng(0).uniform(-1.0, 1.0, rows.shape[1])
    sums, sums_wanted = rows.astype(np.float64) @ drawn, wanted @ drawn
    index: Numbers = np.abs(sums[None] - sums_wanted[:, None]).argmin(axis=1)
    if len(set(index.tolist())) != len(index) or not np.allclose(rows[index], wanted, rtol=0, atol=close):
        return None
    return index


def bias_beside(parameters: Mapping[str, Numbers], channels: Channels, bias: Array) -> str | None:
    """Return the parameter that holds the bias of some channels: of the same module, one number per channel.

    Args:
        parameters: parameters by name.
        channels: the weights' place in their parameter.
        bias: [channels].

    Returns:
        The parameter's name; None where there is none and the bias is 0.

    Raises:
        Refused: the bias is in no parameter, or in several.
    """
    owner = channels.parameter.rpartition(".")[0]
    count = parameters[channels.parameter].shape[channels.axis]
    near = CLOSE * max(float(np.abs(bias).max()), 1.0)
    biases = [
        name
        for name, array in parameters.items()
        if name.rpartition(".")[0] == owner
        and array.shape == (count,)
        and np.allclose(array[channels.index], bias, rtol=0, atol=near)
    ]
    if len(biases) == 1:
        return biases[0]
    if not biases and not np.any(np.abs(bias) > near):
        return None
    raise Refused(
        f"expected one parameter beside {channels.parameter} with its bias, got {', '.join(biases) or 'none'}",
        cure="write the projection with a bias of its own, or leave share_heads out",
    )
